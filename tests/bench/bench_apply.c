/* Apply and reduce in the shard core, one thread, against loops over the same streams:
 *
 *   bench_apply [ROUNDS [MEBIBYTES]]
 *
 * Arrays of MEBIBYTES each (default: 4 times the last-level cache; at most 1,000), in chunks of
 * 131,072 weights.
 * apply   AdamW with bf16 publish, as shard_work() does it after a commit: reads weights, m, v and
 *         the sum, writes weights, m, v and the published copy, 30 bytes a weight. Limit: a loop
 *         over as many arrays that does one addition for each.
 * lent    the same while the writer of a cut holds weights, m and v, so that they go elsewhere.
 * reduce  the second slot of a pair, as shard_push() adds it: 12 bytes a weight, from slices of
 *         50,001 bytes, which end in the middle of a float. Limit: a loop a += b.
 * Rounds alternate between them; a ratio is the median of the rounds' ratios. */
#include "common/file.h"
#include "common/scoped.h"
#include "common/thread.h"
#include "common/time.h"
#include "server/shard/shard.h"
#include "tests/bench/pair.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = MODEL_CHUNK_WEIGHTS_MAX, ROUNDS_MAX = 101, SLICE_BYTES = 50001, SLOTS = 4 };
enum { CHUNKS_MAX = 2000 /* a cut's writer is lent no more at once */ };

/* ---- the limits: 16 floats at a time, as wide as the compiler's target allows ---- */

typedef float lanes __attribute__((vector_size(64), aligned(64)));
typedef uint16_t halves __attribute__((vector_size(32), aligned(32)));
typedef uint32_t words __attribute__((vector_size(64)));

struct streams {
    lanes *weights, *m, *v, *sum;
    halves *published;
    size_t count; /* of 16 floats */
};

#define LIMIT_LOOPS(NAME, TARGET)                                                                  \
    TARGET static void apply_limit_##NAME(const struct streams *s)                                 \
    {                                                                                              \
        for (size_t i = 0; i < s->count; i++) {                                                    \
            lanes sum = s->sum[i];                                                                 \
            s->m[i] = s->m[i] + sum;                                                               \
            s->v[i] = s->v[i] + sum;                                                               \
            lanes weights = s->weights[i] + sum;                                                   \
            s->weights[i] = weights;                                                               \
            s->published[i] = __builtin_convertvector((words)weights >> 16, halves);               \
        }                                                                                          \
    }                                                                                              \
    TARGET static void reduce_limit_##NAME(const struct streams *s)                                \
    {                                                                                              \
        for (size_t i = 0; i < s->count; i++)                                                      \
            s->sum[i] = s->sum[i] + s->weights[i];                                                 \
    }

LIMIT_LOOPS(plain, )
LIMIT_LOOPS(avx2, __attribute__((target("avx2,fma"))))
LIMIT_LOOPS(avx512, __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))))

static const struct limits {
    const char *name;
    void (*apply)(const struct streams *streams);
    void (*reduce)(const struct streams *streams);
} limits[] = {{"plain", apply_limit_plain, reduce_limit_plain},
              {"AVX2", apply_limit_avx2, reduce_limit_avx2},
              {"AVX-512", apply_limit_avx512, reduce_limit_avx512}};

static const struct limits *widest(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
        return &limits[2];
    return __builtin_cpu_supports("avx2") ? &limits[1] : &limits[0];
}

static void *array(size_t bytes)
{
    void *memory = aligned_alloc(64, bytes);
    check(memory != NULL);
    memset(memory, 0, bytes);
    return memory;
}

static struct streams streams_make(size_t weights)
{
    return (struct streams){.weights = array(weights * 4),
                            .m = array(weights * 4),
                            .v = array(weights * 4),
                            .sum = array(weights * 4),
                            .published = array(weights * 2),
                            .count = weights / 16};
}

/* ---- the shard ---- */

struct bench {
    const struct kernels *kernels;
    struct shard *shard;
    uint32_t chunk_count;
    float *gradient; /* of all chunks */
    uint64_t step;
    struct shard_effect *lent; /* (chunks) what the writer of a cut has; {0}: nothing */
    struct shard_effects effects;
};

