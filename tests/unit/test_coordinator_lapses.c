/* The coordinator: leases that bring nothing, and members that do not reach each other (S7). */
#include "tests/unit/places_fixture.h"

/* Everybody who is there is heard. */
static void pass(struct places_fixture *f, uint64_t ms)
{
    for (uint64_t passed = 0; passed < ms; passed += LEASE_MS / 2) {
        f->c.now_ms += LEASE_MS / 2;
        for (uint32_t i = 0; i < JOINED; i++)
            ignore(
                coordinator_heartbeat(f->c.coordinator, f->c.now_ms, f->m[i])); /* some are lost */
        tick(&f->c, 0);
    }
}

enum { LAPSE_MS = 10 * LEASE_MS /* while nothing is known of the usual time (tickets.c) */ };

TEST_F(s7_a_lease_that_brings_nothing_lapses_as_a_whole, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    pass(f, LAPSE_MS - LEASE_MS);
    assert_true(has_lease(f, 0, &attempt));
    pass(f, LEASE_MS);
    assert_false(has_lease(f, 0, &attempt));
}

static void says_it_waits(struct places_fixture *f, uint32_t i, uint64_t attempt)
{
    const struct member_report report = {.wait_count = 1, .waits = &attempt};
    assert_int_equal(coordinator_member_report(f->c.coordinator, f->c.now_ms, f->m[i], &report),
                     ERR_OK);
}

/* Its place is another's then, and has as much time again; who waits goes on. */
TEST_F(s7_a_place_that_waits_for_nobody_and_brings_nothing_is_lost, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    const struct place place = seat_of(f, replies, f->m[1]);
    says_it_waits(f, 1, replies[0].ticket.attempt);
    pass(f, LAPSE_MS - LEASE_MS);
    assert_true(has_lease(f, 0, &attempt));
    pass(f, LEASE_MS);
    assert_false(has_lease(f, 0, &attempt));
    assert_true(has_lease(f, 1, &attempt));
    pass(f, 2 * LAPSE_MS); /* nobody asks for the place */
    assert_true(has_lease(f, 1, &attempt));
    ask(f, 2);
    assert_int_equal(answer(&f->c, f->m[2]).place.stage, 0);
    assert_int_equal(seat_of(f, replies, f->m[1]).try_number, place.try_number);
    pass(f, 2 * LAPSE_MS - LEASE_MS); /* twice as long */
    assert_true(has_lease(f, 2, &attempt));
    pass(f, LEASE_MS);
    assert_false(has_lease(f, 2, &attempt));
}

/* In the younger one its turn comes later, when nobody is to blame but the other. */
TEST_F(s7_who_waits_in_an_older_lease_keeps_its_place_in_a_younger_one, places, .c.steps = 4,
       .c.leases = 2)
{
    struct acquire_reply old[PLACES], young[PLACES];
    uint64_t attempts[WIRE_LEASES_MAX];
    lease(f, 0, 1, old);
    lease(f, 0, 1, young);
    says_it_waits(f, 1, old[0].ticket.attempt);
    pass(f, LAPSE_MS);
    assert_int_equal(coordinator_leases(f->c.coordinator, f->m[0], attempts), 0);
    assert_int_equal(coordinator_leases(f->c.coordinator, f->m[1], attempts), 2);
}

/* An older one does not wait for a younger one's neighbours. */
TEST_F(s7_who_waits_in_a_younger_lease_loses_its_place_in_an_older_one, places, .c.steps = 4,
       .c.leases = 2)
{
    struct acquire_reply old[PLACES], young[PLACES];
    uint64_t attempts[WIRE_LEASES_MAX];
    lease(f, 0, 1, old);
    lease(f, 0, 1, young);
    done(f, 0, &old[0], ERR_OK);
    says_it_waits(f, 1, young[0].ticket.attempt);
    pass(f, LAPSE_MS);
    assert_int_equal(coordinator_leases(f->c.coordinator, f->m[0], attempts), 1);
    assert_int_equal(coordinator_leases(f->c.coordinator, f->m[1], attempts), 1);
}

/* Member 0 has lost its place in the older lease so, and 2 has it now, for twice the time. */
static void share_with_prolonged(struct places_fixture *f,
                                 struct acquire_reply ret_old[static PLACES],
                                 struct acquire_reply ret_young[static PLACES])
{
    lease(f, 0, 1, ret_old);
    says_it_waits(f, 1, ret_old[0].ticket.attempt);
    pass(f, LAPSE_MS);
    ask(f, 2);
    ret_old[0] = answer(&f->c, f->m[2]);
    lease(f, 2, 1, ret_young);
    assert_int_not_equal(ret_young[0].ticket.attempt, ret_old[0].ticket.attempt);
}

