/* A shard of four chunks, driven event by event: made-up pushes, commits, pulls, and what it asked
 * for last. */
#ifndef ROOST_TESTS_UNIT_SHARD_FIXTURE_H
#define ROOST_TESTS_UNIT_SHARD_FIXTURE_H

#include "tests/unit/unit.h"

#include "common/rand.h"
#include "server/shard/shard.h"

enum { N_FIRST = 48, N_TIED = 32, N_MEAN = 16, N_ALL = N_FIRST + N_TIED + N_MEAN + 4, SLOTS = 4 };
enum { N_COLS = 4 /* of the tied one */, ROWS = N_TIED / N_COLS };
enum { FIRST = 3, TIED = 4, MEAN = 7, LOSS = 9, COUNT = 4 }; /* the chunks' numbers in the run */
enum { GENERATION = 5, BOOT = 77, TERM = 2, ALICE = 100, BOB = 200 };

static const struct shard_chunk chunks[COUNT] = {
    {.chunk = FIRST, .n = N_FIRST, .parts = 1, .rule = MODEL_OPTIMIZER, .decay = true},
    {.chunk = TIED, .n = N_TIED, .cols = N_COLS, .parts = 2, .rule = MODEL_OPTIMIZER},
    {.chunk = MEAN, .n = N_MEAN, .parts = 1, .rule = MODEL_MEAN},
    {.chunk = LOSS, .n = 4, .parts = 1, .rule = MODEL_NONE, .loss = true},
};

struct shard_fixture {
    bool later;           /* the test configures and starts it */
    struct kernels table; /* a copy: tests may change it */
    const struct kernels *kernels;
    struct shard_config config;
    struct shard *shard;
    struct shard_effects effects;
    uint64_t id;
};

static inline void fill_initial(struct shard *shard, uint32_t count)
{
    for (uint32_t c = 0; c < count; c++)
        for (uint32_t i = 0; i < chunks[c].n; i++)
            shard_state(shard, c).weights[i] = (float)(c + 1) + (float)i / 64;
}

static inline void start(struct shard_fixture *f)
{
    assert_int_equal(shard_new(&f->config, &f->shard), ERR_OK);
    fill_initial(f->shard, f->config.chunk_count);
    assert_int_equal(shard_start(f->shard), ERR_OK);
    shard_check(f->shard);
}

static inline void shard_set_up(struct shard_fixture *f)
{
    struct kernels_options options = {.backend = KERNELS_CPU};
    char reason[256];
    assert_true(kernels_new(&options, &f->kernels, reason, sizeof reason));
    f->table = *f->kernels;
    f->config = (struct shard_config){
        .kernels = &f->table,
        .generation = GENERATION,
        .boot = BOOT,
        .term = TERM,
        .slots = SLOTS,
        .ahead_max = SLOTS,
        .parked_member_bytes_max = 1000,
        .snapshot_copies = 1,
        .optimizer = {.kind = SPEC_MOMENTUM, .momentum = 0.5, .weight_decay = 0.125},
        .run_chunk_count = 20,
        .chunk_count = COUNT,
        .chunks = chunks,
    };
    if (!f->later)
        start(f);
}

/* Drops the references that effects gave us. */
static inline void clear(struct shard_fixture *f)
{
    for (uint32_t i = 0; i < f->effects.count; i++) {
        struct shard_effect *e = &f->effects.items[i];
        for (uint32_t c = 0; e->kind == SHARD_WEIGHTS && c < e->weights.header.chunk_count; c++)
            counted_unref(e->weights.copies[c]);
        if (e->kind == SHARD_SNAPSHOT)
            shard_snapshot_drop(e);
    }
    f->effects.count = 0;
}

static inline void shard_tear_down(struct shard_fixture *f)
{
    clear(f);
    shard_free(f->shard);
    kernels_free(f->kernels);
}

static inline struct shard_effect *effect(struct shard_fixture *f, enum shard_effect_kind kind)
{
    for (uint32_t i = 0; i < f->effects.count; i++)
        if (f->effects.items[i].kind == kind)
            return &f->effects.items[i];
    return NULL;
}

/* ---- pushes ---- */

/* What a slot brings: of very different sizes, so that the order of addition shows. */
static inline float gradient(uint64_t step, uint32_t slot, uint32_t chunk, uint32_t part,
                             uint32_t i)
{
    if (chunk == LOSS)
        return (float)(i + 1) * (float)(slot + 1);
    struct rand_state rand = {step * 1000003 + slot * 10007 + chunk * 1009 + part * 101 + i};
    double size = (double)(UINT64_C(1) << rand_below(&rand, 30)) / (1 << 20);
    return (float)((rand_unit(&rand) - 0.5) * size);
}

static inline void node_values(uint64_t step, struct node node, uint32_t chunk, uint32_t part,
                               uint32_t n, float *sum)
{
    float other[N_FIRST];
    if (node.level == 0) {
        for (uint32_t i = 0; i < n; i++)
            sum[i] = gradient(step, node.index, chunk, part, i);
        return;
    }
    node_values(step, (struct node){node.level - 1, node.index * 2}, chunk, part, n, sum);
    node_values(step, (struct node){node.level - 1, node.index * 2 + 1}, chunk, part, n, other);
    for (uint32_t i = 0; i < n; i++)
        sum[i] += other[i];
}

