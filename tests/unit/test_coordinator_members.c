/* The coordinator: who is a member, and who no longer is. */
#include "server/coordinator/effects.h"
#include "tests/unit/coordinator_fixture.h"

#include "common/rand.h"

/* ---- membership ---- */

static void assert_ended(const struct coordinator_fixture *f, uint32_t server, uint64_t step,
                         uint32_t count, const uint64_t *members)
{
    const struct server_command *command_seen = command(f, server, SERVER_ENDED);
    assert_non_null(command_seen);
    assert_int_equal(command_seen->ended.generation, f->generation);
    assert_int_equal(command_seen->ended.step, step);
    assert_int_equal(command_seen->ended.member_count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(command_seen->ended.members[i], members[i]);
}

TEST_F(servers_are_told_who_has_ended, coordinator, .steps = 4)
{
    uint64_t a = join(f), b = join(f), c = join(f);
    assert_int_equal(leave(f, a, "enough"), ERR_OK);
    look(f);
    assert_ended(f, 0, 0, 1, &a);
    assert_ended(f, 1, 0, 1, &a);
    uint64_t again = join_again(f, b);
    assert_ended(f, 0, 0, 1, &b);
    tick(f, LEASE_MS); /* the rest at once */
    assert_ended(f, 0, 0, 2, (uint64_t[]){c, again});
    lose_server(f, 1);
    hello(f, 1, f->generation); /* with its memory: what it missed is told again */
    assert_ended(f, 1, 0, 4, (uint64_t[]){a, b, c, again});
    assert_null(command(f, 0, SERVER_ENDED));
}

/* One false word would mark a slot done that nobody computes. */
TEST_F(only_what_was_granted_is_completed, coordinator, .steps = 4, .workers = 2)
{
    struct ticket ticket = ticket_of(f, f->a, 1);
    struct complete_request request = {.member = f->b, .secret = secret_of(f->b), .ticket = ticket};
    assert_int_equal(say_complete(f, &request), ERR_NO_GRANT);
    request.ticket.member = f->b;
    assert_int_equal(say_complete(f, &request), ERR_NO_GRANT);
    request =
        (struct complete_request){.member = f->a, .secret = secret_of(f->a), .ticket = ticket};
    request.ticket.node.index++;
    assert_int_equal(say_complete(f, &request), ERR_NO_GRANT);
    request.ticket = ticket;
    assert_int_equal(say_complete(f, &request), ERR_OK);
}

/* Whoever knows a member's number but not its secret is nobody. */
TEST_F(without_its_secret_nobody_acts_as_a_member, coordinator, .steps = 4, .workers = 2)
{
    struct ticket ticket = ticket_of(f, f->a, 1);
    const struct member_report hello = {f->a, secret_of(f->b)};
    assert_int_equal(coordinator_member_hello(f->coordinator, f->now_ms, &hello),
                     ERR_UNKNOWN_MEMBER);
    const struct acquire_request acquire = {f->a, secret_of(f->b), f->generation, 2, 0};
    assert_int_equal(coordinator_acquire(f->coordinator, f->now_ms, &acquire), ERR_UNKNOWN_MEMBER);
    const struct complete_request complete = {.member = f->a, .ticket = ticket};
    assert_int_equal(coordinator_complete(f->coordinator, f->now_ms, &complete),
                     ERR_UNKNOWN_MEMBER);
    const struct leave_request leave = {f->a, secret_of(f->b), "forged"};
    assert_int_equal(coordinator_leave(f->coordinator, f->now_ms, &leave), ERR_UNKNOWN_MEMBER);
    struct join_request request = join_request();
    request.previous_member = f->a;
    request.previous_secret = secret_of(f->b);
    assert_int_equal(ask_to_join(f, &request), ERR_OK);
    assert_null(seen(f, EFFECT_EXPEL));
    const struct member_report own = {f->a, secret_of(f->a)};
    assert_int_equal(coordinator_member_hello(f->coordinator, f->now_ms, &own), ERR_OK);
}

TEST_F(the_first_workers_fingerprint_is_the_runs_and_stored, coordinator, .steps = 3)
{
    struct join_request request = join_request();
    assert_int_equal(ask_to_join(f, &request), ERR_OK);
    assert_int_equal(seen(f, EFFECT_STORE_FINGERPRINT)->fingerprint[0], 5);
    join(f);
    assert_null(seen(f, EFFECT_STORE_FINGERPRINT));
    request.fingerprint[0] = 6;
    assert_int_equal(ask_to_join(f, &request), ERR_FINGERPRINT);
    struct coordinator_member member;
    assert_true(coordinator_member(f->coordinator, 2, &member));
    assert_string_equal(member.state, "refused");
}

/* A successor that does not know it takes another worker's, which computes other bits. */
TEST_F(nothing_is_granted_before_the_store_has_the_fingerprint, coordinator, .steps = 3)
{
    f->fingerprint_is_late = true;
    uint64_t worker = join(f);
    assert_int_equal(acquire(f, worker, 1, 5000), ERR_OK);
    assert_null(seen(f, EFFECT_ANSWER));
    assert_string_equal(status(f).reason, "it waits for room: the coordinator could not store the "
                                          "workers' fingerprint: no space left on device");
    coordinator_fingerprint_stored(f->coordinator, f->now_ms);
    look(f);
    assert_int_equal(answer(f, worker).result, ACQUIRE_TICKET);
    assert_string_equal(status(f).reason, "");
}

TEST_F(nobody_joins_while_there_is_no_run, coordinator)
{
    struct join_request request = join_request();
    assert_int_equal(ask_to_join(f, &request), ERR_NO_RUN);
}

TEST_F(a_broken_control_stream_frees_the_tickets_at_once, coordinator, .steps = 3,
       .whole_steps = true, .workers = 2)
{
    ticket_of(f, f->a, 1);
    assert_int_equal(acquire(f, f->b, 1, 5000), ERR_OK);
    assert_null(seen(f, EFFECT_ANSWER));
    coordinator_member_lost(f->coordinator, f->now_ms, f->a, "stream broke");
    look(f);
    assert_int_equal(answer(f, f->b).result, ACQUIRE_TICKET);
    assert_int_equal(status(f).redone, SLOTS);
    assert_int_equal(status(f).members_lost, 1);
}

TEST_F(a_silent_member_is_lost_when_its_lease_lapses, coordinator, .steps = 3, .whole_steps = true,
       .workers = 2)
{
    ticket_of(f, f->a, 1);
    assert_int_equal(acquire(f, f->b, 1, 60000), ERR_OK);
    f->now_ms += LEASE_MS - 1;
    assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, f->b), ERR_OK);
    assert_true(coordinator_next_ms(f->coordinator) <= f->now_ms + 1);
    tick(f, 1);
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, f->a);
    assert_int_equal(answer(f, f->b).ticket.node.index, 0);
    assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, f->a), ERR_UNKNOWN_MEMBER);
    assert_int_equal(acquire(f, f->a, 2, 0), ERR_UNKNOWN_MEMBER);
}

