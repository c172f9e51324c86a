/* The shard core, driven event by event: who is answered what, which bits come out, what is
 * bounded.
 */
#include "tests/unit/unit.h"

#include "common/rand.h"
#include "server/shard.h"

#include <math.h>
#include <string.h>

enum { N_FIRST = 48, N_TIED = 32, N_MEAN = 16, N_ALL = N_FIRST + N_TIED + N_MEAN + 4, SLOTS = 4 };
enum { FIRST = 3, TIED = 4, MEAN = 7, LOSS = 9, COUNT = 4 }; /* the chunks' numbers in the run */
enum { GENERATION = 5, BOOT = 77, TERM = 2, ALICE = 100, BOB = 200 };

static const struct shard_chunk chunks[COUNT] = {
    {.chunk = FIRST, .n = N_FIRST, .parts = 1, .rule = MODEL_OPTIMIZER, .decay = true},
    {.chunk = TIED, .n = N_TIED, .parts = 2, .rule = MODEL_OPTIMIZER},
    {.chunk = MEAN, .n = N_MEAN, .parts = 1, .rule = MODEL_MEAN},
    {.chunk = LOSS, .n = 4, .parts = 1, .rule = MODEL_NONE, .loss = true},
};

struct fixture {
    struct kernels table; /* a copy: tests may change it */
    const struct kernels *kernels;
    struct shard_config config;
    struct shard *shard;
    struct shard_effects effects;
    uint64_t id;
};

static void set_up(struct fixture *f)
{
    struct kernels_options options = {.backend = KERNELS_CPU};
    char reason[256];
    memset(f, 0, sizeof *f);
    assert_true(kernels_new(&options, &f->kernels, reason, sizeof reason));
    f->table = *f->kernels;
    f->config = (struct shard_config){
        .kernels = &f->table,
        .generation = GENERATION,
        .boot = BOOT,
        .term = TERM,
        .slots = SLOTS,
        .ahead_max = SLOTS,
        .parked_bytes_max = 1000,
        .snapshot_copies = 1,
        .optimizer = {.kind = SPEC_MOMENTUM, .momentum = 0.5, .weight_decay = 0.125},
        .run_chunk_count = 20,
        .chunk_count = COUNT,
        .chunks = chunks,
    };
}

static void fill_initial(struct shard *shard, uint32_t count)
{
    for (uint32_t c = 0; c < count; c++)
        for (uint32_t i = 0; i < chunks[c].n; i++)
            shard_state(shard, c).weights[i] = (float)(c + 1) + (float)i / 64;
}

static void start(struct fixture *f)
{
    assert_int_equal(shard_new(&f->config, &f->shard), ERR_OK);
    fill_initial(f->shard, f->config.chunk_count);
    assert_int_equal(shard_start(f->shard), ERR_OK);
    shard_check(f->shard);
}

static void set_up_and_start(struct fixture *f)
{
    set_up(f);
    start(f);
}

/* Drops the references that effects gave us. */
static void clear(struct fixture *f)
{
    for (uint32_t i = 0; i < f->effects.count; i++) {
        struct shard_effect *e = &f->effects.items[i];
        for (uint32_t c = 0; e->kind == SHARD_WEIGHTS && c < e->weights.header.chunk_count; c++)
            counted_unref(e->weights.copies[c]);
        if (e->kind == SHARD_SNAPSHOT)
            counted_unref(e->snapshot.copy);
    }
    f->effects.count = 0;
}

static void tear_down(struct fixture *f)
{
    clear(f);
    shard_free(f->shard);
    kernels_free(f->kernels);
}

static struct shard_effect *effect(struct fixture *f, enum shard_effect_kind kind)
{
    for (uint32_t i = 0; i < f->effects.count; i++)
        if (f->effects.items[i].kind == kind)
            return &f->effects.items[i];
    return NULL;
}

/* ---- pushes ---- */

/* What a slot brings: of very different sizes, so that the order of addition shows. */
static float gradient(uint64_t step, uint32_t slot, uint32_t chunk, uint32_t part, uint32_t i)
{
    if (chunk == LOSS)
        return (float)(i + 1) * (float)(slot + 1);
    struct rand_state rand = {step * 1000003 + slot * 10007 + chunk * 1009 + part * 101 + i};
    double size = (double)(UINT64_C(1) << rand_below(&rand, 30)) / (1 << 20);
    return (float)((rand_unit(&rand) - 0.5) * size);
}

static void node_values(uint64_t step, struct node node, uint32_t chunk, uint32_t part, uint32_t n,
                        float *sum)
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

static void message_begin(struct fixture *f, struct message *m, uint64_t step, struct node node)
{
    memset(m, 0, sizeof *m);
    m->push = (struct push){
        .id = ++f->id, .generation = GENERATION, .step = step, .node = node, .entries = m->entries};
}

static void message_add(struct message *m, uint32_t chunk, uint32_t part, uint32_t n)
{
    node_values(m->push.step, m->push.node, chunk, part, n, m->values + m->value_count);
    m->entries[m->push.entry_count++] = (struct push_entry){
        chunk, part, n * 4, 1000 * chunk + 10 * m->push.node.level + m->push.node.index};
    m->value_count += n;
}

static void message_all(struct fixture *f, struct message *m, uint64_t step, struct node node)
{
    message_begin(f, m, step, node);
    message_add(m, FIRST, 0, N_FIRST);
    message_add(m, TIED, 0, N_TIED);
    message_add(m, TIED, 1, N_TIED);
    message_add(m, MEAN, 0, N_MEAN);
    message_add(m, LOSS, 0, 4);
}

