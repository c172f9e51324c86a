/* The encoder: messages of random values within their limits survive the way there and back, each
 * limit holds from both sides, no field of roost.proto is without a row, and nothing malformed gets
 * through. */
#include "tests/unit/wire_fixture.h"

enum { ARENA_BYTES_MAX = 1 << 28, SEEDS = 50, NUMBERS_MAX = 16 };

/* ---- every message ---- */

/* The bytes of a message of kind `kind` by its seed; false: it has no oneof, so that only number 0
 * makes one. */
static bool make_bytes(struct make *make, size_t kind, struct buf *ret_bytes)
{
    make->arena.bytes_max = ARENA_BYTES_MAX;
    messages[kind].bytes_of(make, ret_bytes);
    arena_release(&make->arena);
    return make->has_oneof || make->number == 0;
}

/* A message as it was made is decoded and encoded again. */
static enum err again(size_t kind, struct slice bytes, struct buf *ret_bytes, struct reason *reason)
{
    scoped(arena_release) struct arena arena = {.bytes_max = ARENA_BYTES_MAX};
    return messages[kind].again(bytes, &arena, ret_bytes, reason);
}

static void a_message_survives(size_t kind, uint32_t number, uint64_t seed)
{
    struct make make = {.rand = {seed}, .number = number, .all = seed % 2 == 0, .tried = -1};
    scoped(buf_release) struct buf first = {0};
    scoped(buf_release) struct buf second = {0};
    struct reason reason = {0};
    if (!make_bytes(&make, kind, &first))
        return;
    enum err err = again(kind, buf_slice(&first), &second, &reason);
    if (make.has_oneof && !make.has_case) {
        assert_int_equal(err, ERR_MALFORMED);
        return;
    }
    if (err != ERR_OK || first.bytes != second.bytes ||
        memcmp(first.data, second.data, first.bytes) != 0)
        fail_msg("%s, case %u, seed %lu: %s, %zu bytes are %zu again; %s", messages[kind].name,
                 number, seed, err_name(err), first.bytes, second.bytes, reason.text);
}

TEST(every_message_of_random_values_survives)
{
    for (size_t kind = 0; kind < MESSAGES; kind++)
        for (uint32_t number = 0; number < NUMBERS_MAX; number++)
            for (uint64_t seed = 0; seed < SEEDS; seed++)
                a_message_survives(kind, number, seed);
}

/* The fields of `message`, and of all messages inside it, have a row. */
static void assert_reached(const struct reached *reached, const ProtobufCMessageDescriptor *message)
{
    for (unsigned i = 0; i < message->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->fields[i];
        if (!is_reached(reached, field))
            fail_msg("%s.%s has no row in wire_messages.inc", message->short_name, field->name);
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            assert_reached(reached, field->descriptor);
    }
}

TEST(every_field_of_every_call_has_a_row)
{
    static struct reached reached;
    for (size_t kind = 0; kind < MESSAGES; kind++)
        for (uint32_t number = 0; number < NUMBERS_MAX; number++) {
            struct make make = {.reached = &reached, .number = number, .all = true, .tried = -1};
            scoped(buf_release) struct buf bytes = {0};
            (void)make_bytes(&make, kind, &bytes);
        }
    const ProtobufCServiceDescriptor *services[] = {&roost__v1__cluster__descriptor,
                                                    &roost__v1__shard__descriptor,
                                                    &roost__v1__peer__descriptor};
    for (size_t s = 0; s < sizeof services / sizeof services[0]; s++)
        for (unsigned m = 0; m < services[s]->n_methods; m++) {
            assert_reached(&reached, services[s]->methods[m].input);
            assert_reached(&reached, services[s]->methods[m].output);
        }
}

/* One row at its limit, or beyond; false: there is no row `tried`. */
static bool a_limit_holds(size_t kind, uint32_t number, int tried, bool beyond)
{
    struct make make = {.number = number, .all = true, .tried = tried, .beyond = beyond};
    scoped(buf_release) struct buf bytes = {0};
    struct reason reason = {0};
    if (!make_bytes(&make, kind, &bytes) || make.name == NULL || (make.has_oneof && !make.has_case))
        return false;
    enum err err = again(kind, buf_slice(&bytes), NULL, &reason);
    if (err != (beyond ? ERR_MALFORMED : ERR_OK) ||
        (beyond && strstr(reason.text, make.name) == NULL))
        fail_msg("%s, case %u: %s %s its limit: %s, %s", messages[kind].name, number, make.name,
                 beyond ? "beyond" : "at", err_name(err), reason.text);
    return true;
}

