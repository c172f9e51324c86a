/* The coordinator: what places said of the values that passed there (S2), and second leases that are
 * audits. */
#include "tests/unit/places_fixture.h"

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

/* ---- chimera: a push sums half of the lease's node ---- */

#define HALVES .c.steps = 9, .c.halves = true, .c.audit = 1

/* A server holds the sums of `first` for that half of the node, and others came from `second`. */
static void halves_differ(struct places_fixture *f, struct node half, uint32_t first,
                          uint32_t second)
{
    struct server_report wrong = {.kind = SERVER_WRONG_BITS};
    wrong.wrong_bits.member = f->m[second];
    wrong.wrong_bits.first_member = f->m[first];
    wrong.wrong_bits.node = half;
    wrong.wrong_bits.chunk = 1; /* of b and d in the left half, of a and c in the right one */
    assert_int_equal(report(&f->c, 0, wrong), ERR_OK);
}

TEST_F(who_pushes_another_left_half_of_equal_inputs_is_named, places, HALVES)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease_both(f, first, second);
    says(f, 1, &first[1], 7, 8);
    says(f, 3, &second[1], 7, 8);
    halves_differ(f, (struct node){0, 0}, 1, 3);
    assert_true(is_contradicted(f, 1, "d") && is_contradicted(f, 3, "b"));
}

TEST_F(halves_that_differ_wait_for_what_their_places_say, places, HALVES)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease_both(f, first, second);
    halves_differ(f, (struct node){0, 1}, 0, 2);
    says(f, 0, &first[0], 7, 8);
    says(f, 2, &second[0], 7, 8);
    assert_true(is_contradicted(f, 0, "c") && is_contradicted(f, 2, "a"));
}

/* Chunk 1 is not what a and c push for the left half. */
TEST_F(who_does_not_push_a_half_of_the_chunk_is_not_named, places, HALVES)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease_both(f, first, second);
    says(f, 0, &first[0], 7, 8);
    says(f, 2, &second[0], 7, 8);
    halves_differ(f, (struct node){0, 0}, 0, 2);
    assert_false(is_named(f, 0) || is_named(f, 2));
}

TEST_F(an_audit_whose_halves_differ_has_not_agreed, places, HALVES)
{
    struct acquire_reply first[PLACES], second[PLACES];
    lease_both(f, first, second);
    says(f, 0, &first[0], 8, 7);
    says(f, 1, &first[1], 7, 8);
    says(f, 2, &second[0], 8, 7);
    says(f, 3, &second[1], 7, 8);
    halves_differ(f, (struct node){0, 1}, 0, 2);
    for (uint64_t i = 0; i < 3; i++)
        step(&f->c, i);
    assert_int_equal(status(&f->c).audits.differed, 1);
}
