/* Push and pull over one stream against the limits, in the same run:
 *
 *   bench_rpc [ROUNDS [MEBIBYTES [PASSES [THREADS]]]]
 *
 * Each round runs every case once, each in two fresh processes; a ratio is the median of the
 * rounds' ratios. The stream's messages hold 512 KiB, eight are under way. Bytes are added or
 * copied on the polling thread, straight from the slices. THREADS: polling threads of each process;
 * 0: one per core. */
#include "common/rpc.h"
#include "common/thread.h"
#include "common/time.h"
#include "tests/bench/limit.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 512 << 10, WINDOW = 8, HEADER_BYTES = 24, ROUNDS_MAX = 101 };

struct rpc_case {
    enum limit_direction direction;
    size_t tensor_bytes;
    unsigned passes;
    const struct tls_identity *server, *client;
    unsigned threads;
};

static struct counted *tensor_new(size_t bytes)
{
    struct counted *tensor = counted_new(bytes);
    check(tensor != NULL);
    float *values = (float *)(void *)tensor->data;
    for (size_t i = 0; i < bytes / sizeof *values; i++)
        values[i] = (float)(i % 1000);
    return tensor;
}

/* One block of the tensor as a message: its place, then its bytes. */
static void send_block(struct rpc_stream *stream, struct counted *tensor, uint64_t offset)
{
    uint8_t place[HEADER_BYTES] = {0};
    memcpy(place, &offset, sizeof offset);
    struct buf header = {0};
    check(buf_append(&header, place, sizeof place) == ERR_OK);
    struct rpc_part part = {tensor, offset, BLOCK_BYTES};
    check(rpc_stream_send(stream, RPC_NORMAL, &header, &part, 1) == ERR_OK);
}

static void send_place(struct rpc_stream *stream, uint64_t offset)
{
    struct buf header = {0};
    check(buf_append(&header, &offset, sizeof offset) == ERR_OK);
    check(rpc_stream_send(stream, RPC_URGENT, &header, NULL, 0) == ERR_OK);
}

/* Takes a block's bytes to their place; returns it. */
static uint64_t take_block(const struct rpc_message *message, enum limit_direction direction,
                           uint8_t *tensor)
{
    uint64_t offset = 0;
    rpc_message_copy(message, 0, sizeof offset, &offset);
    struct limit_sink sink = {0};
    if (direction == LIMIT_PUSH)
        sink.sum = (float *)(void *)(tensor + offset);
    else
        sink.copy = tensor + offset;
    size_t skip = HEADER_BYTES;
    for (uint32_t i = 0; i < message->slice_count; i++) {
        struct slice slice = message->slices[i];
        size_t here = skip < slice.bytes ? skip : slice.bytes;
        skip -= here;
        limit_sink_take(&sink, slice.data + here, slice.bytes - here);
    }
    return offset;
}

/* ---- The server ---- */

struct serving {
    const struct rpc_case *about;
    struct counted *tensor;
};

static enum err on_open(void *method_owner, struct rpc_stream *stream, const struct rpc_peer *peer,
                        void **ret_owner, struct reason *reason)
{
    (void)stream, (void)peer, (void)reason;
    *ret_owner = method_owner;
    return ERR_OK;
}

