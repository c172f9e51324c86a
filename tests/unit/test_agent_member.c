/* Membership of a worker: joining, joining anew, leaving, the end. */
#include "tests/unit/agent_fixture.h"

/* ---- rejoin ---- */

static void rejoins(struct agent_fixture *f)
{
    assert_int_equal(count(f, AGENT_JOIN), 0); /* not before the backoff */
    assert_int_equal(count(f, AGENT_COMPLETE), 0);
    wait(f, BACKOFF_MS);
    assert_int_equal(count(f, AGENT_JOIN), 1);
    joined(f, 2);
    assert_int_equal(seen(f, AGENT_ACQUIRE, 0)->acquire.member, f->member);
    assert_int_equal(seen(f, AGENT_ACQUIRE, 0)->acquire.generation, 2);
    assert_int_equal(count(f, AGENT_OPEN), SERVERS);
}

TEST_F(an_old_generation_means_joining_anew, agent, .begin = PUSHED)
{
    struct agent_effect late = *seen(f, AGENT_PUSH, 1);
    acked(f, seen(f, AGENT_PUSH, 0), ERR_OLD_GENERATION, 0);
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    acked(f, &late, ERR_OK, 0);
    assert_int_equal(f->count, 0);
    computed(f, ERR_CANCELLED);
    rejoins(f);
}

TEST_F(an_old_generation_said_of_an_earlier_ticket_means_it_too, agent, .begin = PUSHED)
{
    struct agent_effect push = *seen(f, AGENT_PUSH, 0), other = *seen(f, AGENT_PUSH, 1);
    acked(f, &other, ERR_TOO_LATE, 0);
    computed(f, ERR_CANCELLED);
    acked(f, &push, ERR_OLD_GENERATION, 0);
    rejoins(f);
}

TEST_F(a_parked_pull_of_an_old_generation_means_joining_anew, agent, .begin = GRANTED)
{
    struct agent_effect pull = *seen(f, AGENT_PULL, 0);
    refused(f, &pull, ERR_TOO_EARLY);
    refused(f, &pull, ERR_OLD_GENERATION);
    rejoins(f);
}

TEST_F(an_unknown_member_joins_anew, agent)
{
    agent_acquired(f->agent, f->now_ms, start(f).sequence, ERR_UNKNOWN_MEMBER, NULL);
    look(f);
    rejoins(f);
}

TEST_F(a_lost_control_stream_means_joining_anew, agent, .begin = PUSHED)
{
    agent_member_lost(f->agent, f->now_ms);
    look(f);
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    agent_member_lost(f->agent, f->now_ms); /* said twice */
    look(f);
    rejoins(f);
}

/* Joining fails, and is tried again about `usual_ms` later. */
static void joins_again_after(struct agent_fixture *f, enum err err, uint64_t usual_ms)
{
    agent_join_failed(f->agent, f->now_ms, err);
    look(f);
    assert_int_equal(f->count, 0);
    uint64_t wait_ms = agent_wake_ms(f->agent) - f->now_ms;
    assert_in_range(wait_ms, usual_ms / 2, usual_ms * 3 / 2);
    wait(f, wait_ms);
    assert_int_equal(count(f, AGENT_JOIN), 1);
}

TEST_F(who_may_not_join_as_it_was_joins_anew, agent)
{
    look(f);
    joins_again_after(f, ERR_UNKNOWN_MEMBER, AGENT_BACKOFF_MS_MIN);
}

TEST_F(a_run_that_is_not_there_yet_is_asked_for_again_soon, agent)
{
    look(f);
    for (int i = 0; i < 8; i++)
        joins_again_after(f, ERR_NO_RUN,
                          (uint64_t)AGENT_BACKOFF_MS_MIN
                              << (i < AGENT_WAIT_FAILURES_MAX ? i : AGENT_WAIT_FAILURES_MAX));
}

TEST_F(joining_waits_longer_after_each_failure, agent)
{
    look(f);
    for (int i = 0; i < 8; i++) {
        uint64_t usual_ms = (uint64_t)AGENT_BACKOFF_MS_MIN << i;
        joins_again_after(f, i % 2 == 0 ? ERR_UNREACHABLE : ERR_CANCELLED,
                          usual_ms < AGENT_BACKOFF_MS_MAX ? usual_ms : AGENT_BACKOFF_MS_MAX);
    }
    joined(f, 1);
    agent_member_lost(f->agent, f->now_ms);
    look(f);
    assert_true(agent_wake_ms(f->agent) <= f->now_ms + AGENT_BACKOFF_MS_MIN * 3 / 2);
}

/* Certificates are renewed, and a new CA reaches one machine after another, while the run goes on. */
TEST_F(who_has_been_a_member_waits_for_better_certificates, agent)
{
    start(f);
    agent_member_lost(f->agent, f->now_ms);
    wait(f, BACKOFF_MS);
    assert_int_equal(count(f, AGENT_JOIN), 1);
    for (int i = 1; i < 4; i++)
        joins_again_after(f, ERR_UNTRUSTED, (uint64_t)AGENT_BACKOFF_MS_MIN << i);
    joined(f, 1);
    assert_int_equal(count(f, AGENT_ACQUIRE), 1);
}

/* ---- the end ---- */

static void leaves(struct agent_fixture *f)
{
    agent_leave(f->agent, f->now_ms, f->now_ms + 5000);
    look(f);
}

TEST_F(who_leaves_without_a_ticket_leaves_at_once, agent)
{
    start(f);
    leaves(f);
    assert_int_equal(f->count, 2);
    assert_int_equal(f->effects[0].kind, AGENT_LEAVE);
    assert_int_equal(f->effects[1].kind, AGENT_STOP);
    assert_int_equal(f->effects[1].stop, ERR_OK);
}

