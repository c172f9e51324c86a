#include "worker/push.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "common/shared/shared_pool.h"
#include "worker/few_rows.h"

#include <string.h>

/* Where an entry's rows lie, and where its own room in the message's block begins. */
struct entry_place {
    struct executor_rows rows;
    size_t room;
};

enum {
    LEND_BYTES_MIN = 16 << 10,    /* of a chunk: less is copied sooner than lent; */
    LEND_ROW_BYTES_MIN = 4 << 10, /* and of its rows, where they lie apart */
    /* Rows that one message names: three bytes of its header each, at most. Gradients of rows that
     * are much shorter than an embedding's would have more; they travel whole then. */
    ROWS_MAX = 4096,
    PARTS_MAX = WIRE_ENTRIES_MAX + WIRE_PAYLOAD_BYTES_MAX / LEND_ROW_BYTES_MIN,
    ARENA_BYTES_MAX = WIRE_ENTRIES_MAX * sizeof(struct push_entry) + ROWS_MAX * sizeof(uint32_t) +
                      WIRE_ENTRIES_MAX * sizeof(struct entry_place) +
                      PARTS_MAX * sizeof(struct rpc_part) + 64
};

/* ---- rows ---- */

/* The first byte is 0, and each other one is as the byte before it. */
static bool is_zeros(const uint8_t *bytes, size_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

uint32_t push_rows(const struct push_rows *rows, uint32_t *ret_rows)
{
    uint32_t count = 0;
    for (uint32_t row = 0; row < rows->count; row++) {
        if (is_zeros(rows->first + row * rows->stride, rows->bytes))
            continue;
        if ((count + 1) * FEW_ROWS_SHARE >= rows->count)
            return UINT32_MAX;
        ret_rows[count++] = row;
    }
    return count;
}

/* ---- a message ---- */

/* What is sent instead of the agent's push. */
struct push_message {
    const struct push_source *source;
    struct shared_pool *pool;
    enum codec codec;
    bool sparse;
    uint32_t entry_count;
    struct push_entry *entries;
    struct entry_place *places; /* of the entries */
    uint32_t row_count;
    uint32_t *rows; /* of all its entries, ROWS_MAX */
    uint32_t part_count;
    struct rpc_part *parts; /* of the payload, PARTS_MAX */
    struct counted *block;  /* of what cannot stay where it is; NULL: nothing, so far */
    size_t dense_bytes;     /* of all entries, as long as their chunks: room in the block */
    size_t block_bytes;     /* of it, up to the last part: never beyond the next entry's room */
    size_t bytes;           /* of all parts */
};

static enum err message_init(struct push_message *message, const struct push_source *source,
                             const struct push_stream *to, const struct push *push,
                             struct arena *arena)
{
    *message = (struct push_message){.source = source,
                                     .pool = rpc_stream_pool(to->stream),
                                     .codec = push->codec,
                                     .sparse = to->sparse,
                                     .entry_count = push->entry_count};
    message->entries = arena_take(arena, push->entry_count * sizeof *message->entries);
    message->places = arena_take(arena, push->entry_count * sizeof *message->places);
    message->rows = arena_take(arena, ROWS_MAX * sizeof *message->rows);
    message->parts = arena_take(arena, PARTS_MAX * sizeof *message->parts);
    if (message->entries == NULL || message->places == NULL || message->rows == NULL ||
        message->parts == NULL)
        return ERR_NOMEM;
    memcpy(message->entries, push->entries, push->entry_count * sizeof *message->entries);
    for (uint32_t i = 0; i < push->entry_count; i++) {
        message->places[i].room = message->dense_bytes;
        message->dense_bytes += push->entries[i].bytes;
    }
    check(message->dense_bytes > 0);
    check(message->dense_bytes <= WIRE_PAYLOAD_BYTES_MAX); /* the server refuses more */
    return ERR_OK;
}

/* Room for all that the message may have to encode. */
static enum err take_block(struct push_message *message)
{
    if (message->block == NULL)
        message->block = shared_pool_counted(message->pool, message->dense_bytes);
    return message->block != NULL ? ERR_OK : ERR_NOMEM;
}

static enum err encode_chunk(struct push_message *message, const struct push_entry *entry,
                             struct entry_place *place)
{
    const struct push_source *source = message->source;
    enum codec codec = blocks_codec(source->model, entry->chunk, message->codec);
    TRY(take_block(message));
    place->rows = (struct executor_rows){
        .block = message->block,
        .offset = place->room,
        .stride = entry->bytes / source->model->chunks[entry->chunk].rows,
    };
    uint8_t *bytes = message->block->data + place->room;
    if (source->whole != NULL)
        return whole_encode(source->whole, entry->chunk, codec, bytes);
    executor_encode(source->executor, entry->chunk, entry->part, codec, bytes);
    return ERR_OK;
}

/* Whether the chunk is sent from where its gradient lies. */
static bool is_lent(const struct push_message *message, const struct push_entry *entry,
                    struct executor_rows *ret_rows)
{
    const struct push_source *source = message->source;
    size_t row_bytes = entry->bytes / source->model->chunks[entry->chunk].rows;
    return source->whole == NULL && message->codec == CODEC_FP32 &&
           entry->bytes >= LEND_BYTES_MIN &&
           executor_lend(source->executor, entry->chunk, entry->part, ret_rows) &&
           (ret_rows->stride == row_bytes || row_bytes >= LEND_ROW_BYTES_MIN);
}

/* The whole chunk: where its gradient lies, or encoded into its room, which a device fills later. */
static enum err place_chunk(struct push_message *message, const struct push_entry *entry,
                            struct entry_place *place)
{
    const struct model *model = message->source->model;
    check(entry->chunk < model->chunks_count);
    check(entry->part < model->parameters[model->chunks[entry->chunk].parameter].parts);
    check(entry->bytes == blocks_bytes(model, entry->chunk, message->codec));
    return is_lent(message, entry, &place->rows) ? ERR_OK : encode_chunk(message, entry, place);
}

/* What was encoded is there, and is what the devices have computed. */
static enum err encoded(const struct push_source *source)
{
    return source->crew != NULL ? crew_encoded(source->crew) : executor_encoded(source->executor);
}

const char *push_failure(const struct push_source *source)
{
    return source->crew != NULL ? crew_encode_failure(source->crew)
                                : executor_encode_failure(source->executor);
}

/* All chunks: a device is waited for once. */
static enum err place_chunks(struct push_message *message)
{
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < message->entry_count && err == ERR_OK; i++)
        err = place_chunk(message, &message->entries[i], &message->places[i]);
    enum err settled = encoded(message->source); /* also then: the block is the device's */
    return err != ERR_OK ? err : settled;
}

