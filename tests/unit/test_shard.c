/* The shard core, driven event by event: which bits come out of a step, how commits are fenced. */
#include "tests/unit/shard_fixture.h"

#include <math.h>

TEST_F(a_step_goes_from_pushes_to_published_weights, shard)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        assert_null(effect(f, SHARD_REDUCED));
        assert_int_equal(push_all(f, 0, (struct node){0, slot}), ERR_OK);
    }
    struct shard_effect *reduced = effect(f, SHARD_REDUCED);
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
    f->kernels->sum_squares(f->kernels, &sumsq, sum, N_FIRST);
    assert_int_equal(reduced->reduced.seals[0].chunk, FIRST);
    assert_true(reduced->reduced.seals[0].finite);
    assert_true(reduced->reduced.seals[0].sumsq == sumsq);
    assert_true(reduced->reduced.seals[1].sumsq > 0);
    assert_true(reduced->reduced.seals[2].sumsq == 0); /* the norm is the optimizer's */
    assert_true(reduced->reduced.seals[3].sumsq == 0);

    struct commit c = decision(0);
    memcpy(weights, shard_state(f->shard, 0).weights, sizeof weights);
    carry_out(f, c);
    assert_int_equal(shard_version(f->shard), 1);
    struct kernels_momentum step = {
        .scale = 0.25f, .lr = 0.5f, .weight_decay = 0.125f, .momentum = 0.5f};
    float m[N_FIRST] = {0}, published[N_FIRST];
    f->kernels->momentum(f->kernels, weights, m, published, KERNELS_F32, sum, &step, N_FIRST);
    struct shard_effect *answer = pull_one(f, 1, FIRST);
    assert_int_equal(answer->kind, SHARD_WEIGHTS);
    assert_int_equal(answer->weights.header.version, 1);
    assert_memory_equal(answer->weights.copies[0]->data, published, sizeof published);
    assert_memory_equal(shard_state(f->shard, 0).weights, weights, sizeof weights);
    assert_memory_equal(shard_state(f->shard, 0).state[0], m, sizeof m);
}

TEST_F(a_mean_is_the_sum_over_slots, shard)
{
    do_step(f, 0);
    float sum[N_MEAN];
    node_values(0, (struct node){2, 0}, MEAN, 0, N_MEAN, sum);
    for (uint32_t i = 0; i < N_MEAN; i++)
        assert_true(shard_state(f->shard, 2).weights[i] == sum[i] * 0.25f);
    assert_true(shard_state(f->shard, 3).weights[1] == 4 + 1.0f / 64); /* rule none */
}

TEST_F(parts_are_added_in_part_order, shard)
{
    f->config.optimizer = (struct spec_optimizer){.kind = SPEC_SGD};
    shard_free(f->shard);
    start(f);
    float before[N_TIED], p0[N_TIED], p1[N_TIED];
    memcpy(before, shard_state(f->shard, 1).weights, sizeof before);
    do_step(f, 0);
    node_values(0, (struct node){2, 0}, TIED, 0, N_TIED, p0);
    node_values(0, (struct node){2, 0}, TIED, 1, N_TIED, p1);
    for (uint32_t i = 0; i < N_TIED; i++) {
        float sum = p0[i] + p1[i];
        assert_true(shard_state(f->shard, 1).weights[i] == fmaf(-0.5f, 0.25f * sum, before[i]));
    }
}

/* Every name of the step in a random order, some as runs of slots, many twice. */
static void push_step_at_random(struct shard_fixture *f, uint64_t step, struct rand_state *rand)
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
        struct shard_ack ack = send(f, 100 + rand_below(rand, 3), &m);
        assert_true(ack.code == ERR_OK || ack.code == ERR_BUSY);
        assert_int_equal(ack.first_refused == m.push.entry_count, ack.code == ERR_OK);
        assert_null(effect(f, SHARD_WRONG_BITS));
        reduced = effect(f, SHARD_REDUCED) != NULL;
    }
    assert_true(reduced);
}