/* A push message as a worker makes it: entries, and their payload in two slices. */
struct message {
    struct push push;
    struct push_entry entries[8];
    float values[512];
    uint32_t value_count;
    struct slice slices[2];
};

static inline void message_begin(struct shard_fixture *f, struct message *m, uint64_t step,
                                 struct node node)
{
    memset(m, 0, sizeof *m);
    m->push = (struct push){
        .id = ++f->id, .generation = GENERATION, .step = step, .node = node, .entries = m->entries};
}

static inline void message_add(struct message *m, uint32_t chunk, uint32_t part, uint32_t n)
{
    node_values(m->push.step, m->push.node, chunk, part, n, m->values + m->value_count);
    m->entries[m->push.entry_count++] =
        (struct push_entry){.chunk = chunk, .part = part, .bytes = n * 4};
    m->value_count += n;
}

static inline void message_all(struct shard_fixture *f, struct message *m, uint64_t step,
                               struct node node)
{
    message_begin(f, m, step, node);
    message_add(m, FIRST, 0, N_FIRST);
    message_add(m, TIED, 0, N_TIED);
    message_add(m, TIED, 1, N_TIED);
    message_add(m, MEAN, 0, N_MEAN);
    message_add(m, LOSS, 0, 4);
}

static inline struct shard_ack send(struct shard_fixture *f, uint64_t sender, struct message *m)
{
    clear(f);
    const uint8_t *bytes = (const uint8_t *)m->values;
    m->slices[0] = (struct slice){bytes, 53};
    m->slices[1] = (struct slice){bytes + 53, m->value_count * sizeof(float) - 53};
    struct cursor cursor = {m->slices, 2, 0, 0};
    struct shard_ack ack = shard_push(f->shard, sender, &m->push, cursor, &f->effects);
    shard_check(f->shard);
    return ack;
}

static inline enum err push_all(struct shard_fixture *f, uint64_t step, struct node node)
{
    struct message m;
    message_all(f, &m, step, node);
    return send(f, ALICE, &m).code;
}

static inline void push_step(struct shard_fixture *f, uint64_t step)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        assert_int_equal(push_all(f, step, (struct node){0, slot}), ERR_OK);
}

/* ---- commits ---- */

static inline struct commit decision(uint64_t step)
{
    return (struct commit){.generation = GENERATION,
                           .term = TERM,
                           .step = step,
                           .apply = true,
                           .scale = 0.25f,
                           .lr = 0.5f,
                           .bias1 = 1,
                           .bias2 = 1};
}

static inline enum err commit(struct shard_fixture *f, const struct commit *commit)
{
    clear(f);
    enum err err = shard_commit(f->shard, BOOT, commit, NULL, &f->effects);
    shard_check(f->shard);
    return err;
}

/* The commit, to be carried out. */
static inline void begin(struct shard_fixture *f, struct commit c)
{
    assert_int_equal(commit(f, &c), ERR_OK);
}

static inline bool work(struct shard_fixture *f)
{
    bool more;
    clear(f);
    assert_int_equal(shard_work(f->shard, &f->effects, &more), ERR_OK);
    shard_check(f->shard);
    return more;
}

/* Carries out until COMMITTED; snapshots on the way are dropped. */
static inline void work_until_committed(struct shard_fixture *f, uint64_t step)
{
    for (uint32_t i = 0; i < 100; i++) {
        work(f);
        struct shard_effect *committed = effect(f, SHARD_COMMITTED);
        if (committed != NULL) {
            assert_int_equal(committed->committed.generation, GENERATION);
            assert_int_equal(committed->committed.step, step);
            return;
        }
    }
    fail_msg("step %d is never committed", (int)step);
}

/* The commit, until it is reported as carried out. */
static inline void carry_out(struct shard_fixture *f, struct commit c)
{
    begin(f, c);
    work_until_committed(f, c.step);
}

static inline void do_step(struct shard_fixture *f, uint64_t step)
{
    push_step(f, step);
    carry_out(f, decision(step));
}

static inline struct commit cut_decision(uint64_t step)
{
    struct commit c = decision(step);
    c.cut = true;
    return c;
}

/* ---- pulls ---- */

static inline struct shard_effect *pull_some(struct shard_fixture *f, uint64_t sender,
                                             uint64_t version, const uint32_t *numbers,
                                             uint32_t count)
{
    clear(f);
    struct pull pull = {++f->id, GENERATION, version, count, numbers};
    /* Streams of one member: 100 … 199. */
    shard_pull(f->shard, (struct pull_sender){sender, sender / 100}, &pull, &f->effects);
    shard_check(f->shard);
    assert_int_equal(f->effects.count, 1);
    assert_int_equal(f->effects.items[0].sender, sender);
    return &f->effects.items[0];
}

static inline struct shard_effect *pull_one(struct shard_fixture *f, uint64_t version,
                                            uint32_t number)
{
    return pull_some(f, ALICE, version, &number, 1);
}

static inline enum err refusal(const struct shard_effect *e)
{
    assert_int_equal(e->kind, SHARD_REFUSAL);
    return e->refusal.code;
}

#endif