TEST(every_limit_holds_from_both_sides)
{
    for (size_t kind = 0; kind < MESSAGES; kind++)
        for (uint32_t number = 0; number < NUMBERS_MAX; number++)
            for (int tried = 0; a_limit_holds(kind, number, tried, false); tried++)
                assert_true(a_limit_holds(kind, number, tried, true));
}

/* Decodes the first `length` bytes, with nothing behind them: whole or malformed. */
static void decode_begin(size_t kind, const struct buf *bytes, size_t length)
{
    struct reason reason = {0};
    scoped(free_scoped) uint8_t *begin = malloc(length + 1);
    assert_non_null(begin);
    memcpy(begin + 1, bytes->data, length);
    enum err err = again(kind, (struct slice){begin + 1, length}, NULL, &reason);
    assert_true(err == ERR_OK || (err == ERR_MALFORMED && reason.text[0] != 0));
}

TEST(a_message_that_is_cut_off_anywhere_does_no_harm)
{
    for (size_t kind = 0; kind < MESSAGES; kind++)
        for (uint32_t number = 0; number < NUMBERS_MAX; number++) {
            struct make make = {.number = number, .all = true, .tried = -1};
            scoped(buf_release) struct buf bytes = {0};
            if (!make_bytes(&make, kind, &bytes))
                continue;
            for (size_t length = 0; length < bytes.bytes; length++)
                decode_begin(kind, &bytes, length);
        }
}

/* ---- what no single field can tell ---- */

TEST(a_range_of_a_server_that_is_not_there_is_refused)
{
    const struct chunk_range ranges[] = {{0, 5, 1}};
    const struct server_description servers[] = {{"s0", "127.0.0.1:1", 3, true}};
    struct describe_reply message = {
        .server_count = 1, .servers = servers, .range_count = 1, .ranges = ranges};
    struct describe_reply decoded;
    scoped(buf_release) struct buf bytes = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    struct reason reason = {0};
    assert_int_equal(wire_encode_describe_reply(&message, &bytes), ERR_OK);
    assert_int_equal(wire_decode_describe_reply(buf_slice(&bytes), &arena, &decoded, &reason),
                     ERR_MALFORMED);
    assert_string_equal(reason.text, "range 0 names server 1 of 1");
}

TEST(an_older_worker_may_say_its_memory)
{
    static const uint8_t memory_bytes[] = {9 << 3, 5}; /* the field is gone */
    const struct join_request request = {.wire_version = WIRE_VERSION, .name = "w"};
    struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct join_request again;
    struct buf bytes = {0};
    assert_int_equal(wire_encode_join_request(&request, &bytes), ERR_OK);
    assert_int_equal(buf_append(&bytes, memory_bytes, sizeof memory_bytes), ERR_OK);
    assert_int_equal(wire_decode_join_request(buf_slice(&bytes), &arena, &again, NULL), ERR_OK);
    assert_string_equal(again.name, "w");
    arena_release(&arena);
    buf_release(&bytes);
}

/* ---- what people read ---- */

/* A log, a store or an array cuts between bytes; a file's name may be anything. */
TEST(what_people_read_is_sent_as_it_can_be_shown)
{
    scoped(buf_release) struct buf bytes = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    struct leave_request decoded, leave = {.reason = "cannot open \"a\\b\"\x1b[2J \xc3\xa9\xc3"};
    assert_int_equal(wire_encode_leave_request(&leave, &bytes), ERR_OK);
    assert_int_equal(wire_decode_leave_request(buf_slice(&bytes), &arena, &decoded, NULL), ERR_OK);
    assert_string_equal(decoded.reason, "cannot open ?a?b??[2J \xc3\xa9?");
}

TEST(what_people_read_is_cut_between_two_characters)
{
    scoped(buf_release) struct buf bytes = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    char longer[WIRE_TEXT_BYTES_MAX + 3] = "a";
    struct status_reply decoded, status = {.reason = longer, .cut_state = "one\ntwo"};
    for (size_t i = 1; i + 2 < sizeof longer; i += 2)
        memcpy(longer + i, "\xc3\xa9", 3);
    assert_int_equal(strlen(longer), WIRE_TEXT_BYTES_MAX + 1);
    assert_int_equal(wire_encode_status_reply(&status, &bytes), ERR_OK);
    assert_int_equal(wire_decode_status_reply(buf_slice(&bytes), &arena, &decoded, NULL), ERR_OK);
    assert_int_equal(strlen(decoded.reason), WIRE_TEXT_BYTES_MAX - 1);
    assert_memory_equal(decoded.reason, longer, WIRE_TEXT_BYTES_MAX - 1);
    assert_string_equal(decoded.cut_state, "one\ntwo");
}

