/* When a cut's writer takes its time. Steps of 100 ms, a cut of 1000 bytes every 20 versions: it is to
 * be over within 1500 ms. */
#include "tests/unit/unit.h"

#include "server/disk/cut_pace.h"

enum { MS = 1000000, BEGUN = 200 };

static bool rests(uint64_t version, uint64_t bytes, uint64_t now_ms, bool steps_go_on)
{
    struct cut_pace pace = {0};
    const struct cut_progress progress = {.version = version,
                                          .every_steps = 20,
                                          .begun_ns = (uint64_t)BEGUN * MS,
                                          .bytes = bytes,
                                          .bytes_all = 1000};
    uint64_t ended_ms = steps_go_on ? now_ms : BEGUN;
    cut_pace_step_ended(&pace, (ended_ms - 100) * MS);
    cut_pace_step_ended(&pace, ended_ms * MS);
    return cut_pace_rests(&pace, &progress, now_ms * MS);
}

TEST(a_cut_takes_its_time_while_it_is_ahead)
{
    assert_true(rests(40, 0, BEGUN, true));
    assert_true(rests(40, 500, BEGUN + 750, true));
    assert_false(rests(40, 500, BEGUN + 751, true));
    assert_false(rests(40, 499, BEGUN + 750, true));
}

TEST(a_cut_hurries_where_no_steps_go_on)
{
    const struct cut_pace none = {0};
    const struct cut_progress progress = {.version = 20, .every_steps = 20, .bytes_all = 1000};
    assert_false(cut_pace_rests(&none, &progress, BEGUN));
    assert_true(rests(40, 900, BEGUN + 200, false));
    assert_false(rests(40, 900, BEGUN + 201, false)); /* two steps' time, and none has ended */
}

TEST(the_last_cut_hurries)
{
    struct cut_pace pace = {0};
    struct cut_progress progress = {.version = 40,
                                    .steps = 41,
                                    .every_steps = 20,
                                    .begun_ns = MS,
                                    .bytes = 900,
                                    .bytes_all = 1000};
    cut_pace_step_ended(&pace, MS);
    cut_pace_step_ended(&pace, 101 * MS);
    assert_true(cut_pace_rests(&pace, &progress, 102 * MS));
    progress.steps = 40;
    assert_false(cut_pace_rests(&pace, &progress, 102 * MS));
}

TEST(a_step_that_waited_for_workers_is_no_measure)
{
    struct cut_pace pace = {0};
    const struct cut_progress progress = {.version = 40,
                                          .every_steps = 20,
                                          .begun_ns = UINT64_C(100000) * MS,
                                          .bytes = 900,
                                          .bytes_all = 1000};
    cut_pace_step_ended(&pace, MS);
    cut_pace_step_ended(&pace, 101 * MS);
    cut_pace_step_ended(&pace, UINT64_C(100000) * MS);
    assert_true(cut_pace_rests(&pace, &progress, UINT64_C(100200) * MS));
    assert_false(cut_pace_rests(&pace, &progress, UINT64_C(100201) * MS));
}

TEST(a_cut_hurries_while_a_step_waits_for_it)
{
    struct cut_pace pace = {0};
    const struct cut_progress ahead = {.version = 40, .every_steps = 20, .begun_ns = MS};
    cut_pace_step_ended(&pace, MS);
    cut_pace_step_ended(&pace, 101 * MS);
    assert_true(cut_pace_rests(&pace, &ahead, 110 * MS));
    cut_pace_step_waits(&pace, 110 * MS);
    assert_false(cut_pace_rests(&pace, &ahead, 209 * MS));
    assert_true(cut_pace_rests(&pace, &ahead, 210 * MS)); /* as long as a step takes */
}

TEST(a_cut_that_somebody_asked_for_hurries)
{
    struct cut_pace pace = {0};
    const struct cut_progress asked = {.version = 40, .every_steps = 0, .bytes_all = 1000};
    cut_pace_step_ended(&pace, BEGUN);
    cut_pace_step_ended(&pace, BEGUN + MS);
    assert_false(cut_pace_rests(&pace, &asked, BEGUN + MS));
    assert_false(rests(41, 0, BEGUN, true));
}
