/* The coordinator: leases that several members share, each at its own place. */
#include "tests/unit/places_fixture.h"

TEST_F(s1_a_node_is_leased_whole_or_to_nobody, places, .c.steps = 4)
{
    struct peer peers[WIRE_PLACES_MAX];
    ask(f, 0);
    assert_false(is_answered(f, 0));
    ask(f, 1);
    const struct acquire_reply a = answer(&f->c, f->m[0]), b = answer(&f->c, f->m[1]);
    assert_int_equal(a.ticket.attempt, b.ticket.attempt);
    assert_int_equal(a.place.stages, PLACES);
    assert_int_equal(a.place.stage, 0);
    assert_int_equal(b.place.stage, 1);
    struct places places = places_now(f, a.ticket.attempt, peers);
    assert_int_equal(places.peer_count, PLACES);
    assert_int_equal(peers[1].member, f->m[1]);
    assert_string_equal(peers[1].address, "b.net:7");
    assert_int_equal(peers[1].certificate[0], 'b');
}

/* The grant names the chunks of the place, and servers see whether it is right. */
TEST_F(a_ticket_names_what_its_place_pushes, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    assert_true(ticket_names(&replies[0].ticket, 0, 0));
    assert_false(ticket_names(&replies[0].ticket, 1, 0));
    assert_false(ticket_names(&replies[0].ticket, 0, 1));
    assert_true(ticket_names(&replies[1].ticket, 1, 0));
    assert_true(ticket_names(&replies[1].ticket, 0, 1));
    assert_false(ticket_names(&replies[1].ticket, 0, 0));
    for (uint32_t i = 0; i < PLACES; i++) {
        struct ticket signed_again = sign(replies[i].ticket, f->m[i]);
        assert_true(proof_same(&signed_again.grant, &replies[i].ticket.grant));
    }
    struct ticket more = replies[1].ticket;
    more.also_count = 0;
    more = sign(more, f->m[1]);
    assert_false(proof_same(&more.grant, &replies[1].ticket.grant));
}

/* Five members are two leases, of four slots two each. */
TEST_F(where_the_coordinator_chooses_leases_take_the_place_of_workers, places, .c.steps = 4,
       .c.chosen = true)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    assert_int_equal(replies[0].ticket.node.level, 1);
    lease(f, 2, 3, replies);
    assert_int_equal(replies[0].ticket.node.level, 0); /* half of what is left */
}

TEST_F(s3_a_member_is_not_free_until_the_lease_is_over, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    done(f, 0, &replies[0], ERR_OK);
    ask(f, 0);
    ask(f, 2);
    assert_false(is_answered(f, 0)); /* else it would share a lease with c */
    assert_true(has_lease(f, 0, &attempt));
    assert_int_equal(attempt, replies[0].ticket.attempt);
    done(f, 1, &replies[1], ERR_OK);
    assert_true(hears(f, 1, replies[0].ticket.attempt));
    assert_true(is_answered(f, 0) && is_answered(f, 2));
    assert_int_equal(answer(&f->c, f->m[0]).ticket.node.index, 1);
    struct coordinator_member member;
    assert_true(coordinator_member(f->c.coordinator, 1, &member));
    assert_int_equal(member.slots_done, 1);
}

TEST_F(s4_a_lost_place_is_empty_again_even_if_it_was_done, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    struct peer peers[WIRE_PLACES_MAX];
    lease(f, 0, 1, replies);
    uint64_t attempt = replies[0].ticket.attempt;
    uint64_t number = places_now(f, attempt, peers).number;
    done(f, 0, &replies[0], ERR_OK);
    lose(f, 0);
    assert_int_equal(places_now(f, attempt, peers).peer_count, 1);
    assert_true(hears(f, 1, attempt)); /* it waits for nobody, and names nobody */
    ask(f, 2);
    const struct acquire_reply again = answer(&f->c, f->m[2]);
    assert_int_equal(again.ticket.attempt, attempt);
    assert_int_equal(again.place.stage, 0);
    assert_int_equal(again.place.try_number, PLACES + 1);
    assert_true(hears(f, 1, attempt));
    assert_true(places_now(f, attempt, peers).number > number);
    done(f, 1, &replies[1], ERR_OK);
    assert_true(has_lease(f, 1, &attempt)); /* c is not done */
    done(f, 2, &again, ERR_OK);
    assert_false(has_lease(f, 1, &attempt));
}

/* Nobody else is there: who gave the place up may have it again. */
TEST_F(a_place_that_is_given_up_is_filled_again, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    done(f, 1, &replies[1], ERR_BUSY);
    assert_true(hears(f, 0, replies[0].ticket.attempt));
    ask(f, 1);
    const struct acquire_reply again = answer(&f->c, f->m[1]);
    assert_int_equal(again.ticket.attempt, replies[0].ticket.attempt);
    assert_int_equal(again.place.stage, 1);
    assert_true(hears(f, 0, again.ticket.attempt));
}

TEST_F(a_lease_that_nobody_holds_any_more_is_over, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    lose(f, 0);
    lose(f, 1);
    lease(f, 2, 3, replies);
    assert_int_equal(replies[0].ticket.node.index, 0);
}

TEST_F(s1_the_oldest_lease_is_filled_first, places, .c.steps = 4)
{
    struct acquire_reply old[PLACES], young[PLACES];
    lease(f, 0, 1, old);
    lease(f, 2, 3, young);
    lose(f, 1);
    lose(f, 3);
    ask(f, 4);
    assert_int_equal(answer(&f->c, f->m[4]).ticket.attempt, old[0].ticket.attempt);
}

TEST_F(s5_a_younger_lease_is_dissolved_for_an_older_one, places, .c.steps = 4)
{
    struct acquire_reply old[PLACES], young[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, old);
    lease(f, 2, 3, young);
    lose(f, 4); /* nobody is free */
    lose(f, 0);
    assert_true(hears(f, 2, young[0].ticket.attempt) && hears(f, 3, young[0].ticket.attempt));
    assert_false(has_lease(f, 2, &attempt));
    ask(f, 3);
    assert_int_equal(answer(&f->c, f->m[3]).ticket.attempt, old[0].ticket.attempt);
    ask(f, 2);
    assert_false(is_answered(f, 2)); /* one alone has no lease */
}