TEST_F(who_leaves_finishes_the_ticket_first, agent, .begin = PUSHED)
{
    struct agent_effect pushes[SERVERS] = {*seen(f, AGENT_PUSH, 0), *seen(f, AGENT_PUSH, 1)};
    agent_leave(f->agent, f->now_ms, f->now_ms + 5000);
    computed(f, ERR_OK);
    acked(f, &pushes[0], ERR_OK, 0);
    assert_int_equal(f->count, 0);
    acked(f, &pushes[1], ERR_OK, 0);
    assert_int_equal(count(f, AGENT_ACQUIRE), 0);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, ERR_OK);
    assert_int_equal(count(f, AGENT_LEAVE), 1);
    assert_int_equal(count(f, AGENT_STOP), 1);
}

TEST_F(who_leaves_drops_the_ticket_at_the_deadline, agent, .begin = PUSHED)
{
    leaves(f);
    assert_int_equal(f->count, 0);
    assert_int_equal(agent_wake_ms(f->agent), f->now_ms + 5000);
    wait(f, 5000);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, ERR_CANCELLED);
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    assert_int_equal(count(f, AGENT_LEAVE), 1);
    assert_int_equal(count(f, AGENT_STOP), 0); /* the compute has not ended */
    computed(f, ERR_CANCELLED);
    assert_int_equal(count(f, AGENT_STOP), 1);
}

TEST_F(who_is_told_twice_leaves_at_once, agent, .begin = PUSHED)
{
    agent_leave(f->agent, f->now_ms, f->now_ms + 5000);
    leaves(f);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, ERR_CANCELLED);
    assert_int_equal(count(f, AGENT_LEAVE), 1);
}

TEST_F(who_is_no_member_just_stops, agent)
{
    look(f);
    leaves(f);
    assert_int_equal(f->count, 1);
    assert_int_equal(f->effects[0].kind, AGENT_STOP);
    joined(f, 1);
    assert_int_equal(f->count, 0);
}

TEST_F(a_run_that_is_over_ends_compute_membership_and_worker, agent, .begin = PUSHED)
{
    agent_run_over(f->agent, f->now_ms);
    look(f);
    assert_int_equal(f->count, 2); /* nobody counts the ticket any more */
    assert_int_equal(f->effects[0].kind, AGENT_CANCEL);
    assert_int_equal(f->effects[1].kind, AGENT_LEAVE);
    agent_run_over(f->agent, f->now_ms);
    look(f);
    assert_int_equal(f->count, 0);
    computed(f, ERR_CANCELLED);
    assert_int_equal(f->count, 1);
    assert_int_equal(f->effects[0].kind, AGENT_STOP);
    assert_int_equal(f->effects[0].stop, ERR_OK);
    assert_true(agent_wake_ms(f->agent) == UINT64_MAX);
}

TEST_F(an_answer_that_the_run_is_over_is_enough, agent)
{
    agent_acquired(f->agent, f->now_ms, start(f).sequence, ERR_OK,
                   &(struct acquire_reply){.result = ACQUIRE_END});
    look(f);
    assert_int_equal(f->count, 2);
    assert_int_equal(f->effects[0].kind, AGENT_LEAVE);
    assert_int_equal(f->effects[1].kind, AGENT_STOP);
}

TEST_F(a_machine_that_may_not_join_stops_and_says_why, agent)
{
    look(f);
    agent_join_failed(f->agent, f->now_ms, ERR_FINGERPRINT);
    look(f);
    assert_int_equal(f->count, 1);
    assert_int_equal(f->effects[0].stop, ERR_FINGERPRINT);
}

TEST_F(who_has_never_been_a_member_stops_at_a_certificate, agent)
{
    look(f);
    agent_join_failed(f->agent, f->now_ms, ERR_UNTRUSTED);
    look(f);
    assert_int_equal(f->count, 1);
    assert_int_equal(f->effects[0].stop, ERR_UNTRUSTED);
}

TEST_F(a_device_that_fails_stops_the_worker_and_says_why, agent, .begin = PUSHED)
{
    computed(f, ERR_IO);
    assert_int_equal(f->count, 1);
    assert_int_equal(f->effects[0].kind, AGENT_STOP);
    assert_int_equal(f->effects[0].stop, ERR_IO);
}

/* A zone's worth of workers that lost the coordinator in the same instant. */
TEST_F(those_who_lost_the_same_at_once_do_not_come_back_at_once, agent)
{
    enum { WORKERS = 400, BUCKET_MS = 100, FROM_MS = 2000, UNTIL_MS = 60000 };
    struct agent *agents[WORKERS];
    uint32_t tries[UNTIL_MS / BUCKET_MS] = {0};
    uint32_t all = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        const struct agent_config config = {.model = &f->model, .seed = i};
        assert_int_equal(agent_new(&config, &agents[i]), ERR_OK);
    }
    for (uint64_t ms = 0; ms < UNTIL_MS; ms++)
        for (uint32_t i = 0; i < WORKERS; i++) {
            struct agent_effect effect;
            if (agent_wake_ms(agents[i]) > ms || !agent_next(agents[i], ms, &effect))
                continue;
            assert_int_equal(effect.kind, AGENT_JOIN);
            agent_join_failed(agents[i], ms, ERR_UNREACHABLE);
            tries[ms / BUCKET_MS]++;
            all++;
        }
    for (uint32_t i = FROM_MS / BUCKET_MS; i < UNTIL_MS / BUCKET_MS; i++)
        assert_in_range(tries[i], 0, WORKERS / 10);
    assert_in_range(all, 8 * WORKERS, 20 * WORKERS); /* ever less often, but nobody gives up */
    for (uint32_t i = 0; i < WORKERS; i++)
        agent_free(agents[i]);
}
