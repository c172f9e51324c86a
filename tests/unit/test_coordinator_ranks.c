/* The coordinator: leases whose places have several members (S6). */
#include "tests/unit/places_fixture.h"

enum { RANKS = 2, SEATS = PLACES * RANKS };

/* Four ask, a first, and share a lease: seat i is theirs in that order. */
static void share(struct places_fixture *f, struct acquire_reply ret_replies[static SEATS])
{
    for (uint32_t i = 0; i < SEATS; i++)
        ask(f, i);
    for (uint32_t i = 0; i < SEATS; i++) {
        ret_replies[i] = answer(&f->c, f->m[i]);
        assert_int_equal(ret_replies[i].ticket.attempt, ret_replies[0].ticket.attempt);
    }
}

static bool sits(const struct places_fixture *f, uint32_t i, uint64_t attempt)
{
    struct peer peers[WIRE_PLACES_MAX];
    struct places places;
    coordinator_places(f->c.coordinator, attempt, f->m[i], peers, &places);
    return places.peer_count > 0;
}

TEST_F(s6_a_place_has_a_member_for_each_rank, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    struct peer peers[WIRE_PLACES_MAX];
    for (uint32_t i = 0; i + 1 < SEATS; i++)
        ask(f, i);
    assert_false(is_answered(f, 0)); /* S1 */
    ask(f, SEATS - 1);
    for (uint32_t i = 0; i < SEATS; i++) {
        replies[i] = answer(&f->c, f->m[i]);
        assert_int_equal(replies[i].place.stages, PLACES);
        assert_int_equal(replies[i].place.ranks, RANKS);
        assert_int_equal(replies[i].place.stage, i / RANKS);
        assert_int_equal(replies[i].place.rank, i % RANKS);
        assert_int_equal(replies[i].place.try_number, 1 + i / RANKS);
        assert_true(ticket_names(&replies[i].ticket, i / RANKS, 0));
    }
    struct places places = places_now(f, replies[0].ticket.attempt, peers);
    assert_int_equal(places.peer_count, SEATS);
    assert_true(peers[3].stage == 1 && peers[3].rank == 1 && peers[3].member == f->m[3]);
    for (uint32_t i = SEATS; i-- > 0;) {
        assert_true(sits(f, 0, replies[0].ticket.attempt));
        done(f, i, &replies[i], ERR_OK);
    }
    assert_false(sits(f, 0, replies[0].ticket.attempt));
}

TEST_F(s6_a_loss_ends_the_whole_place_and_gives_a_new_try, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    share(f, replies);
    uint64_t attempt = replies[0].ticket.attempt;
    done(f, 0, &replies[0], ERR_OK);
    lose(f, 1);
    assert_true(hears(f, 0, attempt) &&
                !sits(f, 0, attempt)); /* over for it, although it was done */
    assert_true(hears(f, 2, attempt) && sits(f, 2, attempt));
    ask(f, 0);
    const struct acquire_reply again = answer(&f->c, f->m[0]);
    ask(f, 4);
    const struct acquire_reply other = answer(&f->c, f->m[4]);
    assert_true(again.ticket.attempt == attempt && other.ticket.attempt == attempt);
    assert_true(again.place.stage == 0 && again.place.rank == 0 &&
                again.place.try_number == PLACES + 1);
    assert_true(other.place.stage == 0 && other.place.rank == 1 &&
                other.place.try_number == PLACES + 1);
    done(f, 0, &replies[0], ERR_OK); /* of the try before: it changes nothing */
    done(f, 2, &replies[2], ERR_OK);
    done(f, 3, &replies[3], ERR_OK);
    done(f, 4, &other, ERR_OK);
    assert_true(sits(f, 4, attempt));
    done(f, 0, &again, ERR_OK);
    assert_false(sits(f, 4, attempt));
}

/* Also while the place waits for a member. */
TEST_F(s6_each_loss_gives_a_new_try, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    share(f, replies);
    lose(f, 4);
    lose(f, 1);
    ask(f, 0);
    assert_int_equal(answer(&f->c, f->m[0]).place.try_number, PLACES + 1);
    lose(f, 0);
    f->m[0] = join_reached(&f->c, "f");
    f->m[1] = join_reached(&f->c, "g");
    f->sequence[0] = f->sequence[1] = 0;
    ask(f, 0);
    assert_int_equal(answer(&f->c, f->m[0]).place.try_number, PLACES + 2);
    ask(f, 1);
    assert_int_equal(answer(&f->c, f->m[1]).place.try_number, PLACES + 2);
    assert_true(sits(f, 2, replies[0].ticket.attempt)); /* of the other place, which goes on */
    assert_int_equal(answer(&f->c, f->m[1]).ticket.attempt, replies[0].ticket.attempt);
}

