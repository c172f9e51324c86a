/* A server's shard threads and Exchange streams over real loopback sockets: commands in, reports
 * out, a worker at the other end. */
#ifndef ROOST_TESTS_UNIT_SHARDS_FIXTURE_H
#define ROOST_TESTS_UNIT_SHARDS_FIXTURE_H

#include "tests/unit/folder.h"
#include "tests/unit/rpc_fixture.h"

#include "common/arena.h"
#include "common/cursor.h"
#include "common/model/model.h"
#include "common/settings/spec.h"
#include "server/member/proof.h"
#include "server/threads/shards.h"

enum { ACK, WEIGHTS, REFUSAL, WELCOME, CLOSED, REPORT };
enum { RECEIVED_MAX = 2048, REPORTS_MAX = 256, VALUES_MAX = 1 << 16 };
enum { BOOT = 9, TERM = 3, KEY = 77, SLOTS = 2, SLOT_SAMPLES = 4 };

static const char small[] = "model: {kind: mlp, layers: [2, 100, 3]}\n"
                            "data: {kind: spiral}\n"
                            "train: {steps: 4, slots: 2, slot_samples: 4, seed: 5}\n"
                            "optimizer: {kind: momentum, lr: 0.5, momentum: 0.5}\n";

/* A server with its shards, a worker's stream to it, and all that came of both. */
struct shards_fixture {
    uint32_t threads;
    bool prepared; /* its run's first cut is written, and … */
    bool welcome;  /* a stream said hello */
    void *folder;
    struct shards *shards;
    struct rpc_loop *loop;
    struct rpc_method method;
    struct rpc_server *server;
    struct rpc_channel *channel;
    struct rpc_stream *stream;
    struct model model;
    const char *dir;
    struct logger logger;
    uint64_t id;
    uint64_t generation;
    struct tally tally;
    struct thread_mutex lock; /* guards what follows */
    struct from_shard received[RECEIVED_MAX];
    unsigned received_count;
    float *values; /* weights of all chunks, as they came last; chunk c at offset[c] */
    uint32_t *offsets;
    struct server_report reports[REPORTS_MAX];
    struct reason ready_text;
    unsigned report_count;
    enum err closed_err;
    struct reason closed_reason;
};

/* ---- reports ---- */

static inline void take_report(void *owner, const struct server_report *report)
{
    struct shards_fixture *world = owner;
    thread_lock(&world->lock);
    assert_true(world->report_count < REPORTS_MAX);
    world->reports[world->report_count++] = *report;
    if (report->kind == SERVER_READY)
        snprintf(world->ready_text.text, sizeof world->ready_text.text, "%s", report->ready.text);
    thread_unlock(&world->lock);
    tally_add(&world->tally, REPORT);
}

/* Reports of a kind that have come so far. */
static inline unsigned reports_of(struct shards_fixture *world, enum server_report_kind kind)
{
    unsigned count = 0;
    thread_lock(&world->lock);
    for (unsigned i = 0; i < world->report_count; i++)
        count += world->reports[i].kind == kind;
    thread_unlock(&world->lock);
    return count;
}

/* The n-th report (from 1) of a kind, which will come. */
static inline struct server_report wait_report(struct shards_fixture *world,
                                               enum server_report_kind kind, unsigned n)
{
    for (unsigned seen = 0;;) {
        unsigned found = 0;
        struct server_report report = {0};
        thread_lock(&world->lock);
        for (unsigned i = 0; i < world->report_count && found < n; i++)
            if (world->reports[i].kind == kind && ++found == n)
                report = world->reports[i];
        seen = world->report_count;
        thread_unlock(&world->lock);
        if (found == n)
            return report;
        tally_wait(&world->tally, REPORT, seen + 1);
    }
}

/* ---- the worker's end ---- */

