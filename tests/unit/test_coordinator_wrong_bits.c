/* The coordinator: workers whose bits differ. */
#include "tests/unit/coordinator_fixture.h"

/* Server 0 says that they computed different bits. */
static void differ(struct coordinator_fixture *f, uint64_t member, uint64_t first)
{
    struct server_report wrong = {.kind = SERVER_WRONG_BITS};
    wrong.wrong_bits.member = member;
    wrong.wrong_bits.first_member = first;
    wrong.wrong_bits.step = 7;
    wrong.wrong_bits.chunk = 3;
    assert_int_equal(report(f, 0, wrong), ERR_OK);
}

static struct coordinator_member member_at(const struct coordinator_fixture *f, uint32_t i)
{
    struct coordinator_member member;
    assert_true(coordinator_member(f->coordinator, i, &member));
    return member;
}

/* Whoever was expelled must not be forgotten because a crowd comes and goes within one step. */
TEST_F(servers_know_who_was_expelled_whoever_leaves_after_it, coordinator, .steps = 9)
{
    uint64_t wrong = join_named(f, "wrong");
    differ(f, wrong, wrong);
    const struct server_command *told = command(f, 0, SERVER_ENDED);
    assert_int_equal(told->ended.member_count, 1);
    for (uint32_t i = 0; i < WIRE_ENDED_MAX + 100; i++) {
        uint64_t member = join_named(f, "crowd");
        assert_int_equal(leave(f, member, "enough"), ERR_OK);
        look(f);
        told = command(f, 0, SERVER_ENDED);
        assert_int_equal(told->ended.member_count, 2);
        assert_int_equal(told->ended.members[0], member);
        assert_int_equal(told->ended.members[1], wrong); /* it may have forgotten */
    }
    lose_server(f, 1);
    hello(f, 1, f->generation);
    told = command(f, 1, SERVER_ENDED);
    assert_in_range(told->ended.member_count, WIRE_ENDED_MAX / 2, WIRE_ENDED_MAX);
    assert_int_equal(told->ended.members[told->ended.member_count - 1], wrong);
}

TEST_F(two_that_differ_are_both_named, coordinator, .steps = 9, .workers = 2)
{
    differ(f, f->b, f->a);
    assert_non_null(strstr(seen(f, EFFECT_LOG)->log.text, "worker=\"b\" counted=\"a\""));
    differ(f, f->a, f->b);
    assert_null(seen(f, EFFECT_LOG)); /* no news */
    assert_non_null(strstr(member_at(f, 0).reason, "worker b"));
    assert_non_null(strstr(member_at(f, 1).reason, "worker a"));
    assert_int_equal(member_at(f, 0).wrong_bits, 2);
    assert_string_equal(member_at(f, 0).state, "joined");
    assert_int_equal(status(f).member_count, 2);
}

TEST_F(who_is_contradicted_by_two_computes_wrongly_and_is_no_member_any_more, coordinator,
       .steps = 9)
{
    struct join_request request = join_request();
    uint64_t a = join_named(f, "a"), b = join_named(f, "b"), c = join_named(f, "c");
    differ(f, a, b);
    a = join_again(f, a); /* neither side forgets */
    coordinator_member_lost(f->coordinator, f->now_ms, b, "control stream broke");
    b = join_named(f, "b");
    differ(f, b, a); /* no second opinion: it is the same worker */
    assert_int_equal(status(f).member_count, 3);
    differ(f, a, c);
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, a);
    assert_int_equal(status(f).member_count, 2);
    assert_string_equal(member_at(f, 0).reason, ""); /* the others are cleared */
    assert_string_equal(member_at(f, 1).reason, "");
    assert_string_equal(member_at(f, 2).state, "wrong bits");
    differ(f, c, a); /* a report that was under way */
    assert_string_equal(member_at(f, 1).reason, "");
    request.previous_member = a;
    assert_int_equal(ask_to_join(f, &request), ERR_WRONG_BITS);
    assert_int_equal(status(f).member_count, 2);
}

TEST_F(opinions_count_certificates_where_a_run_has_several, coordinator, .steps = 9)
{
    uint64_t a = join_from(f, "a", "", 1), b = join_from(f, "b", "", 2),
             c = join_from(f, "c", "", 2);
    differ(f, b, a);
    differ(f, c, a); /* two names of one certificate */
    assert_int_equal(status(f).member_count, 3);
    uint64_t d = join_from(f, "d", "", 3);
    differ(f, d, a);
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, a);
    assert_int_equal(status(f).member_count, 3);
}

TEST_F(with_one_certificate_opinions_count_names, coordinator, .steps = 9)
{
    uint64_t a = join_from(f, "a", "", 1), b = join_from(f, "b", "", 1),
             c = join_from(f, "c", "", 1);
    differ(f, b, a);
    differ(f, c, a);
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, a);
}

