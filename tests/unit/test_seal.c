/* From the reduced sums of a step to its one decision. */
#include "tests/unit/unit.h"

#include "server/shard/seal.h"

#include <math.h>

enum { CHUNKS = 4 };

static void assert_close(double value, double expected, double tolerance)
{
    assert_true(value > expected - tolerance && value < expected + tolerance);
}

static struct seal_settings settings_plain(void)
{
    return (struct seal_settings){.sample_predictions = 1,
                                  .schedule = {.kind = SPEC_CONSTANT, .lr = 0.5, .step_samples = 8},
                                  .skip_max = 3};
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

TEST(the_sum_has_the_same_bits_for_every_order_of_arrival)
{
    const double sumsq[CHUNKS] = {1e16, 1, 1, -1e16}; /* (a + b) + c differs from a + (b + c) */
    const uint32_t orders[2][CHUNKS] = {{0, 1, 2, 3}, {3, 1, 0, 2}};
    double norms[2];
    for (int k = 0; k < 2; k++) {
        scoped(seal_release) struct seal seal = {0};
        struct seal_settings settings = settings_plain();
        struct seal_counters counters = {0};
        struct seal_metrics metrics;
        struct commit commit;
        assert_int_equal(seal_init(&seal, CHUNKS), ERR_OK);
        for (uint32_t i = 0; i < CHUNKS; i++) {
            uint32_t chunk = orders[k][i];
            struct chunk_seal one = {chunk, true, sumsq[chunk]};
            struct reduced reduced = {
                .seal_count = 1, .seals = &one, .has_loss = true, .sample_count = 1};
            assert_int_equal(seal_add(&seal, &reduced), ERR_OK);
        }
        assert_int_equal(seal_decide(&settings, &counters, &seal, &commit, &metrics), ERR_OK);
        norms[k] = metrics.norm;
    }
    assert_true(norms[0] == 0); /* in chunk order both ones are lost */
    assert_memory_equal(&norms[0], &norms[1], sizeof norms[0]);
}

static struct commit decide(const struct seal_settings *settings, struct seal_counters *counters,
                            const double *sumsq, struct seal_metrics *ret_metrics)
{
    struct seal seal;
    struct commit commit;
    assert_int_equal(seal_init(&seal, CHUNKS), ERR_OK);
    fill(&seal, sumsq);
    assert_int_equal(seal_decide(settings, counters, &seal, &commit, ret_metrics), ERR_OK);
    seal_release(&seal);
    return commit;
}

TEST(without_clipping_the_scale_is_one_over_the_samples)
{
    struct seal_settings settings = settings_plain();
    struct seal_counters counters = {0};
    struct seal_metrics metrics;
    struct commit commit = decide(&settings, &counters, threes, &metrics);
    assert_true(commit.apply);
    assert_true(commit.scale == 0.125f);
    assert_true(commit.lr == 0.5f);
    assert_true(metrics.norm == 3.0 / 8);
    assert_true(metrics.loss == 2);
    assert_true(metrics.accuracy == 0.75);
}

TEST(of_weight_differences_the_mean_over_slots_is_applied)
{
    struct seal_settings settings = settings_plain();
    struct seal_counters counters = {0};
    struct seal_metrics metrics;
    settings.mean_slots = 4;
    struct commit commit = decide(&settings, &counters, threes, &metrics);
    assert_true(commit.scale == 0.25f);
    assert_true(metrics.norm == 3.0 / 4);
    assert_true(metrics.loss == 2); /* still a sample's */
}

TEST(clipping_scales_the_mean_gradient_to_the_norm)
{
    struct seal_settings settings = settings_plain();
    struct seal_counters counters = {0};
    struct seal_metrics metrics;
    settings.clip_norm = 0.25;
    struct commit commit = decide(&settings, &counters, threes, &metrics);
    assert_true(commit.scale == (float)(0.125 * (0.25 / (0.375 + 1e-6))));
    settings.clip_norm = 10;
    commit = decide(&settings, &counters, threes, &metrics);
    assert_true(commit.scale == 0.125f);
}

TEST(bias_corrections_come_from_the_applied_updates)
{
    struct seal_settings settings = settings_plain();
    struct seal_counters counters = {.applied = 9};
    struct seal_metrics metrics;
    settings.beta1 = 0.9;
    settings.beta2 = 0.95;
    struct commit commit = decide(&settings, &counters, threes, &metrics);
    assert_int_equal(commit.applied, 10);
    assert_close(commit.bias1, 1 - 0.3486784401, 1e-7); /* 0.9^10, 0.95^10 */
    assert_close(commit.bias2, 1 - 0.5987369392, 1e-7);
    settings.beta1 = settings.beta2 = 0;
    commit = decide(&settings, &counters, threes, &metrics);
    assert_true(commit.bias1 == 1 && commit.bias2 == 1);
}

TEST(a_step_that_is_not_finite_is_skipped_and_counted)
{
    const double bad[3] = {NAN, INFINITY, 0};
    for (int k = 0; k < 3; k++) {
        struct seal_settings settings = settings_plain();
        struct seal_counters counters = {.samples = 80, .applied = 10};
        struct seal_metrics metrics;
        struct commit commit;
        scoped(seal_release) struct seal seal = {0};
        assert_int_equal(seal_init(&seal, CHUNKS), ERR_OK);
        fill(&seal, threes);
        seal.chunks[1].sumsq = bad[k];
        seal.chunks[2].finite = k != 2; /* the shard itself says so */
        assert_int_equal(seal_decide(&settings, &counters, &seal, &commit, &metrics), ERR_OK);
        assert_false(commit.apply);
        assert_true(commit.scale == 0);
        assert_int_equal(counters.samples, 88); /* the positions are used up */
        assert_int_equal(counters.applied, 10);
        assert_int_equal(counters.skips_in_row, 1);
    }
}

TEST(a_loss_that_is_not_finite_skips_too)
{
    struct seal_settings settings = settings_plain();
    struct seal_counters counters = {0};
    struct seal_metrics metrics;
    struct commit commit;
    scoped(seal_release) struct seal seal = {0};
    assert_int_equal(seal_init(&seal, CHUNKS), ERR_OK);
    fill(&seal, threes);
    seal.loss_sum = NAN;
    assert_int_equal(seal_decide(&settings, &counters, &seal, &commit, &metrics), ERR_OK);
    assert_false(commit.apply);
}

TEST(too_many_skips_in_a_row_fail_the_run)
{
    struct seal_settings settings = settings_plain();
    struct seal_counters counters = {0};
    struct seal_metrics metrics;
    struct commit commit;
    scoped(seal_release) struct seal seal = {0};
    assert_int_equal(seal_init(&seal, CHUNKS), ERR_OK);
    fill(&seal, threes);
    seal.chunks[0].finite = false;
    for (int k = 0; k < 2; k++)
        assert_int_equal(seal_decide(&settings, &counters, &seal, &commit, &metrics), ERR_OK);
    assert_int_equal(seal_decide(&settings, &counters, &seal, &commit, &metrics), ERR_NON_FINITE);
    seal.chunks[0].finite = true;
    assert_int_equal(seal_decide(&settings, &counters, &seal, &commit, &metrics), ERR_OK);
    assert_int_equal(counters.skips_in_row, 0); /* a finite step ends the row */
}

TEST(p8_the_decision_carries_the_counters_that_a_successor_goes_on_from)
{
    struct seal_settings settings = settings_plain();
    struct seal_metrics metrics;
    settings.schedule.kind = SPEC_LINEAR;
    settings.schedule.decay_samples = 80;
    settings.beta1 = 0.9;
    struct seal_counters counters = {0};
    struct commit first = decide(&settings, &counters, threes, &metrics);
    struct commit second = decide(&settings, &counters, threes, &metrics);
    struct seal_counters successor = {first.samples, first.applied, first.skips_in_row};
    struct commit again = decide(&settings, &successor, threes, &metrics);
    assert_int_equal(second.samples, 16);
    assert_true(again.apply == second.apply && again.cut == second.cut);
    assert_true(again.scale == second.scale && again.lr == second.lr);
    assert_true(again.bias1 == second.bias1 && again.bias2 == second.bias2);
    assert_int_equal(again.samples, second.samples);
    assert_int_equal(again.applied, second.applied);
    assert_int_equal(again.skips_in_row, second.skips_in_row);
}

TEST(a_ticket_by_itself_is_decided_from_the_chunks_version)
{
    struct seal_settings settings = settings_plain();
    settings.schedule.warmup_samples = 8;
    settings.beta1 = 0.5;
    struct commit commit = seal_ticket(&settings, &(struct seal_ticket){2, 1, 1, 0.5f});
    assert_true(commit.apply && commit.scale == 0.25f);
    assert_true(commit.lr == 0.25f); /* samples 2 and 3 of 8 */
    assert_true(commit.bias1 == 0.75f && commit.bias2 == 1);
    commit = seal_ticket(&settings, &(struct seal_ticket){2, 9, 1, 0});
    assert_false(commit.apply);
    assert_int_equal(commit.applied, 1);
}

TEST(a_step_of_single_tickets_is_only_counted)
{
    struct seal_settings settings = settings_plain();
    struct seal_counters counters = {.samples = 8, .applied = 1};
    struct seal_metrics metrics;
    struct commit commit;
    scoped(seal_release) struct seal seal = {0};
    assert_int_equal(seal_init(&seal, CHUNKS), ERR_OK);
    fill(&seal, threes);
    seal_forget(&seal, 2);
    seal_forget(&seal, 2);
    assert_false(seal_complete(&seal));
    fill(&seal, threes);
    seal_count(&settings, &counters, &seal, &commit, &metrics);
    assert_true(metrics.loss == 2 && metrics.accuracy == 0.75 && isnan(metrics.norm));
    assert_int_equal(counters.samples, 16);
    assert_int_equal(commit.samples, 16);
    assert_int_equal(commit.applied, 2);
    seal.sample_count = 0; /* who summed it has lost it */
    seal_count(&settings, &counters, &seal, &commit, &metrics);
    assert_true(isnan(metrics.loss) && commit.apply);
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
