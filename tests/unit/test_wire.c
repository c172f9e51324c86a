/* The encoder: every message survives the way there and back; nothing malformed gets through. */
#include "tests/unit/unit.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "proto/wire.h"

#include <string.h>

static const struct ticket some_ticket = {.kind = TICKET_TRAIN,
                                          .generation = 3,
                                          .step = 41,
                                          .version = 40,
                                          .node = {2, 3},
                                          .attempt = 9,
                                          .speculative = true};

/* Encode, decode, encode again: equal bytes, and decoding again reads every field. A field that the
 * decoder forgot would be missing in the second encoding. */
#define SURVIVES(name, ...)                                                                        \
    do {                                                                                           \
        struct name message = __VA_ARGS__;                                                         \
        struct name decoded;                                                                       \
        scoped(buf_release) struct buf first = {0};                                                \
        scoped(buf_release) struct buf second = {0};                                               \
        struct arena arena = {.bytes_max = 1 << 20};                                               \
        struct reason reason = {0};                                                                \
        assert_int_equal(wire_encode_##name(&message, &first), ERR_OK);                            \
        assert_int_equal(wire_decode_##name(buf_slice(&first), &arena, &decoded, &reason),         \
                         ERR_OK);                                                                  \
        assert_int_equal(wire_encode_##name(&decoded, &second), ERR_OK);                           \
        assert_int_equal(first.bytes, second.bytes);                                               \
        assert_memory_equal(first.data, second.data, first.bytes);                                 \
        assert_true(first.bytes >= (message_fields(#__VA_ARGS__)) * 2);                            \
        arena_release(&arena);                                                                     \
    } while (0)

/* How many fields the test sets: each takes at least two bytes on the wire. */
static size_t message_fields(const char *initializer)
{
    size_t count = 0;
    for (const char *at = initializer; *at != 0; at++)
        count += at[0] == ' ' && at[1] == '.';
    return count;
}

TEST(control_messages_survive_the_way_there_and_back)
{
    SURVIVES(join_request, {.wire_version = 1,
                            .name = "w1",
                            .device = "cpu",
                            .fingerprint = {1},
                            .data_digest = {2},
                            .previous_member = 8});
    SURVIVES(join_reply,
             {.member = 1, .run = 2, .generation = 3, .heartbeat_ms = 4, .lease_ms = 5});
    SURVIVES(member_report, {.member = 7});
    SURVIVES(member_notice, {.kind = NOTICE_RUN_OVER, .text = "ended"});
    SURVIVES(leave_request, {.member = 7, .reason = "told to"});
    SURVIVES(acquire_request, {.member = 1, .generation = 2, .sequence = 3, .wait_ms = 4});
    SURVIVES(acquire_reply, {.result = ACQUIRE_TICKET, .ticket = some_ticket});
    SURVIVES(acquire_reply, {.result = ACQUIRE_END});
    SURVIVES(complete_request, {.member = 1,
                                .ticket = some_ticket,
                                .outcome = ERR_TOO_LATE,
                                .loss_sum = 1.5,
                                .sample_count = 3,
                                .correct_count = 2,
                                .boot_count = 2,
                                .boots = (const uint64_t[]){7, 9}});
    SURVIVES(samples_request, {.run = 1, .ticket = some_ticket, .slot = 3});
    SURVIVES(samples_reply, {.sample_count = 2,
                             .inputs = {(const uint8_t *)"abcd", 4},
                             .targets = {(const uint8_t *)"efgh", 4}});
    SURVIVES(start_run_request, {.spec = "model: {}",
                                 .servers_min = 2,
                                 .resume = true,
                                 .directory = "/tmp",
                                 .data_digest = {9},
                                 .samples = 5,
                                 .validation_samples = 6,
                                 .restore = "f",
                                 .unigram_entropy = 3.5});
    SURVIVES(start_run_reply, {.run = 1, .notes = "lr differs"});
    SURVIVES(stop_run_request, {.reason = "enough"});
    SURVIVES(cut_name, {.generation = 1, .version = 2});
}

TEST(descriptions_and_status_survive)
{
    const struct chunk_description chunks[] = {{"fc1.weight", 1, 2, 3, 4, 5}, {"fc1.bias", 0}};
    const struct server_description servers[] = {{"s0", "127.0.0.1:1", 3, true}, {"s1", "h:2"}};
    const struct chunk_range ranges[] = {{0, 5, 0}, {5, 2, 1}};
    const struct member_status members[] = {{1, "w", "cpu", "joined", "", 5, 0.5}};
    SURVIVES(describe_request, {.with_chunks = true});
    SURVIVES(describe_reply, {.wire_version = 1,
                              .has_run = true,
                              .run = 2,
                              .generation = 3,
                              .state = RUN_TRAINING,
                              .spec = "x",
                              .data_digest = {1},
                              .samples = 4,
                              .validation_samples = 5,
                              .chunk_count = 2,
                              .chunks = chunks,
                              .server_count = 2,
                              .servers = servers,
                              .range_count = 2,
                              .ranges = ranges,
                              .map_number = 6});
    SURVIVES(status_reply, {.state = RUN_FAILED,
                            .reason = "r",
                            .run = 1,
                            .generation = 2,
                            .step = 3,
                            .steps = 4,
                            .loss = 5.0,
                            .accuracy = 6.0,
                            .validation_loss = 7.0,
                            .validation_accuracy = 8.0,
                            .has_validation = true,
                            .samples = 9,
                            .seconds = 10.0,
                            .samples_here = 11,
                            .workers_joined = 12,
                            .workers_lost = 13,
                            .tickets_redone = 14,
                            .duplicates = 15,
                            .skipped_steps = 16,
                            .cut = {17, 18},
                            .cut_state = "full",
                            .pushed_bytes = 19,
                            .pulled_bytes = 20,
                            .lr = 21.0,
                            .norm = 22.0,
                            .member_ms = 23,
                            .useful_ms = 24,
                            .wasted_ms = 25,
                            .member_count = 1,
                            .members = members,
                            .server_count = 2,
                            .servers = servers});
}

TEST(a_range_of_a_server_that_is_not_there_is_refused)
{
    const struct chunk_range ranges[] = {{0, 5, 1}};
    const struct server_description servers[] = {{"s0", "127.0.0.1:1", 3, true}};
    struct describe_reply message = {
        .server_count = 1, .servers = servers, .range_count = 1, .ranges = ranges};
    struct describe_reply decoded;
    scoped(buf_release) struct buf bytes = {0};
    struct arena arena = {.bytes_max = 1 << 20};
    struct reason reason = {0};
    assert_int_equal(wire_encode_describe_reply(&message, &bytes), ERR_OK);
    assert_int_equal(wire_decode_describe_reply(buf_slice(&bytes), &arena, &decoded, &reason),
                     ERR_MALFORMED);
    assert_string_equal(reason.text, "range 0 names server 1 of 1");
    arena_release(&arena);
}

TEST(reports_and_commands_survive)
{
    const struct chunk_seal seals[] = {{1, true, 2.5}, {3, false, 1e300}};
    const struct chunk_range ranges[] = {{0, 5, 0}, {5, 2, 1}};
    SURVIVES(server_report,
             {.kind = SERVER_HELLO,
              .boot = 5,
              .hello = {.name = "s0", .address = "h:1", .generation = 2, .version = 3}});
    SURVIVES(server_report, {.kind = SERVER_READY,
                             .boot = 5,
                             .ready = {.cut = {1, 2},
                                       .code = ERR_CORRUPT,
                                       .text = "why",
                                       .applied_low = 300,
                                       .applied_words = 2,
                                       .applied = (const uint64_t[]){6, 1}}});
    SURVIVES(server_report, {.kind = SERVER_REDUCED,
                             .boot = 5,
                             .reduced = {.generation = 1,
                                         .step = 2,
                                         .seal_count = 2,
                                         .seals = seals,
                                         .has_loss = true,
                                         .loss_sum = 3.0,
                                         .sample_count = 4.0,
                                         .correct_count = 5.0}});
    SURVIVES(server_report,
             {.kind = SERVER_COMMITTED, .boot = 5, .committed = {.generation = 1, .step = 2}});
    SURVIVES(server_report, {.kind = SERVER_MANIFEST,
                             .boot = 5,
                             .manifest = {.cut = {1, 2}, .code = ERR_NO_SPACE, .digest = {7}}});
    SURVIVES(
        server_report,
        {.kind = SERVER_WRONG_BITS,
         .boot = 5,
         .wrong_bits = {.member = 1, .first_member = 9, .step = 2, .node = {3, 1}, .chunk = 4}});
    SURVIVES(server_report,
             {.kind = SERVER_STATISTICS,
              .boot = 5,
              .statistics = {
                  .pushed_bytes = 1, .pulled_bytes = 2, .duplicates = 3, .open_nodes_max = 4}});
    SURVIVES(server_report, {.kind = SERVER_HELD,
                             .boot = 5,
                             .held = {.run = 1,
                                      .generation = 2,
                                      .version = 3,
                                      .spec = 4,
                                      .range_count = 2,
                                      .ranges = ranges,
                                      .has_decision = true,
                                      .decision = {.generation = 2, .step = 5, .lr = 2.5f}}});
    SURVIVES(server_command, {.kind = SERVER_PREPARE,
                              .term = 1,
                              .boot = 2,
                              .prepare = {.run = 1,
                                          .generation = 2,
                                          .from_cut = true,
                                          .cut = {1, 7},
                                          .spec = "s",
                                          .checkpoint_dir = "d",
                                          .server = 1,
                                          .joins = true,
                                          .cuts = true,
                                          .range_count = 2,
                                          .ranges = ranges}});
    SURVIVES(server_command, {.kind = SERVER_COMMIT,
                              .term = 1,
                              .boot = 2,
                              .commit = {.generation = 1,
                                         .term = 1,
                                         .step = 2,
                                         .apply = true,
                                         .cut = true,
                                         .scale = 1.5f,
                                         .lr = 2.5f,
                                         .bias1 = 3.5f,
                                         .bias2 = 4.5f,
                                         .samples = 5,
                                         .applied = 6,
                                         .skips_in_row = 7}});
    SURVIVES(server_command, {.kind = SERVER_RECORDED, .term = 1, .boot = 2, .recorded = {1, 2}});
    SURVIVES(server_command, {.kind = SERVER_END, .term = 1, .boot = 2});
    SURVIVES(server_command, {.kind = SERVER_ASK, .term = 1, .boot = 2});
}

/* ---- the data path ---- */

static const struct push_entry entries[] = {{3, 0, 4, 77}, {4, 1, 8, 88}};

static struct to_shard some_push(void)
{
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

/* The push as received: header and payload. */
static struct buf push_bytes(const struct to_shard *message)
{
    struct buf bytes = {0};
    uint8_t payload[64] = {1, 2, 3};
    assert_int_equal(wire_encode_to_shard(message, &bytes), ERR_OK);
    assert_int_equal(buf_append(&bytes, payload, message->payload_bytes), ERR_OK);
    return bytes;
}

static enum err decode_bytes(struct slice bytes, struct to_shard *ret_message,
                             struct reason *reason, struct arena *arena)
{
    return wire_decode_to_shard(&bytes, 1, arena, ret_message, reason);
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
    assert_int_equal(message->push.entries[1].digest, 88);
    assert_int_equal(message->payload_bytes, 12);
    assert_int_equal(message->payload_offset, total - 12);
}

TEST(a_push_decodes_however_it_is_cut_into_slices)
{
    struct to_shard push = some_push();
    scoped(buf_release) struct buf bytes = push_bytes(&push);
    for (size_t first = 0; first <= bytes.bytes; first++)
        for (size_t second = first; second <= bytes.bytes; second++) {
            struct arena arena = {.bytes_max = 1 << 16};
            struct slice slices[] = {{bytes.data, first},
                                     {bytes.data + first, second - first},
                                     {bytes.data + second, bytes.bytes - second}};
            struct to_shard decoded;
            assert_int_equal(wire_decode_to_shard(slices, 3, &arena, &decoded, NULL), ERR_OK);
            assert_is_the_push(&decoded, bytes.bytes);
            arena_release(&arena);
        }
}

TEST(what_async_adds_to_a_push_and_a_pull_survives)
{
    struct to_shard push = some_push(), decoded;
    push.push.attempt = 9;
    push.push.boot = 8;
    push.push.scale = 0.5f;
    const struct push_entry versioned[] = {{3, 0, 4, 77, 1000}, {4, 1, 8, 88, 0}};
    push.push.entries = versioned;
    scoped(buf_release) struct buf bytes = push_bytes(&push);
    struct arena arena = {.bytes_max = 1 << 16};
    assert_int_equal(decode_bytes(buf_slice(&bytes), &decoded, NULL, &arena), ERR_OK);
    assert_is_the_push(&decoded, bytes.bytes);
    assert_int_equal(decoded.push.attempt, 9);
    assert_int_equal(decoded.push.boot, 8);
    assert_true(decoded.push.scale == 0.5f);
    assert_int_equal(decoded.push.entries[0].version, 1000);
    const uint32_t chunks[] = {5, 6};
    const struct to_shard pull = {
        .kind = TO_SHARD_PULL,
        .pull = {.id = 1, .chunk_count = 2, .chunks = chunks, .newest = true, .attempt = 9}};
    scoped(buf_release) struct buf pull_bytes = {0};
    assert_int_equal(wire_encode_to_shard(&pull, &pull_bytes), ERR_OK);
    assert_int_equal(decode_bytes(buf_slice(&pull_bytes), &decoded, NULL, &arena), ERR_OK);
    assert_true(decoded.pull.newest);
    assert_int_equal(decoded.pull.attempt, 9);
    arena_release(&arena);
}

TEST(a_scale_that_is_not_finite_is_malformed)
{
    struct to_shard push = some_push(), decoded;
    push.push.scale = __builtin_inff();
    scoped(buf_release) struct buf bytes = push_bytes(&push);
    struct arena arena = {.bytes_max = 1 << 16};
    struct reason reason = {0};
    assert_int_equal(decode_bytes(buf_slice(&bytes), &decoded, &reason, &arena), ERR_MALFORMED);
    assert_string_equal(reason.text, "push.scale is not finite");
    arena_release(&arena);
}

TEST(versions_must_be_of_the_chunks)
{
    const uint32_t chunks[] = {5, 6};
    const uint64_t versions[] = {100, 2};
    struct from_shard message = {
        .kind = FROM_SHARD_WEIGHTS,
        .weights = {.id = 9, .chunk_count = 2, .chunks = chunks, .versions = versions}};
    scoped(buf_release) struct buf bytes = {0};
    struct arena arena = {.bytes_max = 1 << 16};
    struct from_shard decoded;
    struct reason reason = {0};
    assert_int_equal(wire_encode_from_shard(&message, &bytes), ERR_OK);
    struct slice slice = buf_slice(&bytes);
    assert_int_equal(wire_decode_from_shard(&slice, 1, &arena, &decoded, NULL), ERR_OK);
    assert_int_equal(decoded.weights.versions[0], 100);
    /* chunks 5, 6 as two bytes behind their tag and length: one less than there are versions */
    uint8_t *list = memmem(bytes.data, bytes.bytes, "\x22\x02\x05\x06", 4);
    assert_non_null(list);
    memcpy(list, "\x22\x02\x85\x06", 4); /* one chunk: 5 + 6 * 128 */
    assert_int_equal(wire_decode_from_shard(&slice, 1, &arena, &decoded, &reason), ERR_MALFORMED);
    assert_string_equal(reason.text, "2 versions of 1 chunks");
    arena_release(&arena);
}

TEST(every_truncated_push_is_malformed)
{
    struct to_shard push = some_push();
    scoped(buf_release) struct buf bytes = push_bytes(&push);
    for (size_t length = 0; length < bytes.bytes; length++) {
        struct arena arena = {.bytes_max = 1 << 16};
        struct reason reason = {0};
        struct to_shard decoded;
        assert_int_equal(
            decode_bytes((struct slice){bytes.data, length}, &decoded, &reason, &arena),
            ERR_MALFORMED);
        assert_true(reason.text[0] != 0);
        arena_release(&arena);
    }
}

TEST(a_payload_that_is_not_last_is_malformed)
{
    struct to_shard push = some_push();
    scoped(buf_release) struct buf bytes = push_bytes(&push);
    struct arena arena = {.bytes_max = 1 << 16};
    struct reason reason = {0};
    struct to_shard decoded;
    assert_int_equal(buf_append(&bytes, "\x08\x01", 2), ERR_OK);
    assert_int_equal(decode_bytes(buf_slice(&bytes), &decoded, &reason, &arena), ERR_MALFORMED);
    assert_non_null(strstr(reason.text, "is not the last"));
    arena_release(&arena);
}

TEST(entries_must_name_exactly_the_payload)
{
    struct to_shard push = some_push();
    push.payload_bytes = 13;
    scoped(buf_release) struct buf bytes = push_bytes(&push);
    struct arena arena = {.bytes_max = 1 << 16};
    struct reason reason = {0};
    struct to_shard decoded;
    assert_int_equal(decode_bytes(buf_slice(&bytes), &decoded, &reason, &arena), ERR_MALFORMED);
    assert_string_equal(reason.text, "entries name 12 bytes, the payload has 13");
    arena_release(&arena);
}

TEST(more_entries_than_allowed_are_refused)
{
    static struct push_entry many[WIRE_ENTRIES_MAX + 1];
    struct to_shard push = some_push();
    push.push.entries = many;
    push.push.entry_count = WIRE_ENTRIES_MAX + 1;
    push.payload_bytes = 0;
    scoped(buf_release) struct buf bytes = push_bytes(&push);
    struct arena arena = {.bytes_max = 1 << 20};
    struct reason reason = {0};
    struct to_shard decoded;
    assert_int_equal(decode_bytes(buf_slice(&bytes), &decoded, &reason, &arena), ERR_MALFORMED);
    assert_string_equal(reason.text, "entries is 1025, at most 1024 is allowed");
    arena_release(&arena);
}

TEST(a_node_beyond_the_largest_step_is_refused)
{
    struct to_shard push = some_push();
    push.push.node = (struct node){TREE_LEVEL_MAX, 1};
    scoped(buf_release) struct buf bytes = push_bytes(&push);
    struct arena arena = {.bytes_max = 1 << 16};
    struct reason reason = {0};
    struct to_shard decoded;
    assert_int_equal(decode_bytes(buf_slice(&bytes), &decoded, &reason, &arena), ERR_MALFORMED);
    assert_string_equal(reason.text, "node.index is 1, at most 0 is allowed");
    arena_release(&arena);
}

TEST(a_control_character_in_a_name_is_refused)
{
    struct join_request message = {.wire_version = 1, .name = "a\x1b[2J", .device = "cpu"};
    struct join_request decoded;
    scoped(buf_release) struct buf bytes = {0};
    struct arena arena = {.bytes_max = 1 << 16};
    struct reason reason = {0};
    assert_int_equal(wire_encode_join_request(&message, &bytes), ERR_OK);
    assert_int_equal(wire_decode_join_request(buf_slice(&bytes), &arena, &decoded, &reason),
                     ERR_MALFORMED);
    assert_string_equal(reason.text, "name has a control character at byte 1");
    arena_release(&arena);
}

TEST(answers_of_a_shard_survive)
{
    const uint32_t chunks[] = {5, 6};
    const struct from_shard messages[] = {
        {.kind = FROM_SHARD_WELCOME, .welcome = {3, 4}},
        {.kind = FROM_SHARD_ACK, .ack = {7, ERR_BUSY, 2}},
        {.kind = FROM_SHARD_WEIGHTS,
         .weights = {9, 10, CODEC_BF16, 2, chunks},
         .payload_bytes = 300},
        {.kind = FROM_SHARD_REFUSAL, .refusal = {11, ERR_TOO_LATE}},
    };
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
        struct arena arena = {.bytes_max = 1 << 16};
        scoped(buf_release) struct buf first = {0};
        scoped(buf_release) struct buf second = {0};
        uint8_t payload[300] = {0};
        struct from_shard decoded;
        assert_int_equal(wire_encode_from_shard(&messages[i], &first), ERR_OK);
        size_t header = first.bytes;
        assert_int_equal(buf_append(&first, payload, messages[i].payload_bytes), ERR_OK);
        struct slice slice = buf_slice(&first);
        assert_int_equal(wire_decode_from_shard(&slice, 1, &arena, &decoded, NULL), ERR_OK);
        assert_int_equal(decoded.payload_bytes, messages[i].payload_bytes);
        assert_int_equal(wire_encode_from_shard(&decoded, &second), ERR_OK);
        assert_int_equal(second.bytes, header);
        assert_memory_equal(first.data, second.data, header);
        arena_release(&arena);
    }
}
