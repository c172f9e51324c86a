/* Where the workers' time went. */
#include "deploy/roost/effort.h"
#include "tests/unit/unit.h"

#include <math.h>

TEST(a_coordinator_that_begins_again_adds_to_what_was)
{
    struct effort effort = {0};
    const uint64_t seen[] = {1, 4, 4, 2, 3, 0, 5};
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++)
        effort_see(&effort, &(struct status_reply){.workers_joined = seen[i], .workers_lost = 1});
    assert_int_equal(effort_total(&effort.joined), 4 + 3 + 5);
    assert_int_equal(effort_total(&effort.lost), 1);
}

TEST(shares_are_of_the_time_that_workers_were_up)
{
    struct effort effort = {.up_ms = 1000, .kept.slot_ms = 700, .has_kept = true};
    effort_see(&effort,
               &(struct status_reply){
                   .member_ms = 950, .useful_ms = 750, .wasted_ms = 80, .audits = {.ms = 20}});
    struct effort_shares shares = effort_shares(&effort);
    assert_true(shares.goodput == 0.7);
    assert_true(shares.starting == 0.05);
    assert_true(shares.waiting == 0.1);
    assert_true(shares.audited == 0.02);
    assert_true(shares.redone == 0.13); /* 80 wasted, 50 undone by a rewind */
    effort.has_kept = false;
    shares = effort_shares(&effort);
    assert_true(isnan(shares.goodput) && isnan(shares.redone));
    assert_true(shares.starting == 0.05 && shares.waiting == 0.1 && shares.audited == 0.02);
    effort = (struct effort){0};
    assert_true(effort_shares(&effort).goodput == 0);
}
