/* What a program costs on a model: device memory, wire bytes, times of units. */
#ifndef ROOST_WORKER_PLAN_H
#define ROOST_WORKER_PLAN_H

#include "common/model/model.h"
#include "kernels/kernels.h"
#include "worker/exchange_count.h"
#include "worker/program/simulate.h"

struct plan {
    const struct kernels *kernels; /* borrowed, like the two below */
    const struct model *model;     /* or a member's (common/model/pieces.h) */
    const struct spec_train *train;
};

enum { PLAN_FORWARD_TICKS = 720720 }; /* 1 … 16 divide it */

/* Of each unit for one microbatch; (units). */
void plan_sizes(const struct plan *plan, struct program_sizes *ret_sizes);

/* A place's forward takes PLAN_FORWARD_TICKS, shared by its runs and their units, its backward
 * twice that (I = W = 1). (units). ERR_NOMEM. */
enum err plan_uniform(const struct program *program, struct simulate_cost *ret_costs) MUST_USE;

/* Nanoseconds, measured here, what members exchange not among them: the fastest of a few. I and W are taken to be half of B each.
 * (units). ERR_NOMEM: the device has no room; ERR_IO: it failed. */
enum err plan_measure(const struct plan *plan, struct simulate_cost *ret_costs,
                      struct reason *reason) MUST_USE;

/* Bytes of a place, or of the member that has the plan's model: those of a place take the same memory. */
struct plan_bytes {
    uint64_t weights, gradients, activations, scratch; /* as an executor takes them */
    uint64_t device;                                   /* their sum */
    uint64_t hosted;                                   /* of the host's memory: offloaded, */
    uint64_t kept; /* sent, and of the sums what others may still ask for, until a lease is over */
    uint64_t host; /* both */
    uint64_t pulled, pushed; /* payloads: of a version; of the nodes that the program spans */
    struct exchange_counted exchanged; /* with the other members, for these nodes */
};

/* Of its sums what the other members of the place may still ask for when the rows were walked: of the
 * newest two (worker/outbox.h). */
uint64_t plan_sums_kept(const struct plan *plan, const struct program_place *place);

/* `result` is the program's. ERR_NOMEM. */
enum err plan_place(const struct plan *plan, const struct program *program,
                    const struct simulate_result *result, uint32_t place,
                    struct plan_bytes *ret_bytes) MUST_USE;

/* How a worker that has all units goes through nodes. */
struct plan_walks {
    uint32_t slots;     /* of the node that is planned, one after another */
    uint32_t slots_max; /* of the largest node, which it takes memory for */
};

/* Of the only place of a program of one slot, which is walked again for each slot of a node: what is
 * streamed is pulled again as well, and gradients wait in sets for their sums. `result` is the
 * program's. ERR_NOMEM. */
enum err plan_alone(const struct plan *plan, const struct program *program,
                    const struct simulate_result *result, struct plan_walks walks,
                    struct plan_bytes *ret_bytes) MUST_USE;

#endif