TEST(every_arrival_ends_in_the_same_bits)
{
    float expected[N_ALL];
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct shard_fixture f = {.later = true};
        shard_set_up(&f);
        f.config.ahead_max = (uint32_t)(seed % (SLOTS + 1));
        start(&f);
        struct rand_state rand = {seed};
        for (uint64_t step = 0; step < 2; step++) {
            if (seed == 0)
                push_step(&f, step);
            else
                push_step_at_random(&f, step, &rand);
            carry_out(&f, decision(step));
        }
        float weights[N_ALL], *out = weights;
        for (uint32_t c = 0; c < COUNT; out += chunks[c].n, c++)
            memcpy(out, shard_state(f.shard, c).weights, chunks[c].n * sizeof *out);
        if (seed == 0)
            memcpy(expected, weights, sizeof expected);
        assert_memory_equal(weights, expected, sizeof expected);
        shard_tear_down(&f);
    }
}

TEST_F(p5_a_skipped_step_raises_the_version_and_shares_the_weights, shard)
{
    do_step(f, 0);
    struct counted *copy = counted_ref(pull_one(f, 1, FIRST)->weights.copies[0]);
    push_step(f, 1);
    struct commit c = decision(1);
    c.apply = false;
    float weights[N_FIRST];
    memcpy(weights, shard_state(f->shard, 0).weights, sizeof weights);
    carry_out(f, c);
    assert_memory_equal(shard_state(f->shard, 0).weights, weights, sizeof weights);
    assert_int_equal(shard_version(f->shard), 2);
    assert_int_equal(refusal(pull_one(f, 1, FIRST)), ERR_TOO_LATE);
    assert_ptr_equal(pull_one(f, 2, FIRST)->weights.copies[0], copy);
    counted_unref(copy);
    do_step(f, 2);
}

TEST_F(p2_commits_are_fenced, shard)
{
    struct commit c = decision(0);
    assert_int_equal(commit(f, &c), ERR_TOO_EARLY); /* not reduced */
    push_step(f, 0);
    c.term = TERM - 1;
    assert_int_equal(commit(f, &c), ERR_OLD_TERM);
    c.term = TERM;
    assert_int_equal(shard_commit(f->shard, BOOT - 1, &c, NULL, &f->effects), ERR_OLD_BOOT);
    c.generation--;
    assert_int_equal(commit(f, &c), ERR_OLD_GENERATION);
    c.generation += 2;
    assert_int_equal(commit(f, &c), ERR_BEHIND);
    c.generation = GENERATION;
    c.step = 1;
    assert_int_equal(commit(f, &c), ERR_TOO_EARLY);
    c = decision(0);
    c.term = TERM + 1;
    carry_out(f, c);
    c.term = TERM; /* P7: the newer term was adopted */
    assert_int_equal(commit(f, &c), ERR_OLD_TERM);
}

TEST_F(p6_a_commit_asked_again_gets_the_same_answer, shard)
{
    push_step(f, 0);
    struct commit c = decision(0);
    assert_int_equal(commit(f, &c), ERR_OK);
    assert_true(work(f));
    assert_int_equal(commit(f, &c), ERR_OK); /* being carried out: the answer comes */
    assert_int_equal(f->effects.count, 0);
    work_until_committed(f, 0);
    float weights[N_FIRST];
    memcpy(weights, shard_state(f->shard, 0).weights, sizeof weights);
    assert_int_equal(commit(f, &c), ERR_OK);
    assert_non_null(effect(f, SHARD_COMMITTED));
    assert_false(work(f));
    assert_memory_equal(shard_state(f->shard, 0).weights, weights, sizeof weights);
    c.lr = 0.25f;
    assert_int_equal(commit(f, &c), ERR_EXISTS); /* two decisions for one step */
    assert_int_equal(f->effects.count, 0);
}

static void expect_report(struct shard_fixture *f, uint32_t count)
{
    clear(f);
    shard_report(f->shard, &f->effects);
    assert_int_equal(f->effects.count, count);
}

TEST_F(a_report_can_be_asked_for_again, shard)
{
    expect_report(f, 0);
    push_step(f, 0);
    expect_report(f, 1);
    assert_int_equal(f->effects.items[0].kind, SHARD_REDUCED);
    assert_true(f->effects.items[0].reduced.sample_count == 20);
    carry_out(f, decision(0));
    expect_report(f, 0);
}

