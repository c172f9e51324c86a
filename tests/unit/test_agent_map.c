/* Chunks that have moved, as a worker learns of them (P11). */
#include "tests/unit/agent_fixture.h"

/* The map with the chunks of server 0 at server 1, by another number. */
static void map_to(struct agent_fixture *f, uint64_t number, uint32_t server)
{
    uint32_t servers[64];
    const uint32_t count = f->model.chunks_count;
    assert_true(count <= 64);
    for (uint32_t c = 0; c < count; c++)
        servers[c] = f->chunk_servers[c] == 0 ? server : f->chunk_servers[c];
    const struct agent_map map = {number, SERVERS, servers, 1};
    agent_mapped(f->agent, f->now_ms, &map);
    look(f);
}

TEST_F(a_moved_push_goes_to_the_new_owner_as_it_is, agent, .begin = PUSHED)
{
    const struct agent_effect moved = *seen(f, AGENT_PUSH, 0);
    assert_int_equal(moved.server, 0);
    acked(f, &moved, ERR_MOVED, 0);
    assert_int_equal(count(f, AGENT_DESCRIBE), 1);
    assert_int_equal(count(f, AGENT_PUSH), 0); /* not before the map is known */
    map_to(f, 2, 1);
    assert_int_equal(f->count, 1); /* nothing is computed again */
    const struct agent_effect *again = seen(f, AGENT_PUSH, 0);
    assert_int_equal(again->server, 1);
    assert_int_equal(again->push.step, moved.push.step);
}

/* Its own ticket keeps the worker from Acquire, whose answer names the map. */
TEST_F(p11_a_server_that_is_gone_may_have_left_with_its_chunks_moved, agent)
{
    start_pushed(f);
    agent_stream_lost(f->agent, f->now_ms, 0, ERR_UNREACHABLE);
    look(f);
    assert_int_equal(count(f, AGENT_DESCRIBE), 1);
    map_to(f, 2, 1);
    assert_int_equal(seen(f, AGENT_PUSH, 0)->server, 1);
}

TEST_F(p11_nothing_is_said_before_the_tickets_map_is_known, agent)
{
    const struct acquire_reply reply = {ACQUIRE_TICKET, ticket_of(1, 0), 2};
    agent_acquired(f->agent, f->now_ms, start(f).sequence, ERR_OK, &reply);
    look(f);
    assert_int_equal(count(f, AGENT_DESCRIBE), 1);
    assert_int_equal(count(f, AGENT_PULL), 0);
    for (uint32_t i = 0; i < 10; i++) {
        map_to(f, 1, 0); /* of a coordinator that is behind */
        wait(f, AGENT_BACKOFF_MS_MAX * 2);
        assert_int_equal(count(f, AGENT_DESCRIBE), 1); /* asked until it is known */
        assert_int_equal(count(f, AGENT_PULL), 0);
    }
    map_to(f, 2, 1);
    assert_int_equal(seen(f, AGENT_PULL, 0)->server, 1);
    pull_all(f);
    gradients(f);
    assert_int_equal(seen(f, AGENT_PUSH, 0)->server, 1);
}

/* The map was on its way when the ticket's was made. */
TEST_F(p11_a_map_that_is_newer_and_not_yet_the_tickets_is_not_enough, agent)
{
    const struct acquire_reply reply = {ACQUIRE_TICKET, ticket_of(1, 0), 3};
    const uint64_t sequence = start(f).sequence;
    agent_stream_lost(f->agent, f->now_ms, 0, ERR_UNREACHABLE);
    look(f);
    assert_int_equal(count(f, AGENT_DESCRIBE), 1);
    agent_acquired(f->agent, f->now_ms, sequence, ERR_OK, &reply);
    look(f);
    assert_int_equal(count(f, AGENT_PULL), 0);
    map_to(f, 2, 1);
    assert_int_equal(count(f, AGENT_DESCRIBE), 1); /* asked at once */
    assert_int_equal(count(f, AGENT_PULL), 0);
    map_to(f, 3, 1);
    assert_int_equal(seen(f, AGENT_PULL, 0)->server, 1);
}

