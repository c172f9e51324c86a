/* The coordinator: members that are killed in a stage, or are too small for it. */
#include "tests/unit/places_fixture.h"

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
