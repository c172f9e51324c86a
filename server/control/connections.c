/* The coordinator's list of its members' and servers' streams. */
#include "server/control/connections.h"

#include <stdlib.h>
#include <string.h>

enum err connections_init(struct connections *connections)
{
    connections->count = 0;
    connections->list = calloc(CONNECTIONS_MAX, sizeof(struct connection *));
    return connections->list == NULL ? ERR_NOMEM : ERR_OK;
}

void connections_release(struct connections *connections)
{
    while (connections->count > 0)
        connections_send_away(connections, connections->list[0], ERR_UNREACHABLE,
                              "the coordinator stops");
    free(connections->list);
    *connections = (struct connections){0};
}

enum err connections_add(struct connections *connections, struct connection *connection,
                         uint64_t id)
{
    if (connections->count == CONNECTIONS_MAX)
        return ERR_BUSY;
    connection->id = id;
    connection->listed = true;
    connections->list[connections->count++] = connection_ref(connection);
    return ERR_OK;
}

void connections_remove(struct connections *connections, struct connection *connection)
{
    for (size_t i = 0; i < connections->count; i++)
        if (connections->list[i] == connection) {
            connections->list[i] = connections->list[--connections->count];
            connection->listed = false;
            connection_unref(connection);
            return;
        }
}

static struct connection *find(const struct connections *connections, bool is_server, uint64_t id)
{
    for (size_t i = 0; i < connections->count; i++)
        if (connections->list[i]->is_server == is_server && connections->list[i]->id == id)
            return connections->list[i];
    return NULL;
}

struct connection *connections_member(const struct connections *connections, uint64_t member)
{
    return find(connections, false, member);
}

struct connection *connections_server(const struct connections *connections, uint64_t link)
{
    return find(connections, true, link);
}

void connections_send_away(struct connections *connections, struct connection *connection,
                           enum err err, const char *why)
{
    rpc_stream_finish(connection->stream, err, why);
    connections_remove(connections, connection);
}

static void send_notice(const struct connection *connection, const struct member_notice *notice)
{
    struct buf bytes = {0};
    enum err err = wire_encode_member_notice(notice, &bytes);
    if (err == ERR_OK)
        err = rpc_stream_send(connection->stream, RPC_URGENT, &bytes, NULL, 0);
    else
        buf_release(&bytes);
    ignore(err); /* a closed stream's end is under way to us; a full one hears the next */
}

void connections_notice(const struct connections *connections, const struct member_notice *notice)
{
    for (size_t i = 0; i < connections->count; i++)
        if (!connections->list[i]->is_server)
            send_notice(connections->list[i], notice);
}

void connections_command(const struct connection *server, const struct server_command *command)
{
    struct buf bytes = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    enum err err = wire_encode_server_command(command, &bytes);
    if (err == ERR_OK)
        err = rpc_stream_send(server->stream, RPC_NORMAL, &bytes, NULL, 0);
    else
        buf_release(&bytes);
    if (err != ERR_OK)
        rpc_stream_cancel(server->stream);
}