TEST_F(s5_an_older_lease_is_never_dissolved, places, .c.steps = 4)
{
    struct acquire_reply old[PLACES], young[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, old);
    lease(f, 2, 3, young);
    lose(f, 4);
    lose(f, 3);
    assert_true(has_lease(f, 0, &attempt));
    assert_true(has_lease(f, 2, &attempt)); /* it waits */
}

/* A free member is expected to ask. */
TEST_F(s5_nothing_is_dissolved_while_somebody_is_free, places, .c.steps = 4)
{
    struct acquire_reply old[PLACES], young[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, old);
    lease(f, 2, 3, young);
    lose(f, 0);
    assert_true(has_lease(f, 2, &attempt));
    ask(f, 4);
    assert_int_equal(answer(&f->c, f->m[4]).place.stage, 0);
}

TEST_F(s8_a_new_generation_ends_all_leases, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    restart_server(&f->c, 0);
    assert_false(has_lease(f, 0, &attempt));
    assert_false(has_lease(f, 1, &attempt));
}

/* The shards' seals say that a step is done (P1): nobody completed the place. */
TEST_F(s3_a_committed_step_ends_its_leases, places, .c.steps = 4, .c.whole_steps = true)
{
    struct acquire_reply replies[PLACES];
    struct coordinator_member member;
    uint64_t attempt;
    lease(f, 0, 1, replies);
    done(f, 0, &replies[0], ERR_OK);
    ask(f, 0);
    reduce_all(&f->c, 0);
    assert_true(hears(f, 1, replies[0].ticket.attempt));
    assert_false(has_lease(f, 1, &attempt));
    assert_true(coordinator_member(f->c.coordinator, 1, &member));
    assert_int_equal(member.slots_done, SLOTS);
    done(f, 1, &replies[1], ERR_TOO_LATE); /* no loss */
    commit_all(&f->c, 0);
    ask(f, 1);
    assert_true(is_answered(f, 0) && is_answered(f, 1));
    assert_int_equal(answer(&f->c, f->m[0]).ticket.step, 1);
}

/* The lease of members 0 and 1 is overdue; that of 2 and 3 is its copy. */
static void lease_twice(struct places_fixture *f, struct acquire_reply first[PLACES],
                        struct acquire_reply copy[PLACES])
{
    lease(f, 0, 1, first);
    f->c.now_ms += LEASE_MS - 1;
    for (uint32_t i = 0; i < JOINED; i++)
        assert_int_equal(coordinator_heartbeat(f->c.coordinator, f->c.now_ms, f->m[i]), ERR_OK);
    f->c.now_ms += 1;
    lease(f, 2, 3, copy);
    assert_int_equal(copy[0].ticket.node.index, first[0].ticket.node.index);
    assert_int_not_equal(copy[0].ticket.attempt, first[0].ticket.attempt);
}

TEST_F(a_faster_copy_ends_the_first_lease, places, .c.steps = 4, .c.whole_steps = true)
{
    struct acquire_reply first[PLACES], copy[PLACES];
    uint64_t attempt;
    lease_twice(f, first, copy);
    done(f, 2, &copy[0], ERR_OK);
    done(f, 3, &copy[1], ERR_OK);
    assert_true(hears(f, 0, first[0].ticket.attempt) && hears(f, 1, first[0].ticket.attempt));
    assert_false(has_lease(f, 0, &attempt));
}

TEST_F(a_first_lease_that_is_over_ends_its_copy, places, .c.steps = 4, .c.whole_steps = true)
{
    struct acquire_reply first[PLACES], copy[PLACES];
    uint64_t attempt;
    lease_twice(f, first, copy);
    done(f, 0, &first[0], ERR_OK);
    done(f, 1, &first[1], ERR_OK);
    assert_true(hears(f, 2, copy[0].ticket.attempt) && hears(f, 3, copy[0].ticket.attempt));
    assert_false(has_lease(f, 2, &attempt));
}

/* ---- several leases of a member (S9) ---- */

TEST_F(s9_a_member_shares_as_many_leases_as_versions_overlap, places, .c.steps = 4, .c.leases = 2)
{
    struct acquire_reply first[PLACES], second[PLACES];
    uint64_t attempts[WIRE_LEASES_MAX];
    lease(f, 0, 1, first);
    lease(f, 1, 0, second); /* who waits longer has another stage already */
    assert_int_equal(second[0].place.stage, 1);
    assert_int_equal(second[1].place.stage, 0);
    assert_int_equal(coordinator_leases(f->c.coordinator, f->m[0], attempts), 2);
    ask(f, 0);
    ask(f, 1);
    assert_false(is_answered(f, 0) || is_answered(f, 1));
    done(f, 0, &first[0], ERR_OK);
    assert_false(is_answered(f, 0)); /* S3 */
    done(f, 1, &first[1], ERR_OK);
    assert_true(is_answered(f, 0) && is_answered(f, 1));
}

/* The lost member had a place of each; somebody new has them all, the oldest first. */
TEST_F(s9_all_places_of_a_lost_member_are_filled, places, .c.steps = 4, .c.leases = 2)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease(f, 0, 1, first);
    lease(f, 0, 1, second);
    lose(f, 1);
    ask(f, 2);
    assert_int_equal(answer(&f->c, f->m[2]).ticket.attempt, first[0].ticket.attempt);
    assert_int_equal(answer(&f->c, f->m[2]).place.stage, 1);
    ask(f, 2);
    assert_int_equal(answer(&f->c, f->m[2]).ticket.attempt, second[0].ticket.attempt);
    ask(f, 2);
    assert_false(is_answered(f, 2));
}