static inline void keep_weights(struct shards_fixture *world, const struct from_shard *message,
                                const struct rpc_message *bytes)
{
    struct cursor cursor = {bytes->slices, bytes->slice_count, 0, 0};
    cursor_skip(&cursor, message->payload_offset);
    size_t at = message->payload_offset;
    for (uint32_t i = 0; i < message->weights.chunk_count; i++) {
        uint32_t chunk = message->weights.chunks[i];
        size_t size = world->model.chunks[chunk].weights * sizeof(float);
        rpc_message_copy(bytes, at, size, world->values + world->offsets[chunk]);
        at += size;
    }
    assert_int_equal(at, bytes->bytes);
}

static inline void client_message(void *owner, struct rpc_stream *stream, struct rpc_message *bytes)
{
    (void)stream;
    struct shards_fixture *world = owner;
    struct arena arena = {.bytes_max = 1 << 17};
    struct from_shard message;
    struct reason reason;
    assert_int_equal(
        wire_decode_from_shard(bytes->slices, bytes->slice_count, &arena, &message, &reason),
        ERR_OK);
    thread_lock(&world->lock);
    if (message.kind == FROM_SHARD_WEIGHTS)
        keep_weights(world, &message, bytes);
    assert_true(world->received_count < RECEIVED_MAX);
    world->received[world->received_count++] = message; /* its chunks are gone afterwards */
    thread_unlock(&world->lock);
    arena_release(&arena);
    rpc_message_unref(bytes);
    tally_add(&world->tally, message.kind == FROM_SHARD_WELCOME   ? WELCOME
                             : message.kind == FROM_SHARD_ACK     ? ACK
                             : message.kind == FROM_SHARD_WEIGHTS ? WEIGHTS
                                                                  : REFUSAL);
}

static inline void client_closed(void *owner, struct rpc_stream *stream, enum err err,
                                 const struct reason *reason)
{
    (void)stream;
    struct shards_fixture *world = owner;
    thread_lock(&world->lock);
    world->closed_err = err;
    world->closed_reason = *reason;
    thread_unlock(&world->lock);
    tally_add(&world->tally, CLOSED);
}

static const struct rpc_stream_events client_events = {.message = client_message,
                                                       .closed = client_closed};

static inline void open_stream(struct shards_fixture *world)
{
    assert_int_equal(rpc_stream_open(world->channel, "/roost.v1.Shard/Exchange", &client_events,
                                     world, &world->stream),
                     ERR_OK);
}

static inline void send_message(struct shards_fixture *world, const struct to_shard *message,
                                struct counted *body)
{
    struct buf header = {0};
    assert_int_equal(wire_encode_to_shard(message, &header), ERR_OK);
    struct rpc_part part = {body, 0, body == NULL ? 0 : body->bytes};
    assert_int_equal(
        rpc_stream_send(world->stream, RPC_NORMAL, &header, &part, body == NULL ? 0 : 1), ERR_OK);
}

static inline struct digest_mac term_key(void)
{
    const uint8_t bytes[DIGEST_KEY_BYTES] = {KEY};
    struct digest_mac key;
    assert_int_equal(digest_mac_init(&key), ERR_OK);
    digest_mac_set_key(&key, bytes);
    return key;
}

/* The hello of a member of run 1 that was given its secret. */
static inline struct to_shard hello_of(uint32_t serial)
{
    scoped(digest_mac_release) struct digest_mac key = term_key();
    uint64_t member = proof_member_number(TERM, serial);
    return (struct to_shard){.kind = TO_SHARD_HELLO,
                             .hello = {member, proof_member(&key, 1, member)}};
}

/* A ticket of all chunks as run 1's coordinator grants it to that member. */
static inline struct ticket sign_ticket(const struct ticket *ticket, uint32_t serial)
{
    scoped(digest_mac_release) struct digest_mac key = term_key();
    struct ticket signed_ticket = *ticket;
    signed_ticket.member = proof_member_number(TERM, serial);
    signed_ticket.chunks.count = signed_ticket.parts.count = UINT32_MAX;
    signed_ticket.grant = proof_ticket(&key, 1, &signed_ticket);
    return signed_ticket;
}

static inline void hello(struct shards_fixture *world)
{
    struct to_shard message = hello_of(42);
    send_message(world, &message, NULL);
    tally_wait(&world->tally, WELCOME, 1);
}

