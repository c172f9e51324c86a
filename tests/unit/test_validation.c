/* What the held-out pieces brought. */
#include "tests/unit/unit.h"

#include "server/coordinator/validation.h"

#include <float.h>
#include <math.h>

static struct validation_result result_of(double loss)
{
    return (struct validation_result){.loss_sum = loss, .sample_count = 2, .correct_count = 1};
}

TEST(the_first_result_of_a_piece_counts)
{
    scoped(validation_release) struct validation validation = {0};
    assert_int_equal(validation_init(&validation, 2), ERR_OK);
    struct validation_result first = result_of(1), second = result_of(50);
    assert_true(validation_add(&validation, 0, &first));
    assert_true(validation_add(&validation, 0, &second));
    assert_false(validation_complete(&validation));
    assert_true(validation_add(&validation, 1, &first));
    assert_true(validation_complete(&validation));
    assert_true(validation_sum(&validation).loss_sum == 2);
    assert_int_equal(validation_sum(&validation).sample_count, 4);
    assert_int_equal(validation_sum(&validation).correct_count, 2);
}

TEST(the_sum_has_the_same_bits_for_every_order_of_arrival)
{
    const double losses[4] = {1e16, 1, 1, -1e16};
    const uint32_t orders[2][4] = {{0, 1, 2, 3}, {3, 2, 0, 1}};
    double sums[2];
    for (int k = 0; k < 2; k++) {
        scoped(validation_release) struct validation validation = {0};
        assert_int_equal(validation_init(&validation, 4), ERR_OK);
        for (int i = 0; i < 4; i++) {
            struct validation_result result = result_of(losses[orders[k][i]]);
            assert_true(validation_add(&validation, orders[k][i], &result));
        }
        sums[k] = validation_sum(&validation).loss_sum;
    }
    assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
}

TEST(the_next_version_begins_with_nothing)
{
    scoped(validation_release) struct validation validation = {0};
    assert_int_equal(validation_init(&validation, 1), ERR_OK);
    struct validation_result result = result_of(3);
    assert_true(validation_add(&validation, 0, &result));
    validation_begin(&validation, true);
    assert_false(validation_complete(&validation));
}

TEST(a_run_without_held_out_samples_has_nothing_to_wait_for)
{
    scoped(validation_release) struct validation validation = {0};
    assert_int_equal(validation_init(&validation, 0), ERR_OK);
    validation_begin(&validation, true);
    assert_true(validation_complete(&validation));
}

TEST(what_may_make_the_sum_not_finite_is_not_taken)
{
    scoped(validation_release) struct validation validation = {0};
    assert_int_equal(validation_init(&validation, 3), ERR_OK);
    const double none[] = {NAN, INFINITY, DBL_MAX / 2};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        struct validation_result result = result_of(none[i]);
        assert_false(validation_add(&validation, 0, &result));
    }
    struct validation_result most = result_of(DBL_MAX / 6);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(validation_add(&validation, i, &most));
    struct validation_result late = result_of(NAN); /* of a piece that is there */
    assert_true(validation_add(&validation, 0, &late));
    assert_true(isfinite(validation_sum(&validation).loss_sum));
}
