/* The data path: headers of Shard.Exchange. A received message is looked at only up to its payload;
 * the payload stays where gRPC put it. */
#include "proto/wire.h"

#include "proto/pb.h"

#include <inttypes.h>
#include <string.h>

enum { PAYLOAD_TAG = 15 << 3 | 2, WIRE_TYPE_BYTES = 2, WIRE_TYPE_VARINT = 0 };

/* ---- encode ---- */

static enum err put_payload_length(size_t payload_bytes, struct buf *buf)
{
    uint8_t field[11] = {PAYLOAD_TAG};
    size_t used = 1;
    size_t rest = payload_bytes;
    do {
        field[used++] = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
        rest >>= 7;
    } while (rest != 0);
    return payload_bytes == 0 ? ERR_OK : buf_append(buf, field, used);
}

static enum err put_entries(const struct push *push, struct arena *arena,
                            Roost__V1__PushEntry ***ret_entries)
{
    Roost__V1__PushEntry *entries = arena_array(arena, push->entry_count, sizeof *entries);
    Roost__V1__PushEntry **pointers =
        pb_pointers(entries, push->entry_count, sizeof *entries, arena);
    if (pointers == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < push->entry_count; i++) {
        entries[i] = (Roost__V1__PushEntry)ROOST__V1__PUSH_ENTRY__INIT;
        entries[i].chunk = push->entries[i].chunk;
        entries[i].part = push->entries[i].part;
        entries[i].bytes = push->entries[i].bytes;
        entries[i].digest = push->entries[i].digest;
        entries[i].version = push->entries[i].version;
    }
    *ret_entries = pointers;
    return ERR_OK;
}

static enum err encode_push(const struct push *push, Roost__V1__ToShard *to, struct buf *buf)
{
    PB_ARENA(arena);
    Roost__V1__Push message = ROOST__V1__PUSH__INIT;
    Roost__V1__Node node;
    pb_put_node(push->node, &node);
    message.id = push->id;
    message.generation = push->generation;
    message.step = push->step;
    message.node = &node;
    message.codec = (Roost__V1__Codec)push->codec;
    message.n_entries = push->entry_count;
    message.attempt = push->attempt;
    message.boot = push->boot;
    message.scale = push->scale;
    TRY(put_entries(push, &arena, &message.entries));
    to->header_case = ROOST__V1__TO_SHARD__HEADER_PUSH;
    to->push = &message;
    return pb_pack(&to->base, buf);
}

static enum err encode_pull(const struct pull *pull, Roost__V1__ToShard *to, struct buf *buf)
{
    Roost__V1__Pull message = ROOST__V1__PULL__INIT;
    message.id = pull->id;
    message.generation = pull->generation;
    message.version = pull->version;
    message.newest = pull->newest;
    message.attempt = pull->attempt;
    message.n_chunks = pull->chunk_count;
    message.chunks = (uint32_t *)(uintptr_t)pull->chunks;
    to->header_case = ROOST__V1__TO_SHARD__HEADER_PULL;
    to->pull = &message;
    return pb_pack(&to->base, buf);
}

static enum err encode_hello(uint64_t member, Roost__V1__ToShard *to, struct buf *buf)
{
    Roost__V1__Hello message = ROOST__V1__HELLO__INIT;
    message.member = member;
    to->header_case = ROOST__V1__TO_SHARD__HEADER_HELLO;
    to->hello = &message;
    return pb_pack(&to->base, buf);
}

static enum err encode_to_shard_header(const struct to_shard *message, struct buf *buf)
{
    Roost__V1__ToShard to = ROOST__V1__TO_SHARD__INIT;
    switch (message->kind) {
    case TO_SHARD_HELLO:
        return encode_hello(message->hello.member, &to, buf);
    case TO_SHARD_PUSH:
        return encode_push(&message->push, &to, buf);
    case TO_SHARD_PULL:
        return encode_pull(&message->pull, &to, buf);
    }
    check_unreachable("a kind of to_shard");
}

enum err wire_encode_to_shard(const struct to_shard *message, struct buf *buf)
{
    TRY(encode_to_shard_header(message, buf));
    return put_payload_length(message->payload_bytes, buf);
}

