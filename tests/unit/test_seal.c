/* From the reduced sums of a step to its one decision. */
#include "tests/unit/unit.h"

#include "server/shard/seal.h"

#include <math.h>

enum { CHUNKS = 4 };

static void assert_close(double value, double expected, double tolerance)
{
    assert_true(value > expected - tolerance && value < expected + tolerance);
}

/* A seal of CHUNKS chunks with nothing in it yet, and all that it is decided by and into. */
struct seal_fixture {
    struct seal seal;
    struct seal_settings settings;
    struct seal_counters counters;
    struct seal_metrics metrics;
    struct commit commit;
};

static void seal_set_up(struct seal_fixture *f)
{
    assert_int_equal(seal_init(&f->seal, CHUNKS), ERR_OK);
    f->settings =
        (struct seal_settings){.sample_predictions = 1,
                               .schedule = {.kind = SPEC_CONSTANT, .lr = 0.5, .step_samples = 8},
                               .skip_max = 3};
}

static void seal_tear_down(struct seal_fixture *f)
{
    seal_release(&f->seal);
}

/* A seal of CHUNKS chunks, each with `sumsq`, eight samples with a loss of 16 in all. */
static void fill(struct seal *seal, const double *sumsq)
{
    struct chunk_seal seals[CHUNKS];
    for (uint32_t i = 0; i < CHUNKS; i++)
        seals[i] = (struct chunk_seal){i, true, sumsq[i]};
    struct reduced reduced = {.seal_count = CHUNKS,
                              .seals = seals,
                              .has_loss = true,
                              .loss_sum = 16,
                              .sample_count = 8,
                              .correct_count = 6};
    assert_int_equal(seal_add(seal, &reduced), ERR_OK);
}

static const double threes[CHUNKS] = {3, 3, 3, 0};

TEST(a_seal_is_complete_when_every_chunk_and_the_loss_are_there)
{
    scoped(seal_release) struct seal seal = {0};
    assert_int_equal(seal_init(&seal, 2), ERR_OK);
    struct chunk_seal first = {0, true, 1}, second = {1, true, 2};
    struct reduced one = {.seal_count = 1, .seals = &first};
    struct reduced other = {.seal_count = 1, .seals = &second, .has_loss = true, .sample_count = 1};
    assert_false(seal_complete(&seal));
    assert_int_equal(seal_add(&seal, &one), ERR_OK);
    assert_int_equal(seal_add(&seal, &one), ERR_OK); /* said twice */
    assert_false(seal_complete(&seal));
    assert_int_equal(seal_add(&seal, &other), ERR_OK);
    assert_true(seal_complete(&seal));
    seal_restart(&seal);
    assert_false(seal_complete(&seal));
}

TEST(chunks_without_the_loss_are_no_seal)
{
    scoped(seal_release) struct seal seal = {0};
    assert_int_equal(seal_init(&seal, 1), ERR_OK);
    struct chunk_seal only = {0, true, 1};
    assert_int_equal(seal_add(&seal, &(struct reduced){.seal_count = 1, .seals = &only}), ERR_OK);
    assert_false(seal_complete(&seal));
}

TEST(a_chunk_that_the_run_does_not_have_spoils_the_whole_report)
{
    scoped(seal_release) struct seal seal = {0};
    assert_int_equal(seal_init(&seal, 2), ERR_OK);
    struct chunk_seal seals[2] = {{0, true, 1}, {2, true, 1}};
    struct reduced reduced = {.seal_count = 2, .seals = seals};
    assert_int_equal(seal_add(&seal, &reduced), ERR_MALFORMED);
    assert_int_equal(seal.sealed_count, 0);
}

static enum err decide_seal(struct seal_fixture *f)
{
    return seal_decide(&f->settings, &f->counters, &f->seal, &f->commit, &f->metrics);
}

/* A step whose chunks have `threes`. */
static void decide(struct seal_fixture *f)
{
    seal_restart(&f->seal);
    fill(&f->seal, threes);
    assert_int_equal(decide_seal(f), ERR_OK);
}

TEST_F(samples_beyond_two_to_the_31_are_counted, seal)
{
    fill(&f->seal, threes);
    f->seal.sample_count = 0x1p40;
    assert_int_equal(decide_seal(f), ERR_OK);
    assert_int_equal(f->metrics.samples, UINT64_C(1) << 40);
}