/* A member that had a seat of one place, and has one of another now, be it of another lease of the
 * same node, has no sums to give there that it made in the first. */
TEST_F(s6_no_two_tries_have_one_number, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply first[SEATS], then[SEATS];
    share(f, first);
    done(f, 0, &first[0], ERR_BUSY);
    ask(f, 0);
    const struct acquire_reply again = answer(&f->c, f->m[0]);
    assert_int_equal(again.ticket.attempt, first[0].ticket.attempt);
    assert_true(again.place.stage == 0 && again.place.try_number > first[2].place.try_number);
    done(f, 2, &first[2], ERR_BUSY);
    done(f, 0, &again, ERR_BUSY); /* the lease is over */
    share(f, then);
    assert_true(then[0].ticket.attempt != first[0].ticket.attempt);
    assert_true(node_equal(then[0].ticket.node, first[0].ticket.node));
    assert_true(then[0].place.try_number > again.place.try_number + 1);
    assert_true(then[2].place.try_number > then[0].place.try_number);
}

TEST_F(s6_who_gives_its_seat_up_ends_the_place, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    share(f, replies);
    done(f, 3, &replies[3], ERR_BUSY);
    assert_false(sits(f, 2, replies[0].ticket.attempt));
    assert_true(sits(f, 0, replies[0].ticket.attempt));
}

/* As often as it needs its lane for an older lease (S9): its place has a new try each time, and
 * nothing is held against anybody. */
TEST_F(s6_who_gives_its_seat_up_may_have_it_again, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    struct coordinator_pair pair;
    share(f, replies);
    for (uint32_t turn = 1; turn <= 3; turn++) {
        done(f, 3, &replies[3], ERR_CANCELLED);
        assert_true(hears(f, 2, replies[0].ticket.attempt));
        ask(f, 2);
        replies[2] = answer(&f->c, f->m[2]);
        ask(f, 3);
        replies[3] = answer(&f->c, f->m[3]);
        for (uint32_t i = 2; i < SEATS; i++) {
            assert_int_equal(replies[i].ticket.attempt, replies[0].ticket.attempt);
            assert_int_equal(replies[i].place.stage, 1);
            assert_int_equal(replies[i].place.try_number, PLACES + turn);
        }
    }
    assert_false(coordinator_pair(f->c.coordinator, 0, &pair));
    assert_false(is_named(f, 2) || is_named(f, 3));
    assert_true(sits(f, 0, replies[0].ticket.attempt)); /* of the other place, which goes on */
}

TEST_F(s7_members_of_a_place_that_failed_twice_do_not_share_one, places, .c.steps = 4,
       .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    share(f, replies);
    for (uint32_t turn = 0; turn < 2; turn++) {
        wait_in_vain(f, replies, 1, 0);
        ask(f, 0);
        ask(f, 1);
        assert_int_equal(is_answered(f, 1), turn == 0);
    }
    ask(f, 4);
    assert_int_equal(answer(&f->c, f->m[4]).place.rank, 1);
}

/* Four alone: the two have other stages, and other ranks there. */
TEST_F(s7_members_of_a_place_that_failed_twice_are_seated_in_another_order, places, .c.steps = 4,
       .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    lose(f, 4);
    share(f, replies);
    uint64_t attempt = replies[0].ticket.attempt;
    wait_in_vain(f, replies, 1, 0);
    ask(f, 0);
    ask(f, 1);
    wait_in_vain(f, replies, 1, 0);
    ask(f, 0);
    assert_true(is_answered(f, 0));
    ask(f, 1);
    for (uint32_t i = 0; i < SEATS; i++)
        assert_false(sits(f, i, attempt)); /* it is given up */
    ask(f, 0);
    ask(f, 2);
    ask(f, 3);
    const struct place a = answer(&f->c, f->m[0]).place, b = answer(&f->c, f->m[1]).place;
    assert_true(a.stage != b.stage && a.rank != b.rank);
}

