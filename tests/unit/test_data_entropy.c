/* Unigram entropy. */
#include "tests/unit/unit.h"

#include "common/data/entropy.h"

static void assert_near(double value, double expected)
{
    assert_true(value - expected < 1e-14 && expected - value < 1e-14);
}

TEST(equal_counts_give_the_logarithm_of_how_many)
{
    static const uint64_t counts[8] = {3, 3, 3, 3, 0, 0, 3, 0};
    assert_near(entropy_nats(counts, 8), 1.6094379124341003); /* ln 5 */
}

TEST(a_certain_token_has_none)
{
    static const uint64_t counts[3] = {0, 1000000000000, 0};
    assert_true(entropy_nats(counts, 3) == 0);
}

TEST(uneven_counts_are_weighed)
{
    static const uint64_t counts[2] = {1, 3};
    assert_near(entropy_nats(counts, 2), 0.5623351446188083);
}

TEST(nothing_has_none)
{
    static const uint64_t counts[2] = {0, 0};
    assert_true(entropy_nats(counts, 2) == 0);
    assert_true(entropy_nats(counts, 0) == 0);
}
