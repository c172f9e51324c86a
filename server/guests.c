/* The streams at the coordinator. */
#include "server/guests.h"

#include <stdlib.h>
#include <string.h>

struct guest *guests_new(struct inbox *inbox, struct rpc_stream *stream,
                         const struct rpc_peer *peer, bool is_server)
{
    struct guest *guest = calloc(1, sizeof *guest);
    if (guest == NULL)
        return NULL;
    atomic_init(&guest->references, 1);
    guest->inbox = inbox;
    guest->stream = rpc_stream_ref(stream);
    guest->is_server = is_server;
    memcpy(guest->address, peer->address, sizeof guest->address);
    return guest;
}

struct guest *guests_ref(struct guest *guest)
{
    atomic_fetch_add(&guest->references, 1);
    return guest;
}

void guests_unref(struct guest *guest)
{
    if (guest == NULL || atomic_fetch_sub(&guest->references, 1) != 1)
        return;
    rpc_stream_unref(guest->stream);
    free(guest);
}

enum err guests_init(struct guests *guests)
{
    guests->count = 0;
    guests->list = calloc(GUESTS_MAX, sizeof(struct guest *));
    return guests->list == NULL ? ERR_NOMEM : ERR_OK;
}

void guests_release(struct guests *guests)
{
    while (guests->count > 0)
        guests_send_away(guests, guests->list[0], ERR_UNREACHABLE, "the coordinator stops");
    free(guests->list);
    *guests = (struct guests){0};
}

enum err guests_add(struct guests *guests, struct guest *guest, uint64_t id)
{
    if (guests->count == GUESTS_MAX)
        return ERR_BUSY;
    guest->id = id;
    guest->listed = true;
    guests->list[guests->count++] = guests_ref(guest);
    return ERR_OK;
}

void guests_remove(struct guests *guests, struct guest *guest)
{
    for (size_t i = 0; i < guests->count; i++)
        if (guests->list[i] == guest) {
            guests->list[i] = guests->list[--guests->count];
            guest->listed = false;
            guests_unref(guest);
            return;
        }
}

static struct guest *find(const struct guests *guests, bool is_server, uint64_t id)
{
    for (size_t i = 0; i < guests->count; i++)
        if (guests->list[i]->is_server == is_server && guests->list[i]->id == id)
            return guests->list[i];
    return NULL;
}

struct guest *guests_member(const struct guests *guests, uint64_t member)
{
    return find(guests, false, member);
}

struct guest *guests_server(const struct guests *guests, uint64_t link)
{
    return find(guests, true, link);
}

void guests_send_away(struct guests *guests, struct guest *guest, enum err err, const char *why)
{
    rpc_stream_finish(guest->stream, err, why);
    guests_remove(guests, guest);
}

static void send_notice(const struct guest *guest, const struct member_notice *notice)
{
    struct buf bytes = {0};
    enum err err = wire_encode_member_notice(notice, &bytes);
    if (err == ERR_OK)
        err = rpc_stream_send(guest->stream, RPC_URGENT, &bytes, NULL, 0);
    else
        buf_release(&bytes);
    ignore(err); /* a closed stream's end is under way to us; a full one hears the next */
}

void guests_notice(const struct guests *guests, const struct member_notice *notice)
{
    for (size_t i = 0; i < guests->count; i++)
        if (!guests->list[i]->is_server)
            send_notice(guests->list[i], notice);
}

void guests_command(const struct guest *server, const struct server_command *command)
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
