/* See tickets.h. */
#include "common/data/tickets.h"

#include "common/rand.h"

uint64_t tickets_sample(const struct tickets *tickets, uint64_t position)
{
    uint64_t epoch = position / tickets->sample_count;
    struct rand_key order = rand_key(tickets->seed, RAND_ORDER, epoch);
    return rand_permute(order, tickets->sample_count, position % tickets->sample_count);
}
