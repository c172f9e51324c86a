/* A coordinator that follows a dead one (P7): instead of a rewind it goes on in the generation that
 * the servers hold, from the newest decision that any of them has received. Internal to the
 * coordinator; server/member/holdings.h is the servers' side.
 *
 * It asks each server that holds the newest generation. The question carries the new term, which
 * the server adopts before it answers (P7), so the server carries out no other coordinator's
 * decision after its answer. An answer is void when its link breaks before all have answered. When
 * the servers that answered own every chunk once together, no answer is missing that a step needs.
 * The newest decision among the answers is the run's, with its counters (P8). No server is more
 * than one decision behind, and those that are one behind have the sums (P6). So the decision is
 * sent again to all, and they report again which steps are reduced. Tickets of the open steps are
 * granted again; a push that was counted before is a duplicate.
 *
 * Before that nothing is decided, and an operator's call waits: a drained server stays, because
 * nobody knows yet who owns the chunks; a stop goes on to the next commit and its cut, unless there
 * is nothing to go on with.
 *
 * Other orders of the dead coordinator are given up: cuts that it did not record (the next commit
 * brings one, under another name), a stop, drains. A server that owns no chunk is not asked twice,
 * because no step needs it. It forgets what it holds, and is invited to join.
 *
 * It rewinds when anything does not fit: a chunk that no server holds, or that two hold, because
 * only one of them received its move; decisions that are too far apart or differ; another spec;
 * steps that the log misses; the last version, when its cut would have the same servers in another
 * order; async, where a restart needs no common version (P12), and ssp, where only the dead
 * coordinator knew what a slot was computed on. It waits a lease for late servers, unless all
 * servers of the newest cut are connected. */
#ifndef ROOST_SERVER_COORDINATOR_SUCCESSION_H
#define ROOST_SERVER_COORDINATOR_SUCCESSION_H

#include "server/coordinator/run.h"

/* The run is to be continued from `past`; NULL: it is new. Without memory it is rewound. */
void succession_begin(struct coordinator *coordinator, uint64_t now_ms,
                      const struct coordinator_past *past);
void succession_release(struct succession *succession);
/* P7: nothing is decided yet. An operator's call waits until the run goes on or is rewound. */
bool succession_is_open(const struct run *run);
/* Takes in a server's answer. ERR_MALFORMED: it names chunks that the run does not have. */
enum err succession_answer(struct coordinator *coordinator, struct server_entry *server,
                           const struct server_held *held) MUST_USE;
/* The first server of the newest cut that is not connected; NULL: all are. */
const char *succession_missing(const struct coordinator *coordinator);
/* Servers of the newest cut are not connected yet, and there is time: what they hold is not lost
 * when the run is to stop. */
bool succession_may_hear(struct coordinator *coordinator, uint64_t now_ms);

/* P9: whether a server that still writes for an earlier attempt at the newest version's cut, by this
 * coordinator or one before it, would write the same file again. */
bool succession_files_stay(const struct coordinator *coordinator);
/* P9: the newest commit is to bring a cut that it has not brought, with an attempt above every other
 * that a coordinator before this one may have begun. */
void succession_cut_newest(struct coordinator *coordinator, uint64_t now_ms);

enum succession_outcome {
    SUCCESSION_WAITS,   /* for answers, or for servers that are late */
    SUCCESSION_GOES_ON, /* the caller opens the version that was reached */
    SUCCESSION_REWINDS  /* it cannot go on, or there was nobody to ask */
};
/* In PHASE_GATHER: asks the connected servers, and goes on where it can. ERR_NOMEM: for the chunk
 * map. */
enum err succession_try(struct coordinator *coordinator, uint64_t now_ms,
                        enum succession_outcome *ret_outcome) MUST_USE;

#endif