static struct push_ack send(struct fixture *f, uint64_t sender, struct message *m)
{
    clear(f);
    const uint8_t *bytes = (const uint8_t *)m->values;
    m->slices[0] = (struct slice){bytes, 53};
    m->slices[1] = (struct slice){bytes + 53, m->value_count * sizeof(float) - 53};
    struct cursor cursor = {m->slices, 2, 0, 0};
    shard_push(f->shard, sender, &m->push, cursor, &f->effects);
    shard_check(f->shard);
    struct shard_effect *ack = effect(f, SHARD_ACK);
    assert_non_null(ack);
    assert_int_equal(ack->sender, sender);
    assert_int_equal(ack->ack.id, m->push.id);
    return ack->ack;
}

static enum err push_all(struct fixture *f, uint64_t step, struct node node)
{
    struct message m;
    message_all(f, &m, step, node);
    return send(f, ALICE, &m).code;
}

static void push_step(struct fixture *f, uint64_t step)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        assert_int_equal(push_all(f, step, (struct node){0, slot}), ERR_OK);
}

/* ---- commits ---- */

static struct commit decision(uint64_t step)
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

static enum err commit(struct fixture *f, const struct commit *commit)
{
    clear(f);
    enum err err = shard_commit(f->shard, BOOT, commit, NULL, &f->effects);
    shard_check(f->shard);
    return err;
}

static bool work(struct fixture *f)
{
    bool more;
    clear(f);
    assert_int_equal(shard_work(f->shard, &f->effects, &more), ERR_OK);
    shard_check(f->shard);
    return more;
}

/* Carries out until COMMITTED; snapshots on the way are dropped. */
static void work_until_committed(struct fixture *f, uint64_t step)
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

static void do_step(struct fixture *f, uint64_t step)
{
    push_step(f, step);
    struct commit c = decision(step);
    assert_int_equal(commit(f, &c), ERR_OK);
    work_until_committed(f, step);
}

/* ---- pulls ---- */

static struct shard_effect *pull_some(struct fixture *f, uint64_t sender, uint64_t version,
                                      const uint32_t *numbers, uint32_t count)
{
    clear(f);
    struct pull pull = {++f->id, GENERATION, version, count, numbers};
    shard_pull(f->shard, sender, &pull, &f->effects);
    shard_check(f->shard);
    assert_int_equal(f->effects.count, 1);
    assert_int_equal(f->effects.items[0].sender, sender);
    return &f->effects.items[0];
}

static struct shard_effect *pull_one(struct fixture *f, uint64_t version, uint32_t number)
{
    return pull_some(f, ALICE, version, &number, 1);
}

static enum err refusal(const struct shard_effect *e)
{
    assert_int_equal(e->kind, SHARD_REFUSAL);
    return e->refusal.code;
}

/* ---- the tests ---- */

static void a_step_goes_from_pushes_to_published_weights(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        assert_null(effect(&f, SHARD_REDUCED));
        assert_int_equal(push_all(&f, 0, (struct node){0, slot}), ERR_OK);
    }
    struct shard_effect *reduced = effect(&f, SHARD_REDUCED);
    assert_non_null(reduced);
    assert_int_equal(reduced->reduced.seal_count, COUNT);
    assert_int_equal(reduced->reduced.generation, GENERATION);
    assert_true(reduced->reduced.has_loss);
    assert_true(reduced->reduced.loss_sum == 10);
    assert_true(reduced->reduced.sample_count == 20);
    assert_true(reduced->reduced.correct_count == 30);

    float sum[N_FIRST], weights[N_FIRST];
    node_values(0, (struct node){2, 0}, FIRST, 0, N_FIRST, sum);
    double sumsq;
    f.kernels->sum_squares(f.kernels, &sumsq, sum, N_FIRST);
    assert_int_equal(reduced->reduced.seals[0].chunk, FIRST);
    assert_true(reduced->reduced.seals[0].finite);
    assert_true(reduced->reduced.seals[0].sumsq == sumsq);
    assert_true(reduced->reduced.seals[1].sumsq > 0);
    assert_true(reduced->reduced.seals[2].sumsq == 0); /* the norm is the optimizer's */
    assert_true(reduced->reduced.seals[3].sumsq == 0);

    struct commit c = decision(0);
    memcpy(weights, shard_state(f.shard, 0).weights, sizeof weights);
    assert_int_equal(commit(&f, &c), ERR_OK);
    work_until_committed(&f, 0);
    assert_int_equal(shard_version(f.shard), 1);
    struct kernels_momentum step = {
        .scale = 0.25f, .lr = 0.5f, .weight_decay = 0.125f, .momentum = 0.5f};
    float m[N_FIRST] = {0}, published[N_FIRST];
    f.kernels->momentum(f.kernels, weights, m, published, KERNELS_F32, sum, &step, N_FIRST);
    struct shard_effect *answer = pull_one(&f, 1, FIRST);
    assert_int_equal(answer->kind, SHARD_WEIGHTS);
    assert_int_equal(answer->weights.header.version, 1);
    assert_memory_equal(answer->weights.copies[0]->data, published, sizeof published);
    assert_memory_equal(shard_state(f.shard, 0).weights, weights, sizeof weights);
    assert_memory_equal(shard_state(f.shard, 0).state[0], m, sizeof m);
    tear_down(&f);
}

static void a_mean_is_the_sum_over_slots(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    do_step(&f, 0);
    float sum[N_MEAN];
    node_values(0, (struct node){2, 0}, MEAN, 0, N_MEAN, sum);
    for (uint32_t i = 0; i < N_MEAN; i++)
        assert_true(shard_state(f.shard, 2).weights[i] == sum[i] * 0.25f);
    assert_true(shard_state(f.shard, 3).weights[1] == 4 + 1.0f / 64); /* rule none */
    tear_down(&f);
}