TEST(the_sum_has_the_same_bits_for_every_order_of_arrival)
{
    const double sumsq[CHUNKS] = {1e16, 1, 1, -1e16}; /* (a + b) + c differs from a + (b + c) */
    const uint32_t orders[2][CHUNKS] = {{0, 1, 2, 3}, {3, 1, 0, 2}};
    double norms[2];
    for (int k = 0; k < 2; k++) {
        struct seal_fixture f = {0};
        seal_set_up(&f);
        for (uint32_t i = 0; i < CHUNKS; i++) {
            uint32_t chunk = orders[k][i];
            struct chunk_seal one = {chunk, true, sumsq[chunk]};
            struct reduced reduced = {
                .seal_count = 1, .seals = &one, .has_loss = true, .sample_count = 1};
            assert_int_equal(seal_add(&f.seal, &reduced), ERR_OK);
        }
        assert_int_equal(decide_seal(&f), ERR_OK);
        norms[k] = f.metrics.norm;
        seal_tear_down(&f);
    }
    assert_true(norms[0] == 0); /* in chunk order both ones are lost */
    assert_memory_equal(&norms[0], &norms[1], sizeof norms[0]);
}

TEST_F(without_clipping_the_scale_is_one_over_the_samples, seal)
{
    decide(f);
    assert_true(f->commit.apply);
    assert_true(f->commit.scale == 0.125f);
    assert_true(f->commit.lr == 0.5f);
    assert_true(f->metrics.norm == 3.0 / 8);
    assert_true(f->metrics.loss == 2);
    assert_true(f->metrics.accuracy == 0.75);
}

TEST_F(of_weight_differences_the_mean_over_slots_is_applied, seal)
{
    f->settings.mean_slots = 4;
    decide(f);
    assert_true(f->commit.scale == 0.25f);
    assert_true(f->metrics.norm == 3.0 / 4);
    assert_true(f->metrics.loss == 2); /* still a sample's */
}

TEST_F(clipping_scales_the_mean_gradient_to_the_norm, seal)
{
    f->settings.clip_norm = 0.25;
    decide(f);
    assert_true(f->commit.scale == (float)(0.125 * (0.25 / (0.375 + 1e-6))));
    f->settings.clip_norm = 10;
    decide(f);
    assert_true(f->commit.scale == 0.125f);
}

TEST_F(bias_corrections_come_from_the_applied_updates, seal, .counters.applied = 9)
{
    f->settings.beta1 = 0.9;
    f->settings.beta2 = 0.95;
    decide(f);
    assert_int_equal(f->commit.applied, 10);
    assert_close(f->commit.bias1, 1 - 0.3486784401, 1e-7); /* 0.9^10, 0.95^10 */
    assert_close(f->commit.bias2, 1 - 0.5987369392, 1e-7);
    f->settings.beta1 = f->settings.beta2 = 0;
    decide(f);
    assert_true(f->commit.bias1 == 1 && f->commit.bias2 == 1);
}

TEST_F(a_step_that_is_not_finite_is_skipped_and_counted, seal)
{
    const double bad[3] = {NAN, INFINITY, 0};
    for (int k = 0; k < 3; k++) {
        f->counters = (struct seal_counters){.samples = 80, .applied = 10};
        seal_restart(&f->seal);
        fill(&f->seal, threes);
        f->seal.chunks[1].sumsq = bad[k];
        f->seal.chunks[2].finite = k != 2; /* the shard itself says so */
        assert_int_equal(decide_seal(f), ERR_OK);
        assert_false(f->commit.apply);
        assert_true(f->commit.scale == 0);
        assert_int_equal(f->counters.samples, 88); /* the positions are used up */
        assert_int_equal(f->counters.applied, 10);
        assert_int_equal(f->counters.skips_in_row, 1);
    }
}

static double nan_of(uint64_t bits)
{
    double nan;
    memcpy(&nan, &bits, sizeof nan);
    assert_true(isnan(nan));
    return nan;
}

/* Of two that are added the first one's bits remain, and which is first depends on their arrival. */
TEST_F(every_nan_has_the_same_digest, seal)
{
    const uint64_t bits[] = {0x7ff8000000000000, 0xfff8000000000000, 0x7fffffffe0000000};
    uint64_t digests[3];
    for (int k = 0; k < 3; k++) {
        seal_restart(&f->seal);
        fill(&f->seal, threes);
        f->seal.chunks[1].finite = false;
        f->seal.chunks[1].sumsq = f->seal.loss_sum = f->seal.correct_count = nan_of(bits[k]);
        f->counters.skips_in_row = 0;
        assert_int_equal(decide_seal(f), ERR_OK);
        digests[k] = f->metrics.digest;
    }
    assert_int_equal(digests[0], digests[1]);
    assert_int_equal(digests[0], digests[2]);
    f->seal.chunks[1].sumsq = INFINITY; /* other gradients */
    assert_int_equal(decide_seal(f), ERR_OK);
    assert_int_not_equal(f->metrics.digest, digests[0]);
}