static inline uint64_t pull(struct shards_fixture *world, uint64_t version, const uint32_t *chunks,
                            uint32_t count)
{
    struct to_shard message = {.kind = TO_SHARD_PULL,
                               .pull = {.id = ++world->id,
                                        .generation = world->generation,
                                        .version = version,
                                        .chunk_count = count,
                                        .chunks = chunks}};
    send_message(world, &message, NULL);
    return world->id;
}

static inline void pull_all(struct shards_fixture *world, uint64_t version)
{
    uint32_t chunks[WIRE_ENTRIES_MAX];
    for (uint32_t c = 0; c < world->model.chunks_count; c++)
        chunks[c] = c;
    pull(world, version, chunks, world->model.chunks_count);
}

/* All chunks and parts of a node, each value chunk + slot + 1 + `wrong`. */
static inline void push_values(struct shards_fixture *world, uint64_t step, uint32_t slot,
                               float wrong)
{
    struct push_entry entries[64];
    struct counted *body = counted_new(VALUES_MAX * sizeof(float));
    float *values = (float *)(void *)body->data;
    uint32_t count = 0, at = 0;
    for (uint32_t c = 0; c < world->model.chunks_count; c++) {
        uint32_t n = world->model.chunks[c].weights;
        for (uint32_t i = 0; i < n; i++)
            values[at++] = (float)(c + slot + 1) + wrong;
        if (world->model.chunks[c].parameter == world->model.loss_parameter)
            values[at - n + MODEL_LOSS_COUNT] = SLOT_SAMPLES;
        entries[count++] = (struct push_entry){.chunk = c, .bytes = n * 4};
    }
    body->bytes = at * sizeof(float);
    const struct ticket ticket = sign_ticket(
        &(struct ticket){
            .kind = TICKET_TRAIN, .generation = world->generation, .step = step, .node = {0, slot}},
        42);
    struct to_shard message = {.kind = TO_SHARD_PUSH,
                               .push = {.id = ++world->id,
                                        .generation = world->generation,
                                        .step = step,
                                        .node = {0, slot},
                                        .entry_count = count,
                                        .entries = entries,
                                        .ticket_count = 1,
                                        .tickets = &ticket},
                               .payload_bytes = body->bytes};
    send_message(world, &message, body);
    counted_unref(body);
}

static inline void push_all(struct shards_fixture *world, uint64_t step, uint32_t slot)
{
    push_values(world, step, slot, 0);
}

static inline struct from_shard last_received(struct shards_fixture *world)
{
    thread_lock(&world->lock);
    struct from_shard last = world->received[world->received_count - 1];
    thread_unlock(&world->lock);
    return last;
}

/* ---- the coordinator's end ---- */

static inline void command(struct shards_fixture *world, struct server_command command)
{
    command.boot = BOOT;
    command.term = TERM;
    command.key[0] = KEY;
    shards_command(world->shards, &command);
}

static inline struct server_command prepare_command(const struct shards_fixture *world,
                                                    const char *spec, uint64_t generation)
{
    static struct chunk_range all;
    all = (struct chunk_range){0, world->model.chunks_count, 0};
    return (struct server_command){.kind = SERVER_PREPARE,
                                   .prepare = {.run = 1,
                                               .generation = generation,
                                               .spec = spec,
                                               .checkpoint_dir = world->dir,
                                               .restore = "",
                                               .cuts = true,
                                               .range_count = 1,
                                               .ranges = &all}};
}

static inline struct server_command commit_command(const struct shards_fixture *world,
                                                   uint64_t step, bool cut)
{
    return (struct server_command){.kind = SERVER_COMMIT,
                                   .commit = {.generation = world->generation,
                                              .term = TERM,
                                              .step = step,
                                              .apply = true,
                                              .cut = cut,
                                              .scale = 0.25f,
                                              .lr = 0.5f,
                                              .bias1 = 1,
                                              .bias2 = 1}};
}

static inline void commit_step(struct shards_fixture *world, uint64_t step, bool cut)
{
    command(world, commit_command(world, step, cut));
}