static void on_server_message(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    struct serving *serving = owner;
    uint64_t offset;
    if (serving->about->direction == LIMIT_PUSH) {
        offset = take_block(message, LIMIT_PUSH, serving->tensor->data);
        send_place(stream, offset); /* the acknowledgement */
    } else {
        rpc_message_copy(message, 0, sizeof offset, &offset);
        send_block(stream, serving->tensor, offset);
    }
    rpc_message_unref(message);
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

static unsigned serve(const void *context)
{
    static const struct rpc_stream_events events = {.open = on_open, .message = on_server_message};
    static struct serving serving; /* of this process, which does nothing else */
    static struct rpc_method method;
    serving = (struct serving){.about = context};
    serving.tensor = tensor_new(serving.about->tensor_bytes);
    method = (struct rpc_method){.path = "/bench.B/Exchange",
                                 .kind = RPC_STREAM,
                                 .roles = TLS_ROLES_ALL,
                                 .owner = &serving,
                                 .events = &events};
    struct rpc_server_config config = {.loop = loop_new(serving.about->threads),
                                       .address = "127.0.0.1:0",
                                       .identity = serving.about->server,
                                       .methods = &method,
                                       .method_count = 1};
    struct rpc_server *server = NULL;
    struct reason reason = {0};
    if (rpc_server_new(&config, &server, &reason) != ERR_OK)
        fprintf(stderr, "%s\n", reason.text);
    return server == NULL ? 0 : rpc_server_port(server);
}

/* ---- The client ---- */

struct client {
    const struct rpc_case *about;
    struct counted *tensor;
    struct rpc_stream *stream;
    uint64_t asked, done, end; /* bytes, over all passes; polling thread */
    struct thread_mutex lock;  /* guards `waiting` */
    struct thread_cond over;
    bool waiting;
};

static void ask(struct client *client)
{
    while (client->asked < client->end && client->asked - client->done < WINDOW * BLOCK_BYTES) {
        uint64_t offset = client->asked % client->about->tensor_bytes;
        client->asked += BLOCK_BYTES;
        if (client->about->direction == LIMIT_PUSH)
            send_block(client->stream, client->tensor, offset);
        else
            send_place(client->stream, offset);
    }
}

static void on_client_message(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    (void)stream;
    struct client *client = owner;
    if (client->about->direction == LIMIT_PULL)
        take_block(message, LIMIT_PULL, client->tensor->data);
    rpc_message_unref(message);
    client->done += BLOCK_BYTES;
    ask(client);
    if (client->done < client->end)
        return;
    thread_lock(&client->lock);
    client->waiting = false;
    thread_wake_all(&client->over);
    thread_unlock(&client->lock);
}

static void on_client_closed(void *owner, struct rpc_stream *stream, enum err err,
                             const struct reason *reason)
{
    (void)owner, (void)stream;
    fprintf(stderr, "closed: %s: %s\n", err_name(err), reason->text);
}

/* Moves the tensor `passes` times; nothing is under way before and after. */
static void move(struct client *client, unsigned passes)
{
    thread_lock(&client->lock);
    client->waiting = true;
    thread_unlock(&client->lock);
    client->end += passes * client->about->tensor_bytes;
    ask(client);
    thread_lock(&client->lock);
    while (client->waiting)
        ignore(thread_wait_locked(&client->over, &client->lock, TIME_NEVER)); /* never passes */
    thread_unlock(&client->lock);
}

static void measure(const void *context, const struct pair_link *link, struct pair_result *result)
{
    static const struct rpc_stream_events events = {.message = on_client_message,
                                                    .closed = on_client_closed};
    struct client client = {.about = context};
    client.tensor = tensor_new(client.about->tensor_bytes);
    thread_mutex_init(&client.lock);
    thread_cond_init(&client.over);
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", link->port);
    struct rpc_channel *channel = NULL;
    struct reason reason = {0};
    struct rpc_loop *loop = loop_new(client.about->threads);
    if (rpc_channel_new(loop, address, client.about->client, &channel, &reason) != ERR_OK)
        fprintf(stderr, "%s\n", reason.text);
    check(rpc_stream_open(channel, "/bench.B/Exchange", &events, &client, &client.stream) ==
          ERR_OK);
    move(&client, 1);
    struct pair_clock clock = pair_clock_start(link);
    move(&client, client.about->passes);
    pair_clock_stop(&clock, link, result);
    result->bytes = (double)client.about->passes * (double)client.about->tensor_bytes;
}

/* ---- Rounds ---- */

enum { PUSH, PULL, PUSH_TLS, PULL_TLS, CASES };

struct bench {
    unsigned rounds;
    size_t tensor_bytes;
    unsigned passes;
    unsigned threads;
    struct tls_identity server, client;
};

static struct pair_result run(const struct bench *bench, unsigned which, bool limit)
{
    bool tls = which >= PUSH_TLS;
    enum limit_direction direction = which == PUSH || which == PUSH_TLS ? LIMIT_PUSH : LIMIT_PULL;
    unsigned passes = tls ? (bench->passes + 3) / 4 : bench->passes;
    struct pair_result result = {0};
    enum err err;
    if (limit) {
        struct limit_config config = {.direction = direction,
                                      .tensor_bytes = bench->tensor_bytes,
                                      .passes = passes,
                                      .receive_bytes = BLOCK_BYTES,
                                      .server = tls ? &bench->server : NULL,
                                      .client = tls ? &bench->client : NULL};
        err = limit_run(&config, &result);
    } else {
        struct rpc_case about = {.direction = direction,
                                 .tensor_bytes = bench->tensor_bytes,
                                 .passes = passes,
                                 .server = tls ? &bench->server : NULL,
                                 .client = tls ? &bench->client : NULL,
                                 .threads = bench->threads};
        struct pair_config pair = {.serve = serve, .measure = measure, .context = &about};
        err = pair_run(&pair, &result);
    }
    if (err != ERR_OK) {
        fprintf(stderr, "bench_rpc: a measured process failed\n");
        exit(1);
    }
    return result;
}

static double gib_per_s(const struct pair_result *result)
{
    return result->bytes / result->seconds / (1 << 30);
}

static double cpu_s_per_gib(const struct pair_result *result)
{
    return result->cpu_seconds / result->bytes * (1 << 30);
}

static void print_case(const struct bench *bench, const char *name,
                       const struct pair_result *limits, const struct pair_result *streams)
{
    double speeds[ROUNDS_MAX], limit_speeds[ROUNDS_MAX], ratios[ROUNDS_MAX];
    double cpus[ROUNDS_MAX], limit_cpus[ROUNDS_MAX], cpu_ratios[ROUNDS_MAX];
    for (unsigned i = 0; i < bench->rounds; i++) {
        speeds[i] = gib_per_s(&streams[i]);
        limit_speeds[i] = gib_per_s(&limits[i]);
        ratios[i] = speeds[i] / limit_speeds[i];
        cpus[i] = cpu_s_per_gib(&streams[i]);
        limit_cpus[i] = cpu_s_per_gib(&limits[i]);
        cpu_ratios[i] = cpus[i] / limit_cpus[i];
    }
    unsigned n = bench->rounds;
    printf("%-9s %7.2f %7.2f %7.2f   %7.3f %7.3f %7.2f\n", name, pair_median(limit_speeds, n),
           pair_median(speeds, n), pair_median(ratios, n), pair_median(limit_cpus, n),
           pair_median(cpus, n), pair_median(cpu_ratios, n));
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
    static struct pair_result limits[CASES][ROUNDS_MAX], streams[CASES][ROUNDS_MAX];
    static const char *const names[CASES] = {"push", "pull", "push tls", "pull tls"};
    bench.rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 7;
    bench.tensor_bytes = (argc > 2 ? (size_t)atoi(argv[2]) : 64) << 20;
    bench.passes = argc > 3 ? (unsigned)atoi(argv[3]) : 16;
    bench.threads = argc > 4 ? (unsigned)atoi(argv[4]) : 0;
    if (bench.rounds < 1 || bench.rounds > ROUNDS_MAX || bench.tensor_bytes == 0 ||
        bench.passes == 0) {
        fprintf(stderr, "usage: bench_rpc [ROUNDS [MEBIBYTES [PASSES [THREADS]]]]\n");
        return 2;
    }
    identities_make(&bench);
    for (unsigned round = 0; round < bench.rounds; round++)
        for (unsigned which = 0; which < CASES; which++) {
            limits[which][round] = run(&bench, which, true);
            streams[which][round] = run(&bench, which, false);
        }
    char congestion[16];
    limit_congestion_control(congestion);
    printf("%u rounds, %zu MiB, %u passes, %u cores, congestion control %s, %s\n", bench.rounds,
           bench.tensor_bytes >> 20, bench.passes, thread_core_count(), congestion,
           limits[PUSH_TLS][0].about);
    printf("%-9s %7s %7s %7s   %7s %7s %7s\n", "", "limit", "stream", "ratio", "limit", "stream",
           "ratio");
    printf("%-9s %23s   %23s\n", "", "GiB/s", "CPU s per GiB, both ends");
    for (unsigned which = 0; which < CASES; which++)
        print_case(&bench, names[which], limits[which], streams[which]);
    tls_identity_release(&bench.server);
    tls_identity_release(&bench.client);
    return 0;
}
