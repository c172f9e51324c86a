/* A run that stands still: its servers and some workers are there, and nothing is committed for
 * long. The coordinator says whom it waits for, as far as it knows: as the reason in its status,
 * which `roost status` and the progress line show, and in the log, at once and then each minute.
 *
 * Long is three leases (half a minute by default), and at least four times what the step before
 * took. How long a first step takes is not known: ten leases. Looks at each tick; there is one
 * within each lease, as long as there is a member. Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_STANDSTILL_H
#define ROOST_SERVER_COORDINATOR_STANDSTILL_H

#include "server/coordinator/run.h"

/* At each tick. */
void standstill_look(struct coordinator *coordinator, uint64_t now_ms);
/* What the newest look found; "": the run moves. */
const char *standstill_reason(const struct run *run);

#endif