TEST_F(who_leaves_says_why, coordinator, .steps = 3)
{
    struct coordinator_member member;
    uint64_t a = join(f), b = join(f);
    assert_int_equal(leave(f, a, "SIGTERM"), ERR_OK);
    assert_int_equal(leave(f, b, "preempted by the cloud"), ERR_OK);
    look(f);
    assert_int_equal(status(f).members_lost, 0);
    assert_true(coordinator_member(f->coordinator, 0, &member));
    assert_string_equal(member.state, "preempted");
    assert_true(coordinator_member(f->coordinator, 1, &member));
    assert_string_equal(member.state, "left");
    assert_string_equal(member.reason, "SIGTERM");
    assert_false(coordinator_member(f->coordinator, 2, &member));
}

TEST_F(who_brought_a_step_is_credited_though_servers_were_faster_than_its_complete, coordinator,
       .steps = 3, .whole_steps = true)
{
    struct coordinator_member member;
    uint64_t a = join(f);
    struct ticket ticket = ticket_of(f, a, 1);
    step(f, 0);
    assert_true(coordinator_member(f->coordinator, 0, &member));
    assert_int_equal(member.slots_done, SLOTS);
    assert_int_equal(complete(f, a, ticket, ERR_OK), ERR_OK);
    assert_true(coordinator_member(f->coordinator, 0, &member));
    assert_int_equal(member.slots_done, SLOTS);
}

TEST_F(joining_again_after_a_rewind_is_neither_a_join_nor_a_loss, coordinator, .steps = 9)
{
    struct coordinator_member member;
    uint64_t a = join(f), b = join(f);
    struct ticket ticket = ticket_of(f, a, 1);
    assert_int_equal(complete(f, a, ticket, ERR_OK), ERR_OK);
    restart_server(f, 1);
    f->generation++;
    assert_int_equal(status(f).member_count, 2);
    uint64_t again = join_again(f, a);
    assert_int_not_equal(again, a);
    assert_int_equal(status(f).member_count, 2);
    assert_int_equal(status(f).members_joined, 2);
    assert_true(coordinator_member(f->coordinator, 1, &member));
    assert_int_equal(member.member, again);
    assert_true(member.slots_done > 0); /* in this membership and the one before */
    assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, a), ERR_UNKNOWN_MEMBER);
    /* The other one died with the server: its lease says so, by name. */
    f->now_ms += LEASE_MS - 1;
    assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, again), ERR_OK);
    tick(f, 1);
    assert_int_equal(status(f).members_lost, 1);
    assert_true(coordinator_member(f->coordinator, 1, &member));
    assert_int_equal(member.member, b);
    assert_string_equal(member.state, "timed out");
}