static void bench_start(struct bench *bench, uint32_t chunk_count)
{
    struct kernels_options options = {.backend = KERNELS_CPU};
    char reason[256];
    check(kernels_new(&options, &bench->kernels, reason, sizeof reason));
    scoped(free_scoped) struct shard_chunk *chunks = calloc(chunk_count, sizeof *chunks);
    check(chunks != NULL);
    for (uint32_t i = 0; i < chunk_count; i++)
        chunks[i] = (struct shard_chunk){
            .chunk = i, .n = CHUNK, .parts = 1, .rule = MODEL_OPTIMIZER, .decay = true};
    struct shard_config config = {
        .kernels = bench->kernels,
        .generation = 1,
        .slots = SLOTS,
        .weights_codec = CODEC_BF16,
        .ahead_max = SLOTS,
        .parked_member_bytes_max = 4096,
        .snapshot_copies = chunk_count,
        .snapshot_early = true,
        .optimizer = {.kind = SPEC_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1},
        .chunk_count = chunk_count,
        .chunks = chunks};
    check(shard_new(&config, &bench->shard) == ERR_OK);
    check(shard_start(bench->shard) == ERR_OK);
    bench->chunk_count = chunk_count;
    bench->lent = calloc(chunk_count, sizeof *bench->lent);
    check(bench->lent != NULL);
    size_t weights = (size_t)chunk_count * CHUNK;
    bench->gradient = array(weights * sizeof(float));
    for (size_t i = 0; i < weights; i++)
        bench->gradient[i] = (float)(i % 1000) / 1024;
}

static void push_chunk(struct bench *bench, uint32_t chunk, uint32_t slot)
{
    enum { SLICES = CHUNK * 4 / SLICE_BYTES + 1 };
    struct slice slices[SLICES];
    const uint8_t *bytes = (const uint8_t *)(bench->gradient + (size_t)chunk * CHUNK);
    for (size_t i = 0, at = 0; i < SLICES; i++, at += SLICE_BYTES) {
        size_t rest = CHUNK * 4 - at;
        slices[i] = (struct slice){bytes + at, rest < SLICE_BYTES ? rest : SLICE_BYTES};
    }
    struct push_entry entry = {.chunk = chunk, .bytes = CHUNK * 4};
    struct push push = {.generation = 1,
                        .step = bench->step,
                        .node = {0, slot},
                        .entry_count = 1,
                        .entries = &entry};
    bench->effects.count = 0;
    struct shard_ack ack =
        shard_push(bench->shard, 1, &push, (struct cursor){slices, SLICES, 0, 0}, &bench->effects);
    check(ack.code == ERR_OK);
}

static void push_slot(struct bench *bench, uint32_t slot)
{
    for (uint32_t chunk = 0; chunk < bench->chunk_count; chunk++)
        push_chunk(bench, chunk, slot);
}

/* The writer gets a chunk, or gives all back. */
static void lend(struct bench *bench, const struct shard_effect *snapshot)
{
    bench->lent[snapshot->snapshot.chunk] = *snapshot;
}

static void give_back(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->chunk_count; i++) {
        shard_snapshot_drop(&bench->lent[i]);
        bench->lent[i] = (struct shard_effect){0};
    }
}

static void apply_step(struct bench *bench, bool cut)
{
    struct commit commit = {.generation = 1,
                            .step = bench->step,
                            .apply = true,
                            .cut = cut,
                            .scale = 0.01f,
                            .lr = 1e-3f,
                            .bias1 = 0.1f,
                            .bias2 = 0.05f};
    bench->effects.count = 0;
    check(shard_commit(bench->shard, 0, &commit, NULL, &bench->effects) == ERR_OK);
    for (bool more = true; more;) {
        bench->effects.count = 0;
        check(shard_work(bench->shard, &bench->effects, &more) == ERR_OK);
        for (uint32_t i = 0; i < bench->effects.count; i++)
            if (bench->effects.items[i].kind == SHARD_SNAPSHOT)
                lend(bench, &bench->effects.items[i]);
    }
    bench->step++;
    check(shard_version(bench->shard) == bench->step);
}

