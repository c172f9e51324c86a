/* The protocol side of a worker, without anything around it: a ticket from acquire to complete. */
#include "tests/unit/agent_fixture.h"

/* ---- a ticket ---- */

TEST_F(a_ticket_goes_from_acquire_to_complete, agent)
{
    struct acquire_request request = start(f);
    assert_int_equal(request.member, 41);
    assert_int_equal(request.generation, 1);
    granted(f, request.sequence, ticket_of(1, 0));
    assert_int_equal(count(f, AGENT_COMPUTE), 1);
    assert_int_equal(count(f, AGENT_PULL), SERVERS);
    assert_int_equal(count(f, AGENT_ACQUIRE), 0); /* one at a time */
    pull_all(f);
    gradients(f);
    struct agent_effect pushes[SERVERS] = {*seen(f, AGENT_PUSH, 0), *seen(f, AGENT_PUSH, 1)};
    assert_int_equal(pushes[0].push.entry_count + pushes[1].push.entry_count, 5);
    assert_int_equal(pushes[0].push.node.index, 3);
    acked(f, &pushes[0], ERR_OK, 0);
    computed(f, ERR_OK);
    assert_int_equal(f->count, 0); /* one push is not acknowledged */
    acked(f, &pushes[1], ERR_OK, 0);
    const struct complete_request *complete = &seen(f, AGENT_COMPLETE, 0)->complete;
    assert_int_equal(complete->outcome, ERR_OK);
    assert_int_equal(complete->member, 41);
    assert_int_equal(complete->ticket.attempt, 9);
    assert_true(seen(f, AGENT_ACQUIRE, 0)->acquire.sequence > request.sequence);
}

TEST_F(a_ticket_is_not_complete_before_it_is_computed, agent, .begin = PUSHED)
{
    struct agent_effect pushes[SERVERS] = {*seen(f, AGENT_PUSH, 0), *seen(f, AGENT_PUSH, 1)};
    acked(f, &pushes[0], ERR_OK, 0);
    acked(f, &pushes[1], ERR_OK, 0);
    assert_int_equal(count(f, AGENT_COMPLETE), 0);
    computed(f, ERR_OK);
    assert_int_equal(count(f, AGENT_COMPLETE), 1);
}

TEST_F(a_unit_is_ready_when_all_its_chunks_are_there, agent, .begin = GRANTED)
{
    struct agent_effect first = *seen(f, AGENT_PULL, 0), second = *seen(f, AGENT_PULL, 1);
    const uint32_t chunks[] = {0, 2}; /* fc1.weight before fc2.weight */
    assert_int_equal(first.pull.chunk_count, 2);
    assert_memory_equal(first.pull.chunks, chunks, sizeof chunks);
    assert_true(weights(f, &first));
    assert_int_equal(count(f, AGENT_UNIT_READY), 0);
    assert_true(weights(f, &second));
    assert_int_equal(seen(f, AGENT_UNIT_READY, 0)->unit, 0);
    assert_int_equal(seen(f, AGENT_UNIT_READY, 1)->unit, 1);
}

TEST_F(weights_may_come_in_several_messages, agent, .begin = GRANTED)
{
    struct agent_effect pull = *seen(f, AGENT_PULL, 0);
    struct agent_effect half = pull;
    assert_true(weights(f, seen(f, AGENT_PULL, 1)));
    half.pull.chunk_count = 1;
    assert_true(weights(f, &half));
    assert_int_equal(count(f, AGENT_UNIT_READY), 1);
    half.pull.chunks = pull.pull.chunks + 1;
    assert_true(weights(f, &half));
    assert_int_equal(count(f, AGENT_UNIT_READY), 1);
    assert_false(weights(f, &half)); /* once more */
}

/* Both pushes acknowledged and the compute over: the sequence of the next acquire. */
static uint64_t finish(struct agent_fixture *f)
{
    struct agent_effect pushes[SERVERS] = {*seen(f, AGENT_PUSH, 0), *seen(f, AGENT_PUSH, 1)};
    computed(f, ERR_OK);
    acked(f, &pushes[0], ERR_OK, 0);
    acked(f, &pushes[1], ERR_OK, 0);
    return seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
}

