/* How a run ends: it has made all steps, fails, is stopped by an operator, or is paused for a
 * successor. A stop finishes the step in flight with a cut, or drops it when that takes too long, and
 * cuts the version before it. Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_ENDING_H
#define ROOST_SERVER_COORDINATOR_ENDING_H

#include "server/coordinator/run.h"

/* From now on the run is to end. A pause takes the place of a stop; a stop changes nothing when
 * there is one already. */
void ending_begin(struct coordinator *coordinator, uint64_t now_ms, enum ending_kind kind,
                  const char *why);
/* An operator asks for a stop. It is stored, so that a successor does not forget it. */
void ending_stop(struct coordinator *coordinator, uint64_t now_ms, const char *why);
/* An earlier coordinator was asked for a stop. */
void ending_inherit(struct coordinator *coordinator, uint64_t now_ms, const char *why);
/* Whether the run is to end, and need not wait for servers. In PHASE_GATHER. */
bool ending_is_due_in_gather(const struct run *run);
/* Ends the run if it can end now. */
void ending_try(struct coordinator *coordinator);
/* The time for the step in flight is over: it is dropped, and the newest version is cut as it is, by its
 * commit, sent once more; where that cut is ordered already it gets as much time. False: there is no
 * such commit, or that time is over as well. */
bool ending_cut_newest(struct coordinator *coordinator, uint64_t now_ms);
/* Whether the last cut waits for room on a disk, as long as that takes. */
bool ending_waits_for_room(const struct run *run);
/* The run is stopped as it stands. */
void ending_now(struct coordinator *coordinator);
/* The run is over, for this reason. */
void ending_over(struct coordinator *coordinator, enum run_state state, const char *reason);
/* The store has the run's state. Only now workers hear that the run is over, and servers may leave:
 * by the store it would go on, and need them. */
void ending_stored(struct coordinator *coordinator);

#endif
