/* The streams at the coordinator: members' and servers'. A guest is listed from its first word,
 * which says who it is, until it is closed or sent away. */
#ifndef ROOST_SERVER_GUESTS_H
#define ROOST_SERVER_GUESTS_H

#include "common/inbox.h"
#include "common/rpc.h"
#include "server/coordinator/coordinator.h"

enum { GUESTS_MAX = COORDINATOR_MEMBERS_MAX + WIRE_SERVERS_MAX };

/* One stream. Counted: the transport's events hold one reference until the stream is closed, each
 * event in the inbox one, the list one. */
struct guest {
    atomic_uint references;
    struct inbox *inbox;
    struct rpc_stream *stream;
    bool is_server;
    char address[64];
    /* The main thread's: */
    bool listed;
    uint64_t id; /* the member, or the server's link; 0: not said yet */
};

/* Any thread. NULL: no memory. */
struct guest *guests_new(struct inbox *inbox, struct rpc_stream *stream,
                         const struct rpc_peer *peer, bool is_server) MUST_USE;
struct guest *guests_ref(struct guest *guest);
void guests_unref(struct guest *guest); /* NULL is fine */

/* The list. Main thread. */
struct guests {
    size_t count;
    struct guest **list;
};

enum err guests_init(struct guests *guests) MUST_USE; /* ERR_NOMEM */
void guests_release(struct guests *guests);           /* streams are ended */

/* Takes a reference. ERR_BUSY: GUESTS_MAX are listed. */
enum err guests_add(struct guests *guests, struct guest *guest, uint64_t id) MUST_USE;
/* Drops it; one that is not listed is passed over. */
void guests_remove(struct guests *guests, struct guest *guest);
struct guest *guests_member(const struct guests *guests, uint64_t member); /* NULL: not there */
struct guest *guests_server(const struct guests *guests, uint64_t link);
/* Ends the stream for that reason, and forgets the guest. */
void guests_send_away(struct guests *guests, struct guest *guest, enum err err, const char *why);

/* To all members. One that can't be reached hears the next, or is on its way out. */
void guests_notice(const struct guests *guests, const struct member_notice *notice);
/* A command must not be lost: when it can't be sent the stream is ended, and all that counts is
 * said again over the next. */
void guests_command(const struct guest *server, const struct server_command *command);

#endif
