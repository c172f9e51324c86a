/* Push and pull through Shard.Exchange, shard thread included, against the limits of the same run:
 *
 *   bench_exchange [ROUNDS [PASSES [THREADS [CASE]]]]
 *
 * One worker, one server, each a fresh process, 64 MiB of chunks (an mlp of 4096 x 4096 and what
 * belongs to it). A pass pushes one slot of every chunk, or pulls every chunk once. Slots are added
 * up in tree order: of two, one is copied from the received slices and one added, and every second
 * makes a pair of sums; the limit does the same, in the last case with a digest of what comes, as a
 * shard makes. Gradients are sent from where they lie, as those of a worker on a CPU are. Weights
 * are sent from the published copies and copied into the worker's array; through shared memory they
 * stay where they are, as in such a worker, and are read once. The limit copies. The server has a
 * shard thread for each core. THREADS: polling threads of each process; 0: one per core. CASE: only
 * that one, e.g. "push tls". Nothing is applied in the timed part. */
#include "common/arena.h"
#include "common/digest.h"
#include "common/model/model.h"
#include "common/shared/shared_pool.h"
#include "common/thread.h"
#include "common/time.h"
#include "server/member/proof.h"
#include "server/threads/shards.h"
#include "tests/bench/rounds.h"

#include <stdlib.h>
#include <string.h>

enum { PASSES_MAX = 64, WARM_STEPS = 3, BOOT = 1, TERM = 1, KEY = 77, RUN = 1, GENERATION = 1 };

static const char spec_format[] = "model: {kind: mlp, layers: [2, 4096, 4096, 3]}\n"
                                  "data: {kind: spiral}\n"
                                  "optimizer: {kind: sgd, lr: 0.1}\n"
                                  "train: {steps: 10, slots: %u, slot_samples: 1, microbatch: 1}\n";

static void spec_text(unsigned passes, char *ret_text, size_t bytes)
{
    snprintf(ret_text, bytes, spec_format, passes);
}

static void model_make(unsigned passes, struct model *ret_model)
{
    char text[512];
    spec_text(passes, text, sizeof text);
    struct spec spec;
    struct reason reason = {{0}};
    struct slice slice = {(const uint8_t *)text, strlen(text)};
    if (spec_parse(slice, "bench", NULL, &spec, &reason) != ERR_OK ||
        model_init(ret_model, &spec.model, &reason) != ERR_OK)
        fprintf(stderr, "%s\n", reason.text);
}

/* ---- the server ---- */

struct serving {
    struct shards *shards;
    struct rpc_method method;
    struct thread_mutex lock; /* guards `ready` */
    struct thread_cond changed;
    bool ready;
    uint32_t threads, reduced; /* shard threads; those that have reduced the step */
};

static void on_failed(const struct logger *logger, const struct reason *reason)
{
    (void)logger;
    fprintf(stderr, "%s\n", reason->text);
    abort();
}

/* Whether the step is reduced by all of them. */
static bool all_reduced(struct serving *serving)
{
    thread_lock(&serving->lock);
    bool all = ++serving->reduced == serving->threads;
    if (all)
        serving->reduced = 0;
    thread_unlock(&serving->lock);
    return all;
}

/* The coordinator's part: every step is applied as soon as it is reduced. */
static void on_report(void *owner, const struct server_report *report)
{
    struct serving *serving = owner;
    if (report->kind == SERVER_READY) {
        thread_lock(&serving->lock);
        serving->ready = true;
        thread_wake_all(&serving->changed);
        thread_unlock(&serving->lock);
    } else if (report->kind == SERVER_REDUCED && all_reduced(serving)) {
        struct server_command commit = {.kind = SERVER_COMMIT,
                                        .term = TERM,
                                        .key = {KEY},
                                        .boot = BOOT,
                                        .commit = {.generation = GENERATION,
                                                   .term = TERM,
                                                   .step = report->reduced.step,
                                                   .apply = true,
                                                   .scale = 1,
                                                   .lr = 0.1f,
                                                   .bias1 = 1,
                                                   .bias2 = 1}};
        shards_command(serving->shards, &commit);
    }
}

