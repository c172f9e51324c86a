/* Random messages, made of the same rows as the encoder: make_NAME fills protobuf-c's struct row by
 * row, and its bytes are what a peer sends. Rows with a limit are counted while a message is made:
 * the one whose number is `tried` is made at its limit, or just beyond. Beside that, which fields
 * of roost.proto have a row at all. */
#ifndef ROOST_TESTS_UNIT_WIRE_FIXTURE_H
#define ROOST_TESTS_UNIT_WIRE_FIXTURE_H

#include "tests/unit/unit.h"

#include "common/arena.h"
#include "common/rand.h"
#include "proto/roost.pb-c.h"
#include "proto/wire.h"

#include <float.h>
#include <math.h>

enum { FIELDS_MAX = 1024, SOME_COUNT = 3 };

/* Fields of roost.proto that some row is about. */
struct reached {
    const ProtobufCFieldDescriptor *fields[FIELDS_MAX];
    size_t count;
};

/* How a message is made. */
struct make {
    struct rand_state rand;
    struct arena arena;
    struct reached *reached;
    uint32_t number;   /* of the case of a oneof: the field's in roost.proto */
    bool has_oneof;    /* the message has a oneof, */
    bool has_case;     /* and that has a case of this number */
    bool all;          /* also what is optional */
    int limits, tried; /* rows with limits so far; the one that is tried, -1: none */
    bool beyond;       /* it is made just beyond its limit */
    const char *name;  /* its field's */
};

static bool is_reached(const struct reached *reached, const ProtobufCFieldDescriptor *field)
{
    for (size_t i = 0; i < reached->count; i++)
        if (reached->fields[i] == field)
            return true;
    return false;
}

static void reach(struct make *make, const ProtobufCMessage *message, const char *name)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);
    assert_non_null(field);
    if (make->reached == NULL || is_reached(make->reached, field))
        return;
    assert_true(make->reached->count < FIELDS_MAX);
    make->reached->fields[make->reached->count++] = field;
}

/* ---- values ---- */

/* The next limit: whether it is the one to be made. */
static bool tries(struct make *make, const char *field)
{
    if (make->limits++ != make->tried)
        return false;
    make->name = field;
    return true;
}

static uint64_t some(struct make *make)
{
    return rand_next(&make->rand) | 1;
}

static uint64_t some_to(struct make *make, uint64_t max, const char *field)
{
    if (tries(make, field))
        return max + make->beyond;
    return max == 0 ? 0 : 1 + rand_below(&make->rand, max);
}

static int some_choice(struct make *make, int min, int max, const char *field)
{
    if (tries(make, field))
        return min - make->beyond;
    if (tries(make, field))
        return max + make->beyond;
    return min + (int)rand_below(&make->rand, (uint64_t)(max - min + 1));
}

static float some_finite(struct make *make, const char *label)
{
    if (tries(make, label))
        return make->beyond ? INFINITY : FLT_MAX;
    return 0.5f;
}

static void *some_new(struct make *make, size_t bytes)
{
    void *memory = arena_array(&make->arena, 1, bytes);
    assert_non_null(memory);
    return memory;
}

/* `odd` is a character that the field may have, `refused` one that it may not. */
static char *some_text(struct make *make, size_t bytes_max, char odd, char refused,
                       const char *field)
{
    bool tries_length = tries(make, field), tries_character = tries(make, field);
    size_t bytes = tries_length ? bytes_max + make->beyond : 1 + rand_below(&make->rand, 20);
    char *text = some_new(make, bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        text[i] = (char)('a' + rand_below(&make->rand, 26));
    if (tries_character)
        text[0] = make->beyond ? refused : odd;
    return text;
}

static ProtobufCBinaryData some_bytes(struct make *make, size_t bytes)
{
    uint8_t *data = some_new(make, bytes);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)some(make);
    return (ProtobufCBinaryData){bytes, data};
}

static ProtobufCBinaryData some_whole(struct make *make, size_t bytes, const char *field)
{
    bool longer = tries(make, field), shorter = tries(make, field);
    return some_bytes(make,
                      bytes + (size_t)(make->beyond && longer) - (size_t)(make->beyond && shorter));
}