static void parts_are_added_in_part_order(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    f.config.optimizer = (struct spec_optimizer){.kind = SPEC_SGD};
    shard_free(f.shard);
    start(&f);
    float before[N_TIED], p0[N_TIED], p1[N_TIED];
    memcpy(before, shard_state(f.shard, 1).weights, sizeof before);
    do_step(&f, 0);
    node_values(0, (struct node){2, 0}, TIED, 0, N_TIED, p0);
    node_values(0, (struct node){2, 0}, TIED, 1, N_TIED, p1);
    for (uint32_t i = 0; i < N_TIED; i++) {
        float sum = p0[i] + p1[i];
        assert_true(shard_state(f.shard, 1).weights[i] == fmaf(-0.5f, 0.25f * sum, before[i]));
    }
    tear_down(&f);
}

/* Every name of the step in a random order, some as runs of slots, many twice. */
static void push_step_at_random(struct fixture *f, uint64_t step, struct rand_state *rand)
{
    static const struct {
        uint32_t chunk, part, n;
    } names[] = {
        {FIRST, 0, N_FIRST}, {TIED, 0, N_TIED}, {TIED, 1, N_TIED}, {MEAN, 0, N_MEAN}, {LOSS, 0, 4}};
    bool reduced = false;
    for (uint32_t i = 0; i < 5000 && !reduced; i++) {
        struct message m;
        uint32_t level = (uint32_t)rand_below(rand, 3);
        struct node node = {level, (uint32_t)rand_below(rand, SLOTS >> level)};
        message_begin(f, &m, step, node);
        for (uint64_t k = 0, count = 1 + rand_below(rand, 3); k < count; k++) {
            uint64_t name = rand_below(rand, 5);
            message_add(&m, names[name].chunk, names[name].part, names[name].n);
        }
        struct push_ack ack = send(f, 100 + rand_below(rand, 3), &m);
        assert_true(ack.code == ERR_OK || ack.code == ERR_BUSY);
        assert_int_equal(ack.first_refused == m.push.entry_count, ack.code == ERR_OK);
        assert_null(effect(f, SHARD_WRONG_BITS));
        reduced = effect(f, SHARD_REDUCED) != NULL;
    }
    assert_true(reduced);
}

static void every_arrival_ends_in_the_same_bits(void **state)
{
    (void)state;
    float expected[N_ALL];
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct fixture f;
        set_up(&f);
        f.config.ahead_max = (uint32_t)(seed % (SLOTS + 1));
        start(&f);
        struct rand_state rand = {seed};
        for (uint64_t step = 0; step < 2; step++) {
            if (seed == 0)
                push_step(&f, step);
            else
                push_step_at_random(&f, step, &rand);
            struct commit c = decision(step);
            assert_int_equal(commit(&f, &c), ERR_OK);
            work_until_committed(&f, step);
        }
        float weights[N_ALL], *out = weights;
        for (uint32_t c = 0; c < COUNT; out += chunks[c].n, c++)
            memcpy(out, shard_state(f.shard, c).weights, chunks[c].n * sizeof *out);
        if (seed == 0)
            memcpy(expected, weights, sizeof expected);
        assert_memory_equal(weights, expected, sizeof expected);
        tear_down(&f);
    }
}

static void a_duplicate_is_acknowledged_and_not_counted(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    assert_int_equal(push_all(&f, 0, (struct node){0, 2}), ERR_OK);
    uint64_t pushed = shard_statistics(f.shard).pushed_bytes;
    assert_int_equal(push_all(&f, 0, (struct node){0, 2}), ERR_OK);
    assert_int_equal(shard_statistics(f.shard).pushed_bytes, pushed);
    assert_int_equal(shard_statistics(f.shard).duplicates, 5);
    assert_int_equal(push_all(&f, 0, (struct node){1, 0}), ERR_OK);
    assert_int_equal(push_all(&f, 0, (struct node){0, 1}), ERR_OK); /* inside (1,0) */
    assert_int_equal(shard_statistics(f.shard).duplicates, 10);
    assert_int_equal(push_all(&f, 0, (struct node){2, 0}), ERR_OK); /* around all */
    assert_non_null(effect(&f, SHARD_REDUCED));
    assert_int_equal(push_all(&f, 0, (struct node){0, 3}), ERR_OK); /* after reduced */
    assert_null(effect(&f, SHARD_REDUCED));
    assert_int_equal(shard_statistics(f.shard).duplicates, 15);
    tear_down(&f);
}

static void a_duplicate_with_other_bits_names_both_senders(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    assert_int_equal(push_all(&f, 0, (struct node){0, 1}), ERR_OK);
    struct message m;
    message_all(&f, &m, 0, (struct node){0, 1});
    m.push.member = 8;
    m.entries[1].digest++;
    m.entries[2].digest++;
    assert_int_equal(send(&f, BOB, &m).code, ERR_OK);
    struct shard_effect *wrong = effect(&f, SHARD_WRONG_BITS);
    assert_non_null(wrong);
    assert_int_equal(wrong->wrong_bits.member, 8);
    assert_int_equal(wrong->wrong_bits.first_member, 0);
    assert_int_equal(wrong->wrong_bits.chunk, TIED);
    assert_int_equal(wrong->wrong_bits.part, 0);
    assert_int_equal(wrong->wrong_bits.node.index, 1);
    assert_int_equal(f.effects.count, 2); /* one of the two is enough */
    assert_int_equal(shard_statistics(f.shard).wrong_bits, 2);

    do_step(&f, 0); /* the step before is remembered */
    assert_int_equal(send(&f, BOB, &m).code, ERR_OK);
    assert_non_null(effect(&f, SHARD_WRONG_BITS));
    tear_down(&f);
}

static void a_push_that_counts_other_samples_than_its_tickets_have_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    f.config.slot_samples = 3;
    start(&f);
    assert_int_equal(push_all(&f, 0, (struct node){0, 1}), ERR_MALFORMED); /* it says 4 */
    assert_int_equal(push_all(&f, 0, (struct node){0, 0}), ERR_MALFORMED); /* it says 2 */
    assert_int_equal(push_all(&f, 0, (struct node){1, 0}), ERR_OK);        /* 6 of two slots */
    tear_down(&f);
}

