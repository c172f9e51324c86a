/* Servers leave the run: one drains and may leave, or is lost and given up (P11). What moves away
 * from it is up to moves.h. Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_LEAVING_H
#define ROOST_SERVER_COORDINATOR_LEAVING_H

#include "server/coordinator/run.h"

/* ERR_BUSY: whose files the stored run needs is not known before it goes on. */
enum err leaving_may_be_asked(const struct coordinator *coordinator,
                              struct reason *reason) MUST_USE;
/* A server is to give its chunks away; `ends`: it asked for that itself. ERR_INVALID: nobody
 * could take them, or the run waits for servers and cannot begin without it; ERR_BUSY. */
enum err leaving_drain(struct coordinator *coordinator, struct server_entry *server, bool ends,
                       struct reason *reason) MUST_USE;
/* A server that is lost will not come back: its chunks begin anew on the others, from the newest
 * recorded cut, and so does the run. When it comes back all the same, it is invited to join.
 * ERR_INVALID: it is connected, or nobody could take its chunks; ERR_UNSUPPORTED: the run is async
 * (P12: the others' journals would change hands as they are written). */
enum err leaving_give_up(struct coordinator *coordinator, struct server_entry *server,
                         struct reason *reason) MUST_USE;
/* Whether the next commit must be a cut, because a server that leaves waits for a cut without
 * it. */
bool leaving_needs_cut(const struct coordinator *coordinator);
/* The newest cut is another than before: who has left and has a file of it may leave later. */
void leaving_keep(struct coordinator *coordinator);
/* Sends LEAVE to the servers that may leave now. */
void leaving_let_go(struct coordinator *coordinator);

#endif
