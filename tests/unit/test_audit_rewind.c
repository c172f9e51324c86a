/* The coordinator: what a convicted worker brought is undone. */
#include "tests/unit/coordinator_fixture.h"

static void differ(struct coordinator_fixture *f, uint64_t member, uint64_t first)
{
    struct server_report wrong = {.kind = SERVER_WRONG_BITS};
    wrong.wrong_bits.member = member;
    wrong.wrong_bits.first_member = first;
    assert_int_equal(report(f, 0, wrong), ERR_OK);
}

/* Cuts of the versions 2 and 4 are ordered, and the first is recorded. a has a ticket of that
 * step. */
static void train_to_4(struct coordinator_fixture *f, uint64_t step_of_a)
{
    struct coordinator_run run = run_of(20);
    run.cut_every = 2;
    run.audit_rewind = true;
    start(f, &run);
    f->a = join_named(f, "a");
    for (uint64_t number = 0; number < 4; number++) {
        if (number == 2)
            record_all(f, 2);
        if (number == step_of_a)
            ticket_of(f, f->a, 1);
        step(f, number);
    }
}

static void convict(struct coordinator_fixture *f)
{
    differ(f, join_named(f, "b"), f->a);
    differ(f, join_named(f, "c"), f->a);
}

static void expect_rewind(struct coordinator_fixture *f, uint64_t version)
{
    assert_int_equal(seen(f, EFFECT_STORE_REWIND)->generation, f->generation + 1);
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_int_equal(command(f, i, SERVER_PREPARE)->prepare.cut.version, version);
    f->generation++;
    ready_all(f, version);
    assert_int_equal(status(f).version, version);
}

TEST_F(the_newest_cut_is_taken_when_it_is_old_enough, coordinator)
{
    train_to_4(f, 3);
    assert_int_equal(say_manifest(f, 0, 4, ERR_OK), ERR_OK);
    convict(f);
    assert_null(seen(f, EFFECT_FIND_CUT));
    expect_rewind(f, 2);
    f->generation--;
    say_manifest(f, 1, 4, ERR_OK); /* of a history that is left */
    assert_null(seen(f, EFFECT_STORE_CUT));
}

TEST_F(an_older_cut_is_looked_for_and_those_after_it_do_not_count, coordinator)
{
    train_to_4(f, 2);
    const struct cut_record two = f->stored;
    record_all(f, 4);
    convict(f);
    assert_int_equal(seen(f, EFFECT_FIND_CUT)->find.version_max, 2);
    assert_null(seen(f, EFFECT_STORE_REWIND));
    coordinator_cut_found(f->coordinator, f->now_ms, &two, "");
    look(f);
    expect_rewind(f, 2);
}

TEST_F(without_an_older_cut_the_run_goes_on_from_the_newest, coordinator)
{
    train_to_4(f, 2);
    record_all(f, 4);
    convict(f);
    coordinator_cut_found(f->coordinator, f->now_ms, NULL, "");
    look(f);
    assert_non_null(strstr(seen(f, EFFECT_LOG)->log.text, "no checkpoint is old enough"));
    expect_rewind(f, 4);
}

/* Those who join in between push the membership out of those that are remembered. */
TEST_F(what_a_suspect_brought_in_an_earlier_membership_is_undone_too, coordinator)
{
    train_to_4(f, 3);
    assert_int_equal(say_manifest(f, 0, 4, ERR_OK), ERR_OK);
    differ(f, join_named(f, "b"), f->a);
    assert_int_equal(leave(f, f->a, "enough"), ERR_OK);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(leave(f, join_named(f, "crowd"), "enough"), ERR_OK);
    f->a = join_named(f, "a");
    differ(f, join_named(f, "c"), f->a);
    expect_rewind(f, 2);
}

TEST_F(who_brought_nothing_undoes_nothing, coordinator)
{
    train_to_4(f, 9);
    convict(f);
    assert_null(seen(f, EFFECT_FIND_CUT));
    assert_null(seen(f, EFFECT_STORE_REWIND));
    assert_int_equal(status(f).version, 4);
}

/* The run has gone back to version 2 when a server lost its memory, and others computed step 3. */
TEST_F(what_a_rewind_undid_is_not_undone_once_more, coordinator)
{
    train_to_4(f, 3);
    restart_server(f, 0);
    expect_rewind(f, 2);
    f->a = join_again(f, f->a);
    for (uint64_t number = 2; number < 6; number++)
        step(f, number);
    convict(f);
    assert_null(seen(f, EFFECT_FIND_CUT));
    assert_null(seen(f, EFFECT_STORE_REWIND));
    assert_int_equal(status(f).version, 6);
}

/* ---- while the run stops ---- */

/* Version 5, and the cuts of the versions 2 and 4 are recorded. a was wrong from step 2 on. Returns
 * the cut of version 2. */
static struct cut_record train_to_5(struct coordinator_fixture *f)
{
    train_to_4(f, 2);
    const struct cut_record two = f->stored;
    record_all(f, 4);
    step(f, 4);
    return two;
}

static void find(struct coordinator_fixture *f, const struct cut_record *whole)
{
    tick(f, STOP_MS); /* a stop waits for the search */
    assert_int_equal(status(f).state, RUN_TRAINING);
    coordinator_cut_found(f->coordinator, f->now_ms, whole, "");
    look(f);
}

static void expect_stopped(struct coordinator_fixture *f, uint64_t version)
{
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_int_equal(status(f).cut.version, version);
    assert_null(seen(f, EFFECT_STORE_REWIND)); /* a run that ends needs none */
}

