/* The steps of which a member had tickets. */
#include "tests/unit/unit.h"

#include "server/coordinator/brought.h"

TEST(steps_in_a_row_are_one_range_in_whatever_order_they_come)
{
    static const uint64_t steps[] = {4, 2, 3, 3, 9, 8, 0};
    struct brought brought = {0};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        brought_note(&brought, steps[i]);
    assert_int_equal(brought.count, 3);
    assert_int_equal(brought.ranges[0].last, 0);
    assert_int_equal(brought.ranges[1].first, 2);
    assert_int_equal(brought.ranges[1].last, 4);
    assert_int_equal(brought.ranges[2].first, 8);
    assert_int_equal(brought.ranges[2].last, 9);
    assert_int_equal(brought_from(&brought, 1), 2);
    assert_int_equal(brought_from(&brought, 3), 3);
    assert_int_equal(brought_from(&brought, 5), 8);
    assert_int_equal(brought_from(&brought, 10), UINT64_MAX);
}

TEST(with_more_ranges_the_smallest_gap_is_closed_and_no_step_is_lacking)
{
    struct brought brought = {0};
    for (uint64_t i = 0; i < 40; i++) {
        brought_note(&brought, i * 10 + (i == 7 ? 8 : 0)); /* 78 and 80 are the nearest */
        if (i != BROUGHT_RANGES_MAX)
            continue;
        assert_int_equal(brought_from(&brought, 79), 79); /* closed */
        assert_int_equal(brought_from(&brought, 5), 10);
    }
    assert_int_equal(brought.count, BROUGHT_RANGES_MAX);
    for (uint64_t i = 0; i < 40; i++)
        assert_int_equal(brought_from(&brought, i * 10 + (i == 7 ? 8 : 0)),
                         i * 10 + (i == 7 ? 8 : 0));
    assert_int_equal(brought.ranges[BROUGHT_RANGES_MAX - 1].last, 390);
}