/* ---- life ---- */

#ifndef SHARDS_FAILED
#define SHARDS_FAILED shards_failed
static inline void shards_failed(const struct logger *logger, const struct reason *reason)
{
    (void)logger;
    fail_msg("%s", reason->text);
}
#endif

static inline void shards_up(struct shards_fixture *world, uint32_t threads)
{
    struct reason reason;
    world->loop = loop_new(NULL);
    struct shards_config config = {.threads = threads,
                                   .boot = BOOT,
                                   .loop = world->loop,
                                   .logger = &world->logger,
                                   .report = take_report,
                                   .owner = world,
                                   .failed = SHARDS_FAILED};
    assert_int_equal(shards_new(&config, &world->shards, &reason), ERR_OK);
    world->method = shards_exchange_method(world->shards);
    world->server = server_new(world->loop, NULL, &world->method, 1);
    world->channel = channel_new(world->loop, rpc_server_port(world->server), NULL);
}

static inline void shards_down(struct shards_fixture *world)
{
    rpc_stream_unref(world->stream);
    world->stream = NULL;
    rpc_channel_free(world->channel);
    rpc_server_free(world->server);
    shards_free(world->shards);
    rpc_loop_free(world->loop);
}

static inline void shards_tear_down(struct shards_fixture *world)
{
    shards_down(world);
    tally_release(&world->tally);
    thread_mutex_release(&world->lock);
    model_release(&world->model);
    free(world->values);
    free(world->offsets);
    folder_remove(&world->folder);
}

/* A run that is prepared, its first cut written. */
static inline void prepare(struct shards_fixture *world)
{
    command(world, prepare_command(world, small, 1));
    struct server_report ready = wait_report(world, SERVER_READY, 1);
    assert_int_equal(ready.ready.code, ERR_OK);
    assert_int_equal(ready.boot, BOOT);
    assert_int_equal(ready.ready.cut.generation, 1);
    struct server_report manifest = wait_report(world, SERVER_MANIFEST, 1);
    assert_int_equal(manifest.manifest.code, ERR_OK);
    assert_int_equal(manifest.manifest.cut.version, 0);
}

static inline void shards_set_up(struct shards_fixture *world)
{
    struct spec spec;
    struct reason reason;
    assert_int_equal(folder_make(&world->folder), 0);
    assert_int_equal(spec_parse(slice_of(small), "spec", NULL, &spec, &reason), ERR_OK);
    assert_int_equal(model_init(&world->model, &spec.model, &reason), ERR_OK);
    world->generation = 1;
    world->dir = folder_path(&world->folder, "checkpoints");
    world->logger = (struct logger){LOG_LEVEL_ERROR, -1};
    world->offsets = calloc(world->model.chunks_count, sizeof *world->offsets);
    uint32_t at = 0;
    for (uint32_t c = 0; c < world->model.chunks_count; c++) {
        world->offsets[c] = at;
        at += world->model.chunks[c].weights;
    }
    world->values = calloc(at, sizeof *world->values);
    thread_mutex_init(&world->lock);
    tally_init(&world->tally);
    shards_up(world, world->threads);
    if (world->prepared)
        prepare(world);
    if (world->prepared || world->welcome) {
        open_stream(world);
        hello(world);
    }
}

static inline void assert_initial(struct shards_fixture *world)
{
    float expected[MODEL_CHUNK_WEIGHTS_MAX];
    for (uint32_t c = 0; c < world->model.chunks_count; c++) {
        if (world->model.chunks[c].parameter == world->model.loss_parameter)
            continue;
        model_initial(&world->model, 5, c, expected);
        assert_memory_equal(world->values + world->offsets[c], expected,
                            world->model.chunks[c].weights * sizeof(float));
    }
}

/* Weights messages a pull of all chunks is answered with: one per thread that owns some. */
static inline unsigned answers(const struct shards_fixture *world, uint32_t threads)
{
    return threads < world->model.chunks_count ? threads : world->model.chunks_count;
}

#endif