/* Its members are in both: neither helps the other. */
TEST_F(s9_a_lease_is_not_given_up_for_one_of_the_same_members, places, .c.steps = 4, .c.leases = 2)
{
    struct acquire_reply first[PLACES], second[PLACES];
    uint64_t attempts[WIRE_LEASES_MAX];
    lease(f, 0, 1, first);
    lease(f, 0, 1, second);
    for (uint32_t i = 1; i < JOINED; i++)
        lose(f, i);
    assert_int_equal(coordinator_leases(f->c.coordinator, f->m[0], attempts), 2);
}

TEST_F(s5_a_member_of_younger_leases_has_room_for_an_older_one, places, .c.steps = 4, .c.leases = 2)
{
    struct acquire_reply old[PLACES], older[PLACES], young[PLACES], youngest[PLACES];
    lease(f, 0, 1, old);
    lease(f, 2, 3, older);
    lease(f, 0, 1, young);
    lease(f, 2, 3, youngest);
    lose(f, 4); /* nobody is free */
    lose(f, 1);
    assert_true(hears(f, 3, youngest[1].ticket.attempt));
    ask(f, 3);
    assert_int_equal(answer(&f->c, f->m[3]).ticket.attempt, old[0].ticket.attempt);
    assert_int_equal(answer(&f->c, f->m[3]).place.stage, 1);
}

/* Who shares two of them is free for another stage when both are over. */
TEST_F(s5_younger_leases_are_dissolved_until_a_member_is_free, places, .c.steps = 4, .c.leases = 2)
{
    struct acquire_reply old[PLACES], young[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, old);
    lease(f, 2, 3, young);
    lease(f, 2, 3, young);
    lose(f, 4); /* nobody is free */
    lose(f, 2);
    lose(f, 0);
    assert_false(has_lease(f, 3, &attempt));
    ask(f, 3);
    assert_int_equal(answer(&f->c, f->m[3]).ticket.attempt, old[0].ticket.attempt);
    assert_int_equal(answer(&f->c, f->m[3]).place.stage, 0);
}

/* It has room, and would compute the same once more. */
TEST_F(s9_who_shares_a_lease_gets_no_copy_of_it, places, .c.steps = 4, .c.whole_steps = true,
       .c.leases = 2)
{
    struct acquire_reply first[PLACES], next[PLACES], copy[PLACES];
    lease(f, 0, 1, first);
    lease(f, 0, 1, next); /* the step behind */
    done(f, 0, &next[0], ERR_OK);
    done(f, 1, &next[1], ERR_OK);
    f->c.now_ms += LEASE_MS - 1;
    for (uint32_t i = 0; i < JOINED; i++)
        assert_int_equal(coordinator_heartbeat(f->c.coordinator, f->c.now_ms, f->m[i]), ERR_OK);
    f->c.now_ms += 1; /* overdue */
    ask(f, 0);
    ask(f, 1);
    assert_false(is_answered(f, 0) || is_answered(f, 1));
    lease(f, 2, 3, copy);
    assert_int_equal(copy[0].ticket.step, first[0].ticket.step);
}

/* ---- what passed between the places (said.h) ---- */

/* Member i completes its place: it took `in`, and gave `out`, over the one boundary. */
static void says(struct places_fixture *f, uint32_t i, const struct acquire_reply *reply,
                 uint64_t in, uint64_t out)
{
    bool below = reply->place.stage == 0;
    const struct boundary_sum sums[] = {
        {1, below ? VALUE_BACKWARD : VALUE_FORWARD, false, below ? 1 : 0, in},
        {1, below ? VALUE_FORWARD : VALUE_BACKWARD, true, below ? 1 : 0, out}};
    const struct complete_request request = {.member = f->m[i],
                                             .secret = secret_of(f->m[i]),
                                             .ticket = reply->ticket,
                                             .place = reply->place,
                                             .boundary_count = 2,
                                             .boundaries = sums};
    assert_int_equal(say_complete(&f->c, &request), ERR_OK);
}

/* a and b have a node, c and d a copy of it. */
static void lease_copy(struct places_fixture *f, struct acquire_reply ret_first[static PLACES],
                       struct acquire_reply ret_copy[static PLACES])
{
    lease(f, 0, 1, ret_first);
    f->c.now_ms += LEASE_MS - 1;
    for (uint32_t i = 0; i < JOINED; i++)
        assert_int_equal(coordinator_heartbeat(f->c.coordinator, f->c.now_ms, f->m[i]), ERR_OK);
    f->c.now_ms += 1; /* overdue */
    lease(f, 2, 3, ret_copy);
}

TEST_F(s2_of_two_with_equal_inputs_and_other_outputs_one_is_wrong, places, .c.steps = 4,
       .c.whole_steps = true)
{
    struct acquire_reply first[PLACES], copy[PLACES];
    lease_copy(f, first, copy);
    says(f, 1, &first[1], 7, 8);
    says(f, 3, &copy[1], 7, 9);
    assert_true(is_contradicted(f, 1, "d") && is_contradicted(f, 3, "b"));
    assert_false(is_named(f, 0) || is_named(f, 2));
}

TEST_F(s2_who_had_other_inputs_is_not_blamed_for_other_bits, places, .c.steps = 4,
       .c.whole_steps = true)
{
    struct acquire_reply first[PLACES], copy[PLACES];
    lease_copy(f, first, copy);
    pushes_differ(f, &copy[1], 1, 3); /* before anybody knows of inputs */
    says(f, 1, &first[1], 7, 8);
    says(f, 3, &copy[1], 17, 18);
    pushes_differ(f, &copy[1], 1, 3);
    assert_false(is_named(f, 1) || is_named(f, 3));
}

TEST_F(s2_the_first_place_with_other_outputs_is_named, places, .c.steps = 4, .c.whole_steps = true)
{
    struct acquire_reply first[PLACES], copy[PLACES];
    lease_copy(f, first, copy);
    says(f, 0, &first[0], 8, 7);
    says(f, 2, &copy[0], 18, 17);
    assert_true(is_contradicted(f, 0, "c") && is_contradicted(f, 2, "a"));
    says(f, 3, &copy[1], 17, 18);
    assert_false(is_named(f, 1) || is_named(f, 3));
}

