#include "tests/bench/rounds.h"

#include "common/thread.h"
#include "common/time.h"

#include <stdlib.h>
#include <string.h>

/* ---- What a measured process needs ---- */

static void identity_make(struct tls_identity *identity, enum tls_role role, const struct buf *ca,
                          const struct buf *ca_key)
{
    enum { DAY_S = 86400 };
    int64_t now_s = (int64_t)(time_wall_ns() / 1000000000);
    identity->holder = (struct tls_holder){.role = role, .cluster = "bench", .name = "b"};
    struct tls_request request = {.holder = identity->holder, .now_s = now_s, .valid_s = DAY_S};
    check(tls_issue(buf_slice(ca), buf_slice(ca_key), &request, &identity->certificate,
                    &identity->key, NULL) == ERR_OK);
    check(buf_append(&identity->ca, ca->data, ca->bytes + 1) == ERR_OK);
    identity->ca.bytes--;
    identity->not_after_s = now_s + DAY_S;
}

void identities_init(struct identities *identities)
{
    struct buf ca = {0}, key = {0};
    *identities = (struct identities){0};
    check(tls_ca_create("bench", (int64_t)(time_wall_ns() / 1000000000), 86400, &ca, &key, NULL) ==
          ERR_OK);
    identity_make(&identities->server, TLS_ROLE_SERVER, &ca, &key);
    identity_make(&identities->client, TLS_ROLE_WORKER, &ca, &key);
    buf_release(&ca);
    buf_release(&key);
}

void identities_release(struct identities *identities)
{
    tls_identity_release(&identities->server);
    tls_identity_release(&identities->client);
}

struct rpc_settings rounds_settings(const struct rounds_case *about)
{
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = about->threads;
    if (!about->shared)
        settings.shared_ring_bytes = 0;
    return settings;
}

struct rpc_loop *rounds_loop(const struct rounds_case *about)
{
    rpc_process_init(true);
    const struct rpc_settings settings = rounds_settings(about);
    struct rpc_loop *loop = NULL;
    check(rpc_loop_new(&settings, &loop) == ERR_OK);
    return loop;
}

/* ---- The rounds ---- */

static const struct {
    const char *name;
    enum limit_direction direction;
    bool tls, shared, digest;
} cases[] = {
    {"push", .direction = LIMIT_PUSH},
    {"pull", .direction = LIMIT_PULL},
    {"push tls", .direction = LIMIT_PUSH, .tls = true},
    {"pull tls", .direction = LIMIT_PULL, .tls = true},
    {"push shared", .direction = LIMIT_PUSH, .shared = true},
    {"pull shared", .direction = LIMIT_PULL, .shared = true},
    {"push shared, digest", .direction = LIMIT_PUSH, .shared = true, .digest = true},
};
#define CASES (sizeof cases / sizeof cases[0])

/* Of one case, over the rounds. */
struct results {
    struct pair_result limit[ROUNDS_MAX], ours[ROUNDS_MAX];
};

static void run_case(const struct rounds_config *config, const struct rounds_case *about,
                     struct pair_result *ret_limit, struct pair_result *ret_ours)
{
    struct limit_config limit = {.direction = about->direction,
                                 .tensor_bytes = about->tensor_bytes,
                                 .passes = about->passes,
                                 .receive_bytes = config->block_bytes,
                                 .server = about->server,
                                 .client = about->client,
                                 .ring = about->shared,
                                 .tree = config->tree,
                                 .digest = about->digest};
    struct pair_config ours = {
        .serve = config->serve, .measure = config->measure, .context = about};
    if (limit_run(&limit, ret_limit) != ERR_OK || pair_run(&ours, ret_ours) != ERR_OK) {
        fprintf(stderr, "%s: a measured process failed\n", config->program);
        exit(1);
    }
}

static void run_round(const struct rounds_config *config, const struct identities *identities,
                      unsigned round, struct results *results)
{
    for (unsigned i = 0; i < CASES; i++) {
        if ((config->only != NULL && strcmp(config->only, cases[i].name) != 0) ||
            (config->pulls && cases[i].direction != LIMIT_PULL) ||
            (cases[i].digest && !config->tree))
            continue;
        bool tls = cases[i].tls;
        struct rounds_case about = {.direction = cases[i].direction,
                                    .tensor_bytes = config->tensor_bytes,
                                    .passes = config->passes,
                                    .threads = config->threads,
                                    .shared = cases[i].shared,
                                    .digest = cases[i].digest,
                                    .server = tls ? &identities->server : NULL,
                                    .client = tls ? &identities->client : NULL};
        run_case(config, &about, &results[i].limit[round], &results[i].ours[round]);
    }
}

static void print_case(const char *name, const struct results *results, unsigned rounds)
{
    double speeds[2][ROUNDS_MAX], cpus[2][ROUNDS_MAX], ratios[2][ROUNDS_MAX];
    for (unsigned i = 0; i < rounds; i++) {
        const struct pair_result *both[2] = {&results->limit[i], &results->ours[i]};
        for (unsigned k = 0; k < 2; k++) {
            speeds[k][i] = both[k]->bytes / both[k]->seconds / (1 << 30);
            cpus[k][i] = both[k]->cpu_seconds / both[k]->bytes * (1 << 30);
        }
        ratios[0][i] = speeds[1][i] / speeds[0][i];
        ratios[1][i] = cpus[1][i] / cpus[0][i];
    }
    printf("%-19s %7.2f %8.2f %7.2f   %7.3f %8.3f %7.2f\n", name, pair_median(speeds[0], rounds),
           pair_median(speeds[1], rounds), pair_median(ratios[0], rounds),
           pair_median(cpus[0], rounds), pair_median(cpus[1], rounds),
           pair_median(ratios[1], rounds));
}

static void print(const struct rounds_config *config, const struct results *results)
{
    char congestion[16];
    limit_congestion_control(congestion);
    const char *about = "no TLS";
    for (unsigned i = 0; i < CASES; i++)
        if (results[i].limit[0].about[0] != 0)
            about = results[i].limit[0].about;
    printf("%u rounds, %.1f MiB, %u passes, %u cores, congestion control %s, %s\n", config->rounds,
           (double)config->tensor_bytes / (1 << 20), config->passes, thread_core_count(),
           congestion, about);
    printf("%-19s %7s %8s %7s   %7s %8s %7s\n", "", "limit", config->what, "ratio", "limit",
           config->what, "ratio");
    printf("%-19s %24s   %24s\n", "", "GiB/s", "CPU s per GiB, both ends");
    for (unsigned i = 0; i < CASES; i++)
        if (results[i].limit[0].bytes > 0)
            print_case(cases[i].name, &results[i], config->rounds);
}

int rounds_run(const struct rounds_config *config)
{
    static struct results results[CASES]; /* large, and there is one run a process */
    struct identities identities;
    identities_init(&identities);
    for (unsigned round = 0; round < config->rounds; round++)
        run_round(config, &identities, round, results);
    print(config, results);
    identities_release(&identities);
    return 0;
}