TEST_F(a_map_of_another_generation_is_not_taken, agent, .begin = PUSHED)
{
    acked(f, seen(f, AGENT_PUSH, 0), ERR_MOVED, 0);
    assert_true(agent_takes_map(f->agent, 1, 2));
    assert_false(agent_takes_map(f->agent, 1, 1));
    assert_false(agent_takes_map(f->agent, 2, 2));
    const struct agent_map old = {7, SERVERS, f->chunk_servers, 0};
    agent_mapped(f->agent, f->now_ms, &old);
    look(f);
    wait(f, AGENT_BACKOFF_MS_MAX);
    assert_int_equal(count(f, AGENT_DESCRIBE), 1); /* asked again */
    assert_true(agent_takes_map(f->agent, 1, 2));
}

/* The map that its ticket waits for will never be described, and nothing is sent before. */
TEST_F(p2_a_worker_that_waits_for_a_map_learns_of_a_new_generation, agent)
{
    const struct acquire_reply reply = {ACQUIRE_TICKET, ticket_of(1, 0), 2};
    agent_acquired(f->agent, f->now_ms, start(f).sequence, ERR_OK, &reply);
    look(f);
    assert_int_equal(count(f, AGENT_DESCRIBE), 1);
    const struct agent_map newer = {1, SERVERS, f->chunk_servers, 2};
    agent_mapped(f->agent, f->now_ms, &newer);
    look(f);
    wait(f, AGENT_BACKOFF_MS_MAX);
    assert_int_equal(count(f, AGENT_JOIN), 1);
    assert_int_equal(count(f, AGENT_DESCRIBE), 0);
}

/* A server that was lost, given up and came back: the new generation goes on without it, so nobody
 * will tell it of any, and it never answers OLD_GENERATION. */
static void learns_of_a_new_generation_by(struct agent_fixture *f, enum err answer)
{
    const struct agent_map newer = {1, SERVERS, f->chunk_servers, 2};
    granted(f, start(f).sequence, ticket_of(1, 0));
    const struct agent_effect pull = *seen(f, AGENT_PULL, 0);
    refused(f, &pull, answer);
    assert_int_equal(count(f, AGENT_DESCRIBE), 1);
    agent_mapped(f->agent, f->now_ms, &newer);
    look(f);
    wait(f, AGENT_BACKOFF_MS_MAX);
    assert_int_equal(count(f, AGENT_JOIN), 1);
    assert_int_equal(count(f, AGENT_PULL), 0);
}

TEST_F(p2_a_server_without_a_run_makes_it_ask_for_the_generation, agent)
{
    learns_of_a_new_generation_by(f, ERR_NO_RUN);
}

TEST_F(p2_and_one_that_is_behind, agent)
{
    learns_of_a_new_generation_by(f, ERR_BEHIND);
}

TEST_F(p2_and_where_it_pushes, agent, .begin = PUSHED)
{
    acked(f, seen(f, AGENT_PUSH, 0), ERR_NO_RUN, 0);
    assert_int_equal(count(f, AGENT_DESCRIBE), 1);
}

TEST_F(a_map_that_is_not_newer_is_asked_for_again_later, agent, .begin = PUSHED)
{
    acked(f, seen(f, AGENT_PUSH, 0), ERR_MOVED, 0);
    assert_int_equal(count(f, AGENT_DESCRIBE), 1);
    map_to(f, 1, 1);
    assert_int_equal(count(f, AGENT_DESCRIBE), 0);
    wait(f, AGENT_BACKOFF_MS_MAX);
    assert_int_equal(count(f, AGENT_DESCRIBE), 1);
}

TEST_F(a_map_that_does_not_come_is_asked_for_again_later, agent, .begin = PUSHED)
{
    static const enum err failures[] = {ERR_UNREACHABLE, ERR_UNTRUSTED};
    acked(f, seen(f, AGENT_PUSH, 0), ERR_MOVED, 0);
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        agent_map_failed(f->agent, f->now_ms, failures[i]);
        look(f);
        assert_int_equal(count(f, AGENT_STOP) + count(f, AGENT_DESCRIBE), 0);
        wait(f, AGENT_BACKOFF_MS_MAX);
        assert_int_equal(count(f, AGENT_DESCRIBE), 1);
    }
}