TEST_F(s2_who_pushes_other_sums_of_equal_inputs_is_named, places, .c.steps = 4,
       .c.whole_steps = true)
{
    struct acquire_reply first[PLACES], copy[PLACES];
    lease_copy(f, first, copy);
    pushes_differ(f, &copy[1], 1, 3);
    says(f, 1, &first[1], 7, 8);
    assert_false(is_named(f, 1));
    says(f, 3, &copy[1], 7, 8);
    assert_true(is_contradicted(f, 1, "d") && is_contradicted(f, 3, "b"));
}

TEST_F(s2_of_neighbours_that_say_other_things_one_is_wrong, places, .c.steps = 4,
       .c.whole_steps = true)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    says(f, 0, &replies[0], 8, 7);
    says(f, 1, &replies[1], 6, 8);
    assert_true(is_contradicted(f, 0, "b") && is_contradicted(f, 1, "a"));
}

/* b may have taken from a what c did not give. */
TEST_F(s2_neighbours_of_a_place_that_was_filled_again_are_not_compared, places, .c.steps = 4,
       .c.whole_steps = true)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    lose(f, 0);
    ask(f, 2);
    const struct acquire_reply again = answer(&f->c, f->m[2]);
    says(f, 2, &again, 8, 7);
    says(f, 1, &replies[1], 6, 8);
    assert_int_equal(status(&f->c).member_count, JOINED - 1);
    for (uint32_t i = 0; i < JOINED - 1; i++)
        assert_false(is_named(f, i));
}

TEST_F(s2_who_fills_a_place_gives_what_was_given_before, places, .c.steps = 4,
       .c.whole_steps = true)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    says(f, 0, &replies[0], 8, 7);
    lose(f, 0);
    ask(f, 2);
    const struct acquire_reply again = answer(&f->c, f->m[2]);
    says(f, 2, &again, 8, 6);
    assert_true(is_contradicted(f, 1, "a")); /* c is the second of those who are there */
}

TEST_F(s2_whom_two_others_contradict_is_expelled, places, .c.steps = 4, .c.whole_steps = true)
{
    struct acquire_reply first[PLACES], copy[PLACES];
    lease_copy(f, first, copy);
    says(f, 1, &first[1], 7, 8);
    says(f, 3, &copy[1], 7, 9);
    lose(f, 1);
    ask(f, 4);
    const struct acquire_reply third = answer(&f->c, f->m[4]);
    says(f, 4, &third, 7, 8);
    assert_int_equal(seen(&f->c, EFFECT_EXPEL)->member, f->m[3]);
}

/* A worker of an older version says nothing. */
TEST_F(s2_what_was_not_said_is_not_compared, places, .c.steps = 4, .c.whole_steps = true)
{
    struct acquire_reply first[PLACES], copy[PLACES];
    lease_copy(f, first, copy);
    pushes_differ(f, &copy[1], 1, 3);
    done(f, 1, &first[1], ERR_OK);
    says(f, 3, &copy[1], 7, 9);
    says(f, 0, &first[0], 8, 7);
    for (uint32_t i = 0; i < JOINED; i++)
        assert_false(is_named(f, i));
}

/* ---- audits: a second lease of other members ---- */

#define AUDITED .c.steps = 9, .c.whole_steps = true, .c.audit = 1

/* a and b have the first lease, c and d the second one. */
static void lease_both(struct places_fixture *f, struct acquire_reply ret_first[static PLACES],
                       struct acquire_reply ret_second[static PLACES])
{
    lease(f, 0, 1, ret_first);
    lease(f, 2, 3, ret_second);
}

static bool goes_on(const struct places_fixture *f, uint32_t i)
{
    uint64_t attempt;
    return has_lease(f, i, &attempt);
}

/* a has what b gave. */
TEST_F(s2_nobody_goes_on_with_what_a_wrong_one_gave, places, .c.steps = 4, .c.whole_steps = true)
{
    struct acquire_reply first[PLACES], copy[PLACES];
    lease_copy(f, first, copy);
    says(f, 1, &first[1], 7, 9);
    says(f, 3, &copy[1], 7, 8);
    lose(f, 3);
    ask(f, 4);
    const struct acquire_reply third = answer(&f->c, f->m[4]);
    assert_int_equal(third.ticket.attempt, copy[0].ticket.attempt);
    says(f, 4, &third, 7, 8);
    assert_int_equal(seen(&f->c, EFFECT_EXPEL)->member, f->m[1]);
    assert_false(goes_on(f, 0)); /* else its lease would wait for another b */
    assert_true(goes_on(f, 2) && goes_on(f, 4));
}

TEST_F(an_audit_is_a_lease_of_other_members, places, AUDITED)
{
    struct acquire_reply first[PLACES], second[PLACES];
    struct peer peers[WIRE_PLACES_MAX];
    lease_both(f, first, second);
    assert_true(node_equal(first[0].ticket.node, second[0].ticket.node));
    assert_int_equal(first[0].ticket.step, second[0].ticket.step);
    assert_true(first[0].ticket.attempt < second[0].ticket.attempt);
    assert_int_equal(places_now(f, second[0].ticket.attempt, peers).peer_count, PLACES);
    assert_int_equal(peers[0].member, f->m[2]);
    assert_int_equal(peers[1].member, f->m[3]);
    struct ticket plain = sign(second[0].ticket, f->m[2]);
    assert_false(proof_same(&plain.grant, &second[0].ticket.grant)); /* for servers */
}

TEST_F(who_had_a_place_in_the_first_lease_has_none_in_the_second, places, AUDITED)
{
    struct acquire_reply first[PLACES];
    lease(f, 0, 1, first);
    done(f, 0, &first[0], ERR_OK);
    done(f, 1, &first[1], ERR_OK);
    ask(f, 0);
    ask(f, 1);
    ask(f, 2);
    assert_false(is_answered(f, 0) || is_answered(f, 1) || is_answered(f, 2));
    ask(f, 3);
    assert_true(is_answered(f, 2) && is_answered(f, 3));
}