static enum err encode_weights(const struct weights *weights, Roost__V1__FromShard *from,
                               struct buf *buf)
{
    Roost__V1__Weights message = ROOST__V1__WEIGHTS__INIT;
    message.id = weights->id;
    message.version = weights->version;
    message.codec = (Roost__V1__Codec)weights->codec;
    message.n_chunks = weights->chunk_count;
    message.chunks = (uint32_t *)(uintptr_t)weights->chunks;
    message.n_versions = weights->versions != NULL ? weights->chunk_count : 0;
    message.versions = (uint64_t *)(uintptr_t)weights->versions;
    from->header_case = ROOST__V1__FROM_SHARD__HEADER_WEIGHTS;
    from->weights = &message;
    return pb_pack(&from->base, buf);
}

static enum err encode_ack(const struct push_ack *ack, Roost__V1__FromShard *from, struct buf *buf)
{
    Roost__V1__PushAck message = ROOST__V1__PUSH_ACK__INIT;
    message.id = ack->id;
    message.code = ack->code;
    message.first_refused = ack->first_refused;
    from->header_case = ROOST__V1__FROM_SHARD__HEADER_ACK;
    from->ack = &message;
    return pb_pack(&from->base, buf);
}

static enum err encode_refusal(const struct pull_refusal *refusal, Roost__V1__FromShard *from,
                               struct buf *buf)
{
    Roost__V1__PullRefusal message = ROOST__V1__PULL_REFUSAL__INIT;
    message.id = refusal->id;
    message.code = refusal->code;
    from->header_case = ROOST__V1__FROM_SHARD__HEADER_REFUSAL;
    from->refusal = &message;
    return pb_pack(&from->base, buf);
}

static enum err encode_welcome(const struct from_shard *message, Roost__V1__FromShard *from,
                               struct buf *buf)
{
    Roost__V1__Welcome welcome = ROOST__V1__WELCOME__INIT;
    welcome.boot = message->welcome.boot;
    welcome.generation = message->welcome.generation;
    from->header_case = ROOST__V1__FROM_SHARD__HEADER_WELCOME;
    from->welcome = &welcome;
    return pb_pack(&from->base, buf);
}

static enum err encode_from_shard_header(const struct from_shard *message, struct buf *buf)
{
    Roost__V1__FromShard from = ROOST__V1__FROM_SHARD__INIT;
    switch (message->kind) {
    case FROM_SHARD_WELCOME:
        return encode_welcome(message, &from, buf);
    case FROM_SHARD_ACK:
        return encode_ack(&message->ack, &from, buf);
    case FROM_SHARD_WEIGHTS:
        return encode_weights(&message->weights, &from, buf);
    case FROM_SHARD_REFUSAL:
        return encode_refusal(&message->refusal, &from, buf);
    }
    check_unreachable("a kind of from_shard");
}

enum err wire_encode_from_shard(const struct from_shard *message, struct buf *buf)
{
    TRY(encode_from_shard_header(message, buf));
    return put_payload_length(message->payload_bytes, buf);
}

/* ---- split a received message into header and payload ---- */

struct cursor {
    const struct slice *slices;
    size_t slice_count, slice; /* current slice, and the place in it */
    size_t at;
    size_t offset; /* in the whole message */
};

static bool cursor_byte(struct cursor *cursor, uint8_t *ret_byte)
{
    while (cursor->slice < cursor->slice_count &&
           cursor->at == cursor->slices[cursor->slice].bytes) {
        cursor->slice++;
        cursor->at = 0;
    }
    if (cursor->slice == cursor->slice_count)
        return false;
    *ret_byte = cursor->slices[cursor->slice].data[cursor->at++];
    cursor->offset++;
    return true;
}

static bool cursor_varint(struct cursor *cursor, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte;
        if (!cursor_byte(cursor, &byte))
            return false;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *ret_value = value;
            return true;
        }
    }
    return false;
}

static bool cursor_skip(struct cursor *cursor, uint64_t bytes)
{
    while (bytes > 0) {
        if (cursor->slice == cursor->slice_count)
            return false;
        size_t left = cursor->slices[cursor->slice].bytes - cursor->at;
        size_t now = bytes < left ? (size_t)bytes : left;
        cursor->at += now;
        cursor->offset += now;
        bytes -= now;
        if (now == left) {
            cursor->slice++;
            cursor->at = 0;
        }
    }
    return true;
}

struct split {
    size_t header_bytes;
    size_t payload_offset;
    size_t payload_bytes;
};