static void digests_of_other_steps_are_not_compared(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    do_step(&f, 0);
    do_step(&f, 1);
    assert_int_equal(push_all(&f, 2, (struct node){1, 0}), ERR_OK);
    struct message m;
    message_all(&f, &m, 2, (struct node){0, 1}); /* its first in step 2, inside (1,0) */
    m.entries[0].digest++;
    assert_int_equal(send(&f, BOB, &m).code, ERR_OK);
    assert_null(effect(&f, SHARD_WRONG_BITS));
    tear_down(&f);
}

static void busy_says_from_which_entry_on(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    f.config.ahead_max = 0;
    start(&f);
    struct message m;
    message_begin(&f, &m, 0, (struct node){0, 0});
    message_add(&m, FIRST, 0, N_FIRST);
    assert_int_equal(send(&f, ALICE, &m).code, ERR_OK);
    message_all(&f, &m, 0, (struct node){0, 1}); /* FIRST: a pair; TIED: 0 is missing */
    struct push_ack ack = send(&f, ALICE, &m);
    assert_int_equal(ack.code, ERR_BUSY);
    assert_int_equal(ack.first_refused, 1);
    assert_int_equal(shard_statistics(f.shard).busy, 1);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        assert_int_equal(push_all(&f, 0, (struct node){0, slot}), ERR_OK);
    assert_non_null(effect(&f, SHARD_REDUCED));
    tear_down(&f);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    struct message m;
    const struct node slot = {0, 0};
#define REFUSED(change, error, index)                                                              \
    do {                                                                                           \
        message_all(&f, &m, 0, slot);                                                              \
        change;                                                                                    \
        struct push_ack ack = send(&f, ALICE, &m);                                                 \
        assert_int_equal(ack.code, error);                                                         \
        assert_int_equal(ack.first_refused, index);                                                \
    } while (0)
    REFUSED(m.push.generation--, ERR_OLD_GENERATION, 0);
    REFUSED(m.push.generation++, ERR_BEHIND, 0);
    REFUSED(m.push.step++, ERR_TOO_EARLY, 0);
    REFUSED(m.push.codec = CODEC_BF16, ERR_MALFORMED, 0);
    REFUSED(m.push.node.index = SLOTS, ERR_MALFORMED, 0);
    REFUSED(m.push.node.level = 3, ERR_MALFORMED, 0);
    REFUSED(m.entries[0].chunk = 5, ERR_MOVED, 0);
    REFUSED(m.entries[0].chunk = 20, ERR_NOT_FOUND, 0);
    assert_int_equal(shard_statistics(f.shard).pushed_bytes, 0);
    REFUSED(m.entries[1].part = 2, ERR_MALFORMED, 1);
    REFUSED(m.entries[2].bytes -= 4, ERR_MALFORMED, 2);
    REFUSED(m.value_count -= 1, ERR_MALFORMED, 4); /* payload shorter than its entries */
#undef REFUSED
    assert_int_equal(pull_one(&f, 0, 5)->refusal.code, ERR_MOVED);
    assert_int_equal(pull_one(&f, 0, 20)->refusal.code, ERR_NOT_FOUND);
    assert_int_equal(pull_one(&f, 7, 20)->refusal.code, ERR_NOT_FOUND);
    assert_int_equal(refusal(pull_some(&f, ALICE, 0, NULL, 0)), ERR_MALFORMED);
    tear_down(&f);
}

static void a_pull_is_at_most_one_message(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    struct shard_chunk large[2] = {{.chunk = 0, .n = MODEL_CHUNK_WEIGHTS_MAX, .parts = 1},
                                   {.chunk = 1, .n = 1, .parts = 1}};
    f.config.chunks = large;
    f.config.chunk_count = 2;
    assert_int_equal(shard_new(&f.config, &f.shard), ERR_OK);
    assert_int_equal(shard_start(f.shard), ERR_OK);
    const uint32_t both[2] = {0, 1};
    assert_int_equal(refusal(pull_some(&f, ALICE, 0, both, 2)), ERR_MALFORMED);
    assert_int_equal(pull_some(&f, ALICE, 0, both, 1)->kind, SHARD_WEIGHTS);
    tear_down(&f);
}

static void lossy_pushes_have_one_node_size(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    f.config.push_codec = f.config.weights_codec = CODEC_BF16;
    f.config.node_level = 1;
    start(&f);
    float sums[2][N_MEAN];
    for (uint32_t i = 0; i < 2; i++)
        node_values(0, (struct node){1, i}, MEAN, 0, N_MEAN, sums[i]);
    for (uint32_t level = 0; level <= 2; level++) {
        uint16_t halves[N_MEAN];
        f.kernels->cast_to_bf16(f.kernels, halves, sums[0], N_MEAN);
        struct push_entry entry = {MEAN, 0, sizeof halves, 1};
        struct push push = {1, GENERATION, 0, {level, 0}, CODEC_BF16, 1, &entry};
        struct slice slice = {(const uint8_t *)halves, sizeof halves};
        clear(&f);
        shard_push(f.shard, ALICE, &push, (struct cursor){&slice, 1, 0, 0}, &f.effects);
        assert_int_equal(f.effects.items[0].ack.code, level == 1 ? ERR_OK : ERR_MALFORMED);
    }
    struct message m; /* the loss is never rounded */
    message_begin(&f, &m, 0, (struct node){1, 1});
    m.push.codec = CODEC_BF16;
    message_add(&m, LOSS, 0, 4);
    clear(&f);
    struct slice slice = {(const uint8_t *)m.values, 16};
    shard_push(f.shard, ALICE, &m.push, (struct cursor){&slice, 1, 0, 0}, &f.effects);
    assert_int_equal(f.effects.items[0].ack.code, ERR_OK);
    assert_int_equal(pull_one(&f, 0, LOSS)->weights.copies[0]->bytes, 4 * 4);
    assert_int_equal(pull_one(&f, 0, FIRST)->weights.copies[0]->bytes, N_FIRST * 2);
    tear_down(&f);
}

