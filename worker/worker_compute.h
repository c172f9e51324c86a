/* The compute threads: in each lane one ticket at a time through its executor, and of all lanes one
 * act at a time (turn.h). For worker*.c only. */
#ifndef ROOST_WORKER_WORKER_COMPUTE_H
#define ROOST_WORKER_WORKER_COMPUTE_H

#include "worker/worker_core.h"

/* What main gives to a lane's thread. */
struct worker_task {
    struct ticket ticket;
    struct place place;
    uint64_t member; /* as whom it asks for samples */
    struct proof secret;
};

/* Main's calls: begin with this ticket, no unit of which is ready or pushed; this unit is ready;
 * its gradients are acknowledged; end early. */
void worker_compute_begin(struct worker *worker, uint32_t lane, const struct ticket *ticket,
                          const struct place *place);
void worker_compute_ready(struct worker *worker, uint32_t lane, uint32_t unit);
void worker_compute_acked(struct worker *worker, uint32_t lane, uint32_t unit);
/* The unit's gradient is final: adds what each member of the place has of it (worker/replicated.h).
 * Before anybody hears so. ERR_IO: the device has failed; the compute ends with that, too. */
enum err worker_compute_replicated(struct worker *worker, uint32_t lane, uint32_t unit,
                                   struct node node) MUST_USE;
void worker_compute_cancel(struct worker *worker, uint32_t lane);

/* The lane's thread waits for a value (peers_options): others may compute. */
void worker_compute_waits(void *worker, uint32_t lane);

/* A lane's life: init, open when the run is known, start, stop, release. */
void worker_lane_init(struct worker_lane *lane, struct worker *worker, uint32_t number);
enum err worker_lane_open(struct worker_lane *lane) MUST_USE;  /* ERR_NOMEM */
enum err worker_lane_start(struct worker_lane *lane) MUST_USE; /* ERR_BUSY: too many threads */
void worker_lane_stop(struct worker_lane *lane);
void worker_lane_release(struct worker_lane *lane);

#endif