static void prepare(struct serving *serving, unsigned passes)
{
    char text[512];
    struct model model;
    model_make(passes, &model);
    spec_text(passes, text, sizeof text);
    struct chunk_range all = {0, model.chunks_count, 0};
    struct server_command command = {.kind = SERVER_PREPARE,
                                     .term = TERM,
                                     .key = {KEY},
                                     .boot = BOOT,
                                     .prepare = {.run = RUN,
                                                 .generation = GENERATION,
                                                 .spec = text,
                                                 .checkpoint_dir = "/dev/null", /* no first cut */
                                                 .restore = "",
                                                 .range_count = 1,
                                                 .ranges = &all}};
    shards_command(serving->shards, &command);
    thread_lock(&serving->lock);
    while (!serving->ready)
        ignore(thread_wait_locked(&serving->changed, &serving->lock, TIME_NEVER)); /* no limit */
    thread_unlock(&serving->lock);
    model_release(&model);
}

static unsigned serve(const void *context)
{
    static struct serving serving; /* of this process, which does nothing else */
    static const struct logger silent = {LOG_LEVEL_ERROR, -1};
    const struct rounds_case *about = context;
    struct reason reason = {{0}};
    thread_mutex_init(&serving.lock);
    thread_cond_init(&serving.changed);
    struct rpc_loop *loop = rounds_loop(about);
    serving.threads = thread_core_count(); /* as a daemon has by default */
    struct shards_config config = {.threads = serving.threads,
                                   .boot = BOOT,
                                   .loop = loop,
                                   .logger = &silent,
                                   .report = on_report,
                                   .owner = &serving,
                                   .failed = on_failed};
    if (shards_new(&config, &serving.shards, &reason) != ERR_OK)
        fprintf(stderr, "%s\n", reason.text);
    prepare(&serving, about->passes);
    serving.method = shards_exchange_method(serving.shards);
    struct rpc_server_config server_config = {.loop = loop,
                                              .address = "127.0.0.1:0",
                                              .identity = about->server,
                                              .methods = &serving.method,
                                              .method_count = 1};
    struct rpc_server *server = NULL;
    if (rpc_server_new(&server_config, &server, &reason) != ERR_OK)
        fprintf(stderr, "%s\n", reason.text);
    return server == NULL ? 0 : rpc_server_port(server);
}

/* ---- the worker ---- */

/* Where a chunk lies in the tensor. */
struct chunk_place {
    size_t offset, bytes;
};

struct worker {
    const struct rounds_case *about;
    uint64_t member;
    struct model model;
    struct counted *tensor;     /* all chunks, one after another */
    struct chunk_place *places; /* of the chunks */
    struct rpc_message *
        *kept;     /* of the chunks, whose weights are used where they lie; may be NULL */
    uint64_t seen; /* of all that was read there */
    struct rpc_stream *stream;
    struct thread_mutex
        lock;              /* guards the rest: an answer may come while the first ones are sent */
    struct digest_mac key; /* that makes its proofs */
    uint64_t sent, done, end; /* messages, over all passes */
    uint64_t step;
    struct thread_cond over;
    bool waiting;
};

static void tensor_make(struct worker *worker)
{
    uint32_t count = worker->model.chunks_count;
    worker->places = calloc(count, sizeof *worker->places);
    worker->kept = calloc(count, sizeof *worker->kept);
    check(worker->places != NULL && worker->kept != NULL);
    size_t offset = 0;
    for (uint32_t c = 0; c < count; c++) {
        worker->places[c] =
            (struct chunk_place){offset, worker->model.chunks[c].weights * sizeof(float)};
        offset += worker->places[c].bytes;
    }
    worker->tensor = shared_pool_counted(rpc_stream_pool(worker->stream), offset);
    check(worker->tensor != NULL);
    float *values = (float *)(void *)worker->tensor->data;
    for (size_t i = 0; i < offset / sizeof *values; i++)
        values[i] = (float)(i % 1000) / 1024;
    const struct model_chunk *loss = &worker->model.chunks[count - 1];
    values[offset / sizeof *values - loss->weights + MODEL_LOSS_COUNT] = 1; /* slot_samples */
}

static void send_message(struct worker *worker, const struct to_shard *message,
                         const struct rpc_part *part)
{
    struct buf header = {0};
    check(wire_encode_to_shard(message, &header) == ERR_OK);
    check(rpc_stream_send(worker->stream, part == NULL ? RPC_URGENT : RPC_NORMAL, &header, part,
                          part != NULL) == ERR_OK);
}

