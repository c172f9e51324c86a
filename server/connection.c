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
    connection->inbox = inbox;
    connection->stream = rpc_stream_ref(stream);
    connection->is_server = is_server;
    memcpy(connection->address, peer->address, sizeof connection->address);
    return connection;
}

struct connection *connection_ref(struct connection *connection)
{
    atomic_fetch_add(&connection->references, 1);
    return connection;
}

void connection_unref(struct connection *connection)
{
    if (connection == NULL || atomic_fetch_sub(&connection->references, 1) != 1)
        return;
    rpc_stream_unref(connection->stream);
    free(connection);
}
