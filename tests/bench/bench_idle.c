/* What a worker that only is there costs its server, in memory:
 *
 *   bench_idle [CONNECTIONS [insecure]]
 *
 * One server and one process with that many workers, each a connection of its own with TLS that has
 * opened Shard.Exchange and got its Welcome, and then does nothing. Seen is how much the server's
 * resident memory grew, by what it was with the first few, divided by the connections that came
 * since; of the kernel's buffers nothing is in it. */
#include "common/thread.h"
#include "common/time.h"
#include "server/threads/shards.h"
#include "tests/bench/rounds.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNECTIONS = 400, CONNECTIONS_MAX = 4000, FIRST = 20, BOOT = 1 };

struct idle_case {
    unsigned connections;
    const struct tls_identity *server, *client; /* NULL: no TLS */
};

static void on_report(void *owner, const struct server_report *report)
{
    (void)owner, (void)report;
}

static void on_failed(const struct logger *logger, const struct reason *reason)
{
    (void)logger;
    fprintf(stderr, "%s\n", reason->text);
    abort();
}

static unsigned serve(const void *context)
{
    static const struct logger silent = {LOG_LEVEL_ERROR, -1};
    static struct rpc_method method; /* of this process, which does nothing else */
    const struct idle_case *about = context;
    struct reason reason = {{0}};
    struct rpc_loop *loop = rounds_loop(&(struct rounds_case){.threads = 0});
    struct shards_config config = {
        .boot = BOOT, .logger = &silent, .report = on_report, .failed = on_failed};
    struct shards *shards = NULL;
    if (shards_new(&config, &shards, &reason) != ERR_OK)
        fprintf(stderr, "%s\n", reason.text);
    method = shards_exchange_method(shards);
    struct rpc_server_config server_config = {.loop = loop,
                                              .address = "127.0.0.1:0",
                                              .identity = about->server,
                                              .methods = &method,
                                              .method_count = 1};
    struct rpc_server *server = NULL;
    if (rpc_server_new(&server_config, &server, &reason) != ERR_OK)
        fprintf(stderr, "%s\n", reason.text);
    return server == NULL ? 0 : rpc_server_port(server);
}

/* ---- the workers ---- */

struct welcomes {
    struct thread_mutex lock; /* guards `count` */
    struct thread_cond changed;
    unsigned count;
};

static void on_message(void *owner, struct rpc_stream *stream, struct rpc_message *take_message)
{
    (void)stream;
    struct welcomes *welcomes = owner;
    rpc_message_unref(take_message);
    thread_lock(&welcomes->lock);
    welcomes->count++;
    thread_wake_all(&welcomes->changed);
    thread_unlock(&welcomes->lock);
}

static void on_closed(void *owner, struct rpc_stream *stream, enum err err,
                      const struct reason *reason)
{
    (void)owner, (void)stream;
    fprintf(stderr, "closed: %s: %s\n", err_name(err), reason->text);
    _exit(1);
}

/* One after another, so that handshakes do not pile up. */
static void connect_one(struct rpc_loop *loop, const struct idle_case *about, unsigned port,
                        struct welcomes *welcomes)
{
    static const struct rpc_stream_events events = {.message = on_message, .closed = on_closed};
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    struct rpc_channel *channel = NULL;
    struct rpc_stream *stream = NULL;
    struct reason reason = {{0}};
    if (rpc_channel_new(loop, address, about->client, &channel, &reason) != ERR_OK)
        fprintf(stderr, "%s\n", reason.text);
    unsigned before = welcomes->count; /* nothing else is under way */
    check(rpc_stream_open(channel, "/roost.v1.Shard/Exchange", &events, welcomes, &stream) ==
          ERR_OK);
    struct to_shard hello = {.kind = TO_SHARD_HELLO, .hello = {.member = 1}};
    struct buf header = {0};
    check(wire_encode_to_shard(&hello, &header) == ERR_OK);
    check(rpc_stream_send(stream, RPC_URGENT, &header, NULL, 0) == ERR_OK);
    thread_lock(&welcomes->lock);
    while (welcomes->count == before)
        ignore(thread_wait_locked(&welcomes->changed, &welcomes->lock, TIME_NEVER)); /* no limit */
    thread_unlock(&welcomes->lock);
}

static void measure(const void *context, const struct pair_link *link, struct pair_result *result)
{
    const struct idle_case *about = context;
    static struct welcomes welcomes; /* of this process, as are the workers */
    thread_mutex_init(&welcomes.lock);
    thread_cond_init(&welcomes.changed);
    struct rpc_loop *loop = rounds_loop(&(struct rounds_case){.threads = 0});
    for (unsigned i = 0; i < FIRST; i++)
        connect_one(loop, about, link->port, &welcomes);
    size_t before = pair_server_bytes(link);
    for (unsigned i = 0; i < about->connections; i++)
        connect_one(loop, about, link->port, &welcomes);
    result->bytes = (double)(pair_server_bytes(link) - before);
}

int main(int argc, char **argv)
{
    unsigned connections = argc > 1 ? (unsigned)atoi(argv[1]) : CONNECTIONS;
    bool tls = argc < 3;
    if (connections < 1 || connections > CONNECTIONS_MAX ||
        (!tls && strcmp(argv[2], "insecure") != 0)) {
        fprintf(stderr, "usage: bench_idle [CONNECTIONS [insecure]]\n");
        return 2;
    }
    struct identities identities = {0};
    identities_init(&identities);
    struct idle_case about = {connections, tls ? &identities.server : NULL,
                              tls ? &identities.client : NULL};
    struct pair_config config = {.serve = serve, .measure = measure, .context = &about};
    struct pair_result result;
    enum err err = pair_run(&config, &result);
    if (err == ERR_OK)
        printf("%.1f KiB at the server for an idle connection %s, of %u\n",
               result.bytes / connections / 1024, tls ? "with TLS" : "without TLS", connections);
    identities_release(&identities);
    return err == ERR_OK ? 0 : 1;
}