static void infinite_gradients_are_reported(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        struct message m;
        message_all(&f, &m, 0, (struct node){0, slot});
        if (slot == 2)
            m.values[N_FIRST + 3] = INFINITY;
        assert_int_equal(send(&f, ALICE, &m).code, ERR_OK);
    }
    const struct reduced *reduced = &effect(&f, SHARD_REDUCED)->reduced;
    assert_true(reduced->seals[0].finite);
    assert_false(reduced->seals[1].finite);
    tear_down(&f);
}

static void a_skipped_step_raises_the_version_and_shares_the_weights(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    do_step(&f, 0);
    struct counted *copy = counted_ref(pull_one(&f, 1, FIRST)->weights.copies[0]);
    push_step(&f, 1);
    struct commit c = decision(1);
    c.apply = false;
    float weights[N_FIRST];
    memcpy(weights, shard_state(f.shard, 0).weights, sizeof weights);
    assert_int_equal(commit(&f, &c), ERR_OK);
    work_until_committed(&f, 1);
    assert_memory_equal(shard_state(f.shard, 0).weights, weights, sizeof weights);
    assert_int_equal(shard_version(f.shard), 2);
    assert_int_equal(refusal(pull_one(&f, 1, FIRST)), ERR_TOO_LATE);
    assert_ptr_equal(pull_one(&f, 2, FIRST)->weights.copies[0], copy);
    counted_unref(copy);
    do_step(&f, 2);
    tear_down(&f);
}

static void a_pull_waits_for_its_version(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    const uint32_t both[2] = {TIED, FIRST};
    assert_int_equal(refusal(pull_some(&f, BOB, 1, both, 2)), ERR_TOO_EARLY);
    uint64_t bobs = f.id;
    assert_int_equal(refusal(pull_some(&f, ALICE, 1, both + 1, 1)), ERR_TOO_EARLY);
    uint64_t alices = f.id;
    assert_int_equal(refusal(pull_some(&f, ALICE, 2, both + 1, 1)), ERR_TOO_EARLY);
    assert_int_equal(shard_statistics(f.shard).parked, 3);
    push_step(&f, 0);
    struct commit c = decision(0);
    assert_int_equal(commit(&f, &c), ERR_OK);
    assert_int_equal(refusal(pull_one(&f, 0, FIRST)), ERR_TOO_LATE); /* decided: gone */
    assert_true(work(&f)); /* FIRST is there, later chunks are not */
    assert_int_equal(f.effects.count, 1);
    assert_int_equal(f.effects.items[0].sender, ALICE);
    assert_int_equal(f.effects.items[0].weights.header.id, alices);
    assert_int_equal(pull_one(&f, 1, FIRST)->kind, SHARD_WEIGHTS);
    assert_int_equal(refusal(pull_one(&f, 1, LOSS)), ERR_TOO_EARLY);
    assert_true(work(&f)); /* TIED */
    assert_int_equal(f.effects.count, 1);
    assert_int_equal(f.effects.items[0].sender, BOB);
    assert_int_equal(f.effects.items[0].weights.header.id, bobs);
    assert_int_equal(f.effects.items[0].weights.header.chunks[0], TIED);
    assert_int_equal(f.effects.items[0].weights.copies[0]->bytes, N_TIED * 4);
    assert_int_equal(f.effects.items[0].weights.copies[1]->bytes, N_FIRST * 4);
    work_until_committed(&f, 0);
    assert_int_equal(shard_statistics(f.shard).parked, 1);
    shard_cancel(f.shard, ALICE);
    assert_int_equal(shard_statistics(f.shard).parked, 0);
    do_step(&f, 1);
    tear_down(&f);
}

static void who_has_all_weights_may_push_at_once(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    const uint32_t weights[] = {FIRST, TIED, MEAN};
    assert_int_equal(refusal(pull_some(&f, ALICE, 1, weights, 3)), ERR_TOO_EARLY);
    push_step(&f, 0);
    struct commit c = decision(0);
    assert_int_equal(commit(&f, &c), ERR_OK);
    for (bool answered = false; !answered; answered = effect(&f, SHARD_WEIGHTS) != NULL) {
        assert_int_equal(push_all(&f, 1, (struct node){0, 0}), ERR_TOO_EARLY);
        assert_true(work(&f));
    }
    assert_null(effect(&f, SHARD_COMMITTED));
    push_step(&f, 1);
    assert_non_null(effect(&f, SHARD_REDUCED));
    c = decision(1);
    assert_int_equal(commit(&f, &c), ERR_TOO_EARLY); /* committed(0) is not said yet */
    work_until_committed(&f, 0);
    assert_int_equal(commit(&f, &c), ERR_OK);
    work_until_committed(&f, 1);
    tear_down(&f);
}

static void many_parked_pulls_are_answered_piece_by_piece(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    f.config.parked_bytes_max = 100000;
    start(&f);
    enum { PULLS = 3 * SHARD_EFFECTS_MAX };
    const uint32_t first = FIRST;
    for (uint32_t i = 0; i < PULLS; i++)
        assert_int_equal(refusal(pull_some(&f, ALICE, 1, &first, 1)), ERR_TOO_EARLY);
    uint64_t expected = f.id - PULLS + 1;
    push_step(&f, 0);
    struct commit c = decision(0);
    assert_int_equal(commit(&f, &c), ERR_OK);
    bool committed = false;
    while (!committed) {
        work(&f);
        for (uint32_t i = 0; i < f.effects.count; i++) {
            if (f.effects.items[i].kind == SHARD_WEIGHTS)
                assert_int_equal(f.effects.items[i].weights.header.id, expected++);
            else
                committed = true;
        }
    }
    assert_int_equal(expected, f.id - 4 + 1); /* four pushes took ids since */
    tear_down(&f);
}