TEST_F(who_did_not_push_is_told_by_the_chunks_rank, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    for (uint32_t turn = 1; turn <= 2; turn++) {
        share(f, replies);
        for (uint32_t i = 0; i < SEATS; i++)
            done(f, i, &replies[i], ERR_OK);
        wait_a_lease(f);
        assert_int_equal(say_lack(f, (struct lack){.chunk = 1}), ERR_OK);
        assert_true((seen(&f->c, EFFECT_EXPEL) != NULL) == (turn == 2));
    }
    assert_int_equal(seen(&f->c, EFFECT_EXPEL)->member, f->m[3]); /* rank 1 of the second place */
}

TEST_F(nobody_lacks_a_chunk_that_the_run_has_not, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    share(f, replies);
    for (uint32_t i = 0; i < SEATS; i++)
        done(f, i, &replies[i], ERR_OK);
    wait_a_lease(f);
    assert_int_equal(say_lack(f, (struct lack){.chunk = SERVERS}), ERR_MALFORMED);
    assert_null(seen(&f->c, EFFECT_LOG));
}

/* What one gives depends on what the others of its place gave. */
TEST_F(nobody_is_named_for_wrong_bits, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    share(f, replies);
    pushes_differ(f, &replies[0], 0, 4);
    for (uint32_t i = 0; i < JOINED; i++)
        assert_false(is_named(f, i));
}

TEST_F(whom_the_run_waits_for_is_said, places, .c.steps = 4, .c.ranks = RANKS)
{
    for (uint32_t i = 2; i < JOINED; i++)
        lose(f, i);
    assert_string_equal(status(&f->c).reason,
                        "2 stages of 2 workers each need 4 that others reach; there are 2");
}

/* Time goes by; members live, and hold what they hold. What was logged of a run that stands still. */
static const char *wait_alive(struct places_fixture *f, uint64_t ms)
{
    static char text[256];
    text[0] = 0;
    for (uint64_t at = 0; at < ms; at += LEASE_MS / 4) {
        for (uint32_t i = 0; i < JOINED; i++)
            ignore(coordinator_heartbeat(f->c.coordinator, f->c.now_ms, f->m[i])); /* or is lost */
        tick(&f->c, LEASE_MS / 4);
        const struct effect *log = seen(&f->c, EFFECT_LOG);
        if (log != NULL && strstr(log->log.text, "run stands still") != NULL)
            snprintf(text, sizeof text, "%s", log->log.text);
    }
    return text;
}

TEST_F(a_run_that_lacks_members_says_so_when_it_stands_still, places, .c.steps = 4,
       .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    share(f, replies);
    lose(f, 4);
    lose(f, 3);
    assert_non_null(strstr(wait_alive(f, 11 * LEASE_MS),
                           ": 2 stages of 2 workers each need 4 that others reach; there are 3"));
}

TEST_F(a_seat_that_nobody_takes_is_named_before_who_computes, places, .c.steps = 4,
       .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    step(&f->c, 0);
    share(f, replies);
    lose(f, 3);
    wait_alive(f, 3 * LEASE_MS);
    assert_string_equal(status(&f->c).reason, "step 1 is not done after 3 s: stage 1, which lacks "
                                              "2 of 2 workers, has had slot 0 for 3 s");
}

TEST_F(who_has_a_rank_since_when_is_named, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    step(&f->c, 0);
    share(f, replies);
    done(f, 0, &replies[0], ERR_OK);
    wait_alive(f, 2 * LEASE_MS);
    lose(f, 3);
    ask(f, 4);
    ask(f, 2); /* the lease is granted anew, while b keeps its seat */
    wait_alive(f, LEASE_MS);
    assert_string_equal(status(&f->c).reason, "step 1 is not done after 3 s: worker b (stage 0, "
                                              "rank 1) has had slot 0 for 3 s");
}

/* Two alone, who have been tried again. */
TEST_F(two_that_do_not_reach_each_other_are_named_when_there_is_nobody_else, places, .c.steps = 4)
{
    struct acquire_reply replies[PLACES];
    struct coordinator_pair pair;
    step(&f->c, 0);
    lease(f, 0, 1, replies);
    for (uint32_t i = 2; i < JOINED; i++)
        lose(f, i);
    fail_twice(f, replies, 1, 0);
    assert_true(is_answered(f, 1));
    assert_true(coordinator_pair(f->c.coordinator, 0, &pair));
    assert_true(pair.times == 0 && !pair.apart);
    wait_alive(f, 3 * LEASE_MS);
    assert_string_equal(status(&f->c).reason,
                        "step 1 is not done after 3 s: workers a and b do not reach each other");
}

