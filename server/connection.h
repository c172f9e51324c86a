/* The stream of a member or of a server at the coordinator. The transport's threads make it and
 * post its messages; the main thread lists it (control/connections.h) from its first message, which
 * names the member or the server, until the stream is closed or ended.
 *
 * Counted: the transport's events hold one reference until the stream is closed, each event in the
 * inbox one, the list one. */
#ifndef ROOST_SERVER_CONNECTION_H
#define ROOST_SERVER_CONNECTION_H

#include "common/inbox.h"
#include "common/rpc/rpc.h"

struct connection {
    atomic_uint references;
    struct inbox *inbox;
    struct rpc_stream *stream;
    bool is_server;
    atomic_bool closed; /* and the inbox had no room for the event */
    char address[64];
    int64_t certificate_ends_s; /* 0: none */
    /* The main thread's: */
    bool listed;
    size_t place; /* listed: in its list */
    uint64_t id;  /* the member, or the server's link; 0: not known yet */
};

/* Any thread. NULL: no memory. */
struct connection *connection_new(struct inbox *inbox, struct rpc_stream *stream,
                                  const struct rpc_peer *peer, bool is_server) MUST_USE;
struct connection *connection_ref(struct connection *connection);
void connection_unref(struct connection *connection); /* NULL is fine */

#endif
