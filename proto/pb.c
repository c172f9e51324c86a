/* See pb.h. */
#include "proto/pb.h"

#include <inttypes.h>
#include <string.h>

enum err pb_pack(const ProtobufCMessage *message, struct buf *buf)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    if (bytes == 0) /* all defaults; `buf` may have no memory yet */
        return ERR_OK;
    TRY(buf_reserve(buf, bytes));
    check(protobuf_c_message_pack(message, buf->data + buf->bytes) == bytes);
    buf->bytes += bytes;
    return ERR_OK;
}

static void *arena_alloc(void *arena, size_t bytes)
{
    return arena_take(arena, bytes);
}

static void arena_keep(void *arena, void *pointer)
{
    (void)arena; /* everything goes at once, with the arena */
    (void)pointer;
}

enum err pb_unpack(const ProtobufCMessageDescriptor *descriptor, struct slice bytes,
                   struct arena *arena, void *ret_message, struct reason *reason)
{
    ProtobufCAllocator allocator = {arena_alloc, arena_keep, arena};
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, &allocator, bytes.bytes, bytes.data);
    if (message == NULL)
        return reason_set(reason, ERR_MALFORMED, "%s of %zu bytes does not decode",
                          descriptor->name, bytes.bytes);
    *(ProtobufCMessage **)ret_message = message;
    return ERR_OK;
}

void *pb_pointers(void *messages, size_t count, size_t bytes, struct arena *arena)
{
    void **pointers = messages != NULL ? arena_array(arena, count, sizeof *pointers) : NULL;
    for (size_t i = 0; pointers != NULL && i < count; i++)
        pointers[i] = (char *)messages + i * bytes;
    return pointers;
}

enum err pb_text(const char *text, size_t bytes_max, const char *field, const char **ret_text,
                 struct reason *reason)
{
    size_t bytes = strlen(text);
    if (bytes > bytes_max)
        return reason_set(reason, ERR_MALFORMED, "%s has %zu bytes, at most %zu are allowed", field,
                          bytes, bytes_max);
    for (size_t i = 0; i < bytes; i++)
        if (((unsigned char)text[i] < ' ' && text[i] != '\n' && text[i] != '\t') || text[i] == 127)
            return reason_set(reason, ERR_MALFORMED, "%s has a control character at byte %zu",
                              field, i);
    *ret_text = text;
    return ERR_OK;
}

enum err pb_name(const char *text, const char *field, char *ret_name, size_t ret_bytes,
                 struct reason *reason)
{
    const char *checked;
    TRY(pb_text(text, ret_bytes - 1, field, &checked, reason));
    memcpy(ret_name, checked, strlen(checked) + 1);
    return ERR_OK;
}

enum err pb_digest(const ProtobufCBinaryData *data, const char *field,
                   uint8_t ret_digest[static WIRE_DIGEST_BYTES], struct reason *reason)
{
    if (data->len != 0 && data->len != WIRE_DIGEST_BYTES)
        return reason_set(reason, ERR_MALFORMED, "%s has %zu bytes, not %d", field, data->len,
                          WIRE_DIGEST_BYTES);
    memset(ret_digest, 0, WIRE_DIGEST_BYTES);
    if (data->len != 0)
        memcpy(ret_digest, data->data, WIRE_DIGEST_BYTES);
    return ERR_OK;
}

enum err pb_range(uint64_t value, uint64_t max, const char *field, struct reason *reason)
{
    if (value > max)
        return reason_set(reason, ERR_MALFORMED,
                          "%s is %" PRIu64 ", at most %" PRIu64 " is allowed", field, value, max);
    return ERR_OK;
}

enum err pb_code(uint32_t value, const char *field, enum err *ret_code, struct reason *reason)
{
    TRY(pb_range(value, ERR_COUNT - 1, field, reason));
    *ret_code = err_from_wire(value);
    return ERR_OK;
}

enum err pb_there(const void *message, const char *field, struct reason *reason)
{
    return message != NULL ? ERR_OK : reason_set(reason, ERR_MALFORMED, "%s is missing", field);
}

