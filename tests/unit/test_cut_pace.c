/* When a cut's writer takes its time. Steps of 100 ms, a cut of 1000 bytes every 20 steps: it is to
 * be over within 1500 ms. */
#include "tests/unit/unit.h"

#include "server/disk/cut_pace.h"

enum { MS = 1000000, BEGUN = 200 };

static bool rests(uint64_t bytes, uint64_t every_steps, uint64_t now_ms, bool steps_go_on)
{
    struct cut_pace pace = {0};
    const struct cut_progress progress = {(uint64_t)BEGUN * MS, bytes, 1000, every_steps};
    uint64_t ended_ms = steps_go_on ? now_ms : BEGUN;
    cut_pace_step_ended(&pace, (ended_ms - 100) * MS);
    cut_pace_step_ended(&pace, ended_ms * MS);
    return cut_pace_rests(&pace, &progress, now_ms * MS);
}

TEST(a_cut_takes_its_time_while_it_is_ahead)
{
    assert_true(rests(0, 20, BEGUN, true));
    assert_true(rests(500, 20, BEGUN + 750, true));
    assert_false(rests(500, 20, BEGUN + 751, true));
    assert_false(rests(499, 20, BEGUN + 750, true));
    assert_true(rests(1, 0, BEGUN + 100000, true)); /* no other cut is to come */
}

TEST(a_cut_hurries_where_no_steps_go_on)
{
    const struct cut_pace none = {0};
    assert_false(cut_pace_rests(&none, &(struct cut_progress){.bytes_all = 1000}, BEGUN));
    assert_true(rests(900, 20, BEGUN + 200, false));
    assert_false(rests(900, 20, BEGUN + 201, false)); /* two steps' time, and none has ended */
}
