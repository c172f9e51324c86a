/* Encoders and decoders, made of the rows of wire_messages.inc: once each row is a statement that
 * puts a field of `ours` into protobuf-c's `theirs`, once a statement that judges and gets it. */
#include "proto/wire.h"

#include "proto/payload.h"
#include "proto/pb.h"

#include <inttypes.h>
#include <string.h>

static const struct pb_words of_texts = {.lines = true, .without = ""};
static const struct pb_words of_lines = {.without = "\"\\"};
static const struct pb_words of_words = {.without = "\"\\ ="};

/* ---- encode ---- */

/* put_NAME: `theirs` from `ours`; what `theirs` points to lies in `arena`, or is ours. */
#define PIECE_AS(name, their_name, Type, ours_type, prefix, ...)                                   \
    static enum err put_##name(const ours_type *ours, Roost__V1__##Type *theirs,                   \
                               struct arena *arena)                                                \
    {                                                                                              \
        (void)ours, (void)arena;                                                                   \
        *theirs = (Roost__V1__##Type){                                                             \
            .base = PROTOBUF_C_MESSAGE_INIT(&roost__v1__##their_name##__descriptor)};              \
        __VA_ARGS__                                                                                \
        return ERR_OK;                                                                             \
    }
#define MESSAGE_AS(name, their_name, Type, ours_type, ...)                                         \
    PIECE_AS(name, their_name, Type, ours_type, "", __VA_ARGS__)                                   \
    enum err wire_encode_##name(const ours_type *message, struct buf *buf)                         \
    {                                                                                              \
        Roost__V1__##Type theirs;                                                                  \
        scoped(arena_release) struct arena arena;                                                  \
        arena_init(&arena, PB_ARENA_BYTES_MAX);                                                    \
        TRY(put_##name(message, &theirs, &arena));                                                 \
        return pb_pack(&theirs.base, buf);                                                         \
    }

/* protobuf-c's pointers are not const; it does not write to what it packs. */
#define UNCONST(theirs_field, pointer) ((__typeof__(theirs_field))(uintptr_t)(pointer))
#define PUT_NEW(theirs_field, piece, from)                                                         \
    theirs_field = arena_take(arena, sizeof *theirs_field);                                        \
    if (theirs_field == NULL)                                                                      \
        return ERR_NOMEM;                                                                          \
    TRY(put_##piece(from, theirs_field, arena));
#define PUT_CASE(our_kind, oneof, number, field, piece, from)                                      \
    if (ours->kind == our_kind) {                                                                  \
        theirs->oneof##_case = number;                                                             \
        PUT_NEW(theirs->field, piece, from)                                                        \
    }

#define NUMBER(field) theirs->field = ours->field;
#define NUMBER_AS(ours_field, theirs_field) theirs->theirs_field = ours->ours_field;
#define LIMIT(field, max) theirs->field = ours->field;
#define FROM_ONE(field, max) theirs->field = ours->field == UINT32_MAX ? 0 : ours->field + 1;
#define FINITE(field, label) theirs->field = ours->field;
#define ENUM(field, count) theirs->field = (__typeof__(theirs->field))ours->field;
#define CHOICE(field, min, max) theirs->field = (__typeof__(theirs->field))ours->field;
#define CODE(field) theirs->field = ours->field;
#define TEXT(field, bytes_max) theirs->field = pb_string(ours->field);
#define PUT_SAID(field, bytes_max, words)                                                          \
    theirs->field = pb_said(ours->field, bytes_max, words, arena);                                 \
    if (theirs->field == NULL)                                                                     \
        return ERR_NOMEM;
#define SAID(field, bytes_max) PUT_SAID(field, bytes_max, of_texts)
#define SAID_LINE(field, bytes_max) PUT_SAID(field, bytes_max, of_lines)
#define NAME(field) theirs->field = pb_string(ours->field);
#define WORD(field) NAME(field)
#define DIGEST(field) theirs->field = pb_bytes(ours->field, WIRE_DIGEST_BYTES);
#define PROOF(field) theirs->field = pb_bytes(ours->field.bytes, WIRE_PROOF_BYTES);
#define BYTES(field) theirs->field = pb_bytes(ours->field.data, ours->field.bytes);
#define NUMBERS(field, count, max)                                                                 \
    theirs->n_##field = ours->count;                                                               \
    theirs->field = UNCONST(theirs->field, ours->field);
#define CHUNKS(field, count) NUMBERS(field, count, WIRE_ENTRIES_MAX)
#define EACH(field, of, count)                                                                     \
    theirs->n_##field = ours->field != NULL ? ours->count : 0;                                     \
    theirs->field = UNCONST(theirs->field, ours->field);
#define LIST(field, count, piece, max)                                                             \
    theirs->n_##field = ours->count;                                                               \
    theirs->field = pb_new_list(ours->count, sizeof **theirs->field, arena);                       \
    if (theirs->field == NULL)                                                                     \
        return ERR_NOMEM;                                                                          \
    for (uint32_t i = 0; i < ours->count; i++)                                                     \
        TRY(put_##piece(&ours->field[i], theirs->field[i], arena));
#define LIST_HERE(field, count, piece, max) LIST(field, count, piece, max)
#define SUB(field, piece) PUT_NEW(theirs->field, piece, &ours->field)
#define NEEDED(field, piece) PUT_NEW(theirs->field, piece, &ours->field)
#define NEEDED_IF(field, piece, which, value)                                                      \
    if (ours->which == value) {                                                                    \
        PUT_NEW(theirs->field, piece, &ours->field)                                                \
    }
#define OPTIONAL(field, piece, has)                                                                \
    if (ours->has) {                                                                               \
        PUT_NEW(theirs->field, piece, &ours->field)                                                \
    }
#define OPTIONAL_HERE(field, piece, has)                                                           \
    if (ours->has) {                                                                               \
        PUT_NEW(theirs->field, piece, ours)                                                        \
    }
#define INCLUDE(field, piece) TRY(put_##piece(&ours->field, theirs, arena));
#define CASE(kind, oneof, number, field, piece)                                                    \
    PUT_CASE(kind, oneof, number, field, piece, &ours->field)
#define CASE_HERE(kind, oneof, number, field, piece)                                               \
    PUT_CASE(kind, oneof, number, field, piece, ours)
#define ONE_OF(oneof, text) check(theirs->oneof##_case != 0); /* `kind` is one of its values */
#define COPY(to, from)
#define CHECK(function)

#include "proto/wire_messages.inc"

#undef UNCONST
#undef PUT_NEW
#undef PUT_SAID
#undef PUT_CASE

/* ---- what no single field can tell ---- */

static enum err times_are_set(const struct join_reply *ours, struct reason *reason)
{
    return ours->heartbeat_ms != 0 && ours->lease_ms != 0
               ? ERR_OK
               : reason_set(reason, ERR_MALFORMED, "heartbeat_ms and lease_ms must not be 0");
}

static enum err ranges_name_servers(const struct describe_reply *ours, struct reason *reason)
{
    for (uint32_t i = 0; i < ours->range_count; i++)
        if (ours->ranges[i].server >= ours->server_count)
            return reason_set(reason, ERR_MALFORMED, "range %u names server %u of %u", i,
                              ours->ranges[i].server, ours->server_count);
    return ERR_OK;
}

/* Whether the last row is one of the chunk's, its owner knows. */
static enum err rows_ascend(const struct push_entry *ours, struct reason *reason)
{
    if (!ours->sparse && ours->row_count > 0)
        return reason_set(reason, ERR_MALFORMED, "an entry that is not sparse names %u rows",
                          ours->row_count);
    for (uint32_t i = 1; i < ours->row_count; i++)
        if (ours->rows[i - 1] >= ours->rows[i])
            return reason_set(reason, ERR_MALFORMED, "entry.rows do not ascend: %u, then %u",
                              ours->rows[i - 1], ours->rows[i]);
    return ERR_OK;
}

/* ---- decode ---- */

/* get_NAME: `ours`, all zeros before, from `theirs`, if every field is within its limits. What
 * `ours` points to lies in `arena`. */
#define PIECE_AS(name, their_name, Type, ours_type, prefix_, ...)                                  \
    typedef ours_type ours_##name;                                                                 \
    static enum err get_##name(const Roost__V1__##Type *theirs, ours_type *ours,                   \
                               struct arena *arena, struct reason *reason)                         \
    {                                                                                              \
        static const char prefix[] = prefix_;                                                      \
        (void)theirs, (void)ours, (void)arena, (void)reason, (void)prefix;                         \
        __VA_ARGS__                                                                                \
        return ERR_OK;                                                                             \
    }
#define MESSAGE_AS(name, their_name, Type, ours_type, ...)                                         \
    PIECE_AS(name, their_name, Type, ours_type, "", __VA_ARGS__)                                   \
    enum err wire_decode_##name(struct slice bytes, struct arena *arena, ours_type *ret_message,   \
                                struct reason *reason)                                             \
    {                                                                                              \
        Roost__V1__##Type *theirs;                                                                 \
        ours_type ours;                                                                            \
        memset(&ours, 0, sizeof ours);                                                             \
        TRY(pb_unpack(&roost__v1__##their_name##__descriptor, bytes, arena, &theirs, reason));     \
        TRY(get_##name(theirs, &ours, arena, reason));                                             \
        *ret_message = ours;                                                                       \
        return ERR_OK;                                                                             \
    }

#define LABEL(field) ((struct pb_label){prefix, #field})
#define GET(field) ours->field = theirs->field;
#define GET_IN(field, max)                                                                         \
    TRY(pb_range((uint64_t)theirs->field, max, LABEL(field), reason));                             \
    ours->field = (__typeof__(ours->field))theirs->field;
/* The number of elements; an array is called by its name alone. */
#define GET_COUNT(field, count, max)                                                               \
    TRY(pb_range(theirs->n_##field, max, (struct pb_label){"", #field}, reason));                  \
    ours->count = (uint32_t)theirs->n_##field;

#define GET_TEXT(field, bytes_max, words)                                                          \
    TRY(pb_text(theirs->field, bytes_max, words, LABEL(field), &ours->field, reason));
#define GET_NAME(field, words)                                                                     \
    TRY(pb_name(theirs->field, words, LABEL(field), ours->field, sizeof ours->field, reason));

#define NUMBER(field) GET(field)
#define NUMBER_AS(ours_field, theirs_field) ours->ours_field = theirs->theirs_field;
#define LIMIT(field, max) GET_IN(field, max)
#define FROM_ONE(field, max)                                                                       \
    TRY(pb_range(theirs->field, max, LABEL(field), reason));                                       \
    ours->field = theirs->field == 0 ? UINT32_MAX : theirs->field - 1;
#define FINITE(field, label)                                                                       \
    TRY(pb_finite(theirs->field, label, reason));                                                  \
    GET(field)
#define ENUM(field, count) GET_IN(field, count - 1)
#define CHOICE(field, min, max)                                                                    \
    TRY(pb_choice((int)theirs->field, min, max, LABEL(field), reason));                            \
    ours->field = (__typeof__(ours->field))theirs->field;
#define CODE(field) TRY(pb_code(theirs->field, LABEL(field), &ours->field, reason));
#define TEXT(field, bytes_max) GET_TEXT(field, bytes_max, of_texts)
#define SAID(field, bytes_max) TEXT(field, bytes_max)
#define SAID_LINE(field, bytes_max) GET_TEXT(field, bytes_max, of_lines)
#define NAME(field) GET_NAME(field, of_lines)
#define WORD(field) GET_NAME(field, of_words)
#define DIGEST(field) TRY(pb_digest(&theirs->field, LABEL(field), ours->field, reason));
#define PROOF(field) TRY(pb_proof(&theirs->field, LABEL(field), &ours->field, reason));
#define BYTES(field) ours->field = (struct slice){theirs->field.data, theirs->field.len};
#define NUMBERS(field, count, max)                                                                 \
    TRY(pb_range(theirs->n_##field, max, LABEL(field), reason));                                   \
    ours->count = (uint32_t)theirs->n_##field;                                                     \
    GET(field)
#define CHUNKS(field, count)                                                                       \
    NUMBERS(field, count, WIRE_ENTRIES_MAX)                                                        \
    TRY(pb_chunks(ours->field, ours->count, reason));
#define EACH(field, of, count)                                                                     \
    if (theirs->n_##field > 0 && theirs->n_##field != theirs->n_##of)                              \
        return reason_set(reason, ERR_MALFORMED, "%zu " #field " of %zu " #of, theirs->n_##field,  \
                          theirs->n_##of);                                                         \
    ours->field = theirs->n_##field > 0 ? theirs->field : NULL;
#define LIST(field, count, piece, max)                                                             \
    GET_COUNT(field, count, max)                                                                   \
    ours_##piece *field##_list = arena_array(arena, ours->count, sizeof *field##_list);            \
    if (field##_list == NULL)                                                                      \
        return ERR_NOMEM;                                                                          \
    for (uint32_t i = 0; i < ours->count; i++)                                                     \
        TRY(get_##piece(theirs->field[i], &field##_list[i], arena, reason));                       \
    ours->field = field##_list;
#define LIST_HERE(field, count, piece, max)                                                        \
    GET_COUNT(field, count, max)                                                                   \
    for (uint32_t i = 0; i < ours->count; i++)                                                     \
        TRY(get_##piece(theirs->field[i], &ours->field[i], arena, reason));
/* proto3 leaves an all-zero message out. */
#define SUB(field, piece)                                                                          \
    if (theirs->field != NULL)                                                                     \
        TRY(get_##piece(theirs->field, &ours->field, arena, reason));
#define NEEDED(field, piece)                                                                       \
    TRY(pb_there(theirs->field, #field, reason));                                                  \
    TRY(get_##piece(theirs->field, &ours->field, arena, reason));
#define NEEDED_IF(field, piece, which, value)                                                      \
    if (ours->which == value) {                                                                    \
        NEEDED(field, piece)                                                                       \
    }
#define OPTIONAL(field, piece, has)                                                                \
    ours->has = theirs->field != NULL;                                                             \
    SUB(field, piece)
#define OPTIONAL_HERE(field, piece, has)                                                           \
    ours->has = theirs->field != NULL;                                                             \
    if (ours->has)                                                                                 \
        TRY(get_##piece(theirs->field, ours, arena, reason));
#define INCLUDE(field, piece) TRY(get_##piece(theirs, &ours->field, arena, reason));
#define CASE(our_kind, oneof, number, field, piece)                                                \
    if (theirs->oneof##_case == number) {                                                          \
        ours->kind = our_kind;                                                                     \
        TRY(get_##piece(theirs->field, &ours->field, arena, reason));                              \
    }
#define CASE_HERE(our_kind, oneof, number, field, piece)                                           \
    if (theirs->oneof##_case == number) {                                                          \
        ours->kind = our_kind;                                                                     \
        TRY(get_##piece(theirs->field, ours, arena, reason));                                      \
    }
#define ONE_OF(oneof, text)                                                                        \
    if (theirs->oneof##_case == 0)                                                                 \
        return reason_set(reason, ERR_MALFORMED, text);
#define COPY(to, from) ours->to = ours->from;
#define CHECK(function) TRY(function(ours, reason));

#include "proto/wire_messages.inc"

/* ---- the data path ---- */

enum err wire_encode_to_shard(const struct to_shard *message, struct buf *buf)
{
    Roost__V1__ToShard theirs;
    scoped(arena_release) struct arena arena;
    arena_init(&arena, PB_ARENA_BYTES_MAX);
    TRY(put_to_shard(message, &theirs, &arena));
    TRY(pb_pack(&theirs.base, buf));
    return payload_put_length(message->payload_bytes, buf);
}

enum err wire_encode_from_shard(const struct from_shard *message, struct buf *buf)
{
    Roost__V1__FromShard theirs;
    scoped(arena_release) struct arena arena;
    arena_init(&arena, PB_ARENA_BYTES_MAX);
    TRY(put_from_shard(message, &theirs, &arena));
    TRY(pb_pack(&theirs.base, buf));
    return payload_put_length(message->payload_bytes, buf);
}

static enum err payload_in_limit(const struct payload_split *split, size_t bytes_max,
                                 struct reason *reason)
{
    return pb_range(split->payload_bytes, bytes_max, (struct pb_label){"", "payload"}, reason);
}

static enum err no_payload(size_t payload_bytes, struct reason *reason)
{
    return payload_bytes == 0 ? ERR_OK
                              : reason_set(reason, ERR_MALFORMED, "a payload where none belongs");
}

/* The payload is as long as the entries say. */
static enum err payload_of_push(const struct push *push, size_t payload_bytes,
                                struct reason *reason)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < push->entry_count; i++)
        bytes += push->entries[i].bytes;
    if (bytes == payload_bytes)
        return ERR_OK;
    return reason_set(reason, ERR_MALFORMED, "entries name %" PRIu64 " bytes, the payload has %zu",
                      bytes, payload_bytes);
}

enum err wire_decode_to_shard(const struct slice *slices, size_t slice_count, struct arena *arena,
                              struct to_shard *ret_message, struct reason *reason)
{
    struct payload_split split;
    Roost__V1__ToShard *theirs;
    struct to_shard ours;
    memset(&ours, 0, sizeof ours);
    TRY(payload_split(slices, slice_count, arena, &split, reason));
    TRY(pb_unpack(&roost__v1__to_shard__descriptor, split.header, arena, &theirs, reason));
    TRY(payload_in_limit(&split, WIRE_PAYLOAD_BYTES_MAX, reason));
    TRY(get_to_shard(theirs, &ours, arena, reason));
    TRY(ours.kind == TO_SHARD_PUSH ? payload_of_push(&ours.push, split.payload_bytes, reason)
                                   : no_payload(split.payload_bytes, reason));
    ours.payload_offset = split.payload_offset;
    ours.payload_bytes = split.payload_bytes;
    *ret_message = ours;
    return ERR_OK;
}

enum err wire_decode_from_shard(const struct slice *slices, size_t slice_count, struct arena *arena,
                                struct from_shard *ret_message, struct reason *reason)
{
    struct payload_split split;
    Roost__V1__FromShard *theirs;
    struct from_shard ours;
    memset(&ours, 0, sizeof ours);
    TRY(payload_split(slices, slice_count, arena, &split, reason));
    TRY(pb_unpack(&roost__v1__from_shard__descriptor, split.header, arena, &theirs, reason));
    TRY(payload_in_limit(&split, WIRE_PAYLOAD_BYTES_MAX, reason));
    TRY(get_from_shard(theirs, &ours, arena, reason));
    if (ours.kind != FROM_SHARD_WEIGHTS)
        TRY(no_payload(split.payload_bytes, reason));
    ours.payload_offset = split.payload_offset;
    ours.payload_bytes = split.payload_bytes;
    *ret_message = ours;
    return ERR_OK;
}

enum err wire_encode_from_peer(const struct from_peer *message, struct buf *buf)
{
    Roost__V1__FromPeer theirs;
    scoped(arena_release) struct arena arena;
    arena_init(&arena, PB_ARENA_BYTES_MAX);
    TRY(put_from_peer(message, &theirs, &arena));
    TRY(pb_pack(&theirs.base, buf));
    return payload_put_length(message->payload_bytes, buf);
}

enum err wire_decode_from_peer(const struct slice *slices, size_t slice_count, struct arena *arena,
                               struct from_peer *ret_message, struct reason *reason)
{
    struct payload_split split;
    Roost__V1__FromPeer *theirs;
    struct from_peer ours;
    memset(&ours, 0, sizeof ours);
    TRY(payload_split(slices, slice_count, arena, &split, reason));
    TRY(pb_unpack(&roost__v1__from_peer__descriptor, split.header, arena, &theirs, reason));
    TRY(payload_in_limit(&split, WIRE_VALUE_BYTES_MAX, reason));
    TRY(get_from_peer(theirs, &ours, arena, reason));
    if (ours.kind != FROM_PEER_HAVE && ours.kind != FROM_PEER_FRAGMENT)
        TRY(no_payload(split.payload_bytes, reason));
    ours.payload_offset = split.payload_offset;
    ours.payload_bytes = split.payload_bytes;
    *ret_message = ours;
    return ERR_OK;
}

static size_t transfer_bytes(const struct transfer *transfer)
{
    return (size_t)transfer->weights * transfer->arrays * sizeof(float);
}

enum err wire_encode_transfer(const struct transfer *message, struct buf *buf)
{
    Roost__V1__TransferRequest theirs;
    TRY(put_transfer(message, &theirs, NULL));
    TRY(pb_pack(&theirs.base, buf));
    return payload_put_length(transfer_bytes(message), buf);
}

enum err wire_decode_transfer(struct slice bytes, struct arena *arena, struct transfer *ret_message,
                              struct slice *ret_payload, struct reason *reason)
{
    struct payload_split split;
    Roost__V1__TransferRequest *theirs;
    struct transfer ours = {0};
    TRY(payload_split(&bytes, 1, arena, &split, reason));
    TRY(pb_unpack(&roost__v1__transfer_request__descriptor, split.header, arena, &theirs, reason));
    TRY(get_transfer(theirs, &ours, arena, reason));
    if (split.payload_bytes == 0 || split.payload_bytes != transfer_bytes(&ours))
        return reason_set(reason, ERR_MALFORMED, "%u arrays of %u weights are not %zu bytes",
                          ours.arrays, ours.weights, split.payload_bytes);
    *ret_message = ours;
    *ret_payload = (struct slice){bytes.data + split.payload_offset, split.payload_bytes};
    return ERR_OK;
}
