/* What the acts of a ticket cost, for the summary of a run: nothing is decided by it. With
 * `act_ms` of the configuration acts also take longer, to measure schedules on few cores.
 *
 * A ticket's cost goes with its Complete. One whose lease is over before has none: its cost goes
 * with the next of that place and kind, or with Leave, if it was of training. Another lane's ticket
 * of the other kind may be done while this one's is still under way: it takes only its own. Of
 * tickets that overlap in several lanes the time is counted once. For worker*.c only; of a lane's
 * thread that has the turn where nothing else is said. */
#ifndef ROOST_WORKER_WORKER_METER_H
#define ROOST_WORKER_WORKER_METER_H

#include "worker/worker_core.h"

/* The lane's ticket begins. */
void worker_meter_begin(struct worker_lane *lane);
void worker_meter_end(struct worker_lane *lane);
/* Sets the hooks of rows; their context is the lane. */
void worker_meter_hooks(struct executor_hooks *hooks);
/* The ticket was computed. On a GPU, which does the work later than it is given, without times. */
struct place_cost worker_meter_cost(struct worker_lane *lane);

/* ---- main ---- */

/* Adds what a ticket of that kind at that place cost to what is still to be told. */
void worker_meter_add(struct worker *worker, enum ticket_kind kind, const struct place *place,
                      const struct place_cost *cost);
/* What is to be told of that place and kind; from now on it is told. */
struct place_cost worker_meter_take(struct worker *worker, enum ticket_kind kind,
                                    const struct place *place);

#endif