/* ---- rounds ---- */

static double seconds_since(uint64_t began_ns)
{
    return (double)(time_now_ns() - began_ns) / 1e9;
}

struct round {
    double apply, apply_limit, lent, reduce, reduce_limit; /* seconds */
};

static struct round round_run(struct bench *bench, const struct streams *streams)
{
    const struct limits *limit = widest();
    struct round round;
    push_slot(bench, 0);
    uint64_t began_ns = time_now_ns();
    push_slot(bench, 1);
    round.reduce = seconds_since(began_ns);
    began_ns = time_now_ns();
    limit->reduce(streams);
    round.reduce_limit = seconds_since(began_ns);
    push_slot(bench, 2);
    push_slot(bench, 3);
    began_ns = time_now_ns();
    apply_step(bench, true);
    round.apply = seconds_since(began_ns);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        push_slot(bench, slot);
    began_ns = time_now_ns();
    apply_step(bench, false);
    round.lent = seconds_since(began_ns);
    give_back(bench);
    began_ns = time_now_ns();
    limit->apply(streams);
    round.apply_limit = seconds_since(began_ns);
    return round;
}

static void print_line(const char *name, double bytes, double *limit_seconds, double *seconds,
                       unsigned rounds)
{
    double ratios[ROUNDS_MAX];
    for (unsigned i = 0; i < rounds; i++) {
        ratios[i] = limit_seconds[i] / seconds[i];
        limit_seconds[i] = bytes / limit_seconds[i] / (1 << 30);
        seconds[i] = bytes / seconds[i] / (1 << 30);
    }
    printf("%-8s %8.2f %8.2f %8.3f\n", name, pair_median(limit_seconds, rounds),
           pair_median(seconds, rounds), pair_median(ratios, rounds));
}

/* What sysconf() says is the sum over all sockets; the file says what one core shares. */
static size_t cache_bytes(void)
{
    scoped(buf_release) struct buf text = {0};
    if (file_read("/sys/devices/system/cpu/cpu0/cache/index3/size", 64, &text, NULL) != ERR_OK ||
        buf_append(&text, "", 1) != ERR_OK)
        return (size_t)32 << 20;
    return (size_t)strtoul((const char *)text.data, NULL, 10) << 10;
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 7;
    size_t bytes = argc > 2 ? (size_t)atoi(argv[2]) << 20 : 4 * cache_bytes();
    uint32_t chunk_count = (uint32_t)(bytes / (CHUNK * sizeof(float)));
    if (chunk_count > CHUNKS_MAX)
        chunk_count = CHUNKS_MAX;
    if (rounds < 1 || rounds > ROUNDS_MAX || chunk_count == 0) {
        fprintf(stderr, "usage: bench_apply [ROUNDS [MEBIBYTES]]\n");
        return 2;
    }
    static struct bench bench;
    bench_start(&bench, chunk_count);
    struct streams streams = streams_make((size_t)chunk_count * CHUNK);
    double times[6][ROUNDS_MAX];
    round_run(&bench, &streams); /* to warm up */
    for (unsigned i = 0; i < rounds; i++) {
        struct round round = round_run(&bench, &streams);
        times[0][i] = round.apply_limit;
        times[1][i] = round.apply;
        times[2][i] = round.apply_limit;
        times[3][i] = round.lent;
        times[4][i] = round.reduce_limit;
        times[5][i] = round.reduce;
    }
    double weights = (double)chunk_count * CHUNK;
    printf("%u rounds, arrays of %zu MiB, last-level cache %zu MiB, kernels %s, limit %s\n", rounds,
           (size_t)chunk_count * CHUNK * sizeof(float) >> 20, cache_bytes() >> 20,
           bench.kernels->name, widest()->name);
    printf("%-8s %8s %8s %8s\n%-8s %17s\n", "", "limit", "roost", "ratio", "", "GiB/s");
    print_line("apply", weights * 30, times[0], times[1], rounds);
    print_line("lent", weights * 30, times[2], times[3], rounds);
    print_line("reduce", weights * 12, times[4], times[5], rounds);
    return 0;
}