static void parked_pulls_are_bounded(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    const uint32_t first = FIRST;
    uint32_t parked = 0;
    while (parked < 1000 && refusal(pull_some(&f, ALICE, 1, &first, 1)) == ERR_TOO_EARLY)
        parked++;
    assert_int_equal(refusal(pull_some(&f, ALICE, 1, &first, 1)), ERR_BUSY);
    assert_true(parked > 5 && parked < 1000 / 4);
    shard_cancel(f.shard, ALICE);
    assert_int_equal(refusal(pull_some(&f, ALICE, 1, &first, 1)), ERR_TOO_EARLY);
    tear_down(&f);
}

static void closing_tells_who_waits(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    const uint32_t first = FIRST;
    assert_int_equal(refusal(pull_some(&f, BOB, 1, &first, 1)), ERR_TOO_EARLY);
    clear(&f);
    assert_true(shard_close(f.shard, &f.effects));
    assert_int_equal(f.effects.count, 1);
    assert_int_equal(f.effects.items[0].sender, BOB);
    assert_int_equal(refusal(&f.effects.items[0]), ERR_OLD_GENERATION);
    tear_down(&f);
}

static void commits_are_fenced(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    struct commit c = decision(0);
    assert_int_equal(commit(&f, &c), ERR_TOO_EARLY); /* not reduced */
    push_step(&f, 0);
    c.term = TERM - 1;
    assert_int_equal(commit(&f, &c), ERR_OLD_TERM);
    c.term = TERM;
    assert_int_equal(shard_commit(f.shard, BOOT - 1, &c, NULL, &f.effects), ERR_OLD_BOOT);
    c.generation--;
    assert_int_equal(commit(&f, &c), ERR_OLD_GENERATION);
    c.generation += 2;
    assert_int_equal(commit(&f, &c), ERR_BEHIND);
    c.generation = GENERATION;
    c.step = 1;
    assert_int_equal(commit(&f, &c), ERR_TOO_EARLY);
    struct commit none;
    assert_false(shard_decision(f.shard, &none));
    c = decision(0);
    c.term = TERM + 1;
    assert_int_equal(commit(&f, &c), ERR_OK);
    work_until_committed(&f, 0);
    assert_true(shard_decision(f.shard, &none));
    assert_int_equal(none.step, 0);
    c.term = TERM; /* P7: the newer term was adopted */
    assert_int_equal(commit(&f, &c), ERR_OLD_TERM);
    tear_down(&f);
}

static void a_commit_asked_again_gets_the_same_answer(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    push_step(&f, 0);
    struct commit c = decision(0);
    assert_int_equal(commit(&f, &c), ERR_OK);
    assert_true(work(&f));
    assert_int_equal(commit(&f, &c), ERR_OK); /* being carried out: the answer comes */
    assert_int_equal(f.effects.count, 0);
    work_until_committed(&f, 0);
    float weights[N_FIRST];
    memcpy(weights, shard_state(f.shard, 0).weights, sizeof weights);
    assert_int_equal(commit(&f, &c), ERR_OK);
    assert_non_null(effect(&f, SHARD_COMMITTED));
    assert_false(work(&f));
    assert_memory_equal(shard_state(f.shard, 0).weights, weights, sizeof weights);
    c.lr = 0.25f;
    assert_int_equal(commit(&f, &c), ERR_EXISTS); /* two decisions for one step */
    assert_int_equal(f.effects.count, 0);
    tear_down(&f);
}

static void a_report_can_be_asked_for_again(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    clear(&f);
    shard_report(f.shard, &f.effects);
    assert_int_equal(f.effects.count, 0);
    push_step(&f, 0);
    clear(&f);
    shard_report(f.shard, &f.effects);
    assert_int_equal(f.effects.count, 1);
    assert_int_equal(f.effects.items[0].kind, SHARD_REDUCED);
    assert_true(f.effects.items[0].reduced.sample_count == 20);
    struct commit c = decision(0);
    assert_int_equal(commit(&f, &c), ERR_OK);
    work_until_committed(&f, 0);
    clear(&f);
    shard_report(f.shard, &f.effects);
    assert_int_equal(f.effects.count, 0);
    tear_down(&f);
}

static void with_a_delay_steps_overlap_and_old_versions_stay(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    f.config.delay = 1;
    start(&f);
    push_step(&f, 1);
    push_step(&f, 0);
    assert_int_equal(push_all(&f, 2, (struct node){0, 0}), ERR_TOO_EARLY);
    struct commit c = decision(1);
    assert_int_equal(commit(&f, &c), ERR_TOO_EARLY);
    c = decision(0);
    assert_int_equal(commit(&f, &c), ERR_OK);
    assert_true(work(&f));
    assert_int_equal(push_all(&f, 2, (struct node){0, 0}), ERR_TOO_EARLY); /* 1 is not there */
    work_until_committed(&f, 0);
    float version0[N_FIRST], version1[N_FIRST];
    memcpy(version0, pull_one(&f, 0, FIRST)->weights.copies[0]->data, sizeof version0);
    memcpy(version1, pull_one(&f, 1, FIRST)->weights.copies[0]->data, sizeof version1);
    assert_true(version0[1] == 1 + 1.0f / 64);
    assert_memory_not_equal(version0, version1, sizeof version0);
    push_step(&f, 2);
    c = decision(1);
    assert_int_equal(commit(&f, &c), ERR_OK);
    work_until_committed(&f, 1);
    assert_int_equal(refusal(pull_one(&f, 0, FIRST)), ERR_TOO_LATE);
    assert_memory_equal(pull_one(&f, 1, FIRST)->weights.copies[0]->data, version1, sizeof version1);
    c = decision(2);
    c.apply = false;
    assert_int_equal(commit(&f, &c), ERR_OK);
    work_until_committed(&f, 2);
    struct counted *copy = pull_one(&f, 2, FIRST)->weights.copies[0];
    assert_ptr_equal(pull_one(&f, 3, FIRST)->weights.copies[0], copy);
    tear_down(&f);
}

