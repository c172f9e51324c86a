/* Push and pull through Shard.Exchange, shard thread included, against the limits of the same run:
 *
 *   bench_exchange [ROUNDS [PASSES [THREADS]]]
 *
 * One worker, one server, each a fresh process, 64 MiB of chunks (an mlp of 4096 x 4096 and what
 * belongs to it). A pass pushes one slot of every chunk, or pulls every chunk once. Slots are added
 * up in tree order: of two, one is copied from the received slices and one added, and every second
 * makes a pair of sums; the limit adds each into one array. Weights are sent from the published
 * copies and copied into the worker's array. THREADS: polling threads of each process; 0: one per
 * core. Nothing is applied in the timed part. */
#include "common/arena.h"
#include "common/model.h"
#include "common/thread.h"
#include "common/time.h"
#include "server/shards.h"
#include "tests/bench/limit.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 101, PASSES_MAX = 64, BOOT = 1, TERM = 1, GENERATION = 1 };

static const char spec_format[] = "model: {kind: mlp, layers: [2, 4096, 4096, 3]}\n"
                                  "data: {kind: spiral}\n"
                                  "optimizer: {kind: sgd, lr: 0.1}\n"
                                  "train: {steps: 10, slots: %u}\n";

struct exchange_case {
    enum limit_direction direction;
    unsigned passes;
    const struct tls_identity *server, *client;
    unsigned threads;
};

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

static struct rpc_loop *loop_new(unsigned threads)
{
    rpc_process_init(true);
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = threads;
    struct rpc_loop *loop = NULL;
    check(rpc_loop_new(&settings, &loop) == ERR_OK);
    return loop;
}

/* ---- the server ---- */

struct serving {
    struct shards *shards;
    struct rpc_method method;
    struct thread_mutex lock; /* guards `ready` */
    struct thread_cond changed;
    bool ready;
};

