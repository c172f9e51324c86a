/* Values from worker to worker through Peer.Exchange, against the limits of the same run:
 *
 *   bench_peers [ROUNDS [VALUES [THREADS [CASE]]]]
 *
 * Two workers, each a fresh process: one has given so many values of 8 MiB, the other takes them one
 * after another, as its program would. The limit sends as many bytes, and copies them into an array;
 * a taken value is copied as well, and its digest compared. THREADS: polling threads of each
 * process; 0: one per core. CASE: only that one, "pull",
 * "pull tls" or "pull shared". */
#include "common/time.h"
#include "tests/bench/rounds.h"
#include "tests/models.h"
#include "worker/peers.h"

#include <stdlib.h>
#include <string.h>

enum { VALUE_BYTES = 8 << 20, VALUES_MAX = 60, WARM = 2, ANSWER_MS = 60000, BLOCK_BYTES = 1 << 20 };
enum { GIVES, TAKES };

/* A mesh of two stages, and a lease in it whose program passes so many values. */
struct mesh {
    struct spec spec;
    struct model model;
    struct ticket ticket;
    struct peer peers[2];
};

static void on_unreachable(void *context, uint64_t attempt, uint64_t member)
{
    (void)context, (void)attempt;
    fprintf(stderr, "member %u does not answer\n", (unsigned)member);
}

/* One of the two workers; both show the client's certificate. */
static struct peers *worker_make(const struct rounds_case *about, struct mesh *mesh, int which,
                                 unsigned port)
{
    static const struct logger silent = {LOG_LEVEL_ERROR, -1};
    struct rpc_settings settings = rounds_settings(about);
    struct rpc_loop *loop = NULL;
    struct digest shown = {{0}};
    struct reason reason = {{0}};
    mesh->spec = (struct spec){
        .model = {.kind = SPEC_MLP, .sizes_count = 3, .sizes = {2, 4, 3}},
        .train = {.slots = 1, .slot_samples = VALUES_MAX + WARM, .microbatch = 1},
        .mesh = {.stages = 2, .schedule = SCHEDULE_1F1B, .runs = 1},
    };
    mesh->model = model_of(mesh->spec.model);
    mesh->ticket = (struct ticket){.kind = TICKET_TRAIN, .generation = 1, .attempt = 1};
    if (about->client != NULL)
        check(tls_certificate_digest(buf_slice(&about->client->certificate), &shown) == ERR_OK);
    for (uint32_t i = 0; i < 2; i++) {
        mesh->peers[i] = (struct peer){.stage = i, .member = 1 + i};
        memcpy(mesh->peers[i].certificate, shown.bytes, sizeof shown.bytes);
        snprintf(mesh->peers[i].address, sizeof mesh->peers[i].address, "127.0.0.1:%u", port);
    }
    peers_settings(&settings);
    rpc_process_init(true);
    check(rpc_loop_new(&settings, &loop) == ERR_OK);
    const struct peers_options options = {.loop = loop,
                                          .identity = about->client,
                                          .address = "127.0.0.1:0",
                                          .spec = &mesh->spec,
                                          .model = &mesh->model,
                                          .answer_ms = ANSWER_MS,
                                          .lanes = 1,
                                          .unreachable = on_unreachable,
                                          .logger = &silent};
    struct peers *peers = NULL;
    if (peers_new(&options, &peers, &reason) != ERR_OK)
        fprintf(stderr, "%s\n", reason.text);
    check(peers != NULL);
    const struct places places = {1, 1, 2, mesh->peers};
    const struct place place = {.stage = (uint32_t)which, .stages = 2, .ranks = 1};
    check(peers_lease(peers_lane(peers, 0), 1 + (uint64_t)which, &mesh->ticket, &place, &places) ==
          ERR_OK);
    return peers;
}

static struct executor_value value_of(uint32_t microbatch)
{
    return (struct executor_value){EXECUTOR_FORWARD, 1, 0, microbatch, VALUE_BYTES};
}

static unsigned serve(const void *context)
{
    static struct mesh mesh; /* of this process, which does nothing else */
    const struct rounds_case *about = context;
    struct peers *peers = worker_make(about, &mesh, GIVES, 1);
    uint8_t *bytes = calloc(1, VALUE_BYTES);
    check(bytes != NULL);
    for (uint32_t i = 0; i < WARM + about->passes; i++) {
        const struct executor_value value = value_of(i);
        bytes[i] = (uint8_t)i;
        check(peers_give(peers_lane(peers, 0), &value, bytes) == ERR_OK);
    }
    free(bytes);
    return (unsigned)strtoul(strrchr(peers_address(peers), ':') + 1, NULL, 10);
}

static void take(struct peers *peers, uint8_t *bytes, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const struct executor_value value = value_of(i);
        check(peers_take(peers_lane(peers, 0), &value, bytes) == ERR_OK);
    }
}

static void measure(const void *context, const struct pair_link *link, struct pair_result *result)
{
    static struct mesh mesh;
    const struct rounds_case *about = context;
    struct peers *peers = worker_make(about, &mesh, TAKES, link->port);
    uint8_t *bytes = calloc(1, VALUE_BYTES);
    check(bytes != NULL);
    take(peers, bytes, 0, WARM);
    struct pair_clock clock = pair_clock_start(link);
    take(peers, bytes, WARM, WARM + about->passes);
    pair_clock_stop(&clock, link, result);
    result->bytes = (double)about->passes * VALUE_BYTES;
    free(bytes);
}

int main(int argc, char **argv)
{
    struct rounds_config config = {.program = "bench_peers",
                                   .what = "Peer",
                                   .rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 7,
                                   .passes = argc > 2 ? (unsigned)atoi(argv[2]) : VALUES_MAX,
                                   .threads = argc > 3 ? (unsigned)atoi(argv[3]) : 1,
                                   .only = argc > 4 ? argv[4] : NULL,
                                   .pulls = true,
                                   .tensor_bytes = VALUE_BYTES,
                                   .block_bytes = BLOCK_BYTES,
                                   .serve = serve,
                                   .measure = measure};
    if (config.rounds < 1 || config.rounds > ROUNDS_MAX || config.passes < 1 ||
        config.passes > VALUES_MAX) {
        fprintf(stderr, "usage: bench_peers [ROUNDS [VALUES [THREADS [CASE]]]]\n");
        return 2;
    }
    return rounds_run(&config);
}
