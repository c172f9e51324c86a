/* Churn on demand: who goes and comes, and when. */
#include "deploy/roost/churn.h"
#include "tests/unit/unit.h"

enum { HOUR_MS = 3600 * 1000 };

static struct churn rate(double a_second, uint64_t seed, uint32_t workers, uint32_t servers)
{
    return churn_at_rate(&(struct churn_rate){a_second, seed, workers, servers});
}

TEST(the_same_seed_is_the_same_churn_and_another_is_another)
{
    struct churn one = rate(2, 7, 4, 2), two = rate(2, 7, 4, 2), other = rate(2, 8, 4, 2);
    struct churn_event a, b, c;
    unsigned differ = 0;
    for (unsigned i = 0; i < 200; i++) {
        assert_true(churn_next(&one, HOUR_MS, &a));
        assert_true(churn_next(&two, HOUR_MS, &b));
        assert_true(churn_next(&other, HOUR_MS, &c));
        assert_memory_equal(&a, &b, sizeof a);
        differ += memcmp(&a, &c, sizeof a) != 0;
    }
    assert_true(differ > 150);
}

TEST(the_rate_is_the_rate_and_how_often_one_looks_does_not_matter)
{
    struct churn often = rate(0.5, 3, 8, 8), once = rate(0.5, 3, 8, 8);
    struct churn_event a, b;
    unsigned events = 0;
    for (uint64_t now_ms = 0; now_ms <= HOUR_MS; now_ms += 200)
        while (churn_next(&often, now_ms, &a)) {
            assert_true(a.at_ms <= now_ms);
            assert_true(churn_next(&once, HOUR_MS, &b));
            assert_memory_equal(&a, &b, sizeof a);
            events++;
        }
    assert_false(churn_next(&once, HOUR_MS, &b));
    assert_in_range(events, 1800 - 130, 1800 + 130); /* three standard deviations */
}

TEST(only_who_is_there_goes_and_the_last_worker_stays)
{
    struct churn churn = rate(10, 5, 3, 0);
    struct churn_event event;
    bool up[3] = {true, true, true};
    unsigned count = 3, alone = 0;
    while (churn_next(&churn, HOUR_MS / 10, &event)) {
        assert_true(event.kind != CHURN_SERVER_GOES && event.number < 3);
        assert_int_equal(up[event.number], event.kind == CHURN_WORKER_GOES);
        up[event.number] = event.kind == CHURN_WORKER_COMES;
        count = (unsigned)up[0] + (unsigned)up[1] + (unsigned)up[2];
        assert_true(count > 0);
        alone += count == 1;
    }
    assert_true(alone > 10);
}

TEST(servers_go_only_when_asked_for)
{
    struct churn churn = rate(10, 5, 2, 3);
    struct churn_event event;
    unsigned seen[3] = {0};
    while (churn_next(&churn, HOUR_MS / 10, &event))
        if (event.kind == CHURN_SERVER_GOES) {
            assert_true(event.number < 3);
            seen[event.number]++;
        }
    assert_true(seen[0] > 0 && seen[1] > 0 && seen[2] > 0);
}

static enum err trace(const char *text, double speed, struct churn *ret_churn,
                      struct reason *reason)
{
    return churn_of_trace("spot.csv", slice_of(text), speed, ret_churn, reason);
}

TEST(a_trace_is_followed_at_its_speed)
{
    struct churn churn;
    struct churn_event event;
    assert_int_equal(
        trace("# spot\n0,add,i-9\n0,add,i-1\r\n\n6000,remove,i-9\n60000,add,i-9", 60, &churn, NULL),
        ERR_OK);
    assert_int_equal(churn.node_count, 2);
    assert_true(churn_next(&churn, 0, &event));
    assert_true(event.kind == CHURN_WORKER_COMES && event.number == 0);
    assert_true(churn_next(&churn, 0, &event));
    assert_true(event.kind == CHURN_WORKER_COMES && event.number == 1);
    assert_false(churn_next(&churn, 99, &event));
    assert_true(churn_next(&churn, 100, &event));
    assert_true(event.kind == CHURN_WORKER_GOES && event.number == 0 && event.at_ms == 100);
    assert_true(churn_next(&churn, 5000, &event));
    assert_true(event.kind == CHURN_WORKER_COMES && event.number == 0 && event.at_ms == 1000);
    assert_false(churn_next(&churn, HOUR_MS, &event));
    churn_release(&churn);
}

TEST(a_trace_says_how_many_are_there_at_once)
{
    struct churn churn;
    assert_int_equal(trace("0,add,a\n0,add,b\n1,remove,a\n2,add,c\n3,add,a\n4,remove,b\n5,add,d\n"
                           "6,remove,a\n7,remove,c",
                           1, &churn, NULL),
                     ERR_OK);
    assert_int_equal(churn.node_count, 4);
    assert_int_equal(churn.up_most, 3);
    churn_release(&churn);
}

TEST(a_bad_line_is_named)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "spot.csv: no node ever comes"},
        {"# nothing\n", "spot.csv: no node ever comes"},
        {"0,add,a\nx,add,b\n", "spot.csv:2: a line must be `milliseconds,add|remove,node`"},
        {"-1,add,a\n", "spot.csv:1: a line must be `milliseconds,add|remove,node`"},
        {"0,add\n", "spot.csv:1: a line must be `milliseconds,add|remove,node`"},
        {"0,add,\n", "spot.csv:1: a line must be `milliseconds,add|remove,node`"},
        {"0,add,a,b\n", "spot.csv:1: a line must be `milliseconds,add|remove,node`"},
        {"0,join,a\n", "spot.csv:1: a line must be `milliseconds,add|remove,node`"},
        {"99999999999999999999,add,a", "spot.csv:1: a line must be `milliseconds,add|remove,node`"},
        {"5,add,a\n4,add,b\n", "spot.csv:2: 4 ms is before the line above it"},
        {"0,add,a\n1,add,a\n", "spot.csv:2: node a is there already"},
        {"0,add,a\n1,remove,b\n", "spot.csv:2: node b is not there"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct churn churn = {0};
        struct reason reason = {0};
        assert_int_equal(trace(cases[i].text, 1, &churn, &reason), ERR_INVALID);
        assert_string_equal(reason.text, cases[i].says);
    }
}

TEST(more_nodes_than_there_may_be_are_refused)
{
    scoped(buf_release) struct buf text = {0};
    struct churn churn = {0};
    struct reason reason = {0};
    for (int i = 0; i < CHURN_PROCESSES_MAX; i++)
        assert_int_equal(buf_printf(&text, "0,add,n%d\n", i), ERR_OK);
    assert_int_equal(churn_of_trace("t", buf_slice(&text), 1, &churn, &reason), ERR_OK);
    churn_release(&churn);
    assert_int_equal(buf_printf(&text, "0,add,more\n"), ERR_OK);
    assert_int_equal(churn_of_trace("t", buf_slice(&text), 1, &churn, &reason), ERR_INVALID);
}
