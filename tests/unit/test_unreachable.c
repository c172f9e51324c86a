/* Pairs of members that failed to reach each other. */
#include "tests/unit/unit.h"

#include "server/coordinator/unreachable.h"

TEST(two_are_apart_when_they_failed_twice)
{
    struct unreachable pairs = {0};
    assert_int_equal(unreachable_note(&pairs, 7, 3), 1);
    assert_false(unreachable_apart(&pairs, 3, 7));
    assert_int_equal(unreachable_note(&pairs, 3, 7), 2);
    assert_int_equal(unreachable_note(&pairs, 3, 7), 2);
    assert_true(unreachable_apart(&pairs, 3, 7) && unreachable_apart(&pairs, 7, 3));
    assert_false(unreachable_apart(&pairs, 3, 4));
    unreachable_check(&pairs);
    unreachable_forget(&pairs);
    assert_false(unreachable_apart(&pairs, 3, 7));
    unreachable_check(&pairs);
    assert_int_equal(pairs.count, 1); /* for people */
    assert_int_equal(unreachable_note(&pairs, 3, 7), 1);
    unreachable_check(&pairs);
}

TEST(the_pair_that_failed_longest_ago_makes_room)
{
    struct unreachable pairs = {0};
    for (uint64_t i = 0; i < UNREACHABLE_MAX; i++)
        for (uint32_t times = 1; times <= 2; times++)
            assert_int_equal(unreachable_note(&pairs, 1, 10 + i), times);
    unreachable_note(&pairs, 10, 1); /* again: it is the newest */
    unreachable_note(&pairs, 1, 9);
    unreachable_check(&pairs);
    assert_int_equal(pairs.count, UNREACHABLE_MAX);
    assert_true(unreachable_apart(&pairs, 1, 10));
    assert_false(unreachable_apart(&pairs, 1, 11));
    assert_true(unreachable_apart(&pairs, 1, 12));
}

TEST(who_joins_again_keeps_its_failures_and_who_is_gone_has_none)
{
    struct unreachable pairs = {0};
    for (uint32_t times = 0; times < 2; times++)
        for (uint64_t other = 2; other < 6; other++)
            unreachable_note(&pairs, 1, other);
    unreachable_rename(&pairs, 3, 9);
    unreachable_rename(&pairs, 4, 0);
    unreachable_check(&pairs);
    assert_true(unreachable_apart(&pairs, 9, 1));
    assert_false(unreachable_apart(&pairs, 3, 1));
    assert_false(unreachable_apart(&pairs, 4, 1));
    unreachable_rename(&pairs, 1,
                       3); /* below one of those that it failed to reach, above another */
    unreachable_check(&pairs);
    assert_true(unreachable_apart(&pairs, 3, 9));
    assert_true(unreachable_apart(&pairs, 3, 2));
    unreachable_rename(&pairs, 3, 0);
    unreachable_check(&pairs);
    assert_int_equal(pairs.count, 0);
}
