/* What a worker says again when it was refused or not answered, and what makes it drop a ticket. */
#include "tests/unit/agent_fixture.h"

/* ---- again ---- */

TEST_F(busy_is_said_again_after_a_backoff_and_only_what_was_not_counted, agent, .begin = PUSHED)
{
    struct agent_effect push = *seen(f, AGENT_PUSH, 0);
    uint32_t entries = push.push.entry_count;
    assert_true(entries > 1);
    uint32_t refused_chunk = push.push.entries[1].chunk;
    acked(f, &push, ERR_BUSY, 1);
    assert_int_equal(count(f, AGENT_PUSH), 0);
    assert_true(agent_wake_ms(f->agent) >= f->now_ms + AGENT_BACKOFF_MS_MIN / 2);
    wait(f, AGENT_BACKOFF_MS_MIN * 3 / 2);
    const struct agent_effect *again = seen(f, AGENT_PUSH, 0);
    assert_int_equal(again->server, push.server);
    assert_int_equal(again->push.entry_count, entries - 1);
    assert_int_equal(again->push.entries[0].chunk, refused_chunk);
    assert_true(again->push.id != push.push.id);
}

/* One server is busy until the ticket is dropped. Returns which. */
static uint32_t drop_ticket(struct agent_fixture *f)
{
    struct agent_effect push = *seen(f, AGENT_PUSH, 0);
    for (uint32_t i = 1; i < AGENT_BUSY_MAX; i++) {
        acked(f, &push, ERR_BUSY, 0);
        wait(f, BACKOFF_MS);
        push = *seen(f, AGENT_PUSH, 0);
    }
    acked(f, &push, ERR_BUSY, 0);
    return push.server;
}

TEST_F(a_server_cannot_count_more_than_was_pushed, agent, .begin = PUSHED)
{
    struct agent_effect push = *seen(f, AGENT_PUSH, 0), other = *seen(f, AGENT_PUSH, 1);
    acked(f, &push, ERR_BUSY, push.push.entry_count + 7);
    acked(f, &other, ERR_OK, 0);
    computed(f, ERR_OK);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, ERR_OK);
    wait(f, BACKOFF_MS);
    assert_int_equal(count(f, AGENT_PUSH), 0); /* nothing is left of it */
}

TEST_F(busy_again_and_again_drops_the_ticket, agent, .begin = PUSHED)
{
    drop_ticket(f);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, ERR_BUSY);
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    assert_int_equal(count(f, AGENT_ACQUIRE), 1);
}

static void samples_do_not_come(struct agent_fixture *f, enum err err)
{
    computed(f, err);
    assert_int_equal(count(f, AGENT_STOP), 0);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, ERR_STALE);
    assert_int_equal(count(f, AGENT_ACQUIRE), 0);
    wait(f, AGENT_BACKOFF_MS_MIN * 3 / 2);
    assert_int_equal(count(f, AGENT_ACQUIRE), 1);
}

/* The server that streams them is away. */
TEST_F(samples_that_do_not_come_end_the_ticket_and_not_the_worker, agent, .begin = GRANTED)
{
    samples_do_not_come(f, ERR_UNREACHABLE);
}

TEST_F(nor_does_a_certificate_that_ends_meanwhile, agent, .begin = GRANTED)
{
    samples_do_not_come(f, ERR_UNTRUSTED);
}

/* Another ticket may be the very one that the server waits for. */
TEST_F(a_ticket_after_a_busy_one_waits_no_longer_than_the_first_did, agent, .begin = PUSHED)
{
    const uint32_t server = drop_ticket(f);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    computed(f, ERR_CANCELLED);
    granted(f, sequence, ticket_of(1, 0));
    assert_int_equal(count(f, AGENT_PULL), 0); /* the weights are there */
    gradients(f);
    wait(f, 2 * AGENT_BACKOFF_MS_MIN);
    assert_int_equal(seen(f, AGENT_PUSH, 0)->server, server);
}

TEST_F(a_counted_piece_begins_the_count_of_busy_anew, agent, .begin = PUSHED)
{
    struct agent_effect push = *seen(f, AGENT_PUSH, 0);
    for (uint32_t i = 0; i < 2 * AGENT_BUSY_MAX; i++) {
        uint32_t counted = i == AGENT_BUSY_MAX - 1 ? 1 : 0;
        if (i == 2 * AGENT_BUSY_MAX - 1)
            assert_int_equal(count(f, AGENT_COMPLETE), 0);
        acked(f, &push, ERR_BUSY, counted);
        if (i < 2 * AGENT_BUSY_MAX - 1) {
            wait(f, BACKOFF_MS);
            push = *seen(f, AGENT_PUSH, 0);
        }
    }
    assert_int_equal(count(f, AGENT_COMPLETE), 1);
}