TEST_F(an_audit_goes_on_when_the_first_lease_is_over, places, AUDITED)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease_both(f, first, second);
    says(f, 0, &first[0], 8, 7);
    says(f, 1, &first[1], 7, 8);
    assert_false(goes_on(f, 0));
    assert_true(goes_on(f, 2) && goes_on(f, 3));
    says(f, 2, &second[0], 8, 7);
    assert_true(goes_on(f, 2));
    says(f, 3, &second[1], 7, 8);
    assert_false(goes_on(f, 2) || goes_on(f, 3));
    for (uint64_t i = 0; i < 3; i++)
        step(&f->c, i);
    assert_int_equal(status(&f->c).audits.agreed, 1);
}

TEST_F(a_first_lease_goes_on_when_its_audit_is_faster, places, AUDITED)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease_both(f, first, second);
    says(f, 2, &second[0], 8, 7);
    says(f, 3, &second[1], 7, 8);
    assert_true(goes_on(f, 0) && goes_on(f, 1));
    lose(f, 0); /* nobody fills its place: the node is done */
    assert_false(goes_on(f, 1));
}

TEST_F(an_audit_goes_on_until_servers_compare_no_more, places, AUDITED)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease_both(f, first, second);
    says(f, 0, &first[0], 8, 7);
    says(f, 1, &first[1], 7, 8);
    step(&f->c, 0);
    assert_true(goes_on(f, 2) && goes_on(f, 3));
    says(f, 2, &second[0], 8, 7);
    assert_true(goes_on(f, 2));
    step(&f->c, 1);
    assert_false(goes_on(f, 2) || goes_on(f, 3));
    done(f, 3, &second[1], ERR_OK); /* too late */
    step(&f->c, 2);
    assert_int_equal(status(&f->c).audits.not_compared, 1);
}

TEST_F(a_lease_that_lacks_a_member_when_its_step_is_over_is_not_compared, places, AUDITED)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease_both(f, first, second);
    lose(f, 0);
    step(&f->c, 0); /* the audit's pushes were counted */
    assert_false(goes_on(f, 1));
    assert_true(goes_on(f, 2) && goes_on(f, 3));
}

/* It asks again, since it never heard: its audit would be over before it began. */
TEST_F(who_asks_again_for_a_late_place_has_it_no_more, places, AUDITED)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease_both(f, first, second);
    says(f, 0, &first[0], 8, 7);
    says(f, 1, &first[1], 7, 8);
    step(&f->c, 0);
    f->sequence[2]--;
    ask(f, 2);
    assert_false(goes_on(f, 2) || goes_on(f, 3) || is_answered(f, 2));
}

/* a has gone, and b alone computes nothing. */
TEST_F(a_late_audit_is_given_up_when_nothing_else_goes_on, places, AUDITED)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lose(f, 4);
    lease_both(f, first, second);
    says(f, 0, &first[0], 8, 7);
    says(f, 1, &first[1], 7, 8);
    lose(f, 0);
    reduce_all(&f->c, 0);
    commit_all(&f->c, 0);
    assert_false(goes_on(f, 2) || goes_on(f, 3));
}

TEST_F(a_late_audit_is_compared, places, AUDITED)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease_both(f, first, second);
    says(f, 0, &first[0], 8, 7);
    says(f, 1, &first[1], 7, 8);
    step(&f->c, 0);
    says(f, 3, &second[1], 7, 9);
    assert_true(is_contradicted(f, 1, "d") && is_contradicted(f, 3, "b"));
    says(f, 2, &second[0], 9, 17);
    step(&f->c, 1);
    step(&f->c, 2);
    assert_int_equal(status(&f->c).audits.differed, 1);
}

TEST_F(a_second_lease_that_loses_a_member_is_leased_anew, places, AUDITED)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease_both(f, first, second);
    lose(f, 2);
    assert_false(goes_on(f, 3));
    lease(f, 3, 4, second);
    assert_true(node_equal(first[0].ticket.node, second[0].ticket.node));
    assert_int_equal(second[0].ticket.step, 0);
    says(f, 0, &first[0], 8, 7);
    says(f, 1, &first[1], 7, 8);
    assert_true(goes_on(f, 3) && goes_on(f, 4));
}

/* b computes rightly, d does not, and e says so. */
TEST_F(a_third_lease_tells_who_is_wrong, places, AUDITED)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease_both(f, first, second);
    says(f, 0, &first[0], 8, 7);
    says(f, 1, &first[1], 7, 8);
    says(f, 2, &second[0], 9, 7);
    says(f, 3, &second[1], 7, 9);
    assert_true(is_contradicted(f, 1, "d") && is_contradicted(f, 3, "b"));
    assert_false(is_named(f, 0) || is_named(f, 2)); /* c had d's gradient */
    step(&f->c, 0);
    lease(f, 2, 3, first);
    ask(f, 0);
    ask(f, 1); /* its opinion is known */
    assert_false(is_answered(f, 0) || is_answered(f, 1));
    ask(f, 4);
    second[0] = answer(&f->c, f->m[0]);
    second[1] = answer(&f->c, f->m[4]);
    assert_int_equal(second[1].ticket.step, 1);
    says(f, 3, &first[1], 5, 7);
    says(f, 4, &second[1], 5, 6);
    assert_int_equal(seen(&f->c, EFFECT_EXPEL)->member, f->m[3]);
    for (uint32_t i = 0; i < JOINED - 1; i++)
        assert_false(is_named(f, i));
}

TEST_F(s3_whose_stream_is_newer_than_a_notice_hears_it_then, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    const struct member_report report = {.member = f->m[1], .secret = secret_of(f->m[1])};
    lease(f, 0, 1, replies);
    assert_int_equal(coordinator_member_hello(f->c.coordinator, f->c.now_ms, &report), ERR_OK);
    look(&f->c);
    assert_true(hears(f, 1, replies[1].ticket.attempt));
}