TEST_F(joining_again_frees_what_the_membership_before_held, coordinator, .steps = 9,
       .whole_steps = true, .workers = 2)
{
    ticket_of(f, f->a, 1);
    assert_int_equal(acquire(f, f->b, 1, 60000), ERR_OK);
    join_again(f, f->a); /* its end of the control stream broke before ours did */
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, f->a);
    assert_int_equal(answer(f, f->b).result, ACQUIRE_TICKET);
    assert_int_equal(status(f).members_lost, 0);
    join_again(f, f->a); /* that is nobody any more */
    assert_int_equal(status(f).members_joined, 3);
}

TEST_F(members_of_another_run_are_forgotten, coordinator, .plan = 9)
{
    start(f, &f->run);
    join(f);
    assert_int_equal(coordinator_stop(f->coordinator, f->now_ms, "enough"), ERR_OK);
    tick(f, STOP_MS);
    assert_int_equal(status(f).state, RUN_STOPPED);
    f->run.run++;
    begin(f, &f->run, NULL);
    assert_int_equal(status(f).member_count, 0);
    assert_int_equal(status(f).members_lost, 0);
}

/* The store has no room for the end of the run before, so that nobody was told of it. */
TEST_F(members_of_a_run_before_hear_that_they_are_none, coordinator, .steps = 9)
{
    uint64_t worker = join(f);
    ticket_of(f, worker, 1);
    ticket_of(f, worker, 2);
    assert_int_equal(coordinator_stop(f->coordinator, f->now_ms, "enough"), ERR_OK);
    f->state_is_late = true;
    tick(f, STOP_MS);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_int_equal(acquire(f, worker, 3, 5000), ERR_OK);
    assert_null(seen(f, EFFECT_ANSWER));
    f->run.run++;
    begin(f, &f->run, NULL);
    assert_non_null(seen(f, EFFECT_ANSWER));
    assert_int_equal(seen(f, EFFECT_ANSWER)->answer.member, worker);
    assert_int_equal(seen(f, EFFECT_ANSWER)->answer.err, ERR_UNKNOWN_MEMBER);
    assert_non_null(seen(f, EFFECT_EXPEL));
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, worker);
}

/* What a test knows of the workers that come and go: those that are there, and how many were.
 */
struct crowd {
    uint64_t members[32];
    uint64_t sequences[32];
    uint32_t count;
    uint64_t joined, lost;
};

static void crowd_forget(struct crowd *crowd, uint32_t i)
{
    crowd->count--;
    crowd->members[i] = crowd->members[crowd->count];
    crowd->sequences[i] = crowd->sequences[crowd->count];
}

/* One of them acquires, completes, goes in one of four ways, or comes back. */
static void crowd_moves(struct coordinator_fixture *f, struct crowd *crowd,
                        struct rand_state *random)
{
    uint32_t i = (uint32_t)rand_below(random, crowd->count);
    uint64_t member = crowd->members[i];
    switch (rand_below(random, 6)) {
    case 0:
        ignore(acquire(f, member, ++crowd->sequences[i], 1000)); /* it may hold too many */
        break;
    case 1:
        coordinator_member_lost(f->coordinator, f->now_ms, member, "control stream broke");
        crowd_forget(crowd, i);
        crowd->lost++;
        break;
    case 2:
        assert_int_equal(leave(f, member, "told to"), ERR_OK);
        crowd_forget(crowd, i);
        break;
    case 3:
        assert_int_equal(leave(f, member, "preempted: aws"), ERR_OK);
        crowd_forget(crowd, i);
        break;
    default:
        crowd->members[i] = join_again(f, member);
        crowd->sequences[i] = 0;
        break;
    }
    look(f);
}

static uint32_t members_after(struct coordinator_fixture *f, uint64_t after_ms)
{
    tick(f, after_ms);
    return status(f).member_count;
}

TEST_F(nobody_is_found_silent_by_who_stood_still, coordinator, .steps = 9)
{
    join(f);
    assert_int_equal(members_after(f, LEASE_MS - 1), 1);
    assert_int_equal(members_after(f, 1), 0);
    join(f);
    assert_int_equal(members_after(f, LEASE_MS + HEARTBEAT_MS + 1), 1);
    assert_int_equal(members_after(f, 2 * HEARTBEAT_MS - 1), 1);
    assert_int_equal(members_after(f, 1), 0);
    join(f); /* who is late again and again finds out who is gone */
    assert_int_equal(members_after(f, LEASE_MS + HEARTBEAT_MS + 1), 1);
    assert_int_equal(members_after(f, 3 * HEARTBEAT_MS + 1), 0);
}