static void send_push(struct worker *worker, uint64_t id)
{
    uint32_t count = worker->model.chunks_count;
    uint32_t chunk = (uint32_t)(id % count), slot = (uint32_t)(id / count % worker->about->passes);
    const struct chunk_place *place = &worker->places[chunk];
    struct push_entry entry = {chunk, 0, (uint32_t)place->bytes, 1};
    struct ticket ticket = {.kind = TICKET_TRAIN,
                            .generation = GENERATION,
                            .step = worker->step,
                            .node = {0, slot},
                            .member = worker->member,
                            .chunks = {.count = count},
                            .parts = {.count = 1}};
    ticket.grant = proof_ticket(&worker->key, RUN, &ticket);
    struct to_shard message = {.kind = TO_SHARD_PUSH,
                               .push = {.id = id,
                                        .generation = GENERATION,
                                        .step = worker->step,
                                        .node = {0, slot},
                                        .entry_count = 1,
                                        .entries = &entry,
                                        .ticket_count = 1,
                                        .tickets = &ticket},
                               .payload_bytes = place->bytes};
    struct rpc_part part = {worker->tensor, place->offset, place->bytes};
    send_message(worker, &message, &part);
}

static void send_pull(struct worker *worker, uint64_t id, uint64_t version, uint32_t chunk)
{
    struct to_shard message = {.kind = TO_SHARD_PULL,
                               .pull = {.id = id,
                                        .generation = GENERATION,
                                        .version = version,
                                        .chunk_count = 1,
                                        .chunks = &chunk}};
    send_message(worker, &message, NULL);
}

static void send_more_locked(struct worker *worker)
{
    while (worker->sent < worker->end && worker->sent - worker->done < WIRE_CREDITS) {
        uint64_t id = worker->sent++;
        if (worker->about->direction == LIMIT_PUSH)
            send_push(worker, id);
        else
            send_pull(worker, id, 0, (uint32_t)(id % worker->model.chunks_count));
    }
}

static void take_weights(struct worker *worker, const struct from_shard *message,
                         struct rpc_message *bytes)
{
    uint32_t chunk = (uint32_t)(message->weights.id % worker->model.chunks_count);
    const struct chunk_place *place = &worker->places[chunk];
    check(message->payload_bytes == place->bytes);
    struct limit_sink sink = {.copy = worker->tensor->data + place->offset};
    size_t skip = message->payload_offset;
    for (uint32_t i = 0; i < bytes->slice_count; i++) {
        struct slice slice = bytes->slices[i];
        size_t here = skip < slice.bytes ? skip : slice.bytes;
        skip -= here;
        slice = (struct slice){slice.data + here, slice.bytes - here};
        if (bytes->lent)
            worker->seen ^= digest_fast64(slice);
        else
            limit_sink_take(&sink, slice.data, slice.bytes);
    }
    rpc_message_unref(worker->kept[chunk]);
    worker->kept[chunk] = bytes->lent ? rpc_message_ref(bytes) : NULL;
}

static void one_done(struct worker *worker)
{
    thread_lock(&worker->lock);
    worker->done++;
    send_more_locked(worker);
    worker->waiting = worker->done < worker->end;
    if (!worker->waiting)
        thread_wake_all(&worker->over);
    thread_unlock(&worker->lock);
}

static void on_message(void *owner, struct rpc_stream *stream, struct rpc_message *bytes)
{
    (void)stream;
    struct worker *worker = owner;
    struct arena arena;
    arena.bytes_max = 1 << 17; /* the rest of it is large */
    arena.bytes = arena.first_used = 0;
    arena.blocks = NULL;
    struct from_shard message;
    struct reason reason;
    check(wire_decode_from_shard(bytes->slices, bytes->slice_count, &arena, &message, &reason) ==
          ERR_OK);
    bool pushing = worker->about->direction == LIMIT_PUSH;
    if (message.kind == FROM_SHARD_ACK)
        check(message.ack.code == ERR_OK);
    if (message.kind == FROM_SHARD_REFUSAL)
        check(message.refusal.code == ERR_TOO_EARLY);
    if (message.kind == FROM_SHARD_WEIGHTS && !pushing)
        take_weights(worker, &message, bytes);
    arena_release(&arena);
    rpc_message_unref(bytes);
    if (message.kind == FROM_SHARD_ACK || message.kind == FROM_SHARD_WEIGHTS)
        one_done(worker);
}

static void on_closed(void *owner, struct rpc_stream *stream, enum err err,
                      const struct reason *reason)
{
    (void)owner, (void)stream;
    fprintf(stderr, "closed: %s: %s\n", err_name(err), reason->text);
}