/* ---- calls that come again ---- */

TEST_F(a_place_that_was_given_up_is_not_given_up_again, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    done(f, 1, &replies[1], ERR_BUSY);
    ask(f, 1);
    const struct acquire_reply again = answer(&f->c, f->m[1]);
    assert_int_equal(again.ticket.attempt, replies[1].ticket.attempt);
    done(f, 1, &replies[1], ERR_BUSY); /* once more */
    assert_int_equal(seat_of(f, &again, f->m[1]).try_number, again.place.try_number);
    done(f, 0, &replies[0], ERR_OK);
    done(f, 1, &again, ERR_OK);
    assert_true(hears(f, 0, again.ticket.attempt)); /* the lease is over */
}

/* ---- what was not pushed ---- */

TEST_F(who_completes_a_place_twice_without_its_pushes_is_expelled, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    for (uint32_t turn = 1; turn <= 2; turn++) {
        lease(f, 0, 1, replies);
        assert_int_equal(replies[0].ticket.node.index, 0);
        done(f, 0, &replies[0], ERR_OK);
        done(f, 1, &replies[1], ERR_OK);
        wait_a_lease(f);
        assert_int_equal(say_lack(f, (struct lack){.part = 1}),
                         ERR_OK); /* b's part of the chunk that both push */
        assert_true((seen(&f->c, EFFECT_EXPEL) != NULL) == (turn == 2));
    }
    assert_int_equal(seen(&f->c, EFFECT_EXPEL)->member, f->m[1]);
    assert_int_equal(status(&f->c).member_count, JOINED - 1);
}

/* Everybody computes what servers have no room for before they have the slot that nobody takes. */
TEST_F(s5_a_lease_that_servers_have_no_room_for_is_given_up_for_an_older_slot, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES], younger[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    lease(f, 2, 3, younger);
    done(f, 2, &younger[0], ERR_BUSY);
    ask(f, 2);
    assert_int_equal(answer(&f->c, f->m[2]).ticket.attempt, younger[0].ticket.attempt);
    wait_a_lease(f); /* so that a slot is known to take long */
    done(f, 0, &replies[0], ERR_OK);
    done(f, 1, &replies[1], ERR_OK);
    lease(f, 0, 1, replies);
    assert_int_equal(replies[0].ticket.node.index, 2);
    wait_a_lease(f);
    assert_int_equal(say_lack(f, (struct lack){.part = 1}), ERR_OK);
    done(f, 3, &younger[1], ERR_BUSY);
    assert_true(hears(f, 2, younger[0].ticket.attempt));
    assert_false(has_lease(f, 2, &attempt));
    lease(f, 2, 3, younger);
    assert_int_equal(younger[0].ticket.node.index, 0);
}

/* chimera: both places push the chunk, each of another half of the node. */
TEST_F(whose_half_was_not_pushed_is_known, places, .c.steps = 4, .c.halves = true)
{
    struct acquire_reply replies[PLACES];
    for (uint32_t turn = 1; turn <= 2; turn++) {
        lease(f, 0, 1, replies);
        done(f, 1, &replies[1], ERR_OK);
        done(f, 0, &replies[0], ERR_OK);
        wait_a_lease(f);
        assert_int_equal(say_lack(f, (struct lack){.slot = 1}), ERR_OK);
    }
    assert_int_equal(seen(&f->c, EFFECT_EXPEL)->member, f->m[1]);
}

TEST_F(who_has_no_place_may_name_any_lease, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    name(f, &replies[0], 2, 1);
    assert_true(
        places_now(f, replies[0].ticket.attempt, (struct peer[WIRE_PLACES_MAX]){0}).peer_count ==
        PLACES);
}

/* S9: each has a place of as many leases as a member may hold. */
TEST_F(s9_more_leases_than_members_are_shared, coordinator, .plan = 64)
{
    enum { CROWD = 1100, ROUNDS = 8 };
    static uint64_t members[CROWD];
    f->run.slots = 1024;
    f->run.seal.schedule.step_samples = 2048;
    f->run.delay = ROUNDS - 1;
    f->run.place_count = 2;
    f->run.places = stages;
    f->run.place_leases = ROUNDS;
    f->run.node_slots = 1;
    start(f, &f->run);
    for (uint32_t i = 0; i < CROWD; i++) {
        char text[32];
        snprintf(text, sizeof text, "w%u", i);
        members[i] = join_reached(f, text);
    }
    for (uint64_t sequence = 1; sequence <= ROUNDS; sequence++)
        for (uint32_t i = 0; i < CROWD; i++)
            assert_int_equal(acquire(f, members[i], sequence, 100000), ERR_OK);
    struct coordinator_seat seat;
    uint32_t seats = 0;
    while (coordinator_seat(f->coordinator, seats, &seat))
        seats += PLACES;
    assert_int_equal(seats, CROWD * ROUNDS);
}

TEST_F(the_last_place_brings_what_a_piece_is_worth, places, .c.steps = 2, .c.validated = true)
{
    struct acquire_reply replies[PLACES];
    for (uint32_t i = 0; i < 2; i++)
        step(&f->c, i);
    record_all(&f->c, 2);
    for (uint32_t piece = 0; piece < 3; piece++) {
        lease(f, 0, 1, replies);
        assert_int_equal(replies[0].ticket.kind, TICKET_VALIDATE);
        done(f, 1, &replies[1], ERR_OK);
        assert_null(seen(&f->c, EFFECT_VALIDATION));
        done(f, 0, &replies[0], ERR_OK);
    }
    assert_int_equal(seen(&f->c, EFFECT_VALIDATION)->validation.samples, 5);
}

/* The weights of a stage are held already. */
TEST_F(a_member_gets_the_stage_that_it_had, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES], next[PLACES];
    lease(f, 0, 1, replies);
    done(f, 0, &replies[0], ERR_OK);
    done(f, 1, &replies[1], ERR_OK);
    lease(f, 1, 0, next);
    assert_int_equal(next[0].place.stage, 1);
    assert_int_equal(next[1].place.stage, 0);
}

