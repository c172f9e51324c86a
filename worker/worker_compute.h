/* The compute thread: one ticket at a time through the executor. For worker*.c only. */
#ifndef ROOST_WORKER_WORKER_COMPUTE_H
#define ROOST_WORKER_WORKER_COMPUTE_H

#include "worker/worker_core.h"

/* What main gives to the thread. */
struct worker_task {
    struct ticket ticket;
    struct place place;
};

/* The thread, until `tickets` is closed. */
void worker_compute_main(void *worker);

/* Main's calls: begin with this ticket, no unit of which is ready or pushed; this unit is ready; its
 * gradients are acknowledged; end early. */
void worker_compute_begin(struct worker *worker, const struct worker_task *task);
void worker_compute_ready(struct worker *worker, uint32_t unit);
void worker_compute_acked(struct worker *worker, uint32_t unit);
void worker_compute_cancel(struct worker *worker);

#endif
