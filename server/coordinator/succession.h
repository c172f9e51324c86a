/* A coordinator that follows a dead one (P7): instead of a rewind it goes on in the generation that
 * the servers hold, from the newest decision that any of them was told of. Internal to the
 * coordinator; server/member/holdings.h is the servers' side.
 *
 * It asks each server that holds the newest generation. With the question the server takes the new
 * term, so nobody else's decisions are carried out behind its answer; a link that breaks before
 * all have answered voids the answer. When together they own every chunk once, all have been heard
 * that a step needs: the newest decision among them is the run's, with its counters (P8). No server
 * is more than one behind it, and those that are have the sums (P6): it is repeated to all, and
 * they report again what is reduced. Tickets of the open steps are granted anew; what is counted
 * already is a duplicate.
 *
 * Before that nothing is decided, and an operator's call waits: a drained server stays, since whose
 * the chunks are is not known; a stop goes on to the next commit and its cut, unless there is
 * nothing to go on with.
 *
 * What the dead one had ordered beyond that is given up: cuts that it did not record (the next
 * commit brings one, under another name), a stop, drains. Who owns no chunk is not asked twice: no
 * step needs it. It forgets what it holds, and is invited.
 *
 * It rewinds when anything does not fit: chunks that nobody holds, or two, because only one heard
 * of a move; decisions that are too far apart or differ; another spec; steps that the log misses;
 * the last version, whose cut nobody else can order; async, where a restart needs no common
 * version (P12), and ssp, where only the dead one knew what a slot was computed on. For servers
 * that are late it waits a lease, unless all that the newest cut names are there. */
#ifndef ROOST_SERVER_COORDINATOR_SUCCESSION_H
#define ROOST_SERVER_COORDINATOR_SUCCESSION_H

#include "server/coordinator/run.h"

/* The run is to be continued from `past`; NULL: it is new. Without memory it is rewound. */
void succession_begin(struct coordinator *coordinator, uint64_t now_ms,
                      const struct coordinator_past *past);
void succession_release(struct succession *succession);
/* P7: nothing is decided yet. An operator's call waits until the run goes on or is rewound. */
bool succession_is_open(const struct run *run);
/* A server's answer. ERR_MALFORMED: it names chunks that the run does not have. */
enum err succession_answer(struct coordinator *coordinator, struct server_entry *server,
                           const struct server_held *held) MUST_USE;
/* The first server of the newest cut that is not connected; NULL: all are. */
const char *succession_missing(const struct coordinator *coordinator);

enum succession_outcome {
    SUCCESSION_WAITS,   /* for answers, or for servers that are late */
    SUCCESSION_GOES_ON, /* the version that was reached is to be opened */
    SUCCESSION_REWINDS  /* it cannot go on, or nobody was to be asked */
};
/* In PHASE_GATHER: asks who is there; goes on where it can. ERR_NOMEM: for the chunk map. */
enum err succession_try(struct coordinator *coordinator, uint64_t now_ms,
                        enum succession_outcome *ret_outcome) MUST_USE;

#endif