TEST_F(a_newcomer_takes_no_stage_from_who_holds_it, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES], next[PLACES];
    lease(f, 0, 1, replies);
    done(f, 0, &replies[0], ERR_OK);
    done(f, 1, &replies[1], ERR_OK);
    lease(f, 1, 2, next);
    assert_int_equal(next[0].place.stage, 1);
    assert_int_equal(next[1].place.stage, 0);
}

TEST_F(who_is_not_reached_by_others_gets_no_place, places, .c.steps = 4)
{
    uint64_t hidden = join_named(&f->c, "hidden");
    for (uint32_t i = 1; i < JOINED; i++)
        lose(f, i);
    ask(f, 0);
    assert_int_equal(acquire(&f->c, hidden, 1, ASK_MS), ERR_OK);
    assert_false(is_answered(f, 0));
    assert_string_equal(status(&f->c).reason,
                        "2 stages need as many workers that others reach; there is 1");
}

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

/* ---- what people see ---- */

static struct coordinator_seat seat_at(const struct places_fixture *f, uint32_t i)
{
    struct coordinator_seat seat;
    assert_true(coordinator_seat(f->c.coordinator, i, &seat));
    return seat;
}

TEST_F(the_status_has_the_places_of_open_leases, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    struct coordinator_seat seat;
    assert_false(coordinator_seat(f->c.coordinator, 0, &seat));
    lease(f, 0, 1, replies);
    uint64_t begun_ms = f->c.now_ms;
    f->c.now_ms += 5;
    lose(f, 1);
    seat = seat_at(f, 1);
    assert_true(seat.member == 0 && seat.name[0] == 0 && seat.tries == 2);
    assert_int_equal(seat.since_ms, begun_ms + 5);
    f->c.now_ms += 5;
    ask(f, 2);
    done(f, 0, &replies[0], ERR_OK);
    seat = seat_at(f, 0);
    assert_true(seat.done && !seat.copy && seat.stage == 0 && seat.slots == 1);
    assert_int_equal(seat.since_ms, begun_ms);
    seat = seat_at(f, 1);
    assert_int_equal(seat.member, f->m[2]);
    assert_string_equal(seat.name, "c");
    assert_true(!seat.done && seat.tries == 2 && seat.stage == 1);
    assert_int_equal(seat.since_ms, begun_ms + 10);
    assert_false(coordinator_seat(f->c.coordinator, PLACES, &seat));
}

TEST_F(the_status_has_who_did_not_reach_whom_while_both_are_there, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    struct coordinator_pair pair;
    lease(f, 0, 1, replies);
    assert_false(coordinator_pair(f->c.coordinator, 0, &pair));
    fail_twice(f, replies, 1, 0);
    assert_true(coordinator_pair(f->c.coordinator, 0, &pair));
    assert_string_equal(pair.worker, "a");
    assert_string_equal(pair.other, "b");
    assert_true(pair.times == 2 && pair.apart);
    lose(f, 1);
    assert_false(coordinator_pair(f->c.coordinator, 0, &pair));
}

static const char *newest_end(const struct places_fixture *f)
{
    struct coordinator_member member;
    assert_true(coordinator_member(f->c.coordinator, status(&f->c).member_count, &member));
    return member.state;
}

TEST_F(who_is_killed_twice_in_a_place_is_told_from_the_lost, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    lose(f, 2); /* it had no place */
    lose(f, 1);
    assert_string_equal(newest_end(f), "error");
    for (uint32_t i = 1; i <= 2; i++) {
        f->m[i] = join_reached(&f->c, (const char *[]){"a", "b", "c"}[i]);
        f->sequence[i] = 0;
    }
    ask(f, 2);
    lose(f, 2); /* it had, for the first time */
    assert_string_equal(newest_end(f), "error");
    f->m[2] = join_reached(&f->c, "c");
    lose(f, 2); /* it had none */
    assert_string_equal(newest_end(f), "error");
    ask(f, 1);
    lose(f, 1);
    assert_string_equal(newest_end(f), "killed twice");
}

/* Member i, which has a place, is killed, and started again. */
static void kill_and_start(struct places_fixture *f, uint32_t i)
{
    lose(f, i);
    f->m[i] = join_reached(&f->c, (const char *[]){"a", "b", "c", "d", "e"}[i]);
    f->sequence[i] = 0;
    ask(f, i);
}

TEST_F(who_is_killed_twice_in_a_stage_gets_another_one, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    kill_and_start(f, 1);
    assert_int_equal(answer(&f->c, f->m[1]).place.stage, 1);
    kill_and_start(f, 1);
    assert_false(is_answered(f, 1)); /* c could have the place */
    ask(f, 2);
    replies[1] = answer(&f->c, f->m[2]);
    assert_int_equal(replies[1].place.stage, 1);
    done(f, 0, &replies[0], ERR_OK);
    done(f, 2, &replies[1], ERR_OK);
    ask(f, 0);
    assert_int_equal(answer(&f->c, f->m[1]).place.stage, 0);
    assert_int_equal(answer(&f->c, f->m[0]).place.stage, 1);
}

/* On that machine, with that certificate. */
static uint64_t join_on(struct coordinator_fixture *f, const char *name, const char *host,
                        uint64_t certificate)
{
    struct join_request request = join_request();
    snprintf(request.name, sizeof request.name, "%s", name);
    snprintf(request.host, sizeof request.host, "%s", host);
    snprintf(request.address, sizeof request.address, "%s.net:7", name);
    request.certificate = certificate;
    assert_int_equal(ask_to_join(f, &request), ERR_OK);
    return f->joined.member;
}

static bool logs(const struct coordinator_fixture *f, const char *line)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->seen[i].kind == EFFECT_LOG && strstr(f->seen[i].log.text, line) != NULL)
            return true;
    return false;
}

/* Four workers on a machine compute, beside one of another machine; all streams of the first break,
 * and its workers come back. */
