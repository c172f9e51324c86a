/* Servers come and go while the run goes on (P11): who may be given chunks, and which of
 * them move with the next commit; leaving.h is about who goes. Internal to the coordinator.
 *
 * A server that connects while steps are committed is told to prepare without chunks (it *joins*);
 * when it is ready it has its even share with the next commits. One that drains gives its chunks
 * away with the next commits; then it is *emptied*: no commit needs it any more, only cuts that
 * were ordered before. So the next commit is a cut without it, and when no cut that is recorded or
 * pending names it, it may leave. A commit moves at most MOVES_BYTES_MAX, so that no step waits
 * long.
 *
 * In an async run chunks do not travel: steps overlap, and what a chunk has taken, the weights that
 * tickets were computed on and the journals are its owner's. There the run goes on with other
 * servers under a new generation, which begins from a cut that has all that anybody was told is
 * there (P12):
 *  1 quiet: while servers are to come or go, no ticket of a step is granted that none was granted
 *    of before. So soon a commit comes by which all chunks have all tickets that were ever granted
 *    in this generation; that commit is a cut, and until it is recorded nothing at all is granted. Whoever
 *    pushes now, however late, pushes what is taken already: nobody can be told that something is
 *    there which the cut does not have, and the journals have nothing beyond it. Without that, an
 *    old owner could acknowledge a push after the new one had read its journal.
 *  2 change: a generation (P10) on those who stay and those who are ready, with an even map. Its
 *    servers at once write a cut of what they begin with; nothing is granted before that is
 *    recorded. So the newest cut always names those who may be acknowledging, whom a successor
 *    waits for and begins on (generation.c), and nobody who has left.
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

/* The server can be given chunks, now or when it is ready. */
bool moves_is_fit(const struct server_entry *server);
bool moves_owns_chunks(const struct run *run, const struct server_entry *server);
/* Marks those that are to have the chunks, beside `lost` (NULL: nobody is): who stays, lost ones
 * that are awaited included, and who can come (async: is ready to). Returns how many. */
uint32_t moves_want_servers(struct coordinator *coordinator, const struct server_entry *lost);
/* Servers that are there and have no chunks are told to join. */
void moves_invite(struct coordinator *coordinator);
/* One of them is ready, or cannot be. */
void moves_ready(struct coordinator *coordinator, struct server_entry *server,
                 const struct server_report *report);
/* The map may not be as even as can be. */
void moves_note_uneven(struct moves *moves);
/* Nothing moves any more: a rewind. */
void moves_forget(struct coordinator *coordinator);

/* Chunks are to move as soon as a commit may move them. */
bool moves_wanted(const struct coordinator *coordinator);
/* Everybody has carried out the last commit: what that moved has arrived. */
void moves_arrived(struct coordinator *coordinator);
/* Decides what moves with the commit that is about to be said; servers that get their first chunks
 * become the run's. */
void moves_plan(struct coordinator *coordinator);
/* The commit is said, and its cut ordered: the map is the new one. */
void moves_apply(struct coordinator *coordinator);
/* One that drained has left. */
void moves_count_drained(struct moves *moves);
/* A step took so long, from commit to commit. */
void moves_count_step(struct run *run, uint64_t duration_ms);

/* ---- async ---- */

/* Finds the newest step of which tickets may be granted (UINT64_MAX: any). True: it is another one
 * than before. */
bool moves_limit(struct coordinator *coordinator);
/* The commit that is being decided is to be a cut: nothing granted is behind it. */
bool moves_need_cut(struct coordinator *coordinator);
/* Grants less, or more again, as servers come and go. True: the run is quiet, its servers can
 * change.
 */
bool moves_change_is_due(struct coordinator *coordinator);
/* That server cannot begin the new generation: its READY says why. */
void moves_not_taken(struct coordinator *coordinator, struct server_entry *server,
                     const struct server_report *ready);
/* The run is to go on with other servers and an even map: what that changes. */
void moves_plan_change(struct moves *moves, const struct move_status *changes);
/* A generation begins; `changes`: with other servers than its cut's. */
void moves_begin(struct moves *moves, bool changes);
/* It is to begin with those of the cut after all. */
void moves_undo_change(struct moves *moves);
/* The new generation's first cut is recorded: it is there to stay. */
void moves_changed(struct coordinator *coordinator);

/* What a server is doing, for people. */
const char *moves_state(const struct coordinator *coordinator, const struct server_entry *server);

#endif