TEST_F(who_contradicts_itself_is_wrong_and_nobody_else_is_suspected, coordinator, .steps = 9)
{
    uint64_t a = join_named(f, "a"), b = join_named(f, "a"); /* names are the workers' choice */
    differ(f, a, a);
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, a);
    assert_int_equal(status(f).member_count, 1);
    assert_string_equal(member_at(f, 0).state, "joined");
    assert_string_equal(member_at(f, 0).reason, "");
    assert_string_equal(member_at(f, 1).state, "wrong bits");
    assert_string_equal(member_at(f, 1).reason,
                        "other bits than it brought before: step 7 chunk 3");
    differ(f, a, b); /* nothing new about the one that is known */
    assert_string_equal(member_at(f, 0).reason, "");
}

/* A worker of that name on that host, with that certificate, starts anew. */
static enum err join_as(struct coordinator_fixture *f, const char *name, const char *host,
                        uint64_t certificate, uint64_t *ret_member)
{
    struct reason reason = {.text = ""};
    struct join_request request = join_request();
    struct join_reply reply = {0};
    request.certificate = certificate;
    snprintf(request.name, sizeof request.name, "%s", name);
    snprintf(request.host, sizeof request.host, "%s", host);
    enum err err = coordinator_join(f->coordinator, f->now_ms, &request, &reply, &reason);
    look(f);
    assert_true((err == ERR_EXPELLED) ==
                (strstr(reason.text, "was expelled from run 1 as") != NULL));
    *ret_member = reply.member;
    return err;
}

/* Another coordinator goes on with what the store has. */
static void succeed(struct coordinator_fixture *f, const struct conviction *convicted)
{
    struct coordinator_run run = run_of(9);
    struct coordinator_past past = {.generation = f->generation, .cut = f->stored};
    convictions_add(&past.convictions, convicted);
    coordinator_tear_down(f);
    f->term++;
    f->steps = 0;
    coordinator_set_up(f);
    start_preparing(f, &run, &past);
    ready_all(f, 0);
}

TEST_F(who_was_expelled_and_starts_anew_is_refused_also_by_the_next_coordinator, coordinator,
       .steps = 9)
{
    uint64_t a, other;
    assert_int_equal(join_as(f, "a", "here", 7, &a), ERR_OK);
    assert_int_equal(join_as(f, "b", "here", 7, &other), ERR_OK);
    differ(f, a, a);
    assert_true(place_of(f, EFFECT_STORE_CONVICTION) < place_of(f, EFFECT_EXPEL));
    const struct conviction convicted = seen(f, EFFECT_STORE_CONVICTION)->conviction;
    assert_int_equal(convicted.step, 7);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(join_as(f, "a", "here", 7, &other), ERR_EXPELLED);
        /* All have one certificate: the others go on. */
        assert_int_equal(join_as(f, "c", "here", 7, &other), ERR_OK);
        assert_int_equal(join_as(f, "a", "there", 7, &other), ERR_OK);
        if (turn == 0)
            succeed(f, &convicted);
    }
    struct coordinator_member last = member_at(f, 3); /* behind two members and a refusal */
    assert_string_equal(last.name, "a");
    assert_int_equal(last.member, a);
    assert_string_equal(last.state, "wrong bits");
    assert_int_equal(join_as(f, "b", "here", 8, &other), ERR_OK); /* now there are several */
    assert_int_equal(join_as(f, "d", "there", 7, &other), ERR_EXPELLED);
    assert_int_equal(join_as(f, "a", "here", 9, &other), ERR_OK); /* a new certificate */
}

TEST_F(of_several_certificates_the_convicted_one_is_refused_under_any_name, coordinator, .steps = 9)
{
    uint64_t a, other;
    assert_int_equal(join_as(f, "a", "here", 7, &a), ERR_OK);
    assert_int_equal(join_as(f, "b", "here", 8, &other), ERR_OK);
    differ(f, a, a);
    const struct conviction convicted = seen(f, EFFECT_STORE_CONVICTION)->conviction;
    assert_true(convicted.several);
    succeed(f, &convicted); /* which knows no other certificate yet */
    assert_int_equal(join_as(f, "z", "there", 7, &other), ERR_EXPELLED);
    assert_int_equal(join_as(f, "a", "here", 8, &other), ERR_OK);
}

TEST_F(with_more_than_one_that_is_wrong_nobody_is_judged, coordinator, .steps = 9)
{
    uint64_t a = join_named(f, "a"), b = join_named(f, "b"), c = join_named(f, "c"),
             d = join_named(f, "d");
    differ(f, a, b);
    differ(f, c, d);
    differ(f, a, c);
    assert_int_equal(status(f).member_count, 4);
    differ(f, b, UINT64_C(77)); /* nor by somebody whom nobody remembers */
    assert_int_equal(status(f).member_count, 4);
}

TEST_F(other_bits_are_no_fault_where_any_numerics_may_join, coordinator, .plan = 9)
{
    f->run.numerics_any = true;
    start(f, &f->run);
    uint64_t a = join_named(f, "a"), b = join_named(f, "b"), c = join_named(f, "c");
    differ(f, a, b);
    differ(f, a, c);
    assert_int_equal(status(f).member_count, 3);
    assert_int_equal(member_at(f, 0).wrong_bits, 0);
}