/* A number of elements. */
static size_t some_count(struct make *make, uint64_t max, const char *field)
{
    return tries(make, field) ? (size_t)max + make->beyond
                              : 1 + rand_below(&make->rand, SOME_COUNT);
}

/* Pointers to `count` elements of `bytes` each; so many that a limit is tried are all the first. */
static void *some_list(struct make *make, size_t count, size_t bytes)
{
    char **list = some_new(make, count * sizeof *list);
    char *elements = some_new(make, SOME_COUNT * bytes);
    for (size_t i = 0; i < count; i++)
        list[i] = elements + (count > SOME_COUNT ? 0 : i * bytes);
    return list;
}

/* ---- what no single field can tell ---- */

static void mend_times_are_set(Roost__V1__JoinReply *theirs)
{
    (void)theirs; /* they are */
}

static void mend_ranges_name_servers(Roost__V1__DescribeReply *theirs)
{
    for (size_t i = 0; i < theirs->n_ranges; i++)
        if (theirs->ranges[i]->server < WIRE_SERVERS_MAX)
            theirs->ranges[i]->server %= (uint32_t)theirs->n_servers;
}

static void mend_rows_ascend(Roost__V1__PushEntry *theirs)
{
    theirs->sparse = true;
    for (size_t i = 0; i < theirs->n_rows; i++)
        theirs->rows[i] = (uint32_t)i;
}

/* ---- messages, row by row ---- */

#define PIECE_AS(name, their_name, Type, ours_type, prefix, ...)                                   \
    static void make_##name(Roost__V1__##Type *theirs, struct make *make)                          \
    {                                                                                              \
        const ours_type *ours = NULL; /* for the size of its arrays */                             \
        (void)ours, (void)make;                                                                    \
        roost__v1__##their_name##__init(theirs);                                                   \
        __VA_ARGS__                                                                                \
    }