/* The younger one's time is over first; nobody is to blame, and it is leased anew. */
TEST_F(s7_who_computes_an_older_lease_is_not_to_blame_in_a_younger_one, places, .c.steps = 4,
       .c.leases = 2)
{
    struct acquire_reply old[PLACES], young[PLACES];
    uint64_t attempts[WIRE_LEASES_MAX];
    share_with_prolonged(f, old, young);
    done(f, 1, &old[1], ERR_OK);
    says_it_waits(f, 1, young[0].ticket.attempt);
    pass(f, LAPSE_MS);
    assert_int_equal(coordinator_leases(f->c.coordinator, f->m[1], attempts), 1);
    assert_int_equal(coordinator_leases(f->c.coordinator, f->m[2], attempts), 1);
    assert_int_equal(attempts[0], old[0].ticket.attempt);
    lease(f, 2, 1, young); /* who brought nothing would wait, as 3 and 4 are there */
}

/* Who is done in the older one has its turn in the younger one. */
TEST_F(s7_who_is_done_in_an_older_lease_loses_its_place_in_a_younger_one, places, .c.steps = 4,
       .c.leases = 2)
{
    struct acquire_reply old[PLACES], young[PLACES];
    uint64_t attempts[WIRE_LEASES_MAX];
    share_with_prolonged(f, old, young);
    done(f, 2, &old[0], ERR_OK);
    says_it_waits(f, 1, young[0].ticket.attempt);
    pass(f, LAPSE_MS);
    assert_int_equal(coordinator_leases(f->c.coordinator, f->m[1], attempts), 2);
    assert_int_equal(coordinator_leases(f->c.coordinator, f->m[2], attempts), 1);
}

/* Member 0 has lost its place so; 2 has brought what it did not. */
static void bring_instead(struct places_fixture *f)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    says_it_waits(f, 1, replies[0].ticket.attempt);
    pass(f, LAPSE_MS);
    ask(f, 0);
    assert_false(is_answered(f, 0)); /* others may take the place */
    ask(f, 2);
    const struct acquire_reply instead = answer(&f->c, f->m[2]);
    done(f, 1, &replies[1], ERR_OK);
    done(f, 2, &instead, ERR_OK);
}

TEST_F(s7_who_brought_nothing_waits_while_others_are_enough, places, .c.steps = 4)
{
    uint64_t attempt;
    bring_instead(f);
    ask(f, 1);
    assert_false(has_lease(f, 0, &attempt)); /* 2 asks as well, and is not as far yet */
    ask(f, 2);
    assert_false(has_lease(f, 0, &attempt));
    assert_true(has_lease(f, 1, &attempt));
    assert_true(has_lease(f, 2, &attempt));
}

TEST_F(s7_who_brought_nothing_has_a_place_when_nobody_else_is_there, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    bring_instead(f);
    for (uint32_t i = 2; i < JOINED; i++)
        lose(f, i);
    ask(f, 1);
    replies[0] = answer(&f->c, f->m[0]);
    replies[1] = answer(&f->c, f->m[1]);
    f->m[5] = join_reached(&f->c, "f");
    done(f, 0, &replies[0], ERR_OK);
    done(f, 1, &replies[1], ERR_OK);
    lease(f, 0, 1, replies); /* it has brought something since */
}

TEST_F(s7_who_is_done_keeps_its_place_when_the_other_brings_nothing, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    done(f, 0, &replies[0], ERR_OK);
    pass(f, LAPSE_MS);
    assert_true(has_lease(f, 0, &attempt));
    assert_false(has_lease(f, 1, &attempt));
}

TEST_F(s7_a_lease_in_which_all_wait_lapses_as_a_whole, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    says_it_waits(f, 0, replies[0].ticket.attempt);
    says_it_waits(f, 1, replies[0].ticket.attempt);
    pass(f, LAPSE_MS);
    assert_false(has_lease(f, 0, &attempt) || has_lease(f, 1, &attempt));
}

TEST_F(s7_a_lapse_starts_anew_when_a_place_is_refilled, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    pass(f, LAPSE_MS - LEASE_MS);
    lose(f, 1);
    ask(f, 2);
    assert_true(is_answered(f, 2));
    pass(f, LAPSE_MS - LEASE_MS);
    assert_true(has_lease(f, 0, &attempt));
    pass(f, LEASE_MS);
    assert_false(has_lease(f, 0, &attempt));
}

/* Else a lease goes on for ever whose other member has forgotten it. */
TEST_F(s7_a_place_that_is_given_up_does_not_put_the_lapse_off, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    pass(f, LAPSE_MS - LEASE_MS);
    done(f, 1, &replies[1], ERR_BUSY);
    ask(f, 2);
    assert_true(is_answered(f, 2));
    pass(f, LEASE_MS);
    assert_false(has_lease(f, 0, &attempt));
}

