/* Generations: a run begins, or begins again from the newest recorded cut, on all of its servers
 * under a number that nobody has seen (P3, P10). Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_GENERATION_H
#define ROOST_SERVER_COORDINATOR_GENERATION_H

#include "server/coordinator/run.h"

/* Which servers a restart waits for: in an async run exactly those of the newest cut, else as many
 * as the operator asked for, at most as many as the cut has: others have drained since. */
uint32_t generation_servers_min(const struct coordinator_run *settings,
                                const struct cut_record *cut);
/* The first server of the newest cut that is not connected, if the run waits for all of them;
 * NULL: it need not wait. */
const char *generation_awaits(const struct coordinator *coordinator);
/* PREPARE with its chunks, from the newest cut, for one of the run's servers. */
void generation_prepare_part(struct coordinator *coordinator, struct server_entry *server);
/* The same to one that has not answered. */
void generation_prepare_again(struct coordinator *coordinator, struct server_entry *server);
enum gathering {
    GATHER_WAITS,   /* for servers, or for the store's answer */
    GATHER_GOES_ON, /* where another coordinator left off: the caller opens the version */
    GATHER_BEGINS
};
/* In PHASE_GATHER: goes on to PHASE_STORE when the next generation's servers are there. ERR_NOMEM:
 * for the chunk map. */
enum err generation_gather(struct coordinator *coordinator, uint64_t now_ms,
                           enum gathering *ret_gathering) MUST_USE;
/* In PHASE_STORE: asks the store for the next generation, when its servers are there; again a while
 * after it had no room. */
void generation_ask(struct coordinator *coordinator, uint64_t now_ms);
/* The store's answer. OK: the generation begins. ERR_NOMEM: for the chunk map. */
enum err generation_stored(struct coordinator *coordinator, uint64_t now_ms, uint64_t generation,
                           enum err err) MUST_USE;
/* Whether the run does not wait for servers, or has enough of them without that one. */
bool generation_can_begin_without(const struct coordinator *coordinator,
                                  const struct server_entry *server);
/* async: to PHASE_STORE, for a generation on the wanted servers (servers.h) instead of the present
 * ones, from the newest cut. P12: that cut must have every ticket that was acknowledged. The
 * generation counts when its own first cut is recorded. Before that nothing is granted, and
 * generation_go_back() can undo it. Without memory for the new map nothing happens. */
void generation_change(struct coordinator *coordinator);
/* Not async: back to GATHER, to go on from the newest cut on the servers that are wanted, of which
 * some may have to come back first. ERR_NOMEM: nothing happened. */
enum err generation_without(struct coordinator *coordinator) MUST_USE;
/* Whether the generation has begun on other servers than its cut's, and its own first cut is
 * neither recorded nor being written down. */
bool generation_lacks_first_cut(const struct run *run);
/* Whether that is so and the cut's map is known (it is not known when another start recorded the
 * cut). */
bool generation_may_go_back(const struct coordinator *coordinator);
/* Back to the servers and the map of the newest cut, under yet another generation. */
void generation_go_back(struct coordinator *coordinator);
/* A generation that waits for files gives way to the next one, when it is time (struct unready). */
void generation_look_again(struct coordinator *coordinator, uint64_t now_ms);
/* The server's stream broke: nobody waits for it when it was to get its first chunks. */
void generation_server_lost(struct coordinator *coordinator, const struct server_entry *server);
/* In PHASE_FIRST_CUT: another attempt at the generation's first cut, for which there was no room.
 * Servers write it when they prepare, so unless it is recorded by its seed a generation follows.
 * ERR_NOMEM: for the cut's map. */
enum err generation_first_cut_again(struct coordinator *coordinator) MUST_USE;
/* Orders a cut of the version, on the present servers and map. Each server gets the number of its
 * file. ERR_NOMEM. */
enum err generation_order_cut(struct coordinator *coordinator, uint64_t version) MUST_USE;

#endif
