/* The one place where the run moves on: an event changes what the coordinator knows, then
 * everything happens that can happen now. Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_ADVANCE_H
#define ROOST_SERVER_COORDINATOR_ADVANCE_H

#include "server/coordinator/run.h"

/* Does everything that can happen now. */
void advance_run(struct coordinator *coordinator, uint64_t now_ms);
/* Does what is due by time. *ret_due_ms: the next moment at which something is due. */
void advance_tick(struct coordinator *coordinator, uint64_t now_ms, uint64_t *ret_due_ms);
/* The member is gone, for the reason in `state`: its tickets are free at once. */
void advance_member_gone(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                         enum member_state state, const char *why);
/* The store's answer about the next generation. */
void advance_generation_stored(struct coordinator *coordinator, uint64_t now_ms,
                               uint64_t generation, enum err err);
/* The invariants of run.h. */
void advance_check(struct coordinator *coordinator);

#endif