TEST_F(busy_of_an_earlier_ticket_does_not_count, agent, .begin = PUSHED)
{
    struct agent_effect push = *seen(f, AGENT_PUSH, 0), other = *seen(f, AGENT_PUSH, 1);
    for (uint32_t i = 1; i < AGENT_BUSY_MAX; i++) {
        acked(f, &push, ERR_BUSY, 0);
        wait(f, BACKOFF_MS);
        push = *seen(f, AGENT_PUSH, 0);
    }
    acked(f, &other, ERR_TOO_LATE, 0);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    computed(f, ERR_CANCELLED);
    granted(f, sequence, ticket_of(1, 0));
    gradients(f);
    acked(f, seen(f, AGENT_PUSH, 0), ERR_BUSY, 0);
    assert_int_equal(count(f, AGENT_COMPLETE), 0);
}

TEST_F(a_push_for_a_version_not_there_yet_is_said_again, agent, .begin = PUSHED)
{
    acked(f, seen(f, AGENT_PUSH, 1), ERR_TOO_EARLY, 0);
    wait(f, BACKOFF_MS);
    assert_int_equal(count(f, AGENT_PUSH), 1);
    assert_int_equal(seen(f, AGENT_PUSH, 0)->server, 1);
}

TEST_F(a_pull_that_cannot_be_parked_is_said_again, agent, .begin = GRANTED)
{
    struct agent_effect pull = *seen(f, AGENT_PULL, 0);
    refused(f, &pull, ERR_BUSY);
    assert_int_equal(count(f, AGENT_PULL), 0);
    wait(f, BACKOFF_MS);
    assert_int_equal(seen(f, AGENT_PULL, 0)->pull.chunk_count, pull.pull.chunk_count);
    assert_false(weights(f, &pull)); /* the refused one has ended */
}

TEST_F(a_server_that_answered_is_backed_off_from_as_at_first, agent, .begin = GRANTED)
{
    for (int i = 0; i < 8; i++) {
        struct agent_effect pull = *seen(f, AGENT_PULL, 0);
        refused(f, &pull, ERR_BUSY);
        wait(f, BACKOFF_MS);
    }
    struct agent_effect pull = *seen(f, AGENT_PULL, 0), half = pull;
    half.pull.chunk_count = 1;
    assert_true(weights(f, &half));
    refused(f, &pull, ERR_BUSY);
    wait(f, 2 * AGENT_BACKOFF_MS_MIN);
    assert_int_equal(count(f, AGENT_PULL), 1);
}

TEST_F(what_a_lost_stream_left_unanswered_is_said_again_on_the_next, agent, .begin = PUSHED)
{
    struct agent_effect push = *seen(f, AGENT_PUSH, 0);
    agent_stream_lost(f->agent, f->now_ms, 0, ERR_UNREACHABLE);
    look(f);
    assert_int_equal(count(f, AGENT_OPEN) + count(f, AGENT_PUSH), 0); /* not before the backoff */
    wait(f, BACKOFF_MS);
    assert_int_equal(seen(f, AGENT_OPEN, 0)->server, 0);
    assert_int_equal(count(f, AGENT_PUSH), 0);
    agent_stream_up(f->agent, f->now_ms, 0, 1);
    look(f);
    assert_int_equal(seen(f, AGENT_PUSH, 0)->push.entry_count, push.push.entry_count);
    acked(f, &push, ERR_OK, 0); /* the old stream's: late */
    computed(f, ERR_OK);
    assert_int_equal(count(f, AGENT_COMPLETE), 0);
}

TEST_F(a_server_whose_certificate_has_ended_is_gone_to_again, agent, .begin = PUSHED)
{
    agent_stream_lost(f->agent, f->now_ms, 0, ERR_UNTRUSTED);
    look(f);
    assert_int_equal(count(f, AGENT_STOP) + count(f, AGENT_OPEN), 0); /* not before the backoff */
    wait(f, BACKOFF_MS);
    assert_int_equal(seen(f, AGENT_OPEN, 0)->server, 0);
}

TEST_F(pulls_that_a_lost_stream_left_unanswered_are_asked_for_again, agent, .begin = GRANTED)
{
    refused(f, seen(f, AGENT_PULL, 1), ERR_TOO_EARLY); /* parked */
    agent_stream_lost(f->agent, f->now_ms, 1, ERR_UNREACHABLE);
    wait(f, BACKOFF_MS);
    agent_stream_up(f->agent, f->now_ms, 1, 1);
    look(f);
    assert_int_equal(count(f, AGENT_PULL), 1);
    assert_int_equal(seen(f, AGENT_PULL, 0)->server, 1);
    assert_int_equal(seen(f, AGENT_PULL, 0)->pull.chunk_count, 2);
}

