/* The phases of a run (run.h) and its state for the operator, and which one may follow which.
 * Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_PHASE_H
#define ROOST_SERVER_COORDINATOR_PHASE_H

#include "server/coordinator/run.h"

/* The run is in that phase from now on. It must be one that may follow the present one. */
void phase_enter(struct run *run, enum phase phase);
/* The same for its state. */
void phase_enter_state(struct run *run, enum run_state state);

#endif