/* What a tick asked for of that kind; all of it. */
static uint32_t count_kind(const struct coordinator_fixture *f, enum effect_kind kind,
                           size_t *ret_all)
{
    const struct effect *effects = coordinator_effects(f->coordinator, ret_all);
    uint32_t count = 0;
    for (size_t i = 0; i < *ret_all; i++)
        count += effects[i].kind == kind;
    return count;
}

/* Members of the largest mesh, each with a place of as many leases as one may share. */
static void fill_leases(struct coordinator_fixture *f)
{
    uint64_t members[WIRE_PLACES_MAX];
    for (uint32_t i = 0; i < WIRE_PLACES_MAX; i++) {
        struct join_request request = join_request();
        snprintf(request.address, sizeof request.address, "w%u.net:7", (unsigned)i);
        assert_int_equal(ask_to_join(f, &request), ERR_OK);
        members[i] = f->joined.member;
    }
    for (uint64_t lease = 1; lease <= WIRE_LEASES_MAX; lease++)
        for (uint32_t i = 0; i < WIRE_PLACES_MAX; i++)
            assert_int_equal(acquire(f, members[i], lease, 60000), ERR_OK);
    for (uint32_t i = 0; i < WIRE_PLACES_MAX; i++) {
        uint64_t attempts[WIRE_LEASES_MAX];
        assert_int_equal(coordinator_leases(f->coordinator, members[i], attempts), WIRE_LEASES_MAX);
    }
}

/* All others of its leases are told of each that is lost: there is room for so many in a tick. */
TEST_F(members_that_fall_silent_together_are_lost_some_at_a_time, coordinator, .plan = 9)
{
    struct coordinator_place places[WIRE_PLACES_MAX];
    for (uint32_t i = 0; i < WIRE_PLACES_MAX; i++)
        places[i] = stages[i > 0];
    f->run.places = places;
    f->run.place_count = WIRE_PLACES_MAX;
    f->run.place_leases = WIRE_LEASES_MAX;
    f->run.delay = WIRE_LEASES_MAX - 1;
    start(f, &f->run);
    fill_leases(f);
    for (f->now_ms += LEASE_MS; coordinator_next_ms(f->coordinator) < f->now_ms;)
        coordinator_tick(f->coordinator, coordinator_next_ms(f->coordinator));
    coordinator_effects_clear(f->coordinator);
    for (uint32_t left = WIRE_PLACES_MAX; left > 0; left -= EFFECTS_LOST_MAX) {
        const size_t room_of_absent =
            (size_t)(5 + 4 * WIRE_LEASES_MAX) * (COORDINATOR_MEMBERS_MAX - left);
        size_t count;
        assert_int_equal(status(f).member_count, left);
        assert_true(coordinator_next_ms(f->coordinator) <= f->now_ms);
        coordinator_tick(f->coordinator, f->now_ms);
        assert_int_equal(count_kind(f, EFFECT_EXPEL, &count), EFFECTS_LOST_MAX);
        assert_in_range(count, 1, EFFECTS_MAX - room_of_absent);
        coordinator_check(f->coordinator);
        coordinator_effects_clear(f->coordinator);
    }
    assert_int_equal(status(f).member_count, 0);
}

TEST_F(workers_come_and_go_by_the_thousand_and_nobody_else_notices, coordinator, .steps = 9)
{
    struct rand_state random = {7};
    struct crowd crowd = {0};
    uint64_t steady = join(f);
    struct coordinator_member member;
    for (int i = 0; i < 20000; i++) {
        while (crowd.count == 0 || (crowd.count < 32 && rand_below(&random, 3) == 0)) {
            crowd.sequences[crowd.count] = 0;
            crowd.members[crowd.count++] = join(f);
            crowd.joined++;
        }
        crowd_moves(f, &crowd, &random);
        assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, steady), ERR_OK);
        if (i % 1000 == 999) { /* all but one fall silent */
            f->now_ms += LEASE_MS - 1;
            assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, steady), ERR_OK);
            tick(f, 1);
            while (coordinator_next_ms(f->coordinator) <= f->now_ms)
                tick(f, 0); /* some at a time */
            crowd.lost += crowd.count;
            crowd.count = 0;
        }
        assert_int_equal(status(f).member_count, crowd.count + 1);
        assert_int_equal(status(f).members_joined, crowd.joined + 1);
        assert_int_equal(status(f).members_lost, crowd.lost);
    }
    assert_true(crowd.joined > 5000);
    assert_true(coordinator_member(f->coordinator, 0, &member));
    assert_int_equal(member.member, steady);
    ticket_of(f, steady, 1);
}