TEST(a_lease_of_no_time_is_refused)
{
    struct join_reply message = {.member = 1, .heartbeat_ms = 5}, decoded;
    scoped(buf_release) struct buf bytes = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    struct reason reason = {0};
    assert_int_equal(wire_encode_join_reply(&message, &bytes), ERR_OK);
    assert_int_equal(wire_decode_join_reply(buf_slice(&bytes), &arena, &decoded, &reason),
                     ERR_MALFORMED);
    assert_string_equal(reason.text, "heartbeat_ms and lease_ms must not be 0");
}

TEST(a_commit_has_the_term_of_its_command)
{
    struct server_command message = {.kind = SERVER_COMMIT, .term = 7}, decoded;
    scoped(buf_release) struct buf bytes = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    assert_int_equal(wire_encode_server_command(&message, &bytes), ERR_OK);
    assert_int_equal(wire_decode_server_command(buf_slice(&bytes), &arena, &decoded, NULL), ERR_OK);
    assert_int_equal(decoded.commit.term, 7);
}

/* ---- the data path ---- */

static struct to_shard some_push(void)
{
    static const struct push_entry entries[] = {{3, 0, 4, 77}, {4, 1, 8, 88}};
    return (struct to_shard){.kind = TO_SHARD_PUSH,
                             .push = {.id = 1,
                                      .generation = 2,
                                      .step = 3,
                                      .node = {1, 2},
                                      .codec = CODEC_BF16,
                                      .entry_count = 2,
                                      .entries = entries},
                             .payload_bytes = 12};
}

/* The message as received: header and payload. */
static struct buf with_payload(const struct to_shard *message)
{
    struct buf bytes = {0};
    uint8_t payload[64] = {1, 2, 3};
    assert_int_equal(wire_encode_to_shard(message, &bytes), ERR_OK);
    assert_int_equal(buf_append(&bytes, payload, message->payload_bytes), ERR_OK);
    return bytes;
}

static void assert_is_the_push(const struct to_shard *message, size_t total)
{
    assert_int_equal(message->kind, TO_SHARD_PUSH);
    assert_int_equal(message->push.id, 1);
    assert_int_equal(message->push.generation, 2);
    assert_int_equal(message->push.step, 3);
    assert_true(node_equal(message->push.node, (struct node){1, 2}));
    assert_int_equal(message->push.codec, CODEC_BF16);
    assert_int_equal(message->push.entry_count, 2);
    assert_int_equal(message->push.entries[1].chunk, 4);
    assert_int_equal(message->push.entries[1].part, 1);
    assert_int_equal(message->push.entries[1].bytes, 8);
    assert_int_equal(message->push.entries[1].version, 88);
    assert_int_equal(message->payload_bytes, 12);
    assert_int_equal(message->payload_offset, total - 12);
}

TEST(a_push_decodes_however_it_is_cut_into_slices)
{
    struct to_shard push = some_push();
    scoped(buf_release) struct buf bytes = with_payload(&push);
    for (size_t first = 0; first <= bytes.bytes; first++)
        for (size_t second = first; second <= bytes.bytes; second++) {
            scoped(arena_release) struct arena arena = {.bytes_max = 1 << 16};
            struct slice slices[] = {{bytes.data, first},
                                     {bytes.data + first, second - first},
                                     {bytes.data + second, bytes.bytes - second}};
            struct to_shard decoded;
            assert_int_equal(wire_decode_to_shard(slices, 3, &arena, &decoded, NULL), ERR_OK);
            assert_is_the_push(&decoded, bytes.bytes);
        }
}

static void assert_refused(const struct buf *bytes, const char *sentence)
{
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 16};
    struct slice slice = buf_slice(bytes);
    struct reason reason = {0};
    struct to_shard decoded;
    assert_int_equal(wire_decode_to_shard(&slice, 1, &arena, &decoded, &reason), ERR_MALFORMED);
    assert_string_equal(reason.text, sentence);
}

TEST(a_push_without_its_whole_payload_is_malformed)
{
    struct to_shard push = some_push();
    scoped(buf_release) struct buf whole = with_payload(&push);
    for (size_t length = 0; length < whole.bytes; length++) {
        scoped(arena_release) struct arena arena = {.bytes_max = 1 << 16};
        struct slice slice = {whole.data, length};
        struct to_shard decoded;
        assert_int_equal(wire_decode_to_shard(&slice, 1, &arena, &decoded, NULL), ERR_MALFORMED);
    }
    push.payload_bytes = 13;
    scoped(buf_release) struct buf longer = with_payload(&push);
    assert_refused(&longer, "entries name 12 bytes, the payload has 13");
}