TEST_F(an_acquire_that_failed_is_asked_again_under_the_same_number, agent)
{
    static const enum err failures[] = {ERR_UNREACHABLE, ERR_DEADLINE, ERR_BUSY,
                                        ERR_CANCELLED,   ERR_NO_RUN,   ERR_UNTRUSTED};
    uint64_t sequence = start(f).sequence;
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        agent_acquired(f->agent, f->now_ms, sequence, failures[i], NULL);
        look(f);
        assert_int_equal(count(f, AGENT_ACQUIRE), 0);
        wait(f, BACKOFF_MS);
        assert_int_equal(seen(f, AGENT_ACQUIRE, 0)->acquire.sequence, sequence);
    }
    agent_acquired(f->agent, f->now_ms, sequence, ERR_OK,
                   &(struct acquire_reply){.result = ACQUIRE_WAIT});
    look(f);
    assert_true(seen(f, AGENT_ACQUIRE, 0)->acquire.sequence > sequence);
}

/* ---- drop ---- */

TEST_F(too_late_drops_the_ticket_and_says_so, agent, .begin = GRANTED)
{
    refused(f, seen(f, AGENT_PULL, 0), ERR_TOO_LATE);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, ERR_TOO_LATE);
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    assert_int_equal(count(f, AGENT_ACQUIRE), 1);
}

TEST_F(nothing_is_computed_before_a_cancelled_compute_has_ended, agent, .begin = GRANTED)
{
    refused(f, seen(f, AGENT_PULL, 0), ERR_TOO_LATE);
    granted(f, seen(f, AGENT_ACQUIRE, 0)->acquire.sequence, ticket_of(1, 1));
    assert_int_equal(f->count, 0); /* nor pulled: the weights' place is in use */
    agent_gradient(f->agent, f->now_ms, 0, 1, ticket_of(1, 0).node);
    look(f);
    assert_int_equal(f->count, 0); /* the dropped ticket's */
    computed(f, ERR_CANCELLED);
    assert_int_equal(seen(f, AGENT_COMPUTE, 0)->ticket.version, 1);
    assert_int_equal(count(f, AGENT_PULL), SERVERS);
    gradients(f);
    assert_int_equal(count(f, AGENT_PUSH), SERVERS);
}

TEST_F(credits_of_a_dropped_ticket_are_free_when_its_answers_come, agent, .large = true,
       .begin = GRANTED)
{
    struct agent_effect old[2 * WIRE_CREDITS];
    assert_int_equal(count(f, AGENT_PULL), 2 * WIRE_CREDITS);
    for (uint32_t i = 0; i < 2 * WIRE_CREDITS; i++)
        old[i] = *seen(f, AGENT_PULL, i);
    refused(f, &old[0], ERR_TOO_LATE);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    computed(f, ERR_CANCELLED);
    granted(f, sequence, ticket_of(1, 1));
    assert_int_equal(count(f, AGENT_PULL), 1); /* the one that was answered */
    assert_false(weights(f, &old[1]));
    assert_int_equal(count(f, AGENT_PULL), 1);
    assert_int_equal(seen(f, AGENT_PULL, 0)->server, old[1].server);
    refused(f, &old[2], ERR_TOO_LATE); /* says nothing about this ticket */
    assert_int_equal(count(f, AGENT_PULL), 1);
    assert_int_equal(count(f, AGENT_COMPLETE), 0);
    refused(f, &old[3], ERR_TOO_EARLY);
    assert_int_equal(count(f, AGENT_PULL), 1);
}

TEST_F(credits_of_a_dropped_tickets_pushes_are_free_when_its_answers_come, agent, .large = true,
       .begin = GRANTED)
{
    gradients(f);
    struct agent_effect old[2 * WIRE_CREDITS];
    assert_int_equal(count(f, AGENT_PUSH), 2 * WIRE_CREDITS);
    for (uint32_t i = 0; i < 2 * WIRE_CREDITS; i++)
        old[i] = *seen(f, AGENT_PUSH, i);
    acked(f, &old[0], ERR_TOO_LATE, 0);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    computed(f, ERR_CANCELLED);
    granted(f, sequence, ticket_of(1, 1));
    gradients(f);
    assert_int_equal(count(f, AGENT_PUSH), 1); /* the one that was answered */
    acked(f, &old[1], ERR_OK, 0);
    assert_int_equal(count(f, AGENT_PUSH), 1);
    acked(f, &old[2], ERR_TOO_LATE, 0); /* says nothing about this ticket */
    assert_int_equal(count(f, AGENT_PUSH), 1);
    assert_int_equal(count(f, AGENT_COMPLETE), 0);
    agent_stream_lost(f->agent, f->now_ms, old[3].server, ERR_UNREACHABLE);
    wait(f, BACKOFF_MS);
    agent_stream_up(f->agent, f->now_ms, old[3].server, 1);
    look(f);
    assert_int_equal(count(f, AGENT_PUSH), WIRE_CREDITS); /* a new stream, all of them */
}
