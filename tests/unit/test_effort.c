/* Where the workers' time went. */
#include "deploy/roost/effort.h"
#include "tests/unit/unit.h"

static enum err read_rows(struct effort *effort, const char *rows, uint64_t first_step,
                          struct reason *reason)
{
    struct effort_rows so_far = {.first_step = first_step};
    return effort_read_steps(effort, &so_far, "steps.jsonl", slice_of(rows), reason);
}

TEST(a_coordinator_that_begins_again_adds_to_what_was)
{
    struct effort effort = {0};
    const uint64_t seen[] = {1, 4, 4, 2, 3, 0, 5};
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++)
        effort_see(&effort, &(struct status_reply){.workers_joined = seen[i], .workers_lost = 1});
    assert_int_equal(effort_total(&effort.joined), 4 + 3 + 5);
    assert_int_equal(effort_total(&effort.lost), 1);
}

TEST(steps_that_stayed_are_summed_and_the_longest_gap_is_found)
{
    struct effort effort = {0};
    const char *rows = "{\"step\":0,\"slot_ms\":5,\"time\":10.0}\n"
                       "{\"step\":1,\"slot_ms\":7,\"time\":10.5}\n"
                       "{\"version\":2,\"slot_ms\":3,\"time\":90.0}\n"
                       "{\"step\":2,\"slot_ms\":11,\"time\":12.0}\n"
                       "{\"step\":3,\"slot_ms\":13,\"time\":12.25}\n"
                       "{\"step\":4,\"slo"; /* being written */
    assert_int_equal(read_rows(&effort, rows, 0, NULL), ERR_OK);
    assert_int_equal(effort.kept_ms, 5 + 7 + 3 + 11 + 13);
    assert_true(effort.gap_s == 1.5);
    effort = (struct effort){0};
    assert_int_equal(read_rows(&effort, rows, 2, NULL), ERR_OK); /* a run that was resumed */
    assert_int_equal(effort.kept_ms, 3 + 11 + 13);
    assert_true(effort.gap_s == 0.25);
}

TEST(a_row_without_its_time_is_refused)
{
    struct effort effort = {0};
    struct reason reason = {0};
    assert_int_equal(read_rows(&effort, "{\"step\":0,\"time\":1}\n", 0, &reason), ERR_MALFORMED);
    assert_non_null(strstr(reason.text, "slot_ms"));
    assert_int_equal(read_rows(&effort, "{\"step\":\n", 0, &reason), ERR_MALFORMED);
}

TEST(shares_are_of_the_time_that_workers_were_up)
{
    struct effort effort = {.up_ms = 1000, .kept_ms = 700};
    effort_see(&effort,
               &(struct status_reply){
                   .member_ms = 950, .useful_ms = 750, .wasted_ms = 80, .audits = {.ms = 20}});
    struct effort_shares shares = effort_shares(&effort);
    assert_true(shares.goodput == 0.7);
    assert_true(shares.starting == 0.05);
    assert_true(shares.waiting == 0.1);
    assert_true(shares.audited == 0.02);
    assert_true(shares.redone == 0.13); /* 80 wasted, 50 undone by a rewind */
    effort = (struct effort){0};
    assert_true(effort_shares(&effort).goodput == 0);
}
