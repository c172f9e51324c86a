/* Servers come and go while the run goes on (P11): who may be given chunks, who is to give its
 * chunks away, and which of them move with the next commit. Internal to the coordinator.
 *
 * A server that connects while steps are committed is told to prepare without chunks (it *joins*);
 * when it is ready it has its even share with the next commits. One that drains gives its chunks
 * away with the next commits; then it is *emptied*: no commit needs it any more, only cuts that are
 * recorded already. So the next commit is a cut, and when that is recorded, without the server's
 * name, it may leave. A commit moves at most MOVES_BYTES_MAX, so that no step waits long. */
#ifndef ROOST_SERVER_COORDINATOR_MOVES_H
#define ROOST_SERVER_COORDINATOR_MOVES_H

#include "server/coordinator/run.h"

enum { MOVES_BYTES_MAX = 16 * 1024 * 1024 /* of weights; optimizer state comes on top */ };

void moves_release(struct moves *moves);

/* Servers that are there and have no chunks are told to join. */
void moves_invite(struct coordinator *coordinator);
/* One of them is ready, or cannot be. */
void moves_ready(struct coordinator *coordinator, struct server_entry *server,
                 const struct server_report *report);
/* Nothing moves any more: a rewind. */
void moves_forget(struct coordinator *coordinator);

/* Chunks are to move as soon as a commit may move them. */
bool moves_wanted(const struct coordinator *coordinator);
/* Everybody has carried out the last commit: what that moved has arrived. Who is emptied now makes
 * the next commit a cut. */
void moves_arrived(struct coordinator *coordinator);
/* Decides what moves with the commit that is about to be said; servers that get their first chunks
 * become the run's. */
void moves_plan(struct coordinator *coordinator);
/* The part of it that concerns `server`, for the command. */
void moves_say(const struct run *run, const struct server_entry *server,
               struct server_command *command);
/* The commit is said, and its cut ordered: the map is the new one. */
void moves_apply(struct coordinator *coordinator);
/* A step took so long, from commit to commit. */
void moves_count_step(struct run *run, uint64_t duration_ms);

/* A server is to give its chunks away. ERR_INVALID: nobody could take them, or the run waits for
 * servers and cannot begin without it. */
enum err moves_drain(struct coordinator *coordinator, uint64_t now_ms, struct server_entry *server,
                     uint64_t drain_boot, struct reason *reason) MUST_USE;
/* A cut is recorded, or the run is over: who may leave now is told so. */
void moves_let_go(struct coordinator *coordinator);
/* What a server is doing, for people. */
const char *moves_state(const struct coordinator *coordinator, const struct server_entry *server);

#endif