#define MESSAGE_AS(name, their_name, Type, ours_type, ...)                                         \
    PIECE_AS(name, their_name, Type, ours_type, "", __VA_ARGS__)                                   \
    static void bytes_of_##name(struct make *make, struct buf *ret_bytes)                          \
    {                                                                                              \
        Roost__V1__##Type theirs;                                                                  \
        make_##name(&theirs, make);                                                                \
        pack(&theirs.base, ret_bytes);                                                             \
    }                                                                                              \
    static enum err again_##name(struct slice bytes, struct arena *arena, struct buf *ret_bytes,   \
                                 struct reason *reason)                                            \
    {                                                                                              \
        ours_type ours;                                                                            \
        TRY(wire_decode_##name(bytes, arena, &ours, reason));                                      \
        return ret_bytes == NULL ? ERR_OK : wire_encode_##name(&ours, ret_bytes);                  \
    }

static void pack(const ProtobufCMessage *message, struct buf *buf)
{
    assert_int_equal(buf_reserve(buf, protobuf_c_message_get_packed_size(message) + 1), ERR_OK);
    buf->bytes = protobuf_c_message_pack(message, buf->data);
}

#define SET(field, value)                                                                          \
    reach(make, &theirs->base, #field);                                                            \
    theirs->field = value;
#define SET_NUMBER(field, value) SET(field, (__typeof__(theirs->field))value)
#define SET_NUMBERS(field, number, value)                                                          \
    theirs->n_##field = number;                                                                    \
    SET(field, some_new(make, theirs->n_##field * sizeof *theirs->field))                          \
    for (size_t i = 0; i < theirs->n_##field; i++)                                                 \
        theirs->field[i] = (__typeof__(*theirs->field))value;

#define NUMBER(field) SET_NUMBER(field, some(make))
#define NUMBER_AS(ours_field, theirs_field) SET_NUMBER(theirs_field, some(make))
#define LIMIT(field, max) SET_NUMBER(field, some_to(make, max, #field))
#define FROM_ONE(field, max) SET_NUMBER(field, some_to(make, max, #field))
#define FINITE(field, label) SET_NUMBER(field, some_finite(make, label))
#define ENUM(field, count) SET_NUMBER(field, some_to(make, count - 1, #field))
#define CHOICE(field, min, max) SET_NUMBER(field, some_choice(make, min, max, #field))
#define CODE(field) SET_NUMBER(field, some_to(make, ERR_COUNT - 1, #field))
#define TEXT(field, bytes_max) SET(field, some_text(make, bytes_max, '\n', '\x1b', #field))
#define SAID(field, bytes_max) TEXT(field, bytes_max)
#define SAID_LINE(field, bytes_max) SET(field, some_text(make, bytes_max, ' ', '\n', #field))
#define NAME(field) SET(field, some_text(make, sizeof ours->field - 1, ' ', '"', #field))
#define WORD(field) SET(field, some_text(make, sizeof ours->field - 1, '\'', '=', #field))
#define DIGEST(field) SET(field, some_whole(make, WIRE_DIGEST_BYTES, #field))
#define PROOF(field) SET(field, some_whole(make, WIRE_PROOF_BYTES, #field))
#define BYTES(field) SET(field, some_bytes(make, 20))
#define NUMBERS(field, count, max) SET_NUMBERS(field, some_count(make, max, #field), some(make))
#define CHUNKS(field, count)                                                                       \
    SET_NUMBERS(field, some_count(make, WIRE_ENTRIES_MAX, #field),                                 \
                some_to(make, WIRE_CHUNKS_MAX - 1, "chunk"))
#define EACH(field, of, count)                                                                     \
    bool field##_beyond = tries(make, #field) && make->beyond;                                     \
    SET_NUMBERS(field, make->all ? theirs->n_##of + field##_beyond : 0, some(make))
#define LIST(field, count, piece, max)                                                             \
    theirs->n_##field = some_count(make, max, #field);                                             \
    SET(field, some_list(make, theirs->n_##field, sizeof **theirs->field))                         \
    for (size_t i = 0; i < theirs->n_##field && i < SOME_COUNT; i++)                               \
        make_##piece(theirs->field[i], make);
#define LIST_HERE(field, count, piece, max) LIST(field, count, piece, max)
#define SUB(field, piece)                                                                          \
    SET(field, some_new(make, sizeof *theirs->field))                                              \
    make_##piece(theirs->field, make);
#define NEEDED(field, piece)                                                                       \
    SUB(field, piece)                                                                              \
    if (tries(make, #field) && make->beyond)                                                       \
        theirs->field = NULL;
#define NEEDED_IF(field, piece, which, value)                                                      \
    if (make->all && make->name == NULL)                                                           \
        theirs->which = (__typeof__(theirs->which))value;                                          \
    if ((int)theirs->which == (int)value) {                                                        \
        NEEDED(field, piece)                                                                       \
    }
#define OPTIONAL(field, piece, has)                                                                \
    if (make->all) {                                                                               \
        SUB(field, piece)                                                                          \
    }
#define OPTIONAL_HERE(field, piece, has) OPTIONAL(field, piece, has)
#define INCLUDE(field, piece) make_##piece(theirs, make);
#define CASE(kind, oneof, case_number, field, piece)                                               \
    if (make->number == case_number) {                                                             \
        make->has_case = true;                                                                     \
        theirs->oneof##_case = case_number;                                                        \
        SUB(field, piece)                                                                          \
    }
#define CASE_HERE(kind, oneof, case_number, field, piece)                                          \
    CASE(kind, oneof, case_number, field, piece)
#define ONE_OF(oneof, text) make->has_oneof = true;
#define COPY(to, from)
#define CHECK(function) mend_##function(theirs);

#include "proto/wire_messages.inc"

/* ---- data messages: a payload follows ---- */

static void bytes_of_to_shard(struct make *make, struct buf *ret_bytes)
{
    Roost__V1__ToShard theirs;
    make_to_shard(&theirs, make);
    reach(make, &theirs.base, "payload");
    if (theirs.header_case == ROOST__V1__TO_SHARD__HEADER_PUSH) {
        Roost__V1__Push *push = theirs.push;
        size_t bytes = some_count(make, WIRE_PAYLOAD_BYTES_MAX, "payload");
        for (size_t i = 0; i < push->n_entries; i++)
            push->entries[i]->bytes = 0;
        push->entries[push->n_entries - 1]->bytes = (uint32_t)bytes;
        theirs.payload =
            some_bytes(make, push->n_entries > SOME_COUNT ? bytes * push->n_entries : bytes);
    }
    pack(&theirs.base, ret_bytes);
}

static void bytes_of_from_shard(struct make *make, struct buf *ret_bytes)
{
    Roost__V1__FromShard theirs;
    make_from_shard(&theirs, make);
    reach(make, &theirs.base, "payload");
    if (theirs.header_case == ROOST__V1__FROM_SHARD__HEADER_WEIGHTS)
        theirs.payload = some_bytes(make, some_count(make, WIRE_PAYLOAD_BYTES_MAX, "payload"));
    pack(&theirs.base, ret_bytes);
}

static void bytes_of_from_peer(struct make *make, struct buf *ret_bytes)
{
    Roost__V1__FromPeer theirs;
    make_from_peer(&theirs, make);
    reach(make, &theirs.base, "payload");
    if (theirs.header_case == ROOST__V1__FROM_PEER__HEADER_HAVE ||
        theirs.header_case == ROOST__V1__FROM_PEER__HEADER_FRAGMENT) {
        size_t bytes = some_count(make, WIRE_VALUE_BYTES_MAX, "payload");
        theirs.payload = (ProtobufCBinaryData){bytes, some_new(make, bytes)};
    }
    pack(&theirs.base, ret_bytes);
}

static void bytes_of_transfer(struct make *make, struct buf *ret_bytes)
{
    Roost__V1__TransferRequest theirs;
    make_transfer(&theirs, make);
    reach(make, &theirs.base, "payload");
    if (make->name == NULL)
        theirs.weights = theirs.weights % 100 + 1;
    theirs.payload = some_bytes(make, (size_t)theirs.weights * theirs.arrays * sizeof(float));
    pack(&theirs.base, ret_bytes);
}

#define AGAIN_DATA(name)                                                                           \
    static enum err again_##name(struct slice bytes, struct arena *arena, struct buf *ret_bytes,   \
                                 struct reason *reason)                                            \
    {                                                                                              \
        struct name ours;                                                                          \
        TRY(wire_decode_##name(&bytes, 1, arena, &ours, reason));                                  \
        if (ret_bytes == NULL)                                                                     \
            return ERR_OK;                                                                         \
        TRY(wire_encode_##name(&ours, ret_bytes));                                                 \
        return buf_append(ret_bytes, bytes.data + ours.payload_offset, ours.payload_bytes);        \
    }
AGAIN_DATA(to_shard)
AGAIN_DATA(from_shard)
AGAIN_DATA(from_peer)

static enum err again_transfer(struct slice bytes, struct arena *arena, struct buf *ret_bytes,
                               struct reason *reason)
{
    struct transfer ours;
    struct slice payload;
    TRY(wire_decode_transfer(bytes, arena, &ours, &payload, reason));
    if (ret_bytes == NULL)
        return ERR_OK;
    TRY(wire_encode_transfer(&ours, ret_bytes));
    return buf_append(ret_bytes, payload.data, payload.bytes);
}

static const struct {
    const char *name;
    /* The bytes of a random message. */
    void (*bytes_of)(struct make *make, struct buf *ret_bytes);
    /* Decodes and, unless `ret_bytes` is NULL, encodes again. */
    enum err (*again)(struct slice bytes, struct arena *arena, struct buf *ret_bytes,
                      struct reason *reason);
} messages[] = {
#define ROW(name) {#name, bytes_of_##name, again_##name},
    WIRE_MESSAGES(ROW) ROW(to_shard) ROW(from_shard) ROW(transfer) ROW(from_peer)
#undef ROW
};
enum { MESSAGES = sizeof messages / sizeof messages[0] };

#endif