/* ---- what members say that they computed ---- */

/* Also that its place gave a value with that digest to the other one; 0: that it does not say. */
static void say(struct places_fixture *f, uint32_t i, const struct acquire_reply *reply,
                uint64_t replicated, uint64_t given)
{
    const struct boundary_sum sum = {.boundary = 1,
                                     .way =
                                         reply->place.stage == 0 ? VALUE_FORWARD : VALUE_BACKWARD,
                                     .given = true,
                                     .stage = 1 - reply->place.stage,
                                     .sum = given};
    const struct complete_request request = {.member = f->m[i],
                                             .secret = secret_of(f->m[i]),
                                             .ticket = reply->ticket,
                                             .place = reply->place,
                                             .boundary_count = given != 0 ? 1 : 0,
                                             .boundaries = &sum,
                                             .replicated = replicated};
    assert_int_equal(say_complete(&f->c, &request), ERR_OK);
}

TEST_F(s6_members_whose_replicated_gradients_differ_are_both_named, places, .c.steps = 4,
       .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    share(f, replies);
    say(f, 0, &replies[0], 7, 0);
    say(f, 2, &replies[2], 9, 0); /* of another place */
    say(f, 3, &replies[3], 9, 0);
    assert_false(is_named(f, 0) || is_named(f, 2) || is_named(f, 3));
    say(f, 1, &replies[1], 8, 0);
    assert_true(is_contradicted(f, 0, "b") && is_contradicted(f, 1, "a"));
    assert_false(is_named(f, 2) || is_named(f, 3));
}

TEST_F(s6_members_that_give_other_values_are_both_named, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    share(f, replies);
    say(f, 0, &replies[0], 7, 100);
    say(f, 1, &replies[1], 7, 101);
    assert_true(is_contradicted(f, 0, "b") && is_contradicted(f, 1, "a"));
}

/* Values in pieces are another for each rank; what all have is compared all the same. */
TEST_F(s6_members_that_give_pieces_give_others, places, .c.steps = 4, .c.ranks = RANKS,
       .c.pieces_pass = true)
{
    struct acquire_reply replies[SEATS];
    share(f, replies);
    say(f, 0, &replies[0], 7, 100);
    say(f, 1, &replies[1], 7, 101);
    assert_false(is_named(f, 0) || is_named(f, 1));
    say(f, 2, &replies[2], 8, 0);
    say(f, 3, &replies[3], 9, 0);
    assert_true(is_contradicted(f, 2, "d") && is_contradicted(f, 3, "c"));
}

TEST_F(s6_who_says_nothing_is_compared_with_nobody, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    share(f, replies);
    say(f, 0, &replies[0], 7, 100);
    say(f, 1, &replies[1], 0, 0);
    assert_false(is_named(f, 0) || is_named(f, 1));
}

/* The sums of parts of another try are others when one of its members computed wrongly. */
TEST_F(s6_members_of_two_tries_are_not_compared, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    share(f, replies);
    say(f, 0, &replies[0], 7, 0);
    lose(f, 1);
    ask(f, 0);
    const struct acquire_reply again = answer(&f->c, f->m[0]);
    ask(f, 4);
    const struct acquire_reply other = answer(&f->c, f->m[4]);
    say(f, 4, &other, 8, 0);
    say(f, 0, &again, 8, 0);
    for (uint32_t i = 0; i + 1 < JOINED; i++)
        assert_false(is_named(f, i)); /* of those that are there */
}

TEST_F(s6_who_differs_from_two_is_expelled, places, .c.steps = 4, .c.ranks = RANKS)
{
    struct acquire_reply replies[SEATS];
    share(f, replies);
    say(f, 0, &replies[0], 7, 0);
    say(f, 1, &replies[1], 8, 0);
    lose(f, 1);
    ask(f, 0);
    const struct acquire_reply again = answer(&f->c, f->m[0]);
    ask(f, 4);
    const struct acquire_reply other = answer(&f->c, f->m[4]);
    say(f, 4, &other, 8, 0);
    say(f, 0, &again, 7, 0);
    assert_int_equal(seen(&f->c, EFFECT_EXPEL)->member, f->m[0]);
    const struct server_command *ended = command(&f->c, 0, SERVER_ENDED); /* at once */
    assert_non_null(ended);
    assert_int_equal(ended->ended.members[ended->ended.member_count - 1], f->m[0]);
}