static void a_published_copy_never_changes_while_a_peer_holds_it(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    struct counted *held[5];
    float values[5][N_FIRST];
    for (uint64_t step = 0; step < 5; step++) {
        held[step] = counted_ref(pull_one(&f, step, FIRST)->weights.copies[0]);
        memcpy(values[step], held[step]->data, sizeof values[step]);
        do_step(&f, step);
    }
    for (uint32_t step = 0; step < 5; step++) {
        assert_memory_equal(held[step]->data, values[step], sizeof values[step]);
        counted_unref(held[step]);
    }
    do_step(&f, 5);
    tear_down(&f);
}

static void a_snapshot_is_the_state_of_the_cut(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    do_step(&f, 0);
    push_step(&f, 1);
    struct commit c = decision(1);
    c.cut = true;
    assert_int_equal(commit(&f, &c), ERR_OK);
    work_until_committed(&f, 1);
    float expected[COUNT][2 * N_FIRST];
    for (uint32_t i = 0; i < COUNT; i++) {
        memcpy(expected[i], shard_state(f.shard, i).weights, chunks[i].n * 4);
        memcpy(expected[i] + chunks[i].n, shard_state(f.shard, i).state[0], chunks[i].n * 4);
    }
    /* The next step is applied while the one copy buffer is with a slow writer. */
    push_step(&f, 2);
    c = decision(2);
    assert_int_equal(commit(&f, &c), ERR_OK);
    uint32_t handed = 0;
    bool committed = false;
    struct counted *writer = NULL;
    for (uint32_t i = 0; i < 40 && !(committed && handed == COUNT); i++) {
        bool more = work(&f);
        committed |= effect(&f, SHARD_COMMITTED) != NULL;
        struct shard_effect *snapshot = effect(&f, SHARD_SNAPSHOT);
        if (snapshot != NULL) {
            assert_null(writer); /* one at a time */
            assert_int_equal(snapshot->snapshot.cut.version, 2);
            assert_int_equal(snapshot->snapshot.cut.generation, GENERATION);
            assert_int_equal(snapshot->snapshot.chunk, chunks[handed].chunk);
            assert_int_equal(snapshot->snapshot.n, chunks[handed].n);
            assert_int_equal(snapshot->snapshot.states, 1);
            assert_int_equal(snapshot->snapshot.last, handed == COUNT - 1);
            writer = counted_ref(snapshot->snapshot.copy);
            assert_memory_equal(writer->data, expected[handed], chunks[handed].n * 8);
            handed++;
        } else if (!more && writer != NULL) {
            /* It waits for the writer; pushes and pulls are answered all the same. */
            assert_int_equal(push_all(&f, 2, (struct node){0, 0}), ERR_OK);
            if (!committed)
                assert_int_equal(refusal(pull_one(&f, 3, LOSS)), ERR_TOO_EARLY);
            counted_unref(writer);
            writer = NULL;
        }
    }
    assert_true(committed);
    assert_int_equal(handed, COUNT);
    counted_unref(writer);
    shard_cancel(f.shard, ALICE);
    tear_down(&f);
}

/* What a cut of one chunk holds. */
static void take_snapshot(struct fixture *f, uint32_t number, float *ret_values)
{
    for (uint32_t i = 0; i < 100; i++) {
        bool more = work(f);
        struct shard_effect *snapshot = effect(f, SHARD_SNAPSHOT);
        if (snapshot != NULL && snapshot->snapshot.chunk == number) {
            uint32_t arrays = 1 + snapshot->snapshot.states + snapshot->snapshot.versions;
            memcpy(ret_values, snapshot->snapshot.copy->data,
                   arrays * snapshot->snapshot.n * sizeof *ret_values);
        }
        if (!more)
            return;
    }
    fail_msg("the snapshot never ends");
}

