/* A member is convicted: the store keeps it, and the member is gone. Part of the coordinator's
 * core. */
#ifndef ROOST_SERVER_COORDINATOR_EXPEL_H
#define ROOST_SERVER_COORDINATOR_EXPEL_H

#include "server/coordinator/run.h"

/* What it did at that step. `state`: MEMBER_WRONG_BITS or MEMBER_FALSE_COMPLETE. */
void expel_member(struct coordinator *coordinator, uint64_t now_ms, struct member *take_member,
                  enum member_state state, uint64_t step, const char *why);

#endif