TEST_F(weights_that_are_held_are_not_pulled_again, agent, .begin = PUSHED)
{
    granted(f, finish(f), ticket_of(1, 0));
    assert_int_equal(count(f, AGENT_PULL), 0);
    assert_int_equal(count(f, AGENT_UNIT_READY), 2);
    gradients(f);
    granted(f, finish(f), ticket_of(1, 1));
    assert_int_equal(count(f, AGENT_PULL), SERVERS); /* the next version is not held */
}

static bool gives_back(struct agent_fixture *f, uint64_t ms)
{
    wait(f, ms);
    return count(f, AGENT_GIVE_BACK) == 1;
}

/* Chunk 0 is lent, chunks 1 to 3 are the executor's own. */
TEST_F(lent_weights_are_given_back_while_no_ticket_is_there, agent, .begin = PUSHED)
{
    agent_lent(f->agent, 0, 0);
    f->now_ms += 10 * AGENT_LENT_MS_MAX; /* the time of a ticket does not count */
    uint64_t sequence = finish(f);
    assert_false(gives_back(f, AGENT_LENT_MS_MAX - 1));
    granted(f, sequence, ticket_of(1, 0));
    assert_int_equal(count(f, AGENT_PULL), 0);
    assert_false(gives_back(f, 10 * AGENT_LENT_MS_MAX));
    gradients(f);
    sequence = finish(f);
    assert_int_equal(agent_wake_ms(f->agent), f->now_ms + AGENT_LENT_MS_MAX);
    assert_true(gives_back(f, AGENT_LENT_MS_MAX));
    assert_false(gives_back(f, AGENT_LENT_MS_MAX)); /* once */
    granted(f, sequence, ticket_of(1, 0));
    assert_int_equal(count(f, AGENT_PULL), 1);
    assert_int_equal(seen(f, AGENT_PULL, 0)->pull.chunk_count, 1);
    assert_int_equal(seen(f, AGENT_PULL, 0)->pull.chunks[0], 0);
}

/* So a coordinator's machine that begins again has the memory of the server before. */
TEST_F(who_lost_its_membership_gives_lent_weights_back, agent, .begin = PUSHED)
{
    agent_lent(f->agent, 0, 0);
    agent_member_lost(f->agent, f->now_ms);
    assert_false(gives_back(f, 0)); /* the compute has not ended */
    computed(f, ERR_CANCELLED);
    assert_true(gives_back(f, AGENT_LENT_MS_MAX));
}

TEST_F(weights_of_another_generation_are_not_held, agent, .begin = PUSHED)
{
    acked(f, seen(f, AGENT_PUSH, 0), ERR_OLD_GENERATION, 0);
    computed(f, ERR_CANCELLED);
    wait(f, BACKOFF_MS);
    joined(f, 2);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    streams_up(f);
    granted(f, sequence, ticket_of(2, 0));
    assert_int_equal(count(f, AGENT_PULL), SERVERS);
}

TEST_F(a_held_out_piece_is_computed_without_pushes_and_its_sums_are_told, agent)
{
    struct ticket ticket = ticket_of(1, 0);
    ticket.kind = TICKET_VALIDATE;
    granted(f, start(f).sequence, ticket);
    pull_all(f);
    agent_computed(f->agent, f->now_ms, &(struct agent_result){ERR_OK, 1.5, 4, 3});
    look(f);
    const struct complete_request *complete = &seen(f, AGENT_COMPLETE, 0)->complete;
    assert_int_equal(complete->outcome, ERR_OK);
    assert_true(complete->loss_sum == 1.5);
    assert_int_equal(complete->sample_count, 4);
    assert_int_equal(complete->correct_count, 3);
    assert_int_equal(count(f, AGENT_PUSH), 0);
}

/* ---- credits ---- */

TEST_F(credits_are_never_exceeded, agent, .large = true, .begin = GRANTED)
{
    assert_int_equal(count(f, AGENT_PULL), SERVERS * WIRE_CREDITS);
    struct agent_effect pull = *seen(f, AGENT_PULL, 0);
    assert_int_equal(pull.pull.chunk_count, 1); /* a message holds no more */
    assert_true(weights(f, &pull));
    assert_int_equal(count(f, AGENT_PULL), 1);
    while (count(f, AGENT_PULL) > 0)
        pull_all(f);
}