static void machine_breaks(struct coordinator_fixture *f, const char *const names[static 4])
{
    struct coordinator_member member;
    uint64_t m[4];
    join_on(f, "other", "m2", 9);
    for (uint32_t i = 0; i < 4; i++)
        m[i] = join_on(f, names[i], "m1", 7);
    f->now_ms++;
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(acquire(f, m[i], 1, ASK_MS), ERR_OK);
    for (uint32_t i = 0; i < 4; i++) {
        coordinator_member_lost(f->coordinator, f->now_ms, m[i], "its stream broke");
        look(f);
        assert_true(coordinator_member(f->coordinator, status(f).member_count, &member));
        assert_string_equal(member.state, "error");
    }
    f->now_ms++;
    for (uint32_t i = 0; i < 4; i++) {
        m[i] = join_on(f, names[i], "m1", 7);
        assert_false(logs(f, "killed twice"));
    }
    for (uint32_t i = 0; i < 4; i += 2) {
        assert_int_equal(acquire(f, m[i], 1, ASK_MS), ERR_OK);
        assert_int_equal(acquire(f, m[i + 1], 1, ASK_MS), ERR_OK);
        assert_int_equal(answer(f, m[i]).result, ACQUIRE_TICKET);
    }
}

TEST_F(a_machine_that_breaks_once_is_too_small_for_nothing, coordinator, .steps = 4, .staged = true)
{
    machine_breaks(f, (const char *const[]){"p", "q", "r", "s"});
}

TEST_F(workers_of_one_name_that_break_together_are_too_small_for_nothing, coordinator, .steps = 4,
       .staged = true)
{
    machine_breaks(f, (const char *const[]){"m1", "m1", "m1", "m1"});
}

TEST_F(who_is_killed_once_in_each_of_two_stages_is_too_small_for_neither, coordinator, .steps = 4,
       .staged = true)
{
    struct coordinator_member member;
    for (uint32_t stage = 0; stage < PLACES; stage++) {
        uint64_t first = join_on(f, stage == 0 ? "a" : "b", "m1", 7);
        uint64_t second = join_on(f, stage == 0 ? "b" : "a", "m1", 7);
        uint64_t a = stage == 0 ? first : second, b = stage == 0 ? second : first;
        assert_int_equal(acquire(f, first, 1, ASK_MS), ERR_OK);
        assert_int_equal(acquire(f, second, 1, ASK_MS), ERR_OK);
        assert_int_equal(answer(f, a).place.stage, stage);
        coordinator_member_lost(f->coordinator, f->now_ms, a, "its stream broke");
        look(f);
        assert_true(coordinator_member(f->coordinator, 1, &member));
        assert_string_equal(member.state, "error");
        assert_int_equal(leave(f, b, "enough"), ERR_OK);
        look(f);
    }
}

/* Else an operator sees workers that wait, and free slots. */
TEST_F(the_log_says_who_gets_no_place_where_it_was_killed_twice, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    kill_and_start(f, 1);
    lose(f, 1);
    f->m[1] = join_reached(&f->c, "b");
    assert_true(logs(&f->c, "worker was killed twice in a stage  worker=b"));
    assert_true(logs(&f->c, " stages=1 next=give it no place there"));
}

TEST_F(a_lease_that_only_who_is_too_small_could_fill_is_leased_anew, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempt;
    lease(f, 0, 1, replies);
    for (uint32_t i = 2; i < JOINED; i++)
        lose(f, i);
    kill_and_start(f, 1);
    assert_true(is_answered(f, 1));
    kill_and_start(f, 1);
    assert_false(is_answered(f, 1));
    assert_false(has_lease(f, 0, &attempt));
    ask(f, 0);
    assert_int_equal(answer(&f->c, f->m[1]).place.stage, 0);
    assert_int_equal(answer(&f->c, f->m[0]).place.stage, 1);
    kill_and_start(f, 0);
    assert_true(is_answered(f, 0));
    kill_and_start(f, 0); /* nobody is left for the stage: what happened is forgotten */
    assert_true(is_answered(f, 0));
    assert_int_equal(answer(&f->c, f->m[0]).place.stage, 1);
}

TEST_F(who_is_too_small_for_a_place_is_told_from_the_lost, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    assert_int_equal(leave(&f->c, f->m[1], "too small: place 1: the run needs 5 bytes"), ERR_OK);
    look(&f->c);
    assert_string_equal(newest_end(f), "too small");
    assert_int_equal(status(&f->c).members_lost, 1);
}

/* Of wire version 2, which knows of no address. */
static uint64_t join_older(struct coordinator_fixture *f)
{
    struct join_request request = join_request();
    request.wire_version = 2;
    snprintf(request.name, sizeof request.name, "older");
    assert_int_equal(ask_to_join(f, &request), ERR_OK);
    return f->joined.member;
}

TEST_F(a_worker_of_wire_version_2_has_whole_tickets_where_there_is_one_place, coordinator,
       .steps = 2)
{
    uint64_t older = join_older(f), sequence = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        assert_int_equal(acquire(f, older, ++sequence, ASK_MS), ERR_OK);
        const struct acquire_reply reply = answer(f, older);
        assert_int_equal(reply.result, ACQUIRE_TICKET);
        assert_int_equal(node_first(reply.ticket.node), slot);
        assert_int_equal(reply.place.stages, 0);
        assert_int_equal(reply.places.peer_count, 0);
        assert_int_equal(complete(f, older, reply.ticket, ERR_OK), ERR_OK);
    }
}

TEST_F(a_worker_of_wire_version_2_has_no_place_among_several, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    uint64_t attempts[WIRE_LEASES_MAX], older = join_older(&f->c);
    assert_int_equal(acquire(&f->c, older, 1, ASK_MS), ERR_OK);
    lease(f, 0, 1, replies);
    for (uint32_t i = 1; i < JOINED; i++)
        lose(f, i);
    assert_int_equal(coordinator_leases(f->c.coordinator, older, attempts), 0);
    assert_string_equal(status(&f->c).reason,
                        "2 stages need as many workers that others reach; there is 1");
}
