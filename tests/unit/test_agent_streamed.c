/* Streamed weights: units are pulled when the executor asks, each time. */
#include "tests/unit/agent_fixture.h"

/* The executor has a place for the unit. */
static void asked(struct agent_fixture *f, uint32_t unit)
{
    agent_asked(f->agent, f->now_ms, 0, unit);
    look(f);
}

/* The pulls of what was asked for are answered; the unit that is ready then. */
static uint32_t pulled_unit(struct agent_fixture *f, uint32_t pulls)
{
    assert_int_equal(count(f, AGENT_PULL), pulls);
    pull_all(f);
    assert_int_equal(count(f, AGENT_UNIT_READY), 1);
    return seen(f, AGENT_UNIT_READY, 0)->unit;
}

TEST_F(a_unit_is_pulled_each_time_it_is_asked_for, agent, .streamed = true, .begin = GRANTED)
{
    assert_int_equal(count(f, AGENT_COMPUTE), 1);
    assert_int_equal(count(f, AGENT_PULL), 0);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t unit = 0; unit < 2; unit++) {
            asked(f, unit);
            assert_int_equal(pulled_unit(f, SERVERS), unit);
        }
    gradients(f);
    assert_int_equal(count(f, AGENT_PUSH), SERVERS);
}

TEST_F(two_units_may_be_under_way, agent, .streamed = true, .begin = GRANTED)
{
    struct agent_effect first[SERVERS];
    asked(f, 0);
    for (uint32_t i = 0; i < SERVERS; i++)
        first[i] = *seen(f, AGENT_PULL, i);
    asked(f, 1);
    assert_int_equal(pulled_unit(f, SERVERS), 1);
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_true(weights(f, &first[i]));
    assert_int_equal(seen(f, AGENT_UNIT_READY, 0)->unit, 0);
}

/* The stream breaks: what was not answered is asked for again, what was answered is not. */
TEST_F(a_streamed_pull_outlives_its_stream, agent, .streamed = true, .begin = GRANTED)
{
    asked(f, 0);
    const struct agent_effect lost = *seen(f, AGENT_PULL, 0), other = *seen(f, AGENT_PULL, 1);
    assert_true(weights(f, &other));
    agent_stream_lost(f->agent, f->now_ms, lost.server, ERR_UNREACHABLE);
    wait(f, BACKOFF_MS);
    assert_int_equal(count(f, AGENT_OPEN), 1);
    assert_false(weights(f, &lost));
    agent_stream_up(f->agent, f->now_ms, lost.server, 1);
    look(f);
    assert_int_equal(pulled_unit(f, 1), 0);
}

/* The executor's question comes when its ticket is dropped already. */
TEST_F(a_question_of_a_dropped_ticket_asks_nobody, agent, .streamed = true, .begin = GRANTED)
{
    asked(f, 0);
    refused(f, seen(f, AGENT_PULL, 0), ERR_TOO_LATE);
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    asked(f, 1);
    assert_int_equal(count(f, AGENT_PULL), 0);
    computed(f, ERR_CANCELLED);
}

TEST_F(the_next_ticket_holds_nothing_of_the_last, agent, .streamed = true, .begin = GRANTED)
{
    for (uint32_t unit = 0; unit < 2; unit++) {
        asked(f, unit);
        assert_int_equal(pulled_unit(f, SERVERS), unit);
    }
    gradients(f);
    const struct agent_effect pushes[SERVERS] = {*seen(f, AGENT_PUSH, 0), *seen(f, AGENT_PUSH, 1)};
    for (uint32_t i = 0; i < SERVERS; i++)
        acked(f, &pushes[i], ERR_OK, 0);
    computed(f, ERR_OK);
    granted(f, seen(f, AGENT_ACQUIRE, 0)->acquire.sequence, ticket_of(1, 0));
    asked(f, 0);
    assert_int_equal(pulled_unit(f, SERVERS), 0);
}

/* ---- gradients ---- */

/* The only unit that is said to be acknowledged; none: the number of units. */
static uint32_t acked_unit(const struct agent_fixture *f)
{
    uint32_t units = count(f, AGENT_UNIT_ACKED);
    assert_true(units <= 1);
    return units == 0 ? f->model.units_count : seen(f, AGENT_UNIT_ACKED, 0)->unit;
}

/* The unit's gradients go out, a message a server. */
static void push_unit(struct agent_fixture *f, uint32_t unit, struct agent_effect *ret_pushes)
{
    agent_gradient(f->agent, f->now_ms, 0, unit, ticket_of(1, 0).node);
    look(f);
    assert_int_equal(count(f, AGENT_PUSH), SERVERS);
    for (uint32_t i = 0; i < SERVERS; i++)
        ret_pushes[i] = *seen(f, AGENT_PUSH, i);
}

TEST_F(a_unit_is_acknowledged_when_every_server_has_it, agent, .streamed = true, .begin = GRANTED)
{
    struct agent_effect last[SERVERS], first[SERVERS];
    push_unit(f, 1, last);
    push_unit(f, 0, first);
    acked(f, &last[0], ERR_OK, 0);
    assert_int_equal(acked_unit(f), 2);
    acked(f, &first[1], ERR_OK, 0);
    assert_int_equal(acked_unit(f), 2);
    acked(f, &last[1], ERR_OK, 0);
    assert_int_equal(acked_unit(f), 1);
    acked(f, &first[0], ERR_OK, 0);
    assert_int_equal(acked_unit(f), 0);
    computed(f, ERR_OK);
    assert_int_equal(count(f, AGENT_COMPLETE), 1);
    assert_int_equal(acked_unit(f), 2);
}

/* What a server refuses, or did not answer before its stream broke, is encoded again. */
TEST_F(a_unit_that_is_sent_again_is_not_acknowledged, agent, .streamed = true, .begin = GRANTED)
{
    struct agent_effect pushes[SERVERS];
    push_unit(f, 1, pushes);
    acked(f, &pushes[1], ERR_OK, 0);
    acked(f, &pushes[0], ERR_BUSY, 1); /* the weights, and not the loss */
    assert_int_equal(acked_unit(f), 2);
    wait(f, BACKOFF_MS);
    const struct agent_effect again = *seen(f, AGENT_PUSH, 0);
    agent_stream_lost(f->agent, f->now_ms, again.server, ERR_UNREACHABLE);
    wait(f, BACKOFF_MS);
    acked(f, &again, ERR_OK, 0);
    assert_int_equal(acked_unit(f), 2);
    agent_stream_up(f->agent, f->now_ms, again.server, 1);
    look(f);
    const struct agent_effect once_more = *seen(f, AGENT_PUSH, 0);
    acked(f, &once_more, ERR_OK, 0);
    assert_int_equal(acked_unit(f), 1);
}

/* The executor that waits for it is cancelled, and the next ticket's units are others. */
TEST_F(a_dropped_ticket_acknowledges_nothing, agent, .streamed = true, .begin = GRANTED)
{
    struct agent_effect pushes[SERVERS];
    push_unit(f, 1, pushes);
    acked(f, &pushes[0], ERR_TOO_LATE, 0);
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    acked(f, &pushes[1], ERR_OK, 0);
    assert_int_equal(acked_unit(f), 2);
    granted(f, sequence, ticket_of(1, 1));
    computed(f, ERR_CANCELLED);
    assert_int_equal(count(f, AGENT_COMPUTE), 1);
    assert_int_equal(acked_unit(f), 2);
}