static void wait_over_locked(struct worker *worker)
{
    while (worker->waiting)
        ignore(thread_wait_locked(&worker->over, &worker->lock, TIME_NEVER)); /* no limit */
}

/* Moves all chunks `passes` times; nothing is under way before and after. */
static void move(struct worker *worker)
{
    thread_lock(&worker->lock);
    worker->waiting = true;
    worker->end = worker->sent + (uint64_t)worker->about->passes * worker->model.chunks_count;
    send_more_locked(worker);
    wait_over_locked(worker);
    thread_unlock(&worker->lock);
}

/* After a step was pushed: until every thread has applied it, the last chunk too. */
static void wait_applied(struct worker *worker)
{
    uint32_t threads = thread_core_count();
    thread_lock(&worker->lock);
    worker->waiting = true;
    worker->end = worker->sent + threads;
    for (uint32_t i = 1; i <= threads; i++)
        send_pull(worker, worker->sent++, worker->step + 1, worker->model.chunks_count - i);
    wait_over_locked(worker);
    /* Numbers go on at a pass's beginning. */
    uint64_t pass = (uint64_t)worker->model.chunks_count * worker->about->passes;
    worker->sent = worker->done = worker->end = (worker->sent + pass - 1) / pass * pass;
    worker->step++;
    thread_unlock(&worker->lock);
}

/* Until a step is like all that follow: the first ones get the memory that sums lie in. */
static void warm_up(struct worker *worker)
{
    for (unsigned i = 0; i < WARM_STEPS; i++) {
        move(worker);
        if (worker->about->direction == LIMIT_PUSH)
            wait_applied(worker);
    }
}

static void measure(const void *context, const struct pair_link *link, struct pair_result *result)
{
    static const struct rpc_stream_events events = {.message = on_message, .closed = on_closed};
    struct worker worker = {.about = context};
    model_make(worker.about->passes, &worker.model);
    thread_mutex_init(&worker.lock);
    thread_cond_init(&worker.over);
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", link->port);
    struct rpc_channel *channel = NULL;
    struct reason reason = {{0}};
    struct rpc_loop *loop = rounds_loop(worker.about);
    if (rpc_channel_new(loop, address, worker.about->client, &channel, &reason) != ERR_OK)
        fprintf(stderr, "%s\n", reason.text);
    check(rpc_stream_open(channel, "/roost.v1.Shard/Exchange", &events, &worker, &worker.stream) ==
          ERR_OK);
    tensor_make(&worker);
    check(digest_mac_init(&worker.key) == ERR_OK);
    digest_mac_set_key(&worker.key, (const uint8_t[DIGEST_KEY_BYTES]){KEY}); /* the commands' */
    worker.member = proof_member_number(TERM, 1);
    struct to_shard hello = {
        .kind = TO_SHARD_HELLO,
        .hello = {worker.member, proof_member(&worker.key, RUN, worker.member)}};
    send_message(&worker, &hello, NULL);
    warm_up(&worker);
    struct pair_clock clock = pair_clock_start(link);
    move(&worker);
    pair_clock_stop(&clock, link, result);
    result->bytes = (double)worker.about->passes * (double)worker.tensor->bytes;
}

int main(int argc, char **argv)
{
    struct rounds_config config = {.program = "bench_exchange",
                                   .what = "Exchange",
                                   .rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 7,
                                   .passes = argc > 2 ? (unsigned)atoi(argv[2]) : 16,
                                   .threads = argc > 3 ? (unsigned)atoi(argv[3]) : 0,
                                   .only = argc > 4 ? argv[4] : NULL,
                                   .block_bytes = WIRE_PAYLOAD_BYTES_MAX,
                                   .tree = true,
                                   .serve = serve,
                                   .measure = measure};
    if (config.rounds < 1 || config.rounds > ROUNDS_MAX || config.passes < 1 ||
        config.passes > PASSES_MAX) {
        fprintf(stderr, "usage: bench_exchange [ROUNDS [PASSES [THREADS [CASE]]]]\n");
        return 2;
    }
    struct model model;
    model_make(config.passes, &model);
    for (uint32_t c = 0; c < model.chunks_count; c++)
        config.tensor_bytes += model.chunks[c].weights * sizeof(float);
    model_release(&model);
    return rounds_run(&config);
}
