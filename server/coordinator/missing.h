/* Who calls tickets complete without having pushed them.
 *
 * A member completes a ticket when every server has acknowledged all of its pushes. While the
 * oldest step is not reduced and nothing is completed, the servers are asked now and then which
 * slots they lack. (Not only when all slots are complete: a server that waits for the lowest
 * missing slot may be too full for the others.) A server that counted a push keeps its sum until
 * the step is decided (P6), and one that lost its memory has a new boot, which gets the question no
 * more (P3) and begins a new generation. So who completed a slot before the question that a server
 * lacks after it has not pushed it. Such a slot is free again. The worker's first ticket of that
 * kind is logged; the second one expels it, also when it joined anew in between (suspects.h). Where
 * several members share a ticket, it is that of the place which pushes what is missing (said.h):
 * servers name a chunk for each slot. The others of the lease need not be done: servers may have no
 * room for their pushes before they have what is missing. What was completed under another
 * coordinator is nobody's.
 *
 * async (P12): a complete counts only while all the boots serve that it names, none of which
 * forgets what it acknowledged. A server that comes back with a new boot says which tickets it has
 * before it is asked: those that it lost are not done any more. It answers with the oldest step of
 * which it misses tickets, which may be older than the coordinator knows workers of: they are
 * granted again, and nobody is blamed. Part of the coordinator's core. */
#ifndef ROOST_SERVER_COORDINATOR_MISSING_H
#define ROOST_SERVER_COORDINATOR_MISSING_H

#include "server/coordinator/run.h"

/* `report` is a server's SERVER_MISSING. ERR_MALFORMED: it names a slot or a chunk that the run has
 * not. */
enum err missing_report(struct coordinator *coordinator, uint64_t now_ms,
                        const struct server_entry *server,
                        const struct server_report *report) MUST_USE;

#endif
