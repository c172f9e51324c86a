/* Which samples a ticket has: pure arithmetic over one endless stream of positions.
 *
 * Ticket n covers positions [n * k, (n + 1) * k), k samples a slot. The sample at position j is
 * place j mod N of the order of epoch j div N; an order is a keyed permutation, so nobody keeps it.
 * A ticket may straddle two epochs. */
#ifndef ROOST_COMMON_DATA_SAMPLER_H
#define ROOST_COMMON_DATA_SAMPLER_H

#include <stdint.h>

struct sampler {
    uint64_t seed;
    uint64_t sample_count; /* N, training samples */
    uint64_t slot_samples; /* k */
};

uint64_t sampler_sample(const struct sampler *sampler, uint64_t position); /* < sample_count */

#endif
