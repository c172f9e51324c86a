/* Generations: a run begins, or begins again from the newest recorded cut, on all of its servers
 * under a number that nobody has seen (P3, P10). Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_GENERATION_H
#define ROOST_SERVER_COORDINATOR_GENERATION_H

#include "server/coordinator/run.h"

/* The first server of the newest cut that the run waits for (settings.cut_servers); NULL: none. */
const char *generation_awaits(const struct coordinator *coordinator);
/* In PHASE_GATHER: begins a generation when its servers are there. */
void generation_gather(struct coordinator *coordinator, uint64_t now_ms);
/* It does not wait for servers, or has enough of them without that one. */
bool generation_can_begin_without(const struct coordinator *coordinator,
                                  const struct server_entry *server);
/* A server said hello: it goes on where it was, or has lost its memory. */
void generation_server_back(struct coordinator *coordinator, uint64_t now_ms,
                            struct server_entry *server);
/* The version is a cut of the present servers and map, to be recorded; each is given the number of
 * its file. ERR_NOMEM. */
enum err generation_order_cut(struct coordinator *coordinator, uint64_t version) MUST_USE;

#endif
