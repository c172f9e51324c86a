/* The one place where the run moves on: an event changes what is known, then everything happens
 * that can. Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_ADVANCE_H
#define ROOST_SERVER_COORDINATOR_ADVANCE_H

#include "server/coordinator/run.h"

/* Everything that can happen now. */
void advance_run(struct coordinator *coordinator, uint64_t now_ms);
/* What has waited long enough. *ret_due_ms: when something will have, next. */
void advance_tick(struct coordinator *coordinator, uint64_t now_ms, uint64_t *ret_due_ms);
/* The member is gone, `state` says how: its tickets are free at once. */
void advance_member_gone(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                         enum member_state state, const char *why);
/* The invariants of run.h. */
void advance_check(struct coordinator *coordinator);

#endif