/* Exactly as many as there are places, and one is lost. */
TEST_F(s7_the_time_in_which_a_place_is_empty_does_not_count, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    for (uint32_t i = 1; i < JOINED; i++)
        lose(f, i);
    pass(f, 3 * LAPSE_MS);
    assert_true(has_lease(f, 0, &attempt));
    f->m[1] = join_reached(&f->c, "b");
    f->sequence[1] = 0;
    ask(f, 1);
    assert_int_equal(answer(&f->c, f->m[1]).ticket.attempt, replies[0].ticket.attempt);
}

TEST_F(s7_two_that_failed_twice_are_not_put_side_by_side, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    fail_twice(f, replies, 1, 0);
    assert_false(is_answered(f, 1));
    ask(f, 2);
    assert_int_equal(answer(&f->c, f->m[2]).ticket.attempt, replies[0].ticket.attempt);
    assert_int_equal(answer(&f->c, f->m[2]).place.stage, 1);
    ask(f, 3); /* another node is for b and d */
    assert_true(is_answered(f, 1) && is_answered(f, 3));
}

/* It is lost when it lapses, and its place alone; nobody knows that it is unreachable for one alone. */
TEST_F(s7_of_who_is_silent_for_everybody_the_place_is_lost, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    const struct place place = seat_of(f, replies, f->m[1]);
    f->c.now_ms += LEASE_MS / 2;
    for (uint32_t i = 2; i < JOINED; i++)
        assert_int_equal(coordinator_heartbeat(f->c.coordinator, f->c.now_ms, f->m[i]), ERR_OK);
    name(f, replies, 1, 0);
    assert_int_equal(seat_of(f, replies, f->m[1]).try_number, place.try_number);
    f->c.now_ms += LEASE_MS / 2;
    tick(&f->c, 0);
    assert_false(has_lease(f, 0, &attempt));
    assert_int_equal(seat_of(f, replies, f->m[1]).try_number, place.try_number);
    ask(f, 2);
    assert_int_equal(answer(&f->c, f->m[2]).place.stage, 0);
}

TEST_F(s7_of_who_is_heard_the_reporters_place_is_empty, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    name(f, replies, 1, 0); /* who was heard before may be lost since */
    f->c.now_ms += 10;
    name(f, replies, 1, 0);
    assert_true(has_lease(f, 1, &attempt));
    assert_int_equal(coordinator_heartbeat(f->c.coordinator, f->c.now_ms, f->m[0]), ERR_OK);
    name(f, replies, 1, 0);
    assert_true(hears(f, 1, replies[0].ticket.attempt));
    assert_false(has_lease(f, 1, &attempt));
    assert_true(has_lease(f, 0, &attempt));
    name(f, replies, 1, 0); /* once more, of a place that it has no more */
    assert_true(has_lease(f, 0, &attempt));
}

/* Each lane waits for the same one, and names it in its own lease. */
TEST_F(s7_who_is_heard_is_found_although_several_leases_wait_for_it, places, .c.steps = 4,
       .c.leases = 2)
{
    struct acquire_reply first[PLACES], second[PLACES];
    uint64_t attempts[WIRE_LEASES_MAX];
    lease(f, 0, 1, first);
    lease(f, 0, 1, second);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(coordinator_leases(f->c.coordinator, f->m[1], attempts), 2);
        name(f, first, 1, 0);
        f->c.now_ms += 10;
        assert_int_equal(coordinator_heartbeat(f->c.coordinator, f->c.now_ms, f->m[0]), ERR_OK);
        name(f, second, 1, 0);
    }
    assert_int_equal(coordinator_leases(f->c.coordinator, f->m[1], attempts), 0);
    assert_int_equal(coordinator_leases(f->c.coordinator, f->m[0], attempts), 2);
}

/* It answered meanwhile. */
TEST_F(s7_what_was_reported_a_lease_ago_does_not_count, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    name(f, replies, 1, 0);
    pass(f, LEASE_MS + 500);
    name(f, replies, 1, 0);
    assert_true(has_lease(f, 1, &attempt));
}

/* A worker of the version before gives its place up, whichever of the two is lost. True: they are apart. */
static bool are_apart_after(struct places_fixture *f, uint32_t silent_ms)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    f->c.now_ms += silent_ms;
    for (uint32_t i = 0; i < 2; i++) {
        const struct complete_request request = {.member = f->m[1],
                                                 .secret = secret_of(f->m[1]),
                                                 .ticket = sign(replies[0].ticket, f->m[1]),
                                                 .outcome = ERR_UNREACHABLE,
                                                 .place = seat_of(f, replies, f->m[1]),
                                                 .unreachable = f->m[0]};
        assert_int_equal(say_complete(&f->c, &request), ERR_OK);
        ask(f, 1);
    }
    return !is_answered(f, 1);
}

