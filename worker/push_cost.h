/* Whether a run's tickets take longer to push than to compute: then more workers do not make it
 * faster, and the user wants to know which setting helps. Pure; of the worker's main thread.
 *
 * A ticket is pushed from its first message to its last acknowledgement, beside the rest of its
 * backward pass: who has the wire for it is never pushing for longer than computing. The sums of
 * some tickets are compared, but for the first ones, which wait for connections and memory. */
#ifndef ROOST_WORKER_PUSH_COST_H
#define ROOST_WORKER_PUSH_COST_H

#include "common/settings/spec.h"

enum {
    PUSH_COST_TICKETS = 4,    /* compared together, at least; */
    PUSH_COST_MS = 1000,      /* so long did these take, at least; */
    PUSH_COST_BYTES = 1 << 20 /* so much did each of them push: with less it is not the bytes */
};

struct push_cost_sums {
    uint64_t tickets, slots, compute_ms, push_ms, bytes;
};

struct push_cost {
    struct push_cost_sums ticket; /* at hand; .tickets 0: none */
    uint64_t begun_ms;            /* pushing it; UINT64_MAX: not yet */
    struct push_cost_sums sums;   /* of the completed ones that are compared next */
    bool warm;                    /* the first ones are over */
    bool said;
};

/* The events of a ticket, in this order. A ticket that is not completed counts for nothing. */
void push_cost_begin(struct push_cost *cost, uint32_t slots);
void push_cost_push(struct push_cost *cost, uint64_t now_ms, uint64_t bytes);
/* `compute_ms`: without the time that it waited for weights. */
void push_cost_computed(struct push_cost *cost, uint64_t compute_ms);
/* True, once in a run: the last tickets took longer to push than to compute: *ret_sums. */
bool push_cost_completed(struct push_cost *cost, uint64_t now_ms, struct push_cost_sums *ret_sums);

/* Which settings let the run compute more for each push. Borrowed for good. */
const char *push_cost_advice(const struct spec *spec);

#endif
