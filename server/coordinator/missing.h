/* Who calls tickets complete without having pushed them.
 *
 * A member completes a ticket when every server has acknowledged all of its pushes. While the
 * oldest step is not reduced and nothing is completed, the servers are asked now and then which
 * slots they lack. (Not only when all slots are complete: a server that waits for the lowest
 * missing slot may be too full for the others.) A server that counted a push keeps its sum until
 * the step is decided (P6), and one that lost its memory has a new boot, which gets the question no
 * more (P3) and begins a new generation. So who completed a slot before the question that a server
 * lacks after it has not pushed it. Such a slot is free again. The member's first ticket of that
 * kind is logged; the second one expels it.
 *
 * Not for async runs, where a server that comes back goes on without what it had not logged (P12);
 * nor for what was completed under another coordinator. Part of the coordinator's core. */
#ifndef ROOST_SERVER_COORDINATOR_MISSING_H
#define ROOST_SERVER_COORDINATOR_MISSING_H

#include "server/coordinator/run.h"

/* `report` is a server's SERVER_MISSING. */
void missing_report(struct coordinator *coordinator, uint64_t now_ms,
                    const struct server_entry *server, const struct server_report *report);

#endif
