/* Members that have ended, as the coordinator reports them to servers: grants of such a member
 * count no more. A server that was away gets the report again. A member is forgotten when the steps
 * are decided of which tickets were granted while it was there: what it may still bring is then a
 * duplicate. In async a cut must have these steps too: a server that restarts from an older one
 * lacks them again. Where they are too many, those that left first are forgotten, and those that were expelled
 * last: servers forget the oldest, so each report ends with all that were expelled. Part of the
 * coordinator's core; ended.c alone writes struct ended. */
#ifndef ROOST_SERVER_COORDINATOR_ENDED_H
#define ROOST_SERVER_COORDINATOR_ENDED_H

#include "server/coordinator/run.h"

enum err ended_init(struct ended *ended) MUST_USE; /* ERR_NOMEM */
void ended_release(struct ended *ended);           /* {0} is fine */

/* The member is none any more. */
void ended_add(struct coordinator *coordinator, uint64_t member, bool expelled);
/* Tells all servers of those that were added since the last call: at the end of an event, so that a
 * crowd that leaves is one command for each server. */
void ended_tell(struct coordinator *coordinator);
/* Tells a server that is connected anew of all of them. */
void ended_tell_again(struct coordinator *coordinator, const struct server_entry *server);

#endif
