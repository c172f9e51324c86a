/* The coordinator's list of its members' and servers' streams. */
#include "server/control/connections.h"

#include <stdlib.h>
#include <string.h>

enum err connections_init(struct connections *connections)
{
    *connections = (struct connections){0};
    connections->members = calloc(COORDINATOR_MEMBERS_MAX, sizeof(struct connection *));
    connections->servers = calloc(WIRE_SERVERS_MAX, sizeof(struct connection *));
    if (connections->members == NULL || connections->servers == NULL)
        return ERR_NOMEM;
    return id_table_init(&connections->by_member, COORDINATOR_MEMBERS_MAX);
}

static void send_all_away(struct connections *connections, struct connection **list,
                          const size_t *count)
{
    while (*count > 0)
        connections_send_away(connections, list[0], ERR_UNREACHABLE, "the coordinator stops");
}

void connections_release(struct connections *connections)
{
    send_all_away(connections, connections->members, &connections->member_count);
    send_all_away(connections, connections->servers, &connections->server_count);
    id_table_release(&connections->by_member);
    free(connections->members);
    free(connections->servers);
    *connections = (struct connections){0};
}

enum err connections_add(struct connections *connections, struct connection *connection,
                         uint64_t id)
{
    bool is_server = connection->is_server;
    struct connection **list = is_server ? connections->servers : connections->members;
    size_t *count = is_server ? &connections->server_count : &connections->member_count;
    if (*count == (is_server ? WIRE_SERVERS_MAX : COORDINATOR_MEMBERS_MAX))
        return ERR_BUSY;
    check(!connection->listed); /* a stream is one member's, or one server's */
    connection->id = id;
    connection->listed = true;
    connection->place = *count;
    list[(*count)++] = connection_ref(connection);
    if (!is_server)
        id_table_add(&connections->by_member, id, connection);
    return ERR_OK;
}

void connections_remove(struct connections *connections, struct connection *connection)
{
    bool is_server = connection->is_server;
    struct connection **list = is_server ? connections->servers : connections->members;
    size_t *count = is_server ? &connections->server_count : &connections->member_count;
    if (!connection->listed)
        return;
    check(connection->place < *count && list[connection->place] == connection);
    list[connection->place] = list[--*count];
    list[connection->place]->place = connection->place;
    if (!is_server)
        id_table_take(&connections->by_member, connection->id);
    connection->listed = false;
    connection_unref(connection);
}

struct connection *connections_member(const struct connections *connections, uint64_t member)
{
    return id_table_find(&connections->by_member, member);
}

struct connection *connections_server(const struct connections *connections, uint64_t link)
{
    for (size_t i = 0; i < connections->server_count; i++)
        if (connections->servers[i]->id == link)
            return connections->servers[i];
    return NULL;
}

struct connection *connections_closed_server(const struct connections *connections)
{
    for (size_t i = 0; i < connections->server_count; i++)
        if (atomic_load(&connections->servers[i]->closed))
            return connections->servers[i];
    return NULL;
}

void connections_send_away(struct connections *connections, struct connection *connection,
                           enum err err, const char *why)
{
    rpc_stream_finish(connection->stream, err, why);
    connections_remove(connections, connection);
}

/* The end of a closed stream is under way; a full one gets the next notice. There may be none after
 * one of places, which is of the end of a lease perhaps: the member opens another stream then, and
 * hears of all its leases. */
static void send_notice(const struct connection *connection, const struct member_notice *notice)
{
    struct buf bytes = {0};
    enum err err = wire_encode_member_notice(notice, &bytes);
    if (err == ERR_OK)
        err = rpc_stream_send(connection->stream, RPC_URGENT, &bytes, NULL, 0);
    else
        buf_release(&bytes);
    if (err == ERR_BUSY && notice->kind == NOTICE_PLACES)
        rpc_stream_cancel(connection->stream);
}

void connections_notice_one(const struct connections *connections, uint64_t member,
                            const struct member_notice *notice)
{
    const struct connection *connection = connections_member(connections, member);
    if (connection != NULL)
        send_notice(connection, notice);
}

void connections_notice(const struct connections *connections, const struct member_notice *notice)
{
    for (size_t i = 0; i < connections->member_count; i++)
        send_notice(connections->members[i], notice);
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
