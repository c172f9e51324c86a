/* The coordinator: workers whose bits differ. */
#include "tests/unit/coordinator_fixture.h"

/* Server 0 says that they computed different bits. */
static void differ(struct coordinator_fixture *f, uint64_t member, uint64_t first)
{
    struct server_report wrong = {.kind = SERVER_WRONG_BITS};
    wrong.wrong_bits.member = member;
    wrong.wrong_bits.first_member = first;
    wrong.wrong_bits.step = 7;
    wrong.wrong_bits.chunk = 1;
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

/* A report of the run before comes, which had more slots and chunks. */
TEST_F(what_differs_in_a_node_or_a_chunk_that_the_run_has_not_is_not_looked_at, coordinator,
       .steps = 9, .workers = 2, .audit = 1)
{
    struct server_report wrong = {.kind = SERVER_WRONG_BITS};
    wrong.wrong_bits.member = f->b;
    wrong.wrong_bits.first_member = f->a;
    wrong.wrong_bits.node = (struct node){0, TREE_SLOTS_MAX - 1};
    assert_int_equal(report(f, 0, wrong), ERR_OK);
    wrong.wrong_bits.node = (struct node){TREE_LEVEL_MAX, 0};
    assert_int_equal(report(f, 0, wrong), ERR_OK);
    wrong.wrong_bits.node = (struct node){0, 0};
    wrong.wrong_bits.chunk = SERVERS; /* it has one for each */
    assert_int_equal(report(f, 0, wrong), ERR_OK);
    assert_string_equal(member_at(f, 0).reason, "");
    assert_string_equal(member_at(f, 1).reason, "");
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
    request.previous_member = a;
    request.previous_secret = secret_of(a);
    snprintf(request.name, sizeof request.name, "a");
    assert_int_equal(ask_to_join(f, &request), ERR_OK);
    a = f->joined.member; /* neither side forgets */
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
                        "other bits than it brought before: step 7 chunk 1");
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
    assert_int_equal(join_as(f, "b", "here", 8, &other), ERR_OK);  /* one of another certificate */
    assert_int_equal(join_as(f, "d", "there", 7, &other), ERR_OK); /* locks nobody else out */
    assert_int_equal(join_as(f, "a", "here", 7, &other), ERR_EXPELLED);
    assert_int_equal(join_as(f, "a", "here", 9, &other), ERR_OK); /* a new certificate */
}

/* {1, 1, 1, 2}: a fleet with one certificate, and another's worker. */
TEST_F(a_convicted_worker_of_a_fleet_with_one_certificate_does_not_lock_the_others_out, coordinator,
       .steps = 9)
{
    uint64_t a, other;
    assert_int_equal(join_as(f, "z", "there", 8, &other), ERR_OK);
    assert_int_equal(join_as(f, "b", "here", 7, &other), ERR_OK);
    assert_int_equal(leave(f, other, "enough"), ERR_OK); /* it had the certificate */
    assert_int_equal(join_as(f, "a", "here", 7, &a), ERR_OK);
    differ(f, a, a);
    const struct conviction convicted = seen(f, EFFECT_STORE_CONVICTION)->conviction;
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(join_as(f, "b", "here", 7, &other), ERR_OK);
        assert_int_equal(join_as(f, "z", "there", 8, &other), ERR_OK);
        assert_int_equal(join_as(f, "a", "here", 7, &other), ERR_EXPELLED);
        if (turn == 0)
            succeed(f, &convicted);
    }
}

