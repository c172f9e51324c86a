/* See sampler.h. */
#include "common/data/sampler.h"

#include "common/rand.h"

uint64_t sampler_sample(const struct sampler *sampler, uint64_t position)
{
    uint64_t epoch = position / sampler->sample_count;
    struct rand_key order = rand_key(sampler->seed, RAND_ORDER, epoch);
    return rand_permute(order, sampler->sample_count, position % sampler->sample_count);
}
