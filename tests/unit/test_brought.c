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

/* The log names who brought a step that was not finite, when later ones are granted already. */
TEST(of_open_steps_no_other_is_named)
{
    enum { DECIDED = 1001, DELAY_MAX = 32 };
    struct brought brought = {0};
    for (uint64_t step = 0; step < DECIDED - 1; step += 10)
        brought_note(&brought, step);
    for (uint64_t step = DECIDED - 1; step <= DECIDED + DELAY_MAX; step += 2) {
        brought_note(&brought, step);
        if (step > DECIDED)
            assert_int_equal(brought_from(&brought, DECIDED), DECIDED + 1);
    }
}

TEST(what_two_lists_have_is_in_the_one_into_which_the_other_is_merged)
{
    struct brought brought = {.count = 3, .ranges = {{2, 3}, {6, 6}, {9, 9}}};
    const struct brought other = {.count = 4, .ranges = {{0, 0}, {4, 7}, {12, 14}, {16, 16}}};
    brought_merge(&brought, &other);
    assert_int_equal(brought.count, 5);
    static const uint64_t wanted[][2] = {{0, 0}, {2, 7}, {9, 9}, {12, 14}, {16, 16}};
    for (uint32_t i = 0; i < brought.count; i++) {
        assert_int_equal(brought.ranges[i].first, wanted[i][0]);
        assert_int_equal(brought.ranges[i].last, wanted[i][1]);
    }
    const struct brought all = {.count = 1, .ranges = {{1, 20}}};
    brought_merge(&brought, &all);
    assert_int_equal(brought.count, 1);
    assert_int_equal(brought.ranges[0].first, 0);
    assert_int_equal(brought.ranges[0].last, 20);
}

TEST(what_a_rewind_undid_is_in_the_list_no_more)
{
    struct brought brought = {.count = 3, .ranges = {{2, 3}, {6, 8}, {11, 12}}};
    brought_rewound(&brought, 13);
    assert_int_equal(brought.count, 3);
    brought_rewound(&brought, 9);
    assert_int_equal(brought.count, 2);
    assert_int_equal(brought.ranges[1].last, 8);
    brought_rewound(&brought, 7);
    assert_int_equal(brought.count, 2);
    assert_int_equal(brought.ranges[1].last, 6);
    brought_rewound(&brought, 6);
    assert_int_equal(brought.count, 1);
    brought_rewound(&brought, 0);
    assert_int_equal(brought.count, 0);
}
