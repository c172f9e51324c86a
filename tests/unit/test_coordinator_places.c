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

TEST_F(s3_whose_stream_is_newer_than_a_notice_hears_it_then, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    const struct member_report report = {.member = f->m[1], .secret = secret_of(f->m[1])};
    lease(f, 0, 1, replies);
    assert_int_equal(coordinator_member_hello(f->c.coordinator, f->c.now_ms, &report), ERR_OK);
    look(&f->c);
    assert_true(hears(f, 1, replies[1].ticket.attempt));
}

TEST_F(a_faster_copy_ends_the_first_lease, places, .c.steps = 4, .c.whole_steps = true)
{
    struct acquire_reply first[PLACES], copy[PLACES];
    uint64_t attempt;
    lease_copy(f, first, copy);
    done(f, 2, &copy[0], ERR_OK);
    done(f, 3, &copy[1], ERR_OK);
    assert_true(hears(f, 0, first[0].ticket.attempt) && hears(f, 1, first[0].ticket.attempt));
    assert_false(has_lease(f, 0, &attempt));
}

TEST_F(a_first_lease_that_is_over_ends_its_copy, places, .c.steps = 4, .c.whole_steps = true)
{
    struct acquire_reply first[PLACES], copy[PLACES];
    uint64_t attempt;
    lease_copy(f, first, copy);
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

/* The other place of the lease is not done: servers have no room for what it pushes. */
TEST_F(a_place_that_was_completed_without_its_pushes_is_filled_again, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    const struct lack of_b = {.part = 1};
    lease(f, 0, 1, replies);
    done(f, 1, &replies[1], ERR_OK);
    ask(f, 2);
    wait_a_lease(f);
    uint64_t question = asked_for(f);
    assert_int_equal(answer_lack(f, question + 1000, of_b), ERR_OK); /* nobody asked that */
    assert_false(hears(f, 1, replies[1].ticket.attempt));
    assert_int_equal(answer_lack(f, question, of_b), ERR_OK);
    assert_true(hears(f, 1, replies[1].ticket.attempt));
    struct acquire_reply again = answer(&f->c, f->m[2]);
    assert_int_equal(again.ticket.attempt, replies[1].ticket.attempt);
    assert_int_equal(again.place.stage, 1);
    done(f, 2, &again, ERR_OK); /* after the question */
    assert_int_equal(answer_lack(f, question, of_b), ERR_OK);
    assert_false(hears(f, 2, again.ticket.attempt));
    wait_a_lease(f);
    assert_int_equal(say_lack(f, (struct lack){.part = 0}),
                     ERR_OK); /* a's part, which is not done */
    assert_false(hears(f, 0, again.ticket.attempt));
    assert_false(hears(f, 2, again.ticket.attempt));
}

/* Though no lease is done. */
TEST_F(who_completes_two_places_without_their_pushes_is_expelled, places, .c.steps = 4,
       .c.leases = 2)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease(f, 0, 1, first);
    lease(f, 0, 1, second);
    done(f, 1, &first[1], ERR_OK);
    done(f, 1, &second[1], ERR_OK);
    wait_a_lease(f);
    uint64_t question = asked_for(f);
    for (uint32_t i = 0; i < 2; i++) {
        const struct acquire_reply *reply = i == 0 ? &first[1] : &second[1];
        const struct lack lack = {.slot = reply->ticket.node.index, .part = 1};
        assert_int_equal(answer_lack(f, question, lack), ERR_OK);
        assert_true((seen(&f->c, EFFECT_EXPEL) != NULL) == (i == 1));
    }
    assert_int_equal(seen(&f->c, EFFECT_EXPEL)->member, f->m[1]);
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

TEST_F(who_has_the_last_place_is_named_for_a_validation_that_is_not_finite, places, .c.steps = 1,
       .c.validated = true)
{
    struct acquire_reply replies[PLACES];
    step(&f->c, 0);
    record_all(&f->c, 1);
    lease(f, 0, 1, replies);
    struct complete_request request = {.member = f->m[1],
                                       .secret = secret_of(f->m[1]),
                                       .ticket = replies[1].ticket,
                                       .loss_sum = NAN,
                                       .sample_count = 2,
                                       .place = replies[1].place};
    assert_int_equal(say_complete(&f->c, &request), ERR_OK);
    done(f, 0, &replies[0], ERR_OK);
    assert_non_null(
        strstr(seen(&f->c, EFFECT_LOG)->log.text, "validation not finite  worker=b version=1"));
}

/* The numbers of another stage and rank lead to the same seat: what the last place brings would be
 * judged as another's, which brings nothing. */
TEST_F(a_complete_of_a_place_that_the_run_does_not_have_is_refused, places, .c.steps = 2,
       .c.validated = true)
{
    struct acquire_reply replies[PLACES];
    for (uint32_t i = 0; i < 2; i++)
        step(&f->c, i);
    record_all(&f->c, 2);
    lease(f, 0, 1, replies);
    assert_int_equal(replies[1].place.stage, PLACES - 1);
    struct complete_request request = {.member = f->m[1],
                                       .secret = secret_of(f->m[1]),
                                       .ticket = replies[1].ticket,
                                       .loss_sum = -1,
                                       .sample_count = UINT64_MAX,
                                       .place = replies[1].place};
    assert_int_equal(say_complete(&f->c, &request), ERR_MALFORMED);
    request.place.stage = PLACES - 2;
    request.place.rank = 1;
    assert_int_equal(say_complete(&f->c, &request), ERR_MALFORMED);
    request.place = (struct place){.stage = PLACES, .try_number = replies[1].place.try_number};
    assert_int_equal(say_complete(&f->c, &request), ERR_MALFORMED);
    done(f, 0, &replies[0], ERR_OK);
    done(f, 1, &replies[1], ERR_OK); /* its seat was not done */
    assert_int_equal(status(&f->c).state, RUN_TRAINING);
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

/* ---- what people see ---- */

TEST_F(a_step_that_is_not_finite_names_who_had_its_places, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    lease(f, 0, 1, replies);
    done(f, 1, &replies[1], ERR_OK);
    assert_int_equal(say_reduced(&f->c, 0, 0, NAN), ERR_OK);
    assert_int_equal(say_reduced(&f->c, 1, 0, 1), ERR_OK);
    assert_non_null(strstr(seen(&f->c, EFFECT_LOG)->log.text, "brought_by=a,b "));
}

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
