/* Unigram entropy. */
#include "tests/unit/unit.h"

#include "common/data/entropy.h"

static void assert_near(double value, double expected)
{
    assert_true(value - expected < 1e-14 && expected - value < 1e-14);
}

static void equal_counts_give_the_logarithm_of_how_many(void **state)
{
    (void)state;
    static const uint64_t counts[8] = {3, 3, 3, 3, 0, 0, 3, 0};
    assert_near(entropy_nats(counts, 8), 1.6094379124341003); /* ln 5 */
}

static void a_certain_token_has_none(void **state)
{
    (void)state;
    static const uint64_t counts[3] = {0, 1000000000000, 0};
    assert_true(entropy_nats(counts, 3) == 0);
}

static void uneven_counts_are_weighed(void **state)
{
    (void)state;
    static const uint64_t counts[2] = {1, 3};
    assert_near(entropy_nats(counts, 2), 0.5623351446188083);
}

static void nothing_has_none(void **state)
{
    (void)state;
    static const uint64_t counts[2] = {0, 0};
    assert_true(entropy_nats(counts, 2) == 0);
    assert_true(entropy_nats(counts, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_counts_give_the_logarithm_of_how_many),
        cmocka_unit_test(a_certain_token_has_none),
        cmocka_unit_test(uneven_counts_are_weighed),
        cmocka_unit_test(nothing_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
