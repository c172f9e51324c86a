#include "worker/push.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "common/shared/shared_pool.h"

#include <string.h>

enum {
    ROWS_SHARE = 8, /* fewer than one row in so many travel alone */
    /* Rows that one message names: three bytes of its header each, at most. Gradients of rows that
     * are much shorter than an embedding's would have more; they travel whole then. */
    ROWS_MAX = 4096,
    ARENA_BYTES_MAX =
        WIRE_ENTRIES_MAX * sizeof(struct push_entry) + ROWS_MAX * sizeof(uint32_t) + 64
};

/* ---- rows ---- */

/* The first byte is 0, and each other one is as the byte before it. */
static bool is_zeros(const uint8_t *bytes, size_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

uint32_t push_rows(const uint8_t *bytes, uint32_t rows, size_t row_bytes, uint32_t *ret_rows)
{
    uint32_t count = 0;
    for (uint32_t row = 0; row < rows; row++) {
        if (is_zeros(bytes + row * row_bytes, row_bytes))
            continue;
        if ((count + 1) * ROWS_SHARE >= rows)
            return UINT32_MAX;
        ret_rows[count++] = row;
    }
    return count;
}

/* ---- a message ---- */

/* What is sent instead of the agent's push. */
struct push_message {
    const struct push_source *source;
    enum codec codec;
    uint32_t entry_count;
    struct push_entry *entries;
    uint32_t row_count;
    uint32_t *rows; /* of all its entries, ROWS_MAX */
    struct counted *payload;
    size_t bytes; /* of it, so far */
};

/* The bytes of all entries, as long as their chunks. */
static size_t dense_bytes(const struct push *push)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < push->entry_count; i++)
        bytes += push->entries[i].bytes;
    return bytes;
}

static enum err message_init(struct push_message *message, const struct push_source *source,
                             const struct push_stream *to, const struct push *push,
                             struct arena *arena)
{
    size_t bytes = dense_bytes(push);
    check(bytes > 0 && bytes <= WIRE_PAYLOAD_BYTES_MAX); /* the server refuses more */
    *message = (struct push_message){
        .source = source, .codec = push->codec, .entry_count = push->entry_count};
    message->entries = arena_take(arena, push->entry_count * sizeof *message->entries);
    message->rows = arena_take(arena, ROWS_MAX * sizeof *message->rows);
    if (message->entries == NULL || message->rows == NULL)
        return ERR_NOMEM;
    memcpy(message->entries, push->entries, push->entry_count * sizeof *message->entries);
    message->payload = shared_pool_counted(rpc_stream_pool(to->stream), bytes);
    return message->payload != NULL ? ERR_OK : ERR_NOMEM;
}

/* The whole chunk, behind what is encoded already. */
static void encode_entry(const struct push_message *message, const struct push_entry *entry)
{
    const struct push_source *source = message->source;
    const struct model *model = source->model;
    enum codec codec = blocks_codec(model, entry->chunk, message->codec);
    uint8_t *bytes = message->payload->data + message->bytes;
    check(entry->chunk < model->chunks_count);
    check(entry->part < model->parameters[model->chunks[entry->chunk].parameter].parts);
    check(entry->bytes == blocks_bytes(model, entry->chunk, message->codec));
    if (source->whole != NULL)
        whole_encode(source->whole, entry->chunk, codec, bytes);
    else
        executor_encode(source->executor, entry->chunk, entry->part, codec, bytes);
}

/* Leaves of the chunk that was encoded just now the rows that are not zeros, if they are few. */
static void leave_rows(struct push_message *message, struct push_entry *entry)
{
    const struct model *model = message->source->model;
    const struct model_chunk *chunk = &model->chunks[entry->chunk];
    size_t row_bytes = entry->bytes / chunk->rows;
    uint8_t *bytes = message->payload->data + message->bytes;
    uint32_t *rows = message->rows + message->row_count;
    if (chunk->parameter == model->loss_parameter ||
        chunk->rows / ROWS_SHARE > ROWS_MAX - message->row_count)
        return;
    uint32_t count = push_rows(bytes, chunk->rows, row_bytes, rows);
    if (count == UINT32_MAX)
        return;
    for (uint32_t i = 0; i < count; i++)
        memmove(bytes + i * row_bytes, bytes + rows[i] * row_bytes, row_bytes);
    message->row_count += count;
    entry->sparse = true;
    entry->row_count = count;
    entry->rows = rows;
    entry->bytes = count * (uint32_t)row_bytes;
}

/* All of the push's entries. */
static enum err encode_all(struct push_message *message, bool sparse)
{
    for (uint32_t i = 0; i < message->entry_count; i++) {
        encode_entry(message, &message->entries[i]);
        if (sparse)
            leave_rows(message, &message->entries[i]);
        message->bytes += message->entries[i].bytes;
    }
    return executor_encoded(message->source->executor);
}

enum err push_send(const struct push_source *source, const struct push_stream *to,
                   const struct push *push, size_t *ret_bytes)
{
    struct push_message message;
    struct buf header = {0};
    scoped(arena_release) struct arena arena;
    arena_init(&arena, ARENA_BYTES_MAX);
    TRY(message_init(&message, source, to, push, &arena));
    struct to_shard sent = {.kind = TO_SHARD_PUSH, .push = *push};
    enum err err = encode_all(&message, to->sparse);
    sent.push.entries = message.entries;
    sent.payload_bytes = message.bytes;
    struct rpc_part part = {message.payload, 0, message.bytes};
    if (err == ERR_OK)
        err = wire_encode_to_shard(&sent, &header);
    if (err == ERR_OK)
        err = rpc_stream_send(to->stream, RPC_NORMAL, &header, &part, message.bytes > 0 ? 1 : 0);
    else
        buf_release(&header);
    counted_unref(message.payload); /* the stream holds its own */
    if (err == ERR_OK)
        *ret_bytes = message.bytes;
    return err;
}
