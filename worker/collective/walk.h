/* Does a collective with a carrier whose calls wait, and that knows bytes by name: what a rank gives
 * in a round, anybody may take, as in an outbox (worker/peers.h). The steps in their order; what keeps
 * time, names the collective and finds out whom to blame is the carrier. */
#ifndef ROOST_WORKER_COLLECTIVE_WALK_H
#define ROOST_WORKER_COLLECTIVE_WALK_H

#include "worker/collective/collective.h"

/* out (count) = left + right; `out` is one of them. All three are aligned as elements are. */
typedef void walk_add(void *context, void *out, const void *left, const void *right, size_t count);

struct walk_work {
    struct collective collective; /* checked */
    uint32_t element_bytes;
    void *array;
    void *output; /* of an all-to-all; else NULL */
    walk_add *add;
    void *context;
};

struct walk_carrier {
    /* This member's bytes of the round, once a round; they are copied. */
    enum err (*give)(void *context, uint32_t round, const void *bytes, size_t count);
    /* Waits for that rank's. */
    enum err (*take)(void *context, uint32_t rank, uint32_t round, void *ret_bytes, size_t count);
    void *context;
    /* The same, but they may stay where they came, until the next call: *ret_bytes is there, or
     * `scratch`. NULL: they are copied. */
    enum err (*lend)(void *context, uint32_t rank, uint32_t round, void *scratch, size_t count,
                     const void **ret_bytes);
    /* That rank's will be taken; before the first round, in the order in which they are. NULL: the
     * carrier has no use for it. */
    void (*expect)(void *context, uint32_t rank, uint32_t round, size_t count);
};

/* The memory that walk_collective() works in. */
size_t walk_bytes(const struct collective *collective, uint32_t rank, uint32_t element_bytes);
/* `memory` begins at a multiple of 64. The carrier's first error ends it. */
enum err walk_collective(const struct walk_work *work, uint32_t rank,
                         const struct walk_carrier *carrier, void *memory) MUST_USE;

#endif