/* Behind the others; as one with the last, where it follows that in memory. */
static void add_part(struct push_message *message, const struct rpc_part *part)
{
    struct rpc_part *last =
        message->part_count > 0 ? &message->parts[message->part_count - 1] : NULL;
    message->bytes += part->bytes;
    if (last != NULL && last->counted == part->counted &&
        last->offset + last->bytes == part->offset)
        last->bytes += part->bytes;
    else
        message->parts[message->part_count++] = *part;
}

/* The chunk's rows that are not zeros, if they are few: in the block behind the last part. */
static enum err add_rows(struct push_message *message, struct push_entry *entry,
                         const struct entry_place *place, uint32_t count)
{
    size_t row_bytes = entry->bytes / message->source->model->chunks[entry->chunk].rows;
    const struct executor_rows *rows = &place->rows;
    TRY(take_block(message));
    check(message->block_bytes <= place->room);
    uint8_t *left = message->block->data + message->block_bytes;
    entry->sparse = true;
    entry->row_count = count;
    entry->rows = message->rows + message->row_count;
    entry->bytes = count * (uint32_t)row_bytes;
    for (uint32_t i = 0; i < count; i++)
        memmove(left + i * row_bytes,
                rows->block->data + rows->offset + entry->rows[i] * rows->stride, row_bytes);
    message->row_count += count;
    if (count > 0)
        add_part(message, &(struct rpc_part){message->block, message->block_bytes, entry->bytes});
    message->block_bytes += entry->bytes;
    return ERR_OK;
}

/* All of the chunk's rows. */
static void add_chunk(struct push_message *message, const struct push_entry *entry,
                      const struct executor_rows *lie)
{
    uint32_t rows = message->source->model->chunks[entry->chunk].rows;
    struct rpc_part row = {lie->block, lie->offset, entry->bytes / rows};
    for (uint32_t i = 0; i < rows; i++, row.offset += lie->stride)
        add_part(message, &row);
    if (lie->block == message->block)
        message->block_bytes = lie->offset + entry->bytes;
}

static enum err add_entry(struct push_message *message, struct push_entry *entry,
                          const struct entry_place *place)
{
    const struct model *model = message->source->model;
    const struct model_chunk *chunk = &model->chunks[entry->chunk];
    const struct executor_rows *lie = &place->rows;
    uint32_t count = UINT32_MAX;
    if (message->sparse && chunk->parameter != model->loss_parameter &&
        chunk->rows / FEW_ROWS_SHARE <= ROWS_MAX - message->row_count)
        count = push_rows(&(struct push_rows){.first = lie->block->data + lie->offset,
                                              .count = chunk->rows,
                                              .bytes = entry->bytes / chunk->rows,
                                              .stride = lie->stride},
                          message->rows + message->row_count);
    if (count != UINT32_MAX)
        return add_rows(message, entry, place, count);
    add_chunk(message, entry, lie);
    return ERR_OK;
}

/* All of the push's entries. */
static enum err add_all(struct push_message *message)
{
    TRY(place_chunks(message));
    for (uint32_t i = 0; i < message->entry_count; i++)
        TRY(add_entry(message, &message->entries[i], &message->places[i]));
    return ERR_OK;
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
    enum err err = add_all(&message);
    sent.push.entries = message.entries;
    sent.payload_bytes = message.bytes;
    if (err == ERR_OK)
        err = wire_encode_to_shard(&sent, &header);
    if (err == ERR_OK)
        err = rpc_stream_send(to->stream, RPC_NORMAL, &header, message.parts, message.part_count);
    else
        buf_release(&header);
    counted_unref(message.block); /* the stream holds its own */
    if (err == ERR_OK)
        *ret_bytes = message.bytes;
    return err;
}