static void p9_with_a_delay_a_cut_holds_the_versions_that_open_steps_compute_on(void **state)
{
    (void)state;
    struct fixture f;
    float cut[4 * N_FIRST], first[4 * N_FIRST], again[N_FIRST];
    set_up(&f);
    f.config.delay = f.config.cut_versions = 2;
    f.config.weights_codec = CODEC_BF16; /* older versions come back with the same bits */
    start(&f);
    assert_true(shard_snapshot_begin(f.shard));
    take_snapshot(&f, FIRST, first);
    assert_memory_equal(first + 2 * N_FIRST, first + 3 * N_FIRST, N_FIRST * 4); /* version 0 */
    for (uint64_t step = 0; step < 3; step++) {
        push_step(&f, step);
        struct commit c = decision(step);
        c.cut = step == 2;
        assert_int_equal(commit(&f, &c), ERR_OK);
        if (!c.cut)
            work_until_committed(&f, step);
    }
    take_snapshot(&f, FIRST, cut);
    uint16_t version1[N_FIRST];
    memcpy(version1, pull_one(&f, 1, FIRST)->weights.copies[0]->data, sizeof version1);
    f.kernels->cast_from_bf16(f.kernels, again, version1, N_FIRST);
    assert_memory_equal(cut + 3 * N_FIRST, again, sizeof again);

    clear(&f); /* what effects point to goes with the shard */
    shard_free(f.shard);
    f.config.version = 3;
    assert_int_equal(shard_new(&f.config, &f.shard), ERR_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        for (uint32_t back = 1; back <= 2; back++)
            assert_int_equal(shard_publish(f.shard, i, 3 - back, cut + (1 + back) * N_FIRST),
                             ERR_OK);
    assert_int_equal(shard_start(f.shard), ERR_OK);
    shard_check(f.shard);
    assert_memory_equal(pull_one(&f, 1, FIRST)->weights.copies[0]->data, version1, sizeof version1);
    assert_int_equal(refusal(pull_one(&f, 0, FIRST)), ERR_TOO_LATE);
    push_step(&f, 5); /* computed on version 3 */
    tear_down(&f);
}

static void the_first_version_can_be_a_cut(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    assert_true(shard_snapshot_begin(f.shard));
    assert_false(shard_snapshot_begin(f.shard));
    assert_true(work(&f));
    assert_int_equal(effect(&f, SHARD_SNAPSHOT)->snapshot.cut.version, 0);
    while (work(&f))
        ;
    assert_true(effect(&f, SHARD_SNAPSHOT)->snapshot.last);
    assert_true(shard_snapshot_begin(f.shard));
    tear_down(&f);
}

static void a_shard_without_chunks_follows(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    f.config.chunk_count = 0;
    start(&f);
    struct commit c = decision(0);
    c.cut = true;
    assert_int_equal(commit(&f, &c), ERR_OK);
    work_until_committed(&f, 0);
    c = decision(1);
    assert_int_equal(commit(&f, &c), ERR_OK);
    assert_true(work(&f));
    struct shard_effect *snapshot = effect(&f, SHARD_SNAPSHOT);
    assert_non_null(snapshot);
    assert_true(snapshot->snapshot.last);
    assert_null(snapshot->snapshot.copy);
    work_until_committed(&f, 1);
    tear_down(&f);
}

/* ---- memory that is not there ---- */

static void *no_memory(const struct kernels *k, size_t bytes)
{
    (void)k;
    (void)bytes;
    return NULL;
}

static void without_memory_a_sum_is_busy_and_a_shard_is_not_made(void **state)
{
    (void)state;
    struct fixture f;
    set_up_and_start(&f);
    f.table.alloc = no_memory;
    assert_int_equal(push_all(&f, 0, (struct node){0, 0}), ERR_BUSY);
    struct shard *other;
    assert_int_equal(shard_new(&f.config, &other), ERR_NOMEM);
    f.table.alloc = f.kernels->alloc;
    do_step(&f, 0);
    tear_down(&f);
}

static void limits_of_the_configuration_are_judged(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    struct shard_chunk changed[COUNT];
#define INVALID(change)                                                                            \
    do {                                                                                           \
        struct shard_config config = f.config;                                                     \
        memcpy(changed, chunks, sizeof changed);                                                   \
        config.chunks = changed;                                                                   \
        change;                                                                                    \
        assert_int_equal(shard_new(&config, &f.shard), ERR_INVALID);                               \
        assert_null(f.shard);                                                                      \
    } while (0)
    INVALID(config.slots = 0);
    INVALID(config.slots = TREE_SLOTS_MAX + 1);
    INVALID(config.delay = SHARD_DELAY_MAX + 1);
    INVALID(config.cut_versions = 1);
    INVALID(config.node_level = 3);
    INVALID(config.snapshot_copies = 0);
    INVALID(changed[0].n = 0);
    INVALID(changed[0].n = MODEL_CHUNK_WEIGHTS_MAX + 1);
    INVALID(changed[0].parts = 0);
    INVALID(changed[1].parts = SHARD_PARTS_MAX + 1);
    INVALID(changed[1].chunk = FIRST);
    INVALID(changed[3].n = 5);
#undef INVALID
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_goes_from_pushes_to_published_weights),
        cmocka_unit_test(a_mean_is_the_sum_over_slots),
        cmocka_unit_test(parts_are_added_in_part_order),
        cmocka_unit_test(every_arrival_ends_in_the_same_bits),
        cmocka_unit_test(a_duplicate_is_acknowledged_and_not_counted),
        cmocka_unit_test(a_duplicate_with_other_bits_names_both_senders),
        cmocka_unit_test(a_push_that_counts_other_samples_than_its_tickets_have_is_refused),
        cmocka_unit_test(digests_of_other_steps_are_not_compared),
        cmocka_unit_test(busy_says_from_which_entry_on),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_pull_is_at_most_one_message),
        cmocka_unit_test(lossy_pushes_have_one_node_size),
        cmocka_unit_test(infinite_gradients_are_reported),
        cmocka_unit_test(a_skipped_step_raises_the_version_and_shares_the_weights),
        cmocka_unit_test(a_pull_waits_for_its_version),
        cmocka_unit_test(who_has_all_weights_may_push_at_once),
        cmocka_unit_test(many_parked_pulls_are_answered_piece_by_piece),
        cmocka_unit_test(parked_pulls_are_bounded),
        cmocka_unit_test(closing_tells_who_waits),
        cmocka_unit_test(commits_are_fenced),
        cmocka_unit_test(a_commit_asked_again_gets_the_same_answer),
        cmocka_unit_test(a_report_can_be_asked_for_again),
        cmocka_unit_test(with_a_delay_steps_overlap_and_old_versions_stay),
        cmocka_unit_test(a_published_copy_never_changes_while_a_peer_holds_it),
        cmocka_unit_test(a_snapshot_is_the_state_of_the_cut),
        cmocka_unit_test(p9_with_a_delay_a_cut_holds_the_versions_that_open_steps_compute_on),
        cmocka_unit_test(the_first_version_can_be_a_cut),
        cmocka_unit_test(a_shard_without_chunks_follows),
        cmocka_unit_test(without_memory_a_sum_is_busy_and_a_shard_is_not_made),
        cmocka_unit_test(limits_of_the_configuration_are_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