/* Walks the top-level fields up to the payload, which must be the last one. */
static enum err split_message(const struct slice *slices, size_t slice_count,
                              struct split *ret_split, struct reason *reason)
{
    size_t total = 0;
    for (size_t i = 0; i < slice_count; i++)
        total += slices[i].bytes;
    struct cursor cursor = {.slices = slices, .slice_count = slice_count};
    while (cursor.offset < total) {
        size_t field = cursor.offset;
        if (field > WIRE_HEADER_BYTES_MAX)
            return reason_set(reason, ERR_MALFORMED, "header is larger than %d bytes",
                              WIRE_HEADER_BYTES_MAX);
        uint64_t tag, value;
        if (!cursor_varint(&cursor, &tag) || !cursor_varint(&cursor, &value))
            return reason_set(reason, ERR_MALFORMED, "field at byte %zu is cut off", field);
        if (tag == PAYLOAD_TAG) {
            if (value != total - cursor.offset)
                return reason_set(reason, ERR_MALFORMED,
                                  "payload of %" PRIu64 " bytes is not the last %zu bytes", value,
                                  total - cursor.offset);
            *ret_split = (struct split){field, cursor.offset, (size_t)value};
            return ERR_OK;
        }
        uint64_t type = tag & 7;
        if (type != WIRE_TYPE_VARINT && (type != WIRE_TYPE_BYTES || !cursor_skip(&cursor, value)))
            return reason_set(reason, ERR_MALFORMED, "field at byte %zu does not decode", field);
    }
    *ret_split = (struct split){total, total, 0};
    return total <= WIRE_HEADER_BYTES_MAX
               ? ERR_OK
               : reason_set(reason, ERR_MALFORMED, "header is larger than %d bytes",
                            WIRE_HEADER_BYTES_MAX);
}

/* The header's bytes, contiguous: where they are, or copied when they span slices. */
static enum err gather_header(const struct slice *slices, size_t bytes, struct arena *arena,
                              struct slice *ret_header)
{
    if (bytes == 0 || slices[0].bytes >= bytes) {
        *ret_header = (struct slice){bytes == 0 ? NULL : slices[0].data, bytes};
        return ERR_OK;
    }
    uint8_t *copy = arena_take(arena, bytes);
    if (copy == NULL)
        return ERR_NOMEM;
    size_t used = 0;
    for (size_t i = 0; used < bytes; i++) {
        size_t now = slices[i].bytes < bytes - used ? slices[i].bytes : bytes - used;
        memcpy(copy + used, slices[i].data, now);
        used += now;
    }
    *ret_header = (struct slice){copy, bytes};
    return ERR_OK;
}

static enum err unpack_header(const ProtobufCMessageDescriptor *descriptor,
                              const struct slice *slices, size_t slice_count, struct arena *arena,
                              struct split *ret_split, void *ret_message, struct reason *reason)
{
    TRY(split_message(slices, slice_count, ret_split, reason));
    struct slice header;
    TRY(gather_header(slices, ret_split->header_bytes, arena, &header));
    return pb_unpack(descriptor, header, arena, ret_message, reason);
}

/* ---- decode ---- */

static enum err decode_codec(Roost__V1__Codec codec, enum codec *ret_codec, struct reason *reason)
{
    TRY(pb_range((uint64_t)codec, CODEC_COUNT - 1, "codec", reason));
    *ret_codec = (enum codec)codec;
    return ERR_OK;
}

static enum err decode_chunks(const uint32_t *chunks, size_t count, uint32_t *ret_count,
                              const uint32_t **ret_chunks, struct reason *reason)
{
    TRY(pb_range(count, WIRE_ENTRIES_MAX, "chunks", reason));
    for (size_t i = 0; i < count; i++)
        TRY(pb_range(chunks[i], WIRE_CHUNKS_MAX - 1, "chunk", reason));
    *ret_count = (uint32_t)count;
    *ret_chunks = chunks;
    return ERR_OK;
}