TEST_F(a_certificate_that_nobody_else_has_is_refused_under_any_name, coordinator, .steps = 9)
{
    uint64_t a, other;
    assert_int_equal(join_as(f, "a", "here", 7, &a), ERR_OK);
    assert_int_equal(join_as(f, "b", "here", 8, &other), ERR_OK);
    differ(f, a, a);
    const struct conviction convicted = seen(f, EFFECT_STORE_CONVICTION)->conviction;
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

/* ---- what counts against a worker stays with it ---- */

static struct coordinator_member named(const struct coordinator_fixture *f, uint64_t id)
{
    struct coordinator_member member;
    for (uint32_t i = 0; coordinator_member(f->coordinator, i, &member); i++)
        if (member.member == id)
            return member;
    fail_msg("member %llu is unknown", (unsigned long long)id);
    return member;
}

static bool is_suspected(const struct coordinator_fixture *f, uint64_t id)
{
    return named(f, id).reason[0] != 0;
}

TEST_F(who_is_suspected_stays_so_however_it_comes_back, coordinator, .steps = 9)
{
    uint64_t b = join_from(f, "b", "h", 8), c = join_from(f, "c", "h", 9);
    uint64_t a = join_from(f, "a", "h", 7);
    differ(f, a, b);
    assert_int_equal(leave(f, a, "enough"), ERR_OK);
    a = join_from(f, "another name", "h", 7); /* it proves no membership before */
    assert_true(is_suspected(f, a));
    coordinator_member_lost(f->coordinator, f->now_ms, a, "control stream broke");
    a = join_from(f, "a third name", "there", 7);
    assert_non_null(strstr(named(f, a).reason, "worker b"));
    assert_int_equal(named(f, a).wrong_bits, 1);
    differ(f, a, b);
    assert_int_equal(status(f).member_count, 3);
    differ(f, a, c);
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, a);
}

TEST_F(without_certificates_suspicion_stays_with_name_and_host, coordinator, .steps = 9)
{
    uint64_t a = join_from(f, "a", "h", 0), b = join_named(f, "b"), c = join_named(f, "c");
    differ(f, a, b);
    assert_int_equal(leave(f, a, "enough"), ERR_OK);
    assert_false(is_suspected(f, join_from(f, "a", "there", 0)));
    assert_false(is_suspected(f, join_from(f, "d", "h", 0)));
    a = join_from(f, "a", "h", 0);
    assert_true(is_suspected(f, a));
    differ(f, c, a);
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, a);
}

/* Else one faulty machine of a fleet makes suspects of all that come after it. */
TEST_F(of_workers_with_one_certificate_only_the_suspected_one_is_suspected_again, coordinator,
       .steps = 9)
{
    uint64_t a = join_from(f, "a", "h", 1), b = join_from(f, "b", "h", 1);
    differ(f, a, join_from(f, "z", "h", 2));
    assert_int_equal(leave(f, b, "enough"), ERR_OK);
    assert_int_equal(leave(f, a, "enough"), ERR_OK);
    assert_false(is_suspected(f, join_from(f, "c", "h", 1)));
    assert_false(is_suspected(f, join_from(f, "b", "h", 1)));
    assert_true(is_suspected(f, join_from(f, "a", "h", 1)));
}

/* Also when they are there one after the other later. */
TEST_F(that_several_workers_have_a_certificate_is_not_forgotten, coordinator, .steps = 9)
{
    uint64_t a = join_from(f, "a", "h", 1), b = join_from(f, "b", "h", 1);
    assert_int_equal(leave(f, a, "enough"), ERR_OK);
    assert_int_equal(leave(f, b, "enough"), ERR_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(leave(f, join_from(f, "crowd", "h", 3), "enough"), ERR_OK);
    a = join_from(f, "a", "h", 1);
    differ(f, a, join_from(f, "z", "h", 2));
    assert_int_equal(leave(f, a, "enough"), ERR_OK);
    assert_false(is_suspected(f, join_from(f, "b", "h", 1)));
    assert_true(is_suspected(f, join_from(f, "a", "h", 1)));
}

TEST_F(who_came_after_a_suspect_with_its_certificate_is_none_when_both_are_there, coordinator,
       .steps = 9)
{
    uint64_t a = join_from(f, "a", "h", 1), z = join_from(f, "z", "h", 2);
    differ(f, a, z);
    assert_int_equal(leave(f, a, "enough"), ERR_OK);
    uint64_t b = join_from(f, "b", "h", 1);
    assert_true(is_suspected(f, b)); /* it may be a */
    a = join_from(f, "a", "h", 1);
    assert_true(is_suspected(f, a));
    assert_false(is_suspected(f, b));
    differ(f, b, join_from(f, "y", "h", 3)); /* that is the first opinion about b */
    assert_int_equal(status(f).member_count, 4);
}

TEST_F(memberships_at_a_time_of_one_worker_are_suspected_together, coordinator, .steps = 9)
{
    uint64_t b = join_from(f, "b", "h", 8), c = join_from(f, "c", "h", 9);
    uint64_t first = join_from(f, "a", "h", 7), second = join_from(f, "a", "h", 7);
    differ(f, first, b);
    assert_true(is_suspected(f, second));
    assert_true(is_suspected(f, join_from(f, "a", "h", 7)));
    assert_int_equal(leave(f, first, "enough"), ERR_OK);
    look(f);
    differ(f, second, c);
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, second);
}

