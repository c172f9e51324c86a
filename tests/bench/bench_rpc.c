/* Push and pull over one stream against the limits, in the same run:
 *
 *   bench_rpc [ROUNDS [MEBIBYTES [PASSES [THREADS [CASE [KIBIBYTES]]]]]]
 *
 * The stream's messages hold KIBIBYTES (512), eight are under way. Bytes are added or
 * copied on the polling thread, straight from the slices. THREADS: polling threads of each process;
 * 0: one per core. CASE: only that one, e.g. "push tls"; "": all. */
#include "common/rpc/rpc.h"
#include "common/thread.h"
#include "common/time.h"
#include "tests/bench/rounds.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW = 8, HEADER_BYTES = 24 };

static size_t block_bytes = 512 << 10; /* of a message; set once, before the processes are made */

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
    struct rpc_part part = {tensor, offset, block_bytes};
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
    const struct rounds_case *about;
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

static unsigned serve(const void *context)
{
    static const struct rpc_stream_events events = {.open = on_open, .message = on_server_message};
    static struct serving serving; /* of this process, which does nothing else */
    static struct rpc_method method;
    serving = (struct serving){.about = context};
    serving.tensor = tensor_new(serving.about->tensor_bytes);
    method = (struct rpc_method){.path = "/bench.B/Exchange",
                                 .kind = RPC_STREAM,
                                 .shared = true,
                                 .roles = TLS_ROLES_ALL,
                                 .owner = &serving,
                                 .events = &events};
    struct rpc_server_config config = {.loop = rounds_loop(serving.about),
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
    const struct rounds_case *about;
    struct counted *tensor;
    struct rpc_stream *stream;
    uint64_t asked, done, end; /* bytes, over all passes; polling thread */
    struct thread_mutex lock;  /* guards `waiting` */
    struct thread_cond over;
    bool waiting;
};

static void ask(struct client *client)
{
    while (client->asked < client->end && client->asked - client->done < WINDOW * block_bytes) {
        uint64_t offset = client->asked % client->about->tensor_bytes;
        client->asked += block_bytes;
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
    client->done += block_bytes;
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
    struct rpc_loop *loop = rounds_loop(client.about);
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

int main(int argc, char **argv)
{
    block_bytes = argc > 6 ? (size_t)atoi(argv[6]) << 10 : block_bytes;
    struct rounds_config config = {.program = "bench_rpc",
                                   .what = "stream",
                                   .rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 7,
                                   .tensor_bytes = (argc > 2 ? (size_t)atoi(argv[2]) : 64) << 20,
                                   .passes = argc > 3 ? (unsigned)atoi(argv[3]) : 16,
                                   .threads = argc > 4 ? (unsigned)atoi(argv[4]) : 0,
                                   .only = argc > 5 && argv[5][0] != 0 ? argv[5] : NULL,
                                   .block_bytes = block_bytes,
                                   .serve = serve,
                                   .measure = measure};
    if (config.rounds < 1 || config.rounds > ROUNDS_MAX || config.tensor_bytes == 0 ||
        config.passes == 0 || block_bytes == 0 || config.tensor_bytes % block_bytes != 0) {
        fprintf(stderr,
                "usage: bench_rpc [ROUNDS [MEBIBYTES [PASSES [THREADS [CASE [KIBIBYTES]]]]]]\n");
        return 2;
    }
    return rounds_run(&config);
}