enum err pb_node(const Roost__V1__Node *node, struct node *ret_node, struct reason *reason)
{
    struct node none = {0, 0}; /* proto3 leaves an all-zero message out */
    if (node == NULL) {
        *ret_node = none;
        return ERR_OK;
    }
    TRY(pb_range(node->level, TREE_LEVEL_MAX, "node.level", reason));
    TRY(pb_range(node->index, (TREE_SLOTS_MAX - 1) >> node->level, "node.index", reason));
    *ret_node = (struct node){node->level, node->index};
    return ERR_OK;
}

void pb_put_node(struct node node, Roost__V1__Node *ret_node)
{
    *ret_node = (Roost__V1__Node)ROOST__V1__NODE__INIT;
    ret_node->level = node.level;
    ret_node->index = node.index;
}

void pb_put_ticket(const struct ticket *ticket, struct pb_ticket *ret_ticket)
{
    ret_ticket->ticket = (Roost__V1__Ticket)ROOST__V1__TICKET__INIT;
    pb_put_node(ticket->node, &ret_ticket->node);
    Roost__V1__Ticket *to = &ret_ticket->ticket;
    to->kind = (Roost__V1__TicketKind)ticket->kind;
    to->generation = ticket->generation;
    to->step = ticket->step;
    to->version = ticket->version;
    to->node = &ret_ticket->node;
    to->attempt = ticket->attempt;
    to->speculative = ticket->speculative;
}

enum err pb_ticket(const Roost__V1__Ticket *ticket, struct ticket *ret_ticket,
                   struct reason *reason)
{
    TRY(pb_there(ticket, "ticket", reason));
    if (ticket->kind != ROOST__V1__TICKET_KIND__TICKET_TRAIN &&
        ticket->kind != ROOST__V1__TICKET_KIND__TICKET_VALIDATE)
        return reason_set(reason, ERR_MALFORMED, "ticket.kind %d is unknown", (int)ticket->kind);
    struct ticket decoded = {
        .kind = (enum ticket_kind)ticket->kind,
        .generation = ticket->generation,
        .step = ticket->step,
        .version = ticket->version,
        .attempt = ticket->attempt,
        .speculative = ticket->speculative,
    };
    TRY(pb_node(ticket->node, &decoded.node, reason));
    *ret_ticket = decoded;
    return ERR_OK;
}

enum err pb_put_ranges(const struct chunk_range *ranges, uint32_t count, struct arena *arena,
                       Roost__V1__ChunkRange ***ret_ranges)
{
    Roost__V1__ChunkRange *messages = arena_array(arena, count, sizeof *messages);
    Roost__V1__ChunkRange **pointers = pb_pointers(messages, count, sizeof *messages, arena);
    if (pointers == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        messages[i] = (Roost__V1__ChunkRange)ROOST__V1__CHUNK_RANGE__INIT;
        messages[i].first = ranges[i].first;
        messages[i].count = ranges[i].count;
        messages[i].server = ranges[i].server;
    }
    *ret_ranges = pointers;
    return ERR_OK;
}

enum err pb_ranges(Roost__V1__ChunkRange *const *ranges, size_t count, struct arena *arena,
                   const struct chunk_range **ret_ranges, struct reason *reason)
{
    TRY(pb_range(count, WIRE_CHUNKS_MAX, "ranges", reason));
    struct chunk_range *decoded = arena_array(arena, count, sizeof *decoded);
    if (decoded == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < count; i++) {
        TRY(pb_range(ranges[i]->first, WIRE_CHUNKS_MAX, "range.first", reason));
        TRY(pb_range(ranges[i]->count, WIRE_CHUNKS_MAX - ranges[i]->first, "range.count", reason));
        TRY(pb_range(ranges[i]->server, WIRE_SERVERS_MAX - 1, "range.server", reason));
        decoded[i] = (struct chunk_range){ranges[i]->first, ranges[i]->count, ranges[i]->server};
    }
    *ret_ranges = decoded;
    return ERR_OK;
}