TEST_F(who_joins_over_and_over_makes_nobody_forget_the_others, coordinator, .steps = 9)
{
    enum { OFTEN = 300 };
    uint64_t a = join_from(f, "a", "h", 7), b = join_from(f, "b", "h", 8);
    differ(f, a, join_from(f, "c", "h", 6));
    assert_int_equal(leave(f, a, "enough"), ERR_OK);
    for (int i = 0; i < OFTEN; i++) {
        uint64_t again = join_from(f, "again", "h", 9);
        differ(f, again, b);
        assert_int_equal(leave(f, again, "enough"), ERR_OK);
    }
    a = join_from(f, "a", "h", 7);
    assert_true(is_suspected(f, a));
    assert_int_equal(leave(f, a, "enough"), ERR_OK);
    for (int i = 0; i < OFTEN; i++) { /* under many names, of which some are there at a time */
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        uint64_t under = join_from(f, name, "h", 9), beside = join_from(f, "beside", "h", 9);
        differ(f, under, b);
        assert_int_equal(leave(f, under, "enough"), ERR_OK);
        assert_int_equal(leave(f, beside, "enough"), ERR_OK);
    }
    coordinator_check(f->coordinator);
    assert_true(is_suspected(f, join_from(f, "a", "there", 7)));
}

TEST_F(who_was_contradicted_by_a_wrong_one_comes_back_without_suspicion, coordinator, .steps = 9)
{
    uint64_t a = join_from(f, "a", "h", 7), wrong = join_from(f, "w", "h", 8);
    differ(f, a, wrong);
    assert_int_equal(leave(f, a, "enough"), ERR_OK);
    differ(f, wrong, wrong);
    assert_false(is_suspected(f, join_from(f, "a", "h", 7)));
}

TEST_F(another_run_knows_nothing_of_who_was_suspected, coordinator, .steps = 9)
{
    uint64_t a = join_from(f, "a", "h", 7);
    differ(f, a, join_from(f, "b", "h", 8));
    stop(f);
    tick(f, STOP_MS);
    f->run.run++;
    begin(f, &f->run, NULL);
    assert_false(is_suspected(f, join_from(f, "a", "h", 7)));
}

/* ---- whom nobody remembers ---- */

TEST_F(nobody_becomes_immune_by_differing_from_one_that_is_forgotten, coordinator, .steps = 9)
{
    uint64_t a = join_named(f, "a");
    differ(f, a, UINT64_C(77));
    assert_string_equal(named(f, a).reason, "");
    differ(f, a, join_named(f, "b"));
    differ(f, a, join_named(f, "c"));
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, a);
}

TEST_F(refused_workers_are_shown_and_make_nobody_forget_a_member, coordinator, .steps = 9)
{
    uint64_t a = join_named(f, "a"), b = join_named(f, "b"), other;
    assert_int_equal(leave(f, b, "enough"), ERR_OK);
    uint64_t wrong = join_named(f, "wrong");
    differ(f, wrong, wrong);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(join_as(f, "wrong", "", 0, &other), ERR_EXPELLED);
    assert_string_equal(member_at(f, 3).name, "wrong"); /* behind a, wrong and b */
    assert_string_equal(member_at(f, 3).state, "refused");
    differ(f, a, b);
    assert_non_null(strstr(named(f, a).reason, "worker b"));
}

/* ---- what it brought ---- */

TEST_F(what_earlier_memberships_brought_is_listed_too, coordinator, .steps = 9)
{
    uint64_t a = join_named(f, "a");
    ticket_of(f, a, 1);
    step(f, 0);
    assert_int_equal(leave(f, a, "enough"), ERR_OK);
    step(f, 1);
    step(f, 2);
    a = join_named(f, "a");
    ticket_of(f, a, 1);
    differ(f, a, a);
    assert_non_null(
        strstr(seen(f, EFFECT_LOG)->log.text, "worker=a confirmed_below=0 steps=0-0,3-3"));
}
