/* The stream of a member or of a server at the coordinator. */
#include "server/connection.h"

#include <stdlib.h>
#include <string.h>

struct connection *connection_new(struct inbox *inbox, struct rpc_stream *stream,
                                  const struct rpc_peer *peer, bool is_server)
{
    struct connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        return NULL;
    atomic_init(&connection->references, 1);
    atomic_init(&connection->closed, false);
    connection->inbox = inbox;
    connection->stream = rpc_stream_ref(stream);
    connection->is_server = is_server;
    connection->certificate_ends_s = peer->ends_s;
    memcpy(connection->address, peer->address, sizeof connection->address);
    return connection;
}

struct connection *connection_ref(struct connection *connection)
{
    unsigned before = atomic_fetch_add(&connection->references, 1);
    check(before > 0); /* who hands it out has one */
    return connection;
}

void connection_unref(struct connection *connection)
{
    if (connection == NULL)
        return;
    unsigned before = atomic_fetch_sub(&connection->references, 1);
    check(before > 0);
    if (before != 1)
        return;
    check(!connection->listed); /* the list has a reference */
    rpc_stream_unref(connection->stream);
    free(connection);
}