static enum err decode_entries(const Roost__V1__Push *message, size_t payload_bytes,
                               struct arena *arena, const struct push_entry **ret_entries,
                               struct reason *reason)
{
    TRY(pb_range(message->n_entries, WIRE_ENTRIES_MAX, "entries", reason));
    struct push_entry *entries = arena_array(arena, message->n_entries, sizeof *entries);
    if (entries == NULL)
        return ERR_NOMEM;
    uint64_t bytes = 0;
    for (size_t i = 0; i < message->n_entries; i++) {
        const Roost__V1__PushEntry *entry = message->entries[i];
        TRY(pb_range(entry->chunk, WIRE_CHUNKS_MAX - 1, "entry.chunk", reason));
        entries[i] = (struct push_entry){entry->chunk, entry->part, entry->bytes, entry->digest,
                                         entry->version};
        bytes += entry->bytes;
    }
    if (bytes != payload_bytes)
        return reason_set(reason, ERR_MALFORMED,
                          "entries name %" PRIu64 " bytes, the payload has %zu", bytes,
                          payload_bytes);
    *ret_entries = entries;
    return ERR_OK;
}

static enum err decode_push(const Roost__V1__Push *message, size_t payload_bytes,
                            struct arena *arena, struct push *ret_push, struct reason *reason)
{
    struct push push = {
        .id = message->id,
        .generation = message->generation,
        .step = message->step,
        .entry_count = (uint32_t)message->n_entries,
        .attempt = message->attempt,
        .boot = message->boot,
        .scale = message->scale,
    };
    if (!__builtin_isfinite(message->scale))
        return reason_set(reason, ERR_MALFORMED, "push.scale is not finite");
    TRY(pb_node(message->node, &push.node, reason));
    TRY(decode_codec(message->codec, &push.codec, reason));
    TRY(decode_entries(message, payload_bytes, arena, &push.entries, reason));
    *ret_push = push;
    return ERR_OK;
}

static enum err decode_pull(const Roost__V1__Pull *message, struct pull *ret_pull,
                            struct reason *reason)
{
    struct pull pull = {.id = message->id,
                        .generation = message->generation,
                        .version = message->version,
                        .newest = message->newest,
                        .attempt = message->attempt};
    TRY(decode_chunks(message->chunks, message->n_chunks, &pull.chunk_count, &pull.chunks, reason));
    *ret_pull = pull;
    return ERR_OK;
}

static enum err no_payload(size_t payload_bytes, struct reason *reason)
{
    return payload_bytes == 0 ? ERR_OK
                              : reason_set(reason, ERR_MALFORMED, "a payload where none belongs");
}

enum err wire_decode_to_shard(const struct slice *slices, size_t slice_count, struct arena *arena,
                              struct to_shard *ret_message, struct reason *reason)
{
    struct split split;
    Roost__V1__ToShard *message;
    TRY(unpack_header(&roost__v1__to_shard__descriptor, slices, slice_count, arena, &split,
                      &message, reason));
    TRY(pb_range(split.payload_bytes, WIRE_PAYLOAD_BYTES_MAX, "payload", reason));
    struct to_shard decoded = {.payload_offset = split.payload_offset,
                               .payload_bytes = split.payload_bytes};
    switch (message->header_case) {
    case ROOST__V1__TO_SHARD__HEADER_HELLO:
        TRY(no_payload(split.payload_bytes, reason));
        decoded.kind = TO_SHARD_HELLO;
        decoded.hello.member = message->hello->member;
        break;
    case ROOST__V1__TO_SHARD__HEADER_PUSH:
        decoded.kind = TO_SHARD_PUSH;
        TRY(decode_push(message->push, split.payload_bytes, arena, &decoded.push, reason));
        break;
    case ROOST__V1__TO_SHARD__HEADER_PULL:
        TRY(no_payload(split.payload_bytes, reason));
        decoded.kind = TO_SHARD_PULL;
        TRY(decode_pull(message->pull, &decoded.pull, reason));
        break;
    default:
        return reason_set(reason, ERR_MALFORMED, "message names neither hello, push nor pull");
    }
    *ret_message = decoded;
    return ERR_OK;
}

static enum err decode_weights(const Roost__V1__Weights *message, struct weights *ret_weights,
                               struct reason *reason)
{
    struct weights weights = {.id = message->id, .version = message->version};
    TRY(decode_codec(message->codec, &weights.codec, reason));
    TRY(decode_chunks(message->chunks, message->n_chunks, &weights.chunk_count, &weights.chunks,
                      reason));
    if (message->n_versions > 0 && message->n_versions != message->n_chunks)
        return reason_set(reason, ERR_MALFORMED, "%zu versions of %zu chunks", message->n_versions,
                          message->n_chunks);
    weights.versions = message->n_versions > 0 ? message->versions : NULL;
    *ret_weights = weights;
    return ERR_OK;
}