TEST_F(p5_with_a_delay_steps_overlap_and_old_versions_stay, shard, .later = true)
{
    f->config.delay = 1;
    start(f);
    push_step(f, 1);
    push_step(f, 0);
    assert_int_equal(push_all(f, 2, (struct node){0, 0}), ERR_TOO_EARLY);
    struct commit c = decision(1);
    assert_int_equal(commit(f, &c), ERR_TOO_EARLY);
    c = decision(0);
    assert_int_equal(commit(f, &c), ERR_OK);
    assert_true(work(f));
    assert_int_equal(push_all(f, 2, (struct node){0, 0}), ERR_TOO_EARLY); /* 1 is not there */
    work_until_committed(f, 0);
    float version0[N_FIRST], version1[N_FIRST];
    memcpy(version0, pull_one(f, 0, FIRST)->weights.copies[0]->data, sizeof version0);
    memcpy(version1, pull_one(f, 1, FIRST)->weights.copies[0]->data, sizeof version1);
    assert_true(version0[1] == 1 + 1.0f / 64);
    assert_memory_not_equal(version0, version1, sizeof version0);
    push_step(f, 2);
    carry_out(f, decision(1));
    assert_int_equal(refusal(pull_one(f, 0, FIRST)), ERR_TOO_LATE);
    assert_memory_equal(pull_one(f, 1, FIRST)->weights.copies[0]->data, version1, sizeof version1);
    c = decision(2);
    c.apply = false;
    carry_out(f, c);
    struct counted *copy = pull_one(f, 2, FIRST)->weights.copies[0];
    assert_ptr_equal(pull_one(f, 3, FIRST)->weights.copies[0], copy);
}

TEST_F(a_published_copy_never_changes_while_a_peer_holds_it, shard)
{
    struct counted *held[5];
    float values[5][N_FIRST];
    for (uint64_t step = 0; step < 5; step++) {
        held[step] = counted_ref(pull_one(f, step, FIRST)->weights.copies[0]);
        memcpy(values[step], held[step]->data, sizeof values[step]);
        do_step(f, step);
    }
    for (uint32_t step = 0; step < 5; step++) {
        assert_memory_equal(held[step]->data, values[step], sizeof values[step]);
        counted_unref(held[step]);
    }
    do_step(f, 5);
}

/* ---- memory that is not there ---- */

static void *no_memory(const struct kernels *k, size_t bytes)
{
    (void)k;
    (void)bytes;
    return NULL;
}

TEST_F(without_memory_a_sum_is_busy, shard)
{
    f->table.alloc = no_memory;
    assert_int_equal(push_all(f, 0, (struct node){0, 0}), ERR_BUSY);
    f->table.alloc = f->kernels->alloc;
    do_step(f, 0);
}

TEST_F(limits_of_the_configuration_are_judged, shard, .later = true)
{
    struct shard_chunk changed[COUNT];
#define INVALID(change)                                                                            \
    do {                                                                                           \
        struct shard_config config = f->config;                                                    \
        memcpy(changed, chunks, sizeof changed);                                                   \
        config.chunks = changed;                                                                   \
        change;                                                                                    \
        assert_int_equal(shard_new(&config, &f->shard), ERR_INVALID);                              \
        assert_null(f->shard);                                                                     \
    } while (0)
    INVALID(config.slots = 0);
    INVALID(config.slots = TREE_SLOTS_MAX + 1);
    INVALID(config.delay = SHARD_DELAY_MAX + 1);
    INVALID(config.cut_versions = 1);
    INVALID(config.node_level = 3);
    INVALID(config.snapshot_copies = 0);
    INVALID(config.weights_max = N_FIRST - 1);
    INVALID(changed[0].n = 0);
    INVALID(changed[0].n = MODEL_CHUNK_WEIGHTS_MAX + 1);
    INVALID(changed[0].parts = 0);
    INVALID(changed[1].parts = SHARD_PARTS_MAX + 1);
    INVALID(changed[1].chunk = FIRST);
    INVALID(changed[3].n = 5);
#undef INVALID
}