/* The coordinator's part: every step is applied as soon as it is reduced. */
static void on_report(void *owner, const struct server_report *report)
{
    struct serving *serving = owner;
    if (report->kind == SERVER_READY) {
        thread_lock(&serving->lock);
        serving->ready = true;
        thread_wake_all(&serving->changed);
        thread_unlock(&serving->lock);
    } else if (report->kind == SERVER_REDUCED) {
        struct server_command commit = {.kind = SERVER_COMMIT,
                                        .term = TERM,
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
                                     .boot = BOOT,
                                     .prepare = {.run = 1,
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
    const struct exchange_case *about = context;
    struct reason reason = {{0}};
    thread_mutex_init(&serving.lock);
    thread_cond_init(&serving.changed);
    struct shards_config config = {
        .threads = 1, .boot = BOOT, .logger = &silent, .report = on_report, .owner = &serving};
    struct rpc_loop *loop = loop_new(about->threads);
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

/* Chunks that travel together: [first, first + count), at `offset` of the tensor. */
struct group {
    uint32_t first, count;
    size_t offset, bytes;
};

struct worker {
    const struct exchange_case *about;
    struct model model;
    struct counted *tensor; /* all chunks, one after another */
    struct group *groups;
    uint32_t group_count;
    struct rpc_stream *stream;
    /* Polling thread and, while nothing is under way, the main thread. */
    uint64_t sent, done, end; /* messages, over all passes */
    uint64_t step;
    struct thread_mutex lock; /* guards `waiting` */
    struct thread_cond over;
    bool waiting;
};

static void groups_make(struct worker *worker)
{
    worker->groups = calloc(worker->model.chunks_count, sizeof *worker->groups);
    check(worker->groups != NULL);
    struct group group = {0};
    size_t offset = 0;
    for (uint32_t c = 0; c < worker->model.chunks_count; c++) {
        size_t bytes = worker->model.chunks[c].weights * sizeof(float);
        if (group.bytes + bytes > WIRE_PAYLOAD_BYTES_MAX) {
            worker->groups[worker->group_count++] = group;
            group = (struct group){.first = c, .offset = offset};
        }
        group.count++;
        group.bytes += bytes;
        offset += bytes;
    }
    worker->groups[worker->group_count++] = group;
    worker->tensor = counted_new(offset);
    check(worker->tensor != NULL);
    float *values = (float *)(void *)worker->tensor->data;
    for (size_t i = 0; i < offset / sizeof *values; i++)
        values[i] = (float)(i % 1000) / 1024;
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
    const struct group *group = &worker->groups[id % worker->group_count];
    struct push_entry entries[WIRE_ENTRIES_MAX];
    for (uint32_t i = 0; i < group->count; i++) {
        uint32_t bytes = (uint32_t)(worker->model.chunks[group->first + i].weights * sizeof(float));
        entries[i] = (struct push_entry){group->first + i, 0, bytes, 1};
    }
    uint32_t slot = (uint32_t)(id / worker->group_count % worker->about->passes);
    struct to_shard message = {.kind = TO_SHARD_PUSH,
                               .push = {.id = id,
                                        .generation = GENERATION,
                                        .step = worker->step,
                                        .node = {0, slot},
                                        .entry_count = group->count,
                                        .entries = entries},
                               .payload_bytes = group->bytes};
    struct rpc_part part = {worker->tensor, group->offset, group->bytes};
    send_message(worker, &message, &part);
}

static void send_pull(struct worker *worker, uint64_t id, uint64_t version, struct group group)
{
    uint32_t chunks[WIRE_ENTRIES_MAX];
    for (uint32_t i = 0; i < group.count; i++)
        chunks[i] = group.first + i;
    struct to_shard message = {.kind = TO_SHARD_PULL,
                               .pull = {.id = id,
                                        .generation = GENERATION,
                                        .version = version,
                                        .chunk_count = group.count,
                                        .chunks = chunks}};
    send_message(worker, &message, NULL);
}

static void send_more(struct worker *worker)
{
    while (worker->sent < worker->end && worker->sent - worker->done < WIRE_CREDITS) {
        uint64_t id = worker->sent++;
        if (worker->about->direction == LIMIT_PUSH)
            send_push(worker, id);
        else
            send_pull(worker, id, 0, worker->groups[id % worker->group_count]);
    }
}

static void take_weights(struct worker *worker, const struct from_shard *message,
                         const struct rpc_message *bytes)
{
    const struct group *group = &worker->groups[message->weights.id % worker->group_count];
    check(message->payload_bytes == group->bytes);
    struct limit_sink sink = {.copy = worker->tensor->data + group->offset};
    size_t skip = message->payload_offset;
    for (uint32_t i = 0; i < bytes->slice_count; i++) {
        struct slice slice = bytes->slices[i];
        size_t here = skip < slice.bytes ? skip : slice.bytes;
        skip -= here;
        limit_sink_take(&sink, slice.data + here, slice.bytes - here);
    }
}

static void one_done(struct worker *worker)
{
    worker->done++;
    send_more(worker);
    if (worker->done < worker->end)
        return;
    thread_lock(&worker->lock);
    worker->waiting = false;
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

static void wait_over(struct worker *worker)
{
    thread_lock(&worker->lock);
    while (worker->waiting)
        ignore(thread_wait_locked(&worker->over, &worker->lock, TIME_NEVER)); /* no limit */
    thread_unlock(&worker->lock);
}

/* Moves all chunks `passes` times; nothing is under way before and after. */
static void move(struct worker *worker)
{
    worker->waiting = true;
    worker->end = worker->sent + (uint64_t)worker->about->passes * worker->group_count;
    send_more(worker);
    wait_over(worker);
}

/* After a step was pushed: until it is applied, the last chunk too. */
static void wait_applied(struct worker *worker)
{
    worker->waiting = true;
    worker->sent++;
    worker->end = worker->sent;
    struct group last = {.first = worker->model.chunks_count - 1, .count = 1};
    send_pull(worker, worker->sent, worker->step + 1, last);
    wait_over(worker);
    /* Numbers go on at a pass's beginning. */
    uint64_t pass = (uint64_t)worker->group_count * worker->about->passes;
    worker->sent = worker->done = worker->end = (worker->sent + pass - 1) / pass * pass;
    worker->step++;
}

static void measure(const void *context, const struct pair_link *link, struct pair_result *result)
{
    static const struct rpc_stream_events events = {.message = on_message, .closed = on_closed};
    struct worker worker = {.about = context};
    model_make(worker.about->passes, &worker.model);
    groups_make(&worker);
    thread_mutex_init(&worker.lock);
    thread_cond_init(&worker.over);
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", link->port);
    struct rpc_channel *channel = NULL;
    struct reason reason = {{0}};
    struct rpc_loop *loop = loop_new(worker.about->threads);
    if (rpc_channel_new(loop, address, worker.about->client, &channel, &reason) != ERR_OK)
        fprintf(stderr, "%s\n", reason.text);
    check(rpc_stream_open(channel, "/roost.v1.Shard/Exchange", &events, &worker, &worker.stream) ==
          ERR_OK);
    struct to_shard hello = {.kind = TO_SHARD_HELLO, .hello = {.member = 1}};
    send_message(&worker, &hello, NULL);
    move(&worker); /* to warm up */
    if (worker.about->direction == LIMIT_PUSH)
        wait_applied(&worker);
    struct pair_clock clock = pair_clock_start(link);
    move(&worker);
    pair_clock_stop(&clock, link, result);
    result->bytes = (double)worker.about->passes * (double)worker.tensor->bytes;
}

/* ---- rounds ---- */

enum { PUSH, PULL, PUSH_TLS, PULL_TLS, CASES };

struct bench {
    unsigned rounds;
    unsigned passes;
    unsigned threads;
    size_t tensor_bytes;
    struct tls_identity server, client;
};

static struct pair_result run(const struct bench *bench, unsigned which, bool limit)
{
    bool tls = which >= PUSH_TLS;
    enum limit_direction direction = which == PUSH || which == PUSH_TLS ? LIMIT_PUSH : LIMIT_PULL;
    unsigned passes = tls ? (bench->passes + 3) / 4 : bench->passes;
    const struct tls_identity *server = tls ? &bench->server : NULL;
    const struct tls_identity *client = tls ? &bench->client : NULL;
    struct pair_result result = {0};
    enum err err;
    if (limit) {
        struct limit_config config = {.direction = direction,
                                      .tensor_bytes = bench->tensor_bytes,
                                      .passes = passes,
                                      .receive_bytes = WIRE_PAYLOAD_BYTES_MAX,
                                      .server = server,
                                      .client = client};
        err = limit_run(&config, &result);
    } else {
        struct exchange_case about = {direction, passes, server, client, bench->threads};
        struct pair_config pair = {.serve = serve, .measure = measure, .context = &about};
        err = pair_run(&pair, &result);
    }
    if (err != ERR_OK) {
        fprintf(stderr, "bench_exchange: a measured process failed\n");
        exit(1);
    }
    return result;
}

static void print_case(const struct bench *bench, const char *name,
                       const struct pair_result *limits, const struct pair_result *results)
{
    double speeds[2][ROUNDS_MAX], cpus[2][ROUNDS_MAX], ratios[2][ROUNDS_MAX];
    for (unsigned i = 0; i < bench->rounds; i++) {
        const struct pair_result *both[2] = {&limits[i], &results[i]};
        for (unsigned k = 0; k < 2; k++) {
            speeds[k][i] = both[k]->bytes / both[k]->seconds / (1 << 30);
            cpus[k][i] = both[k]->cpu_seconds / both[k]->bytes * (1 << 30);
        }
        ratios[0][i] = speeds[1][i] / speeds[0][i];
        ratios[1][i] = cpus[1][i] / cpus[0][i];
    }
    unsigned n = bench->rounds;
    printf("%-9s %7.2f %8.2f %7.2f   %7.3f %8.3f %7.2f\n", name, pair_median(speeds[0], n),
           pair_median(speeds[1], n), pair_median(ratios[0], n), pair_median(cpus[0], n),
           pair_median(cpus[1], n), pair_median(ratios[1], n));
}

static void identities_make(struct bench *bench)
{
    int64_t now_s = (int64_t)(time_wall_ns() / 1000000000);
    struct buf ca = {0}, key = {0};
    check(tls_ca_create("bench", now_s, 86400, &ca, &key, NULL) == ERR_OK);
    struct tls_identity *const both[] = {&bench->server, &bench->client};
    static const enum tls_role roles[] = {TLS_ROLE_SERVER, TLS_ROLE_WORKER};
    for (unsigned i = 0; i < 2; i++) {
        struct tls_identity *identity = both[i];
        identity->holder = (struct tls_holder){.role = roles[i], .cluster = "bench", .name = "b"};
        struct tls_request request = {.holder = identity->holder, .now_s = now_s, .valid_s = 86400};
        check(tls_issue(buf_slice(&ca), buf_slice(&key), &request, &identity->certificate,
                        &identity->key, NULL) == ERR_OK);
        check(buf_append(&identity->ca, ca.data, ca.bytes + 1) == ERR_OK);
        identity->ca.bytes--;
        identity->not_after_s = now_s + 86400;
    }
    buf_release(&ca);
    buf_release(&key);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    static struct pair_result limits[CASES][ROUNDS_MAX], results[CASES][ROUNDS_MAX];
    static const char *const names[CASES] = {"push", "pull", "push tls", "pull tls"};
    bench.rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 7;
    bench.passes = argc > 2 ? (unsigned)atoi(argv[2]) : 16;
    bench.threads = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
    if (bench.rounds < 1 || bench.rounds > ROUNDS_MAX || bench.passes < 1 ||
        bench.passes > PASSES_MAX) {
        fprintf(stderr, "usage: bench_exchange [ROUNDS [PASSES [THREADS]]]\n");
        return 2;
    }
    struct model model;
    model_make(bench.passes, &model);
    for (uint32_t c = 0; c < model.chunks_count; c++)
        bench.tensor_bytes += model.chunks[c].weights * sizeof(float);
    model_release(&model);
    identities_make(&bench);
    for (unsigned round = 0; round < bench.rounds; round++)
        for (unsigned which = 0; which < CASES; which++) {
            limits[which][round] = run(&bench, which, true);
            results[which][round] = run(&bench, which, false);
        }
    char congestion[16];
    limit_congestion_control(congestion);
    printf("%u rounds, %.1f MiB of chunks, %u passes, %u cores, congestion control %s, %s\n",
           bench.rounds, (double)bench.tensor_bytes / (1 << 20), bench.passes, thread_core_count(),
           congestion, limits[PUSH_TLS][0].about);
    printf("%-9s %7s %8s %7s   %7s %8s %7s\n", "", "limit", "Exchange", "ratio", "limit",
           "Exchange", "ratio");
    printf("%-9s %24s   %24s\n", "", "GiB/s", "CPU s per GiB, both ends");
    for (unsigned which = 0; which < CASES; which++)
        print_case(&bench, names[which], limits[which], results[which]);
    tls_identity_release(&bench.server);
    tls_identity_release(&bench.client);
    return 0;
}
