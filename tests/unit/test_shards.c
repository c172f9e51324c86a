/* Shard threads, Exchange streams and cuts over real loopback sockets: commands in, reports out, a
 * worker at the other end. */
#include "tests/unit/folder.h"
#include "tests/unit/rpc_fixture.h"

#include "common/arena.h"
#include "common/checkpoint.h"
#include "common/cursor.h"
#include "common/safetensors.h"
#include "server/shards.h"

enum { ACK, WEIGHTS, REFUSAL, WELCOME, CLOSED, REPORT };
enum { RECEIVED_MAX = 2048, REPORTS_MAX = 256, VALUES_MAX = 1 << 16 };
enum { BOOT = 9, TERM = 3, SLOTS = 2, SLOT_SAMPLES = 4 };

static const char small[] = "model: {kind: mlp, layers: [2, 100, 3]}\n"
                            "data: {kind: spiral}\n"
                            "train: {steps: 4, slots: 2, slot_samples: 4, seed: 5}\n"
                            "optimizer: {kind: momentum, lr: 0.5, momentum: 0.5}\n";

/* A server with its shards, a worker's stream to it, and all that came of both. */
struct world {
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

static void take_report(void *owner, const struct server_report *report)
{
    struct world *world = owner;
    thread_lock(&world->lock);
    assert_true(world->report_count < REPORTS_MAX);
    world->reports[world->report_count++] = *report;
    if (report->kind == SERVER_READY)
        snprintf(world->ready_text.text, sizeof world->ready_text.text, "%s", report->ready.text);
    thread_unlock(&world->lock);
    tally_add(&world->tally, REPORT);
}

/* Reports of a kind that have come so far. */
static unsigned reports_of(struct world *world, enum server_report_kind kind)
{
    unsigned count = 0;
    thread_lock(&world->lock);
    for (unsigned i = 0; i < world->report_count; i++)
        count += world->reports[i].kind == kind;
    thread_unlock(&world->lock);
    return count;
}

/* The n-th report (from 1) of a kind, which will come. */
static struct server_report wait_report(struct world *world, enum server_report_kind kind,
                                        unsigned n)
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

static void keep_weights(struct world *world, const struct from_shard *message,
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

static void client_message(void *owner, struct rpc_stream *stream, struct rpc_message *bytes)
{
    (void)stream;
    struct world *world = owner;
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

static void client_closed(void *owner, struct rpc_stream *stream, enum err err,
                          const struct reason *reason)
{
    (void)stream;
    struct world *world = owner;
    thread_lock(&world->lock);
    world->closed_err = err;
    world->closed_reason = *reason;
    thread_unlock(&world->lock);
    tally_add(&world->tally, CLOSED);
}

static const struct rpc_stream_events client_events = {.message = client_message,
                                                       .closed = client_closed};

static void open_stream(struct world *world)
{
    assert_int_equal(rpc_stream_open(world->channel, "/roost.v1.Shard/Exchange", &client_events,
                                     world, &world->stream),
                     ERR_OK);
}

static void send_message(struct world *world, const struct to_shard *message, struct counted *body)
{
    struct buf header = {0};
    assert_int_equal(wire_encode_to_shard(message, &header), ERR_OK);
    struct rpc_part part = {body, 0, body == NULL ? 0 : body->bytes};
    assert_int_equal(
        rpc_stream_send(world->stream, RPC_NORMAL, &header, &part, body == NULL ? 0 : 1), ERR_OK);
}

static void hello(struct world *world)
{
    struct to_shard message = {.kind = TO_SHARD_HELLO, .hello = {.member = 42}};
    send_message(world, &message, NULL);
    tally_wait(&world->tally, WELCOME, 1);
}

static uint64_t pull(struct world *world, uint64_t version, const uint32_t *chunks, uint32_t count)
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

static void pull_all(struct world *world, uint64_t version)
{
    uint32_t chunks[WIRE_ENTRIES_MAX];
    for (uint32_t c = 0; c < world->model.chunks_count; c++)
        chunks[c] = c;
    pull(world, version, chunks, world->model.chunks_count);
}

/* All chunks and parts of a node, each value chunk + slot + 1. */
static void push_all(struct world *world, uint64_t step, uint32_t slot, uint64_t digest)
{
    struct push_entry entries[64];
    struct counted *body = counted_new(VALUES_MAX * sizeof(float));
    float *values = (float *)(void *)body->data;
    uint32_t count = 0, at = 0;
    for (uint32_t c = 0; c < world->model.chunks_count; c++) {
        uint32_t n = world->model.chunks[c].weights;
        for (uint32_t i = 0; i < n; i++)
            values[at++] = (float)(c + slot + 1);
        if (world->model.chunks[c].parameter == world->model.loss_parameter)
            values[at - n + MODEL_LOSS_COUNT] = SLOT_SAMPLES;
        entries[count++] = (struct push_entry){c, 0, n * 4, digest};
    }
    body->bytes = at * sizeof(float);
    struct to_shard message = {.kind = TO_SHARD_PUSH,
                               .push = {.id = ++world->id,
                                        .generation = world->generation,
                                        .step = step,
                                        .node = {0, slot},
                                        .entry_count = count,
                                        .entries = entries},
                               .payload_bytes = body->bytes};
    send_message(world, &message, body);
    counted_unref(body);
}

static struct from_shard last_received(struct world *world)
{
    thread_lock(&world->lock);
    struct from_shard last = world->received[world->received_count - 1];
    thread_unlock(&world->lock);
    return last;
}

/* ---- the coordinator's end ---- */

static void command(struct world *world, struct server_command command)
{
    command.boot = BOOT;
    command.term = TERM;
    shards_command(world->shards, &command);
}

static struct server_command prepare_command(const struct world *world, const char *spec,
                                             uint64_t generation)
{
    static struct chunk_range all;
    all = (struct chunk_range){0, world->model.chunks_count, 0};
    return (struct server_command){.kind = SERVER_PREPARE,
                                   .prepare = {.run = 1,
                                               .generation = generation,
                                               .spec = spec,
                                               .checkpoint_dir = world->dir,
                                               .restore = "",
                                               .range_count = 1,
                                               .ranges = &all}};
}

static void commit_step(struct world *world, uint64_t step, bool cut)
{
    command(world, (struct server_command){.kind = SERVER_COMMIT,
                                           .commit = {.generation = world->generation,
                                                      .term = TERM,
                                                      .step = step,
                                                      .apply = true,
                                                      .cut = cut,
                                                      .scale = 0.25f,
                                                      .lr = 0.5f,
                                                      .bias1 = 1,
                                                      .bias2 = 1}});
}

/* ---- life ---- */

static void shards_up(struct world *world, uint32_t threads)
{
    struct reason reason;
    struct shards_config config = {.threads = threads,
                                   .boot = BOOT,
                                   .logger = &world->logger,
                                   .report = take_report,
                                   .owner = world};
    assert_int_equal(shards_new(&config, &world->shards, &reason), ERR_OK);
    world->method = shards_exchange_method(world->shards);
    world->loop = loop_new(NULL);
    world->server = server_new(world->loop, NULL, &world->method, 1);
    world->channel = channel_new(world->loop, rpc_server_port(world->server), NULL);
}

static void shards_down(struct world *world)
{
    rpc_stream_unref(world->stream);
    world->stream = NULL;
    rpc_channel_free(world->channel);
    rpc_server_free(world->server);
    shards_free(world->shards);
    rpc_loop_free(world->loop);
}

static struct world *world_new(void **state, const char *spec_text, uint32_t threads)
{
    struct world *world = calloc(1, sizeof *world);
    struct spec spec;
    struct reason reason;
    assert_non_null(world);
    assert_int_equal(spec_parse(slice_of(spec_text), "spec", NULL, &spec, &reason), ERR_OK);
    assert_int_equal(model_init(&world->model, &spec.model, &reason), ERR_OK);
    world->generation = 1;
    world->dir = folder_path(state, "checkpoints");
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
    shards_up(world, threads);
    return world;
}

static void world_free(struct world *world)
{
    shards_down(world);
    tally_release(&world->tally);
    thread_mutex_release(&world->lock);
    model_release(&world->model);
    free(world->values);
    free(world->offsets);
    free(world);
}

/* A run that is prepared, its first cut written, and a stream that said hello. */
static struct world *prepared_world(void **state, uint32_t threads)
{
    struct world *world = world_new(state, small, threads);
    command(world, prepare_command(world, small, 1));
    struct server_report ready = wait_report(world, SERVER_READY, 1);
    assert_int_equal(ready.ready.code, ERR_OK);
    assert_int_equal(ready.boot, BOOT);
    assert_int_equal(ready.ready.cut.generation, 1);
    struct server_report manifest = wait_report(world, SERVER_MANIFEST, 1);
    assert_int_equal(manifest.manifest.code, ERR_OK);
    assert_int_equal(manifest.manifest.cut.version, 0);
    open_stream(world);
    hello(world);
    return world;
}

static void assert_initial(struct world *world)
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
static unsigned answers(const struct world *world, uint32_t threads)
{
    return threads < world->model.chunks_count ? threads : world->model.chunks_count;
}

/* ---- tests ---- */

/* All slots of a step, its commit, and the weights it makes. */
static void train(struct world *world, uint32_t threads, uint64_t step, bool cut)
{
    unsigned acks = tally_of(&world->tally, ACK), weights = tally_of(&world->tally, WEIGHTS);
    unsigned reduced = reports_of(world, SERVER_REDUCED);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        push_all(world, step, slot, slot);
    tally_wait(&world->tally, ACK, acks + SLOTS);
    for (uint32_t i = 1; i <= threads; i++)
        assert_int_equal(wait_report(world, SERVER_REDUCED, reduced + i).reduced.step, step);
    commit_step(world, step, cut);
    pull_all(world, step + 1);
    tally_wait(&world->tally, WEIGHTS, weights + answers(world, threads));
}

/* Every weight after the first step: momentum's first step is lr * scale * sum. */
static void assert_stepped_once(const struct world *world)
{
    float initial[MODEL_CHUNK_WEIGHTS_MAX];
    for (uint32_t c = 0; c < world->model.chunks_count; c++) {
        if (world->model.chunks[c].parameter == world->model.loss_parameter)
            continue;
        model_initial(&world->model, 5, c, initial);
        float sum = (float)(c + 1) + (float)(c + 2);
        for (uint32_t i = 0; i < world->model.chunks[c].weights; i++)
            assert_true(world->values[world->offsets[c] + i] == initial[i] - 0.5f * (0.25f * sum));
    }
}

static void assert_cut_is_what_was_pulled(struct world *world, const struct server_report *manifest)
{
    struct checkpoint_record record = {.name = {1, 1}, .run = 1, .spec = small, .server_count = 1};
    memcpy(record.manifests[0].bytes, manifest->manifest.digest, 32);
    struct reason reason;
    assert_int_equal(checkpoint_record(&file_ops_real, world->dir, &record, &reason), ERR_OK);
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    assert_int_equal(checkpoint_open(world->dir, record.name, &checkpoint, &reason), ERR_OK);
    assert_int_equal(checkpoint_fits(checkpoint, &world->model, 1, &reason), ERR_OK);
    for (uint32_t c = 0; c < world->model.chunks_count; c++) {
        struct checkpoint_chunk chunk;
        assert_int_equal(checkpoint_read(checkpoint, c, &chunk, &reason), ERR_OK);
        if (world->model.chunks[c].parameter != world->model.loss_parameter)
            assert_memory_equal(chunk.values, world->values + world->offsets[c],
                                chunk.n * sizeof(float));
    }
}

static size_t values_bytes(const struct world *world)
{
    uint32_t last = world->model.chunks_count - 1;
    return (world->offsets[last] + world->model.chunks[last].weights) * sizeof(float);
}

/* Two steps with a cut between them; another server goes on from the cut, with another number of
 * threads, and makes the same bits. */
static void train_cut_and_resume(void **state, uint32_t threads)
{
    struct world *world = prepared_world(state, threads);
    struct from_shard welcome = last_received(world);
    assert_int_equal(welcome.welcome.boot, BOOT);
    assert_int_equal(welcome.welcome.generation, 1);
    pull_all(world, 0);
    tally_wait(&world->tally, WEIGHTS, answers(world, threads));
    assert_initial(world);
    train(world, threads, 0, true);
    assert_stepped_once(world);
    struct server_report committed = wait_report(world, SERVER_COMMITTED, 1);
    assert_int_equal(committed.committed.step, 0);
    assert_int_equal(committed.committed.generation, 1);
    struct server_report manifest = wait_report(world, SERVER_MANIFEST, 2);
    assert_int_equal(manifest.manifest.cut.version, 1);
    assert_cut_is_what_was_pulled(world, &manifest);
    train(world, threads, 1, false);
    scoped(free_scoped) float *expected = malloc(values_bytes(world));
    memcpy(expected, world->values, values_bytes(world));

    shards_down(world);
    tally_release(&world->tally);
    tally_init(&world->tally);
    world->report_count = world->received_count = 0;
    memset(world->values, 0, values_bytes(world));
    shards_up(world, 3 - threads);
    struct server_command again = prepare_command(world, small, 2);
    again.prepare.from_cut = true;
    again.prepare.cut = (struct cut_name){1, 1};
    command(world, again);
    struct server_report ready = wait_report(world, SERVER_READY, 1);
    assert_int_equal(ready.ready.code, ERR_OK);
    assert_int_equal(ready.ready.cut.version, 1);
    assert_int_equal(shards_held(world->shards).generation, 2);
    assert_int_equal(shards_held(world->shards).version, 1);
    world->generation = 2;
    open_stream(world);
    hello(world);
    train(world, 3 - threads, 1, false);
    assert_memory_equal(world->values, expected, values_bytes(world));
    assert_int_equal(reports_of(world, SERVER_MANIFEST), 0); /* the cut is there already */
    world_free(world);
}

static void a_step_with_one_thread(void **state)
{
    train_cut_and_resume(state, 1);
}

static void a_step_with_two_threads(void **state)
{
    train_cut_and_resume(state, 2);
}

static void many_parked_pulls_are_all_answered(void **state)
{
    enum { PULLS = 600 }; /* more than a stream's queue holds */
    struct world *world = prepared_world(state, 1);
    for (uint32_t i = 0; i < PULLS; i++) {
        uint32_t chunk = i % world->model.chunks_count;
        pull(world, 1, &chunk, 1);
        tally_wait(&world->tally, REFUSAL, i + 1); /* a parked pull holds no credit */
        assert_int_equal(last_received(world).refusal.code, ERR_TOO_EARLY);
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        push_all(world, 0, slot, slot);
    wait_report(world, SERVER_REDUCED, 1);
    commit_step(world, 0, false);
    tally_wait(&world->tally, WEIGHTS, PULLS);
    world_free(world);
}

static void a_gone_worker_s_pulls_are_forgotten(void **state)
{
    struct world *world = prepared_world(state, 2);
    for (uint32_t i = 0; i < 8; i++)
        pull_all(world, 1);
    tally_wait(&world->tally, REFUSAL, 8);
    rpc_stream_cancel(world->stream);
    tally_wait(&world->tally, CLOSED, 1);
    rpc_stream_unref(world->stream);
    open_stream(world);
    hello(world);
    tally_wait(&world->tally, WELCOME, 2);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        push_all(world, 0, slot, slot);
    wait_report(world, SERVER_REDUCED, 2);
    commit_step(world, 0, false);
    wait_report(world, SERVER_COMMITTED, 1);
    pull_all(world, 1);
    tally_wait(&world->tally, WEIGHTS, answers(world, 2));
    assert_int_equal(tally_of(&world->tally, WEIGHTS), answers(world, 2));
    world_free(world);
}

static void a_wrong_duplicate_names_the_member(void **state)
{
    struct world *world = prepared_world(state, 1);
    push_all(world, 0, 0, 1);
    push_all(world, 0, 0, 2);
    tally_wait(&world->tally, ACK, 2);
    assert_int_equal(last_received(world).ack.code, ERR_OK);
    struct server_report wrong = wait_report(world, SERVER_WRONG_BITS, 1);
    assert_int_equal(wrong.wrong_bits.member, 42);
    assert_int_equal(wrong.wrong_bits.first_member, 42);
    assert_int_equal(wrong.wrong_bits.step, 0);
    world_free(world);
}

static void without_a_run_everything_waits(void **state)
{
    struct world *world = world_new(state, small, 2);
    open_stream(world);
    hello(world);
    push_all(world, 0, 0, 1);
    tally_wait(&world->tally, ACK, 1);
    assert_int_equal(last_received(world).ack.code, ERR_NO_RUN);
    assert_int_equal(last_received(world).ack.first_refused, 0);
    pull_all(world, 0);
    tally_wait(&world->tally, REFUSAL, 1);
    assert_int_equal(last_received(world).refusal.code, ERR_NO_RUN);
    world_free(world);
}

static void what_cannot_be_prepared_says_why(void **state)
{
    struct world *world = world_new(state, small, 2);
    command(world, prepare_command(world, "model: {kind: llama}", 1));
    assert_int_equal(wait_report(world, SERVER_READY, 1).ready.code, ERR_INVALID);
    assert_non_null(strstr(world->ready_text.text, "model.kind"));
    struct server_command missing = prepare_command(world, small, 2);
    missing.prepare.from_cut = true;
    missing.prepare.cut = (struct cut_name){1, 77};
    command(world, missing);
    assert_int_equal(wait_report(world, SERVER_READY, 2).ready.code, ERR_NOT_FOUND);
    assert_non_null(strstr(world->ready_text.text, "g1-v77"));
    command(world, missing); /* asked again: the same answer */
    assert_int_equal(wait_report(world, SERVER_READY, 3).ready.code, ERR_NOT_FOUND);
    struct server_command restore = prepare_command(world, small, 3);
    restore.prepare.restore = "/nowhere/model.safetensors";
    command(world, restore);
    assert_int_equal(wait_report(world, SERVER_READY, 4).ready.code, ERR_NOT_FOUND);
    assert_non_null(strstr(world->ready_text.text, "/nowhere/model.safetensors"));
    /* A later attempt is not hurt by the earlier ones. */
    command(world, prepare_command(world, small, 4));
    assert_int_equal(wait_report(world, SERVER_READY, 5).ready.code, ERR_OK);
    world_free(world);
}

static void commands_of_others_are_dropped(void **state)
{
    struct world *world = prepared_world(state, 1);
    struct server_command old = prepare_command(world, small, 7);
    old.boot = BOOT;
    old.term = TERM - 1;
    shards_command(world->shards, &old);
    old.term = TERM;
    old.boot = BOOT - 1;
    shards_command(world->shards, &old);
    assert_int_equal(shards_held(world->shards).generation, 1);
    command(world, prepare_command(world, small, 1)); /* held: only said again */
    assert_int_equal(wait_report(world, SERVER_READY, 2).ready.code, ERR_OK);
    world_free(world);
}

static void reports_are_said_again(void **state)
{
    struct world *world = prepared_world(state, 2);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        push_all(world, 0, slot, slot);
    wait_report(world, SERVER_REDUCED, 2);
    shards_report_again(world->shards);
    wait_report(world, SERVER_READY, 2);
    wait_report(world, SERVER_MANIFEST, 2);
    assert_int_equal(wait_report(world, SERVER_REDUCED, 4).reduced.step, 0);
    commit_step(world, 0, false);
    wait_report(world, SERVER_COMMITTED, 1);
    commit_step(world, 0, false);
    wait_report(world, SERVER_COMMITTED, 2);
    shards_report_again(world->shards);
    assert_int_equal(wait_report(world, SERVER_READY, 3).ready.cut.version, 1);
    world_free(world);
}

static void a_new_generation_ends_what_waits(void **state)
{
    struct world *world = prepared_world(state, 1);
    pull_all(world, 1);
    tally_wait(&world->tally, REFUSAL, 1);
    command(world, prepare_command(world, small, 2));
    tally_wait(&world->tally, REFUSAL, 2);
    assert_int_equal(last_received(world).refusal.code, ERR_OLD_GENERATION);
    wait_report(world, SERVER_READY, 2);
    pull_all(world, 0); /* of generation 1 */
    tally_wait(&world->tally, REFUSAL, 3);
    assert_int_equal(last_received(world).refusal.code, ERR_OLD_GENERATION);
    command(world, (struct server_command){.kind = SERVER_END});
    pull_all(world, 0);
    tally_wait(&world->tally, REFUSAL, 4);
    assert_int_equal(last_received(world).refusal.code, ERR_NO_RUN);
    assert_int_equal(shards_held(world->shards).generation, 0);
    world_free(world);
}

static void assert_closed(struct world *world, const char *words)
{
    tally_wait(&world->tally, CLOSED, 1);
    assert_int_equal(world->closed_err, ERR_MALFORMED);
    if (strstr(world->closed_reason.text, words) == NULL)
        fail_msg("closed with: %s", world->closed_reason.text);
}

static void a_stream_begins_with_hello(void **state)
{
    struct world *world = world_new(state, small, 1);
    open_stream(world);
    pull_all(world, 0);
    assert_closed(world, "hello is the first");
    world_free(world);
}

static void a_second_hello_ends_the_stream(void **state)
{
    struct world *world = world_new(state, small, 1);
    open_stream(world);
    hello(world);
    struct to_shard message = {.kind = TO_SHARD_HELLO, .hello = {.member = 43}};
    send_message(world, &message, NULL);
    assert_closed(world, "hello is the first");
    world_free(world);
}

static void noise_ends_the_stream_and_nothing_else(void **state)
{
    struct world *world = prepared_world(state, 1);
    for (int i = 0; i < 3; i++) { /* what follows the first is not even looked at */
        struct buf noise = {0};
        assert_int_equal(buf_append(&noise, "\xff\xfe\xfd noise", 9), ERR_OK);
        enum err err = rpc_stream_send(world->stream, RPC_NORMAL, &noise, NULL, 0);
        assert_true(err == ERR_OK || err == ERR_CANCELLED);
    }
    assert_closed(world, "");
    rpc_stream_unref(world->stream);
    open_stream(world);
    hello(world);
    tally_wait(&world->tally, WELCOME, 2);
    pull_all(world, 0);
    tally_wait(&world->tally, WEIGHTS, 1);
    assert_initial(world);
    world_free(world);
}

/* While its thread makes millions of weights, a shard answers nothing. */
static void prepare_large(struct world *world)
{
    static const char large[] = "model: {kind: mlp, layers: [2, 2000, 2000, 3]}\n"
                                "data: {kind: spiral}\n"
                                "train: {steps: 4, slots: 2, slot_samples: 4, seed: 5}\n";
    struct spec spec;
    struct reason reason;
    scoped(model_release) struct model model = {0};
    assert_int_equal(spec_parse(slice_of(large), "spec", NULL, &spec, &reason), ERR_OK);
    assert_int_equal(model_init(&model, &spec.model, &reason), ERR_OK);
    struct server_command prepare = prepare_command(world, large, 1);
    struct chunk_range all = {0, model.chunks_count, 0};
    prepare.prepare.ranges = &all;
    command(world, prepare);
}

static void more_pulls_than_credits_end_the_stream(void **state)
{
    struct world *world = world_new(state, small, 1);
    open_stream(world);
    hello(world);
    prepare_large(world);
    const uint32_t first = 0;
    for (int i = 0; i < WIRE_CREDITS + 1; i++)
        pull(world, 0, &first, 1);
    assert_closed(world, "more pulls");
    assert_int_equal(wait_report(world, SERVER_READY, 1).ready.code, ERR_OK);
    /* Many more chunks than copies that the writer may have. */
    assert_int_equal(wait_report(world, SERVER_MANIFEST, 1).manifest.code, ERR_OK);
    world_free(world);
}

static void more_pushes_than_credits_end_the_stream(void **state)
{
    struct world *world = world_new(state, small, 1);
    open_stream(world);
    hello(world);
    prepare_large(world);
    for (uint32_t i = 0; i < WIRE_CREDITS + 1; i++)
        push_all(world, 0, 0, 1);
    assert_closed(world, "more pushes");
    assert_int_equal(wait_report(world, SERVER_READY, 1).ready.code, ERR_OK);
    world_free(world);
}

static void an_acknowledgement_gives_its_credit_back(void **state)
{
    struct world *world = prepared_world(state, 2);
    for (uint32_t i = 1; i <= 3 * WIRE_CREDITS; i++) {
        push_all(world, 0, 0, 1);
        tally_wait(&world->tally, ACK, i);
        assert_int_equal(last_received(world).ack.code, ERR_OK);
    }
    world_free(world);
}

/* What a stream asked for just before it went is not parked after it was forgotten. */
static void pulls_that_outlive_their_stream_are_passed_over(void **state)
{
    struct world *world = world_new(state, small, 1);
    open_stream(world);
    hello(world);
    struct rpc_stream *other = world->stream;
    open_stream(world);
    tally_wait(&world->tally, WELCOME, 1);
    struct to_shard message = {.kind = TO_SHARD_HELLO, .hello = {.member = 43}};
    send_message(world, &message, NULL);
    tally_wait(&world->tally, WELCOME, 2);
    prepare_large(world);
    const uint32_t first = 0;
    for (uint32_t i = 0; i < WIRE_CREDITS; i++) { /* a batch of the shard thread */
        push_all(world, 0, 0, 1);
        pull(world, 1, &first, 1);
    }
    struct rpc_stream *stays = world->stream;
    world->stream = other;
    for (uint32_t i = 0; i < WIRE_CREDITS; i++)
        pull(world, 1, &first, 1);
    send_message(world, &message, NULL); /* a second hello: ended after all that came before */
    tally_wait(&world->tally, CLOSED, 1);
    assert_int_equal(wait_report(world, SERVER_READY, 1).ready.code, ERR_OK);
    tally_wait(&world->tally, ACK, WIRE_CREDITS);
    command(world, (struct server_command){.kind = SERVER_END}); /* tells all that are parked */
    wait_report(world, SERVER_READY, 1);
    tally_wait(&world->tally, REFUSAL, 2 * WIRE_CREDITS);
    rpc_stream_unref(other);
    world->stream = stays;
    world_free(world);
}

static void a_disk_that_refuses_fails_the_cut_only(void **state)
{
    struct world *world = world_new(state, small, 2);
    folder_write(state, "checkpoints", "a file is in the way", 20);
    command(world, prepare_command(world, small, 1));
    assert_int_equal(wait_report(world, SERVER_READY, 1).ready.code, ERR_OK);
    struct server_report manifest = wait_report(world, SERVER_MANIFEST, 1);
    assert_int_not_equal(manifest.manifest.code, ERR_OK);
    open_stream(world);
    hello(world);
    pull_all(world, 0);
    tally_wait(&world->tally, WEIGHTS, answers(world, 2));
    assert_initial(world);
    world_free(world);
}

int main(void)
{
    rpc_process_init(false);
    const struct CMUnitTest tests[] = {
        unit_test_in_folder(a_step_with_one_thread),
        unit_test_in_folder(a_step_with_two_threads),
        unit_test_in_folder(many_parked_pulls_are_all_answered),
        unit_test_in_folder(a_gone_worker_s_pulls_are_forgotten),
        unit_test_in_folder(a_wrong_duplicate_names_the_member),
        unit_test_in_folder(without_a_run_everything_waits),
        unit_test_in_folder(what_cannot_be_prepared_says_why),
        unit_test_in_folder(commands_of_others_are_dropped),
        unit_test_in_folder(reports_are_said_again),
        unit_test_in_folder(a_new_generation_ends_what_waits),
        unit_test_in_folder(a_stream_begins_with_hello),
        unit_test_in_folder(a_second_hello_ends_the_stream),
        unit_test_in_folder(noise_ends_the_stream_and_nothing_else),
        unit_test_in_folder(more_pulls_than_credits_end_the_stream),
        unit_test_in_folder(more_pushes_than_credits_end_the_stream),
        unit_test_in_folder(an_acknowledgement_gives_its_credit_back),
        unit_test_in_folder(pulls_that_outlive_their_stream_are_passed_over),
        unit_test_in_folder(a_disk_that_refuses_fails_the_cut_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
