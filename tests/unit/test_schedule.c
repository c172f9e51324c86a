/* The learning rate as a function of the samples seen. */
#include "tests/unit/unit.h"

#include "common/settings/schedule.h"

static void assert_close(double value, double expected, double tolerance)
{
    assert_true(value > expected - tolerance && value < expected + tolerance);
}

static struct schedule schedule_like(enum spec_schedule kind)
{
    return (struct schedule){.kind = kind,
                             .lr = 1.0,
                             .lr_min = 0.1,
                             .warmup_samples = 100,
                             .decay_samples = 1100,
                             .step_samples = 10};
}

TEST(warm_up_rises_with_each_step_and_never_starts_at_zero)
{
    struct schedule schedule = schedule_like(SPEC_CONSTANT);
    assert_true(schedule_rate(&schedule, 0) == 0.1);
    assert_true(schedule_rate(&schedule, 50) == 0.6);
    assert_true(schedule_rate(&schedule, 90) == 1.0);
    schedule.step_samples = 70; /* a last warm-up step that reaches beyond the end of it */
    assert_true(schedule_rate(&schedule, 70) == 1.0);
}

TEST(without_warm_up_the_first_step_has_the_full_rate)
{
    struct schedule schedule = schedule_like(SPEC_COSINE);
    schedule.warmup_samples = 0;
    assert_true(schedule_rate(&schedule, 0) == 1.0);
}

TEST(constant_stays)
{
    struct schedule schedule = schedule_like(SPEC_CONSTANT);
    assert_true(schedule_rate(&schedule, 100) == 1.0);
    assert_true(schedule_rate(&schedule, 1000000) == 1.0);
}

TEST(linear_falls_evenly_to_its_least)
{
    struct schedule schedule = schedule_like(SPEC_LINEAR);
    assert_true(schedule_rate(&schedule, 100) == 1.0);
    assert_true(schedule_rate(&schedule, 600) == 0.1 + 0.9 * 0.5);
    assert_true(schedule_rate(&schedule, 1100) == 0.1);
    assert_true(schedule_rate(&schedule, 99999) == 0.1);
}

TEST(cosine_falls_as_half_a_wave)
{
    struct schedule schedule = schedule_like(SPEC_COSINE);
    assert_true(schedule_rate(&schedule, 100) == 1.0);
    /* Python: 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * p)) for p = 0.25, 0.5 */
    assert_close(schedule_rate(&schedule, 350), 0.8681980515339464, 1e-15);
    assert_close(schedule_rate(&schedule, 600), 0.55, 1e-15);
    assert_true(schedule_rate(&schedule, 1100) == 0.1);
}

TEST(a_decay_that_ends_within_warm_up_divides_by_nothing)
{
    struct schedule schedule = schedule_like(SPEC_COSINE);
    schedule.decay_samples = 100;
    assert_true(schedule_rate(&schedule, 100) == 0.1);
    schedule.decay_samples = 50;
    assert_true(schedule_rate(&schedule, 100) == 0.1);
}

TEST(the_rate_counts_samples_not_steps)
{
    struct schedule few = schedule_like(SPEC_COSINE), many = few;
    few.step_samples = 100;
    many.step_samples = 20;
    assert_true(schedule_rate(&few, 700) == schedule_rate(&many, 700));
}