TEST_F(a_loss_that_is_not_finite_skips_too, seal)
{
    fill(&f->seal, threes);
    f->seal.loss_sum = NAN;
    assert_int_equal(decide_seal(f), ERR_OK);
    assert_false(f->commit.apply);
}

TEST_F(too_many_skips_in_a_row_fail_the_run, seal)
{
    fill(&f->seal, threes);
    f->seal.chunks[0].finite = false;
    for (int k = 0; k < 2; k++)
        assert_int_equal(decide_seal(f), ERR_OK);
    assert_int_equal(decide_seal(f), ERR_NON_FINITE);
    f->seal.chunks[0].finite = true;
    assert_int_equal(decide_seal(f), ERR_OK);
    assert_int_equal(f->counters.skips_in_row, 0); /* a finite step ends the row */
}

TEST_F(p8_the_decision_carries_the_counters_that_a_successor_goes_on_from, seal)
{
    f->settings.schedule.kind = SPEC_LINEAR;
    f->settings.schedule.decay_samples = 80;
    f->settings.beta1 = 0.9;
    decide(f);
    struct commit first = f->commit;
    decide(f);
    struct commit second = f->commit;
    f->counters = (struct seal_counters){first.samples, first.applied, first.skips_in_row};
    decide(f);
    assert_int_equal(second.samples, 16);
    assert_true(f->commit.apply == second.apply && f->commit.cut == second.cut);
    assert_true(f->commit.scale == second.scale && f->commit.lr == second.lr);
    assert_true(f->commit.bias1 == second.bias1 && f->commit.bias2 == second.bias2);
    assert_int_equal(f->commit.samples, second.samples);
    assert_int_equal(f->commit.applied, second.applied);
    assert_int_equal(f->commit.skips_in_row, second.skips_in_row);
}

TEST_F(a_ticket_by_itself_is_decided_from_the_chunks_version, seal)
{
    f->settings.schedule.warmup_samples = 8;
    f->settings.beta1 = 0.5;
    struct commit commit = seal_ticket(&f->settings, &(struct seal_ticket){2, 1, 1, 0.5f});
    assert_true(commit.apply && commit.scale == 0.25f);
    assert_true(commit.lr == 0.25f); /* samples 2 and 3 of 8 */
    assert_true(commit.bias1 == 0.75f && commit.bias2 == 1);
    commit = seal_ticket(&f->settings, &(struct seal_ticket){2, 9, 1, 0});
    assert_false(commit.apply);
    assert_int_equal(commit.applied, 1);
}

TEST_F(a_step_of_single_tickets_is_only_counted, seal, .counters = {.samples = 8, .applied = 1})
{
    fill(&f->seal, threes);
    seal_forget(&f->seal, 2);
    seal_forget(&f->seal, 2);
    assert_false(seal_complete(&f->seal));
    fill(&f->seal, threes);
    seal_count(&f->settings, &f->counters, &f->seal, &f->commit, &f->metrics);
    assert_true(f->metrics.loss == 2 && f->metrics.accuracy == 0.75 && isnan(f->metrics.norm));
    assert_int_equal(f->counters.samples, 16);
    assert_int_equal(f->commit.samples, 16);
    assert_int_equal(f->commit.applied, 2);
    f->seal.sample_count = 0; /* who summed it has lost it */
    seal_count(&f->settings, &f->counters, &f->seal, &f->commit, &f->metrics);
    assert_true(isnan(f->metrics.loss) && f->commit.apply);
}

TEST(a_decision_is_its_numbers_whoever_repeats_it)
{
    const struct commit one = {.term = 1, .step = 3, .cut = true, .scale = 1, .samples = 8};
    struct commit other = one;
    other.term = 2;
    other.cut = false;
    assert_true(seal_same_decision(&one, &other));
    other.scale = 2;
    assert_false(seal_same_decision(&one, &other));
    other = one;
    other.skips_in_row = 1;
    assert_false(seal_same_decision(&one, &other));
}
