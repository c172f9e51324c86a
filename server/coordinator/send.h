/* What the coordinator sends: commands to servers, answers and notices to members, the run's state
 * to the store. Each is an effect; nothing is decided here. Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_SEND_H
#define ROOST_SERVER_COORDINATOR_SEND_H

#include "server/coordinator/run.h"

/* A command to a connected server, the rest to be filled in. */
struct server_command *send_command(struct coordinator *coordinator,
                                    const struct server_entry *server,
                                    enum server_command_kind kind);
/* PREPARE with the fields that are the same for every server. The server counts as ready when it
 * reports READY. */
struct server_command *send_prepare(struct coordinator *coordinator,
                                    const struct server_entry *server);
/* The newest commit, with its moves of this server's chunks. */
void send_commit(struct coordinator *coordinator, const struct server_entry *server);

/* The answer to the member's acquire; `reply`: NULL with an error. */
void send_answer(struct coordinator *coordinator, struct member *member, enum err err,
                 const struct acquire_reply *reply);
/* The same answer to every member whose acquire waits. */
void send_answer_all(struct coordinator *coordinator, enum err err,
                     const struct acquire_reply *reply);
/* The ticket that the member holds. */
void send_ticket(struct coordinator *coordinator, struct member *member);
/* To the member (0: to all): the run is over. */
void send_over(struct coordinator *coordinator, uint64_t to);

/* The run's state, for the store. */
void send_state(struct coordinator *coordinator);

#endif
