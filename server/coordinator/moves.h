/* Servers come and go while the run goes on (P11): which servers may get chunks, and which chunks
 * move with the next commit; leaving.h is about servers that go. Internal to the coordinator.
 *
 * A server that connects while steps are committed gets PREPARE without chunks (it *joins*). When
 * it is ready, it gets its even share with the next commits. One that drains gives its chunks away
 * with the next commits; then it is *emptied*: no commit needs it any more, only cuts that were
 * ordered before. So the next commit is a cut without it, and when no cut that is recorded or
 * pending names it, it may leave. A commit moves at most MOVES_BYTES_MAX, so that no step waits
 * long.
 *
 * In an async run chunks do not travel: steps overlap, and what a chunk has taken, the weights that
 * tickets were computed on and the journals are its owner's. There the run goes on with other
 * servers under a new generation, which begins from a cut that has every acknowledged ticket (P12):
 *  1 quiet: while servers are to come or go, no ticket of a new step is granted. So a commit comes
 *    soon by which all chunks have all tickets that were ever granted in this generation. That
 *    commit is a cut, and until the cut is recorded no ticket at all is granted. A push that comes
 *    now, however late, is of a ticket that was taken: so nothing is acknowledged that the cut does
 *    not have, and the journals have nothing beyond the cut. Otherwise an old owner could
 *    acknowledge a push after the new owner had read its journal.
 *  2 change: a generation (P10) begins on the servers that stay and those that are ready, with an
 *    even map. Its servers write a cut of what they begin with at once, and nothing is granted
 *    before that cut is recorded. So the newest cut always names the servers that may acknowledge
 *    pushes, and none that has left. A successor waits for them and begins on them (generation.c).
 *  3 back: when a newcomer vanishes before, or somebody cannot read the others' files or write its
 *    own, the run goes back to the servers and the map of the newest cut; nothing was lost, because
 *    nothing was granted. When it is one of the old ones that cannot, chunks stay where they are
 *    for the rest of the coordinator's term, and drains are refused with its reason.
 * Whatever happens meanwhile to the cut of 1 (a full disk, a server that lost its memory), a step
 * more is granted, and the next commit is tried. */
#ifndef ROOST_SERVER_COORDINATOR_MOVES_H
#define ROOST_SERVER_COORDINATOR_MOVES_H

#include "server/coordinator/run.h"

enum { MOVES_BYTES_MAX = 16 * 1024 * 1024 /* of weights; optimizer state comes on top */ };

void moves_release(struct moves *moves);

/* Whether the server can get chunks, now or when it is ready. */
bool moves_is_fit(const struct server_entry *server);
bool moves_owns_chunks(const struct run *run, const struct server_entry *server);
/* Marks those that are to have the chunks, beside `lost` (NULL: nobody is): who stays, lost ones
 * that are awaited included, and who can come (async: is ready to). Returns how many. */
uint32_t moves_want_servers(struct coordinator *coordinator, const struct server_entry *lost);
/* Sends connected servers without chunks the command to join. */
void moves_invite(struct coordinator *coordinator);
/* Repeats the invitation of a server that has not answered it. */
void moves_invite_again(struct coordinator *coordinator, struct server_entry *server);
/* A server that joins is ready, or cannot be. */
void moves_ready(struct coordinator *coordinator, struct server_entry *server,
                 const struct server_report *report);
/* The map may not be as even as it can be. */
void moves_note_uneven(struct moves *moves);
/* Nothing moves any more: a rewind. */
void moves_forget(struct coordinator *coordinator);

/* Chunks are to move as soon as a commit may move them. */
bool moves_wanted(const struct coordinator *coordinator);
/* Every server has carried out the last commit (P6): the chunks that it moved have arrived. */
void moves_arrived(struct coordinator *coordinator);
/* Decides which chunks move with the commit that is being decided. Servers that get their first
 * chunks become the run's. */
void moves_plan(struct coordinator *coordinator);
/* The commit is sent and its cut ordered: from now on the new map counts. */
void moves_apply(struct coordinator *coordinator);
/* A server that drained has left. */
void moves_count_drained(struct moves *moves);
/* Takes note of a step's duration, from commit to commit. */
void moves_count_step(struct run *run, uint64_t duration_ms);

/* ---- async ---- */

/* Finds the newest step whose tickets may be granted (UINT64_MAX: any). True: it has changed. */
bool moves_limit(struct coordinator *coordinator);
/* P12: whether the commit that is being decided must be a cut of all that was granted. */
bool moves_need_cut(struct coordinator *coordinator);
/* Limits which tickets are granted, or lifts the limit, when servers come and go. True: the run is
 * quiet, and its servers can change. */
bool moves_change_is_due(struct coordinator *coordinator);
/* That server cannot begin the new generation; the reason is that of its READY. */
void moves_not_taken(struct coordinator *coordinator, struct server_entry *server,
                     const struct server_report *ready);
/* Counts what changes when the run goes on with other servers and an even map. */
void moves_plan_change(struct moves *moves, const struct move_status *changes);
/* A generation begins; `changes`: on other servers than its cut's. */
void moves_begin(struct moves *moves, bool changes);
/* The generation is to begin on the cut's servers after all. */
void moves_undo_change(struct moves *moves);
/* The new generation's first cut is recorded: the change is final. */
void moves_changed(struct coordinator *coordinator);

/* What a server is doing, for people. */
const char *moves_state(const struct coordinator *coordinator, const struct server_entry *server);

#endif
