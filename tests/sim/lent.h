/* What a shard hands to the writer of a cut stays as it is until it is written. Invariant 16. */
#ifndef ROOST_TESTS_SIM_LENT_H
#define ROOST_TESTS_SIM_LENT_H

#include <stddef.h>
#include <stdint.h>

struct shard_effect;
struct sim;

enum { LENT_BLOCKS_MAX = 64 };

/* The newest blocks that were handed out and not written yet. */
struct lent {
    struct lent_block {
        const void *weights, *rest; /* NULL: no block */
        size_t weights_bytes, rest_bytes;
        uint64_t digest;
    } blocks[LENT_BLOCKS_MAX];
    uint32_t next;
};

void lent_handed(struct sim *sim, const struct shard_effect *snapshot);

#endif