TEST_F(a_pull_of_two_byte_weights_asks_for_twice_as_many, agent, .large = true, .codec = CODEC_BF16,
       .begin = GRANTED)
{
    assert_int_equal(seen(f, AGENT_PULL, 0)->pull.chunk_count, 2);
}

TEST_F(pushes_have_credits_of_their_own, agent, .large = true, .begin = GRANTED)
{
    gradients(f); /* while all pulls are unanswered */
    assert_int_equal(count(f, AGENT_PUSH), SERVERS * WIRE_CREDITS);
    struct agent_effect push = *seen(f, AGENT_PUSH, 3);
    acked(f, &push, ERR_OK, 0);
    assert_int_equal(count(f, AGENT_PUSH), 1);
    assert_int_equal(seen(f, AGENT_PUSH, 0)->server, push.server);
}

TEST_F(a_parked_pull_holds_no_credit, agent, .large = true, .begin = GRANTED)
{
    struct agent_effect pull = *seen(f, AGENT_PULL, 0);
    refused(f, &pull, ERR_TOO_EARLY);
    assert_int_equal(count(f, AGENT_PULL), 1);
    assert_true(weights(f, &pull));            /* it was waiting for it all the time */
    assert_int_equal(count(f, AGENT_PULL), 0); /* the credit was free before */
}

/* ---- stale answers ---- */

TEST_F(answers_to_questions_nobody_asked_are_ignored, agent)
{
    uint64_t sequence = start_pushed(f);
    granted(f, sequence, ticket_of(1, 0)); /* the answer that was taken, again */
    assert_int_equal(f->count, 0);
    const uint32_t chunk = 0;
    uint32_t lane;
    assert_false(agent_weights(
        f->agent, f->now_ms, 0,
        &(struct weights){.id = 777, .version = 0, .chunk_count = 1, .chunks = &chunk}, &lane));
    agent_acked(f->agent, f->now_ms, 0, &(struct push_ack){777, ERR_OLD_GENERATION, 0});
    agent_acked(f->agent, f->now_ms, SERVERS, &(struct push_ack){1, ERR_OK, 0});
    agent_refused(f->agent, f->now_ms, 1, &(struct pull_refusal){777, ERR_TOO_LATE});
    agent_stream_up(f->agent, f->now_ms, SERVERS, 1);
    agent_stream_lost(f->agent, f->now_ms, SERVERS, ERR_UNREACHABLE);
    joined(f, 7);
    assert_int_equal(f->count, 0);
}

TEST_F(weights_of_another_version_are_not_taken, agent)
{
    granted(f, start(f).sequence, ticket_of(1, 3));
    struct agent_effect pull = *seen(f, AGENT_PULL, 0), wrong = pull;
    wrong.pull.version = 2;
    assert_false(weights(f, &wrong));
    assert_true(weights(f, &pull));
}

TEST_F(a_chunk_that_a_server_names_twice_is_not_taken_for_another, agent)
{
    granted(f, start(f).sequence, ticket_of(1, 3));
    const struct agent_effect pull = *seen(f, AGENT_PULL, 0);
    assert_true(pull.pull.chunk_count > 1);
    uint32_t twice[2] = {pull.pull.chunks[0], pull.pull.chunks[0]}, lane;
    struct agent_effect rest = pull;
    rest.pull.chunk_count--;
    rest.pull.chunks++;
    assert_true(agent_weights(
        f->agent, f->now_ms, pull.server,
        &(struct weights){
            .id = pull.pull.id, .version = pull.pull.version, .chunk_count = 2, .chunks = twice},
        &lane));
    look(f);
    assert_true(weights(f, &rest));
}

TEST_F(a_lease_of_an_earlier_membership_is_not_taken, agent)
{
    uint64_t sequence = start(f).sequence;
    agent_member_lost(f->agent, f->now_ms);
    wait(f, BACKOFF_MS);
    joined(f, 1);
    assert_true(seen(f, AGENT_ACQUIRE, 0)->acquire.sequence > sequence);
    granted(f, sequence, ticket_of(1, 0));
    assert_int_equal(f->count, 0);
}