TEST_F(p9_the_last_cut_has_nothing_of_who_is_convicted_while_the_run_stops, coordinator)
{
    const struct cut_record two = train_to_5(f);
    stop(f);
    convict(f);
    assert_int_equal(seen(f, EFFECT_FIND_CUT)->find.version_max, 2);
    find(f, &two);
    expect_stopped(f, 2);
}

TEST_F(p9_the_last_cut_is_not_awaited_that_has_what_is_undone, coordinator)
{
    train_to_4(f, 2);
    stop(f);
    assert_int_equal(say_manifest(f, 0, 4, ERR_OK), ERR_OK);
    convict(f);
    assert_true(seen(f, EFFECT_STORE_CONVICTION)->conviction.undo);
    expect_stopped(f, 2);
}

TEST_F(p9_a_run_stops_that_goes_back_already, coordinator)
{
    const struct cut_record two = train_to_5(f);
    convict(f);
    stop(f);
    find(f, &two);
    expect_stopped(f, 2);
}

TEST_F(p9_without_an_older_cut_the_run_stops_with_the_newest, coordinator)
{
    train_to_5(f);
    stop(f);
    convict(f);
    find(f, NULL);
    assert_non_null(strstr(seen(f, EFFECT_LOG)->log.text, "next=stop with version 4"));
    expect_stopped(f, 4);
}

TEST_F(p10_a_coordinator_that_ends_leaves_the_rewind_to_its_successor, coordinator)
{
    train_to_5(f);
    assert_int_equal(coordinator_pause(f->coordinator, f->now_ms, "signal"), ERR_OK);
    convict(f);
    assert_true(seen(f, EFFECT_STORE_CONVICTION)->conviction.undo);
    assert_true(status(f).paused);
}

/* ---- another run ---- */

/* Run 2 goes on from a checkpoint of its own. */
TEST_F(what_was_brought_to_the_run_before_is_not_undone, coordinator)
{
    struct coordinator_run run = run_of(20);
    train_to_4(f, 0);
    stop(f);
    record_all(f, 4);
    expect_stopped(f, 4);
    const struct coordinator_past past = {.generation = f->generation, .cut = f->stored};
    run.run = 2;
    run.audit_rewind = true;
    begin(f, &run, &past);
    f->generation = status(f).generation;
    ready_all(f, 4);
    f->a = join_named(f, "a");
    step(f, 4);
    convict(f);
    assert_non_null(seen(f, EFFECT_EXPEL));
    assert_null(seen(f, EFFECT_FIND_CUT));
    assert_null(seen(f, EFFECT_STORE_REWIND));
    assert_int_equal(status(f).version, 5);
}

/* ---- a successor ---- */

/* Another coordinator goes on with what the store has, on servers that hold version 4. */
static void succeed(struct coordinator_fixture *f, const struct cut_record *cut,
                    const struct conviction *convicted)
{
    struct coordinator_run run = run_of(20);
    struct coordinator_past past = {
        .generation = f->generation, .cut = *cut, .recorded = 4, .stops = f->stops};
    run.audit_rewind = true;
    convictions_add(&past.convictions, convicted);
    coordinator_tear_down(f);
    f->term++;
    f->steps = 0;
    coordinator_set_up(f);
    for (uint32_t i = 0; i < SERVERS; i++)
        hello(f, i, past.generation);
    begin(f, &run, &past);
}

TEST_F(p10_a_coordinator_that_dies_before_the_rewind_leaves_it_to_its_successor, coordinator)
{
    train_to_4(f, 2);
    const struct cut_record two = f->stored;
    record_all(f, 4);
    const struct cut_record four = f->stored;
    convict(f);
    struct conviction convicted = seen(f, EFFECT_STORE_CONVICTION)->conviction;
    assert_true(convicted.undo && convicted.undo_from == 2);

    succeed(f, &four, &convicted);
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_null(command(f, i, SERVER_ASK)); /* P7: it adopts nothing */
    assert_int_equal(seen(f, EFFECT_FIND_CUT)->find.version_max, 2);
    coordinator_cut_found(f->coordinator, f->now_ms, &two, "");
    look(f);
    expect_rewind(f, 2);
    convicted = *coordinator_conviction(f->coordinator, 0);
    assert_false(convicted.undo); /* it has gone back */

    succeed(f, &two, &convicted);
    assert_non_null(command(f, 0, SERVER_ASK));
}

TEST_F(p9_a_successor_that_is_to_stop_goes_back_first, coordinator, .stops = true)
{
    train_to_4(f, 2);
    const struct cut_record two = f->stored;
    record_all(f, 4);
    const struct conviction convicted = {.undo = true, .undo_from = 2};
    succeed(f, &f->stored, &convicted);
    coordinator_cut_found(f->coordinator, f->now_ms, &two, "");
    look(f);
    expect_stopped(f, 2);
}

TEST_F(p10_of_two_rewinds_that_are_due_the_further_one_counts, coordinator)
{
    struct conviction convicted[] = {{.name = "a", .undo = true, .undo_from = 5},
                                     {.name = "b", .undo = true, .undo_from = 3},
                                     {.name = "c", .undo_from = 1}};
    struct convictions convictions = {0};
    uint64_t from = 0;
    assert_false(convictions_undo(&convictions, &from));
    for (size_t i = 0; i < sizeof convicted / sizeof convicted[0]; i++)
        convictions_add(&convictions, &convicted[i]);
    assert_true(convictions_undo(&convictions, &from));
    assert_int_equal(from, 3);
    convictions_undone(&convictions);
    assert_false(convictions_undo(&convictions, &from));
}