TEST_F(s7_who_was_silent_for_two_heartbeats_is_counted, places, .c.steps = 4)
{
    assert_true(are_apart_after(f, 2 * HEARTBEAT_MS));
}

TEST_F(s7_who_was_silent_for_longer_is_not, places, .c.steps = 4)
{
    assert_false(are_apart_after(f, 2 * HEARTBEAT_MS + 1));
}

TEST_F(s7_only_a_neighbour_can_be_named, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    uint64_t attempt;
    wait_in_vain(f, replies, 1, 2);
    wait_in_vain(f, replies, 1, 2);
    assert_true(has_lease(f, 1, &attempt));
    lose(f, 0);
    ask(f, 2);
    assert_true(is_answered(f, 2)); /* beside b */
}

/* c and d have a younger lease. They reach each other, and not a, who has the oldest one. */
static void leave_alone(struct places_fixture *f, struct acquire_reply ret_old[static PLACES],
                        struct acquire_reply ret_young[static PLACES])
{
    lease(f, 0, 2, ret_old);
    fail_twice(f, ret_old, 2, 0);
    ask(f, 3);
    fail_twice(f, ret_old, 3, 0); /* c and d are idle */
    ask(f, 1);
    ret_young[0] = answer(&f->c, f->m[2]);
    ret_young[1] = answer(&f->c, f->m[3]);
}

TEST_F(s7_a_lease_that_only_such_members_could_fill_is_leased_anew, places, .c.steps = 4)
{
    struct acquire_reply old[PLACES], young[PLACES];
    uint64_t attempt;
    leave_alone(f, old, young);
    lose(f, 4);
    assert_true(has_lease(f, 0, &attempt));
    lose(f, 1);
    assert_true(hears(f, 0, old[0].ticket.attempt));
    assert_false(has_lease(f, 0, &attempt));
    assert_true(has_lease(f, 2, &attempt));
    ask(f, 0);
    done(f, 2, &young[0], ERR_OK);
    done(f, 3, &young[1], ERR_OK);
    lease(f, 2, 3, young);
    assert_int_equal(young[0].ticket.node.index, old[0].ticket.node.index);
}

/* leave_alone(), and then the young lease is complete, and e and f have the next one. */
static void leave_with_another(struct places_fixture *f,
                               struct acquire_reply ret_young[static PLACES])
{
    struct acquire_reply old[PLACES];
    leave_alone(f, old, ret_young);
    done(f, 2, &ret_young[0], ERR_OK);
    done(f, 3, &ret_young[1], ERR_OK);
    f->m[5] = join_reached(&f->c, "f");
    lease(f, 4, 5, ret_young);
}

/* S5: of the younger leases the youngest with a member who may fill the place. */
TEST_F(s7_no_lease_is_given_up_whose_members_may_not_help, places, .c.steps = 4)
{
    struct acquire_reply young[PLACES], youngest[PLACES];
    uint64_t attempt;
    leave_with_another(f, young);
    lease(f, 2, 3, youngest);
    lose(f, 1);
    assert_false(has_lease(f, 4, &attempt));
    assert_true(has_lease(f, 2, &attempt));
    assert_true(has_lease(f, 0, &attempt));
}

TEST_F(s7_who_is_free_and_may_not_help_is_not_waited_for, places, .c.steps = 4)
{
    struct acquire_reply young[PLACES];
    uint64_t attempt;
    leave_with_another(f, young);
    lose(f, 1);
    assert_false(has_lease(f, 4, &attempt));
    assert_true(has_lease(f, 0, &attempt));
}

TEST_F(s7_failures_are_forgotten_when_every_order_has_such_a_pair, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    fail_twice(f, replies, 1, 0);
    lose(f, 2);
    lose(f, 3);
    assert_false(is_answered(f, 1)); /* e could have the place */
    lose(f, 4);
    assert_true(is_answered(f, 1));
    fail_twice(f, replies, 1, 0); /* and again */
    assert_true(is_answered(f, 1));
}

TEST_F(s7_who_joins_again_is_known, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    struct join_request request = join_request();
    lease(f, 0, 1, replies);
    fail_twice(f, replies, 1, 0);
    snprintf(request.address, sizeof request.address, "b.net:7");
    request.previous_member = f->m[1];
    request.previous_secret = secret_of(f->m[1]);
    assert_int_equal(ask_to_join(&f->c, &request), ERR_OK);
    f->m[1] = f->c.joined.member;
    f->sequence[1] = 0;
    ask(f, 1);
    assert_false(is_answered(f, 1));
}