static enum err decode_from_shard(const Roost__V1__FromShard *message, struct from_shard *decoded,
                                  struct reason *reason)
{
    switch (message->header_case) {
    case ROOST__V1__FROM_SHARD__HEADER_WELCOME:
        decoded->kind = FROM_SHARD_WELCOME;
        decoded->welcome.boot = message->welcome->boot;
        decoded->welcome.generation = message->welcome->generation;
        return no_payload(decoded->payload_bytes, reason);
    case ROOST__V1__FROM_SHARD__HEADER_ACK:
        decoded->kind = FROM_SHARD_ACK;
        decoded->ack.id = message->ack->id;
        decoded->ack.first_refused = message->ack->first_refused;
        TRY(pb_code(message->ack->code, "ack.code", &decoded->ack.code, reason));
        return no_payload(decoded->payload_bytes, reason);
    case ROOST__V1__FROM_SHARD__HEADER_WEIGHTS:
        decoded->kind = FROM_SHARD_WEIGHTS;
        return decode_weights(message->weights, &decoded->weights, reason);
    case ROOST__V1__FROM_SHARD__HEADER_REFUSAL:
        decoded->kind = FROM_SHARD_REFUSAL;
        decoded->refusal.id = message->refusal->id;
        TRY(pb_code(message->refusal->code, "refusal.code", &decoded->refusal.code, reason));
        return no_payload(decoded->payload_bytes, reason);
    default:
        return reason_set(reason, ERR_MALFORMED,
                          "message names neither welcome, ack, weights nor refusal");
    }
}

enum err wire_decode_from_shard(const struct slice *slices, size_t slice_count, struct arena *arena,
                                struct from_shard *ret_message, struct reason *reason)
{
    struct split split;
    Roost__V1__FromShard *message;
    TRY(unpack_header(&roost__v1__from_shard__descriptor, slices, slice_count, arena, &split,
                      &message, reason));
    TRY(pb_range(split.payload_bytes, WIRE_PAYLOAD_BYTES_MAX, "payload", reason));
    struct from_shard decoded = {.payload_offset = split.payload_offset,
                                 .payload_bytes = split.payload_bytes};
    TRY(decode_from_shard(message, &decoded, reason));
    *ret_message = decoded;
    return ERR_OK;
}

/* ---- Shard.Transfer ---- */

static size_t transfer_bytes(const struct transfer *transfer)
{
    return (size_t)transfer->weights * transfer->arrays * sizeof(float);
}

enum err wire_encode_transfer(const struct transfer *message, struct buf *buf)
{
    Roost__V1__TransferRequest to = ROOST__V1__TRANSFER_REQUEST__INIT;
    to.generation = message->generation;
    to.version = message->version;
    to.chunk = message->chunk;
    to.weights = message->weights;
    to.arrays = message->arrays;
    TRY(pb_pack(&to.base, buf));
    return put_payload_length(transfer_bytes(message), buf);
}

enum err wire_decode_transfer(struct slice bytes, struct arena *arena, struct transfer *ret_message,
                              struct slice *ret_payload, struct reason *reason)
{
    struct split split;
    Roost__V1__TransferRequest *from;
    TRY(unpack_header(&roost__v1__transfer_request__descriptor, &bytes, 1, arena, &split, &from,
                      reason));
    TRY(pb_range(from->chunk, WIRE_CHUNKS_MAX - 1, "chunk", reason));
    TRY(pb_range(from->weights, WIRE_PAYLOAD_BYTES_MAX / sizeof(float), "weights", reason));
    TRY(pb_range(from->arrays, WIRE_TRANSFER_ARRAYS_MAX, "arrays", reason));
    struct transfer decoded = {from->generation, from->version, from->chunk, from->weights,
                               from->arrays};
    if (split.payload_bytes == 0 || split.payload_bytes != transfer_bytes(&decoded))
        return reason_set(reason, ERR_MALFORMED, "%u arrays of %u weights are not %zu bytes",
                          decoded.arrays, decoded.weights, split.payload_bytes);
    *ret_message = decoded;
    *ret_payload = (struct slice){bytes.data + split.payload_offset, split.payload_bytes};
    return ERR_OK;
}