/* ---- some rows of a chunk ---- */

TEST(a_sparse_entry_says_which_rows_come)
{
    static const uint32_t rows[] = {0, 7, 300};
    static const struct push_entry entries[] = {
        {.chunk = 3, .bytes = 12, .sparse = true, .row_count = 3, .rows = rows},
        {.chunk = 4, .sparse = true}, /* none does */
        {.chunk = 5, .bytes = 4}};
    struct to_shard push = some_push(), decoded;
    push.push.entry_count = 3;
    push.push.entries = entries;
    push.payload_bytes = 16;
    scoped(buf_release) struct buf bytes = with_payload(&push);
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 16};
    struct slice slice = buf_slice(&bytes);
    assert_int_equal(wire_decode_to_shard(&slice, 1, &arena, &decoded, NULL), ERR_OK);
    assert_true(decoded.push.entries[0].sparse);
    assert_int_equal(decoded.push.entries[0].row_count, 3);
    assert_memory_equal(decoded.push.entries[0].rows, rows, sizeof rows);
    assert_true(decoded.push.entries[1].sparse);
    assert_int_equal(decoded.push.entries[1].row_count, 0);
    assert_false(decoded.push.entries[2].sparse);
}

TEST(a_push_may_have_no_payload_at_all)
{
    static const struct push_entry entry = {.chunk = 4, .sparse = true};
    struct to_shard push = some_push(), decoded;
    push.push.entry_count = 1;
    push.push.entries = &entry;
    push.payload_bytes = 0;
    scoped(buf_release) struct buf bytes = with_payload(&push);
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 16};
    struct slice slice = buf_slice(&bytes);
    assert_int_equal(wire_decode_to_shard(&slice, 1, &arena, &decoded, NULL), ERR_OK);
    assert_int_equal(decoded.payload_offset, bytes.bytes);
}

static void assert_rows_refused(bool sparse, const uint32_t *rows, uint32_t count,
                                const char *sentence)
{
    const struct push_entry entry = {
        .chunk = 3, .bytes = 12, .sparse = sparse, .row_count = count, .rows = rows};
    struct to_shard push = some_push();
    push.push.entry_count = 1;
    push.push.entries = &entry;
    scoped(buf_release) struct buf bytes = with_payload(&push);
    assert_refused(&bytes, sentence);
}

TEST(rows_that_do_not_ascend_are_malformed)
{
    static const uint32_t twice[] = {1, 4, 4}, falling[] = {UINT32_MAX, 0};
    assert_rows_refused(true, twice, 3, "entry.rows do not ascend: 4, then 4");
    assert_rows_refused(true, falling, 2, "entry.rows do not ascend: 4294967295, then 0");
    assert_rows_refused(false, twice, 1, "an entry that is not sparse names 1 rows");
}

TEST(a_payload_that_is_not_last_is_malformed)
{
    struct to_shard push = some_push();
    scoped(buf_release) struct buf bytes = with_payload(&push);
    assert_int_equal(buf_append(&bytes, "\x08\x01", 2), ERR_OK);
    assert_refused(&bytes, "payload of 12 bytes is not the last 14 bytes");
}

TEST(a_payload_where_none_belongs_is_malformed)
{
    const struct to_shard pull = {.kind = TO_SHARD_PULL, .pull = {.id = 1}, .payload_bytes = 5};
    scoped(buf_release) struct buf asked = with_payload(&pull);
    assert_refused(&asked, "a payload where none belongs");
    const struct from_shard ack = {.kind = FROM_SHARD_ACK, .ack = {.id = 1}, .payload_bytes = 5};
    scoped(buf_release) struct buf bytes = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 16};
    struct from_shard decoded;
    assert_int_equal(wire_encode_from_shard(&ack, &bytes), ERR_OK);
    assert_int_equal(buf_append(&bytes, "12345", 5), ERR_OK);
    struct slice slice = buf_slice(&bytes);
    assert_int_equal(wire_decode_from_shard(&slice, 1, &arena, &decoded, NULL), ERR_MALFORMED);
    const struct from_peer parked = {.kind = FROM_PEER_PARKED, .payload_bytes = 5};
    scoped(buf_release) struct buf peer_bytes = {0};
    struct from_peer from_peer;
    assert_int_equal(wire_encode_from_peer(&parked, &peer_bytes), ERR_OK);
    assert_int_equal(buf_append(&peer_bytes, "12345", 5), ERR_OK);
    slice = buf_slice(&peer_bytes);
    assert_int_equal(wire_decode_from_peer(&slice, 1, &arena, &from_peer, NULL), ERR_MALFORMED);
}
