/* What a slot of consistency `local` does between pull and push: steps of its own optimizer on its
 * own copy of the weights (executor.h tells the numbers). Internal to the executor. */
#ifndef ROOST_WORKER_LOCAL_H
#define ROOST_WORKER_LOCAL_H

#include "worker/executor_memory.h"

/* How much device memory, once that of the weights is known; then tables on the host. Without local
 * steps nothing. */
void local_size(struct executor *e);
enum err local_alloc(struct executor *e) MUST_USE;
void local_fill_tables(struct executor *e);
void local_release(struct executor *e); /* also when the above were not called */

/* The slot's weights are the pulled ones, its optimizer state is new. */
void local_begin(struct executor *e);
/* One update with the gradients in `set`, which change: local step `local` of a slot of `step`. */
void local_step(struct executor *e, uint32_t set, uint64_t step, uint32_t local);
/* Into `set`: pulled minus reached weights. */
void local_end(struct executor *e, uint32_t set);

#endif
