/* The coordinator: cuts, and how a run stops. */
#include "tests/unit/coordinator_fixture.h"

#include <errno.h>

/* ---- cuts ---- */

TEST_F(p9_a_cut_is_recorded_when_every_servers_manifest_is_there, coordinator, .steps = 9,
       .cut_every = 2)
{
    step_cuts(f, 0, false);
    step_cuts(f, 1, true);
    assert_int_equal(say_manifest(f, 1, 2, ERR_OK), ERR_OK);
    assert_int_equal(say_manifest(f, 1, 2, ERR_OK), ERR_OK); /* twice is not both */
    assert_null(seen(f, EFFECT_STORE_CUT));
    step(f, 2); /* training goes on meanwhile */
    assert_int_equal(say_manifest(f, 0, 2, ERR_OK), ERR_OK);
    const struct cut_record *cut = &f->stored;
    assert_int_equal(cut->name.version, 2);
    assert_int_equal(cut->counters.samples, 16); /* of version 2, not of now */
    assert_int_equal(cut->server_count, 2);
    assert_string_equal(cut->servers[1].name, "s1");
    assert_int_equal(cut->servers[1].digest[0], 2);
    assert_int_equal(command(f, 0, SERVER_RECORDED)->recorded.version, 2);
    assert_true(place_of(f, EFFECT_STORE_CUT) < place_of(f, EFFECT_COMMAND));
}

static struct cut_record cut_at(uint64_t version)
{
    return (struct cut_record){.name = {4, version}, .counters = {8 * version, version, 0}};
}

TEST_F(a_damaged_cut_falls_back_to_the_next_whole_one, coordinator, .plan = 20)
{
    struct coordinator_past past = {.generation = 4, .cut = cut_at(9)};
    const struct cut_record whole = cut_at(6);
    start_preparing(f, &f->run, &past);
    assert_int_equal(command(f, 0, SERVER_PREPARE)->prepare.cut.version, 9);
    assert_int_equal(say_unready(f, 1, ERR_CORRUPT), ERR_OK);
    assert_int_equal(status(f).state, RUN_STARTING);
    assert_non_null(
        strstr(seen(f, EFFECT_FIND_CUT)->find.unready, "server s1 cannot prepare: g4-v9: block 3"));
    coordinator_cut_found(f->coordinator, f->now_ms, &whole, "server s1 cannot prepare");
    look(f);
    assert_non_null(strstr(seen(f, EFFECT_LOG)->log.text, "steps_lost=3"));
    assert_non_null(seen(f, EFFECT_STORE_REWIND));
    for (uint32_t i = 0; i < SERVERS; i++) {
        assert_true(command(f, i, SERVER_PREPARE)->prepare.from_cut);
        assert_int_equal(command(f, i, SERVER_PREPARE)->prepare.cut.version, 6);
    }
    f->generation = status(f).generation;
    ready_all(f, 6);
    assert_int_equal(status(f).version, 6);
    assert_int_equal(status(f).counters.samples, 48);
    assert_int_equal(status(f).cut.version, 6);
    step(f, 6);
}

TEST_F(who_cannot_prepare_what_is_given_up_fails_nothing, coordinator, .plan = 20)
{
    struct coordinator_past past = {.generation = 4, .cut = cut_at(9)};
    const struct cut_record whole = cut_at(6);
    start_preparing(f, &f->run, &past);
    lose_server(f, 0);
    assert_int_equal(say_unready(f, 1, ERR_CORRUPT), ERR_OK);
    coordinator_cut_found(f->coordinator, f->now_ms, &whole, "");
    look(f);
    assert_int_equal(say_unready(f, 1, ERR_CORRUPT), ERR_OK); /* another of the generation */
    assert_int_equal(status(f).state, RUN_STARTING);
    hello(f, 0, f->generation);
    assert_int_equal(command(f, 1, SERVER_PREPARE)->prepare.cut.version, 6);
}

/* The machine of the server that reported it is to blame, or nothing whole is left. */
TEST_F(a_damaged_cut_that_is_whole_here_or_the_last_one_fails_the_run_by_name, coordinator,
       .plan = 20)
{
    struct coordinator_past past = {.generation = 4, .cut = cut_at(9)};
    start_preparing(f, &f->run, &past);
    const struct cut_record newer = {.name = {5, 10}}; /* P7: another coordinator's */
    const struct cut_record *const found[] = {&past.cut, NULL, &newer};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(say_unready(f, 0, ERR_CORRUPT), ERR_OK);
        coordinator_cut_found(f->coordinator, f->now_ms, found[i], "s0 says so");
        look(f);
        assert_int_equal(status(f).state, RUN_FAILED);
        assert_string_equal(status(f).reason, "s0 says so");
        f->run.run++;
        past.generation++;
        begin(f, &f->run, &past);
    }
}

/* A file system that is not mounted yet, or that is not well for a moment: nobody finds a cut. */
TEST_F(files_that_may_come_are_waited_for, coordinator, .plan = 20)
{
    static const enum err codes[] = {ERR_NOT_FOUND, ERR_DENIED, ERR_IO};
    struct coordinator_past past = {.generation = 4, .cut = cut_at(9)};
    start_preparing(f, &f->run, &past);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(say_ready(f, 0, 9), ERR_OK);
        assert_int_equal(say_unready(f, 1, codes[i]), ERR_OK);
        if (codes[i] == ERR_NOT_FOUND)
            coordinator_cut_found(f->coordinator, f->now_ms, NULL, "s1 says so");
        look(f);
        assert_string_equal(status(f).reason,
                            "server s1 cannot prepare: g4-v9: block 3; it is asked again");
        tick(f, LEASE_MS);
        assert_int_equal(command(f, 1, SERVER_PREPARE)->prepare.cut.version, 9);
        assert_true(status(f).generation > f->generation);
        f->generation = status(f).generation;
    }
    ready_all(f, 9);
    step(f, 9);
}

/* Servers have read the newest cut after all: the store keeps it. */
TEST_F(a_search_ends_with_its_generation, coordinator, .plan = 20)
{
    struct coordinator_past past = {.generation = 4, .cut = cut_at(9)};
    const struct cut_record whole = cut_at(6);
    start_preparing(f, &f->run, &past);
    assert_false(coordinator_wants_cut(f->coordinator));
    assert_int_equal(say_unready(f, 1, ERR_CORRUPT), ERR_OK);
    assert_true(coordinator_wants_cut(f->coordinator));
    restart_server(f, 0);
    f->generation = status(f).generation;
    assert_false(coordinator_wants_cut(f->coordinator));
    coordinator_cut_found(f->coordinator, f->now_ms, &whole, "s1 says so");
    look(f);
    ready_all(f, 9);
    assert_int_equal(status(f).cut.version, 9);
    step(f, 9);
}

/* Its journal would not fit an older cut. */
TEST_F(p12_an_async_run_does_not_fall_back_by_itself, coordinator, .plan = 20)
{
    struct coordinator_past past = {.generation = 4, .cut = cut_at(9)};
    f->run.async = true;
    f->run.window = 8;
    start_preparing(f, &f->run, &past);
    assert_int_equal(say_unready(f, 1, ERR_CORRUPT), ERR_OK);
    assert_null(seen(f, EFFECT_FIND_CUT));
}

TEST_F(p9_an_older_cut_is_not_recorded_after_a_newer_one, coordinator, .steps = 9, .cut_every = 1)
{
    step(f, 0);
    step(f, 1);
    record_all(f, 2);
    assert_int_equal(status(f).cut.version, 2);
    record_all(f, 1);
    assert_null(seen(f, EFFECT_STORE_CUT));
    assert_int_equal(status(f).cut.version, 2);
}

/* By the store the run goes on: a successor needs its workers. */
TEST_F(p9_workers_hear_of_the_end_when_the_store_has_it, coordinator, .steps = 1, .workers = 1)
{
    step_cuts(f, 0, true);
    f->state_is_late = true;
    assert_int_equal(acquire(f, f->worker, 1, 5000), ERR_OK);
    assert_int_equal(say_manifest(f, 0, 1, ERR_OK), ERR_OK);
    assert_int_equal(say_manifest(f, 1, 1, ERR_OK), ERR_OK);
    assert_int_equal(status(f).state, RUN_ENDED);
    assert_null(seen(f, EFFECT_ANSWER));
    assert_null(seen(f, EFFECT_NOTICE));
    assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, f->worker), ERR_OK);
    look(f);
    assert_null(seen(f, EFFECT_NOTICE));
    assert_int_equal(acquire(f, f->worker, 2, 5000), ERR_OK);
    assert_null(seen(f, EFFECT_ANSWER));
    coordinator_state_stored(f->coordinator);
    look(f);
    assert_int_equal(answer(f, f->worker).result, ACQUIRE_END);
    assert_int_equal(seen(f, EFFECT_NOTICE)->notice.kind, NOTICE_RUN_OVER);
}

TEST_F(p9_a_run_ends_when_its_last_versions_cut_is_recorded, coordinator, .steps = 1, .workers = 1)
{
    step_cuts(f, 0, true);
    assert_int_equal(acquire(f, f->worker, 1, 5000), ERR_OK);
    assert_int_equal(say_manifest(f, 0, 1, ERR_OK), ERR_OK);
    assert_int_equal(status(f).state, RUN_TRAINING);
    assert_int_equal(say_manifest(f, 1, 1, ERR_OK), ERR_OK);
    assert_int_equal(status(f).state, RUN_ENDED);
    assert_int_equal(answer(f, f->worker).result, ACQUIRE_END);
    assert_int_equal(seen(f, EFFECT_NOTICE)->notice.kind, NOTICE_RUN_OVER);
    assert_non_null(command(f, 1, SERVER_END));
    assert_null(coordinator_map(f->coordinator)); /* no server has a place any more */
    assert_true(place_of(f, EFFECT_STORE_CUT) < place_of(f, EFFECT_STORE_STATE));
    assert_int_equal(acquire(f, f->worker, 2, 5000), ERR_OK);
    assert_int_equal(answer(f, f->worker).result, ACQUIRE_END);
    coordinator_member_lost(f->coordinator, f->now_ms, f->worker, "stream broke");
    look(f);
    assert_int_equal(status(f).members_lost, 0); /* it had nothing left to do here */
}

TEST_F(a_member_whose_stream_is_younger_than_the_runs_end_is_told_as_well, coordinator, .steps = 1,
       .workers = 1)
{
    assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, f->worker), ERR_OK);
    look(f);
    assert_null(seen(f, EFFECT_NOTICE));
    step(f, 0);
    record_all(f, 1);
    assert_int_equal(status(f).state, RUN_ENDED);
    assert_true(seen(f, EFFECT_NOTICE)->notice_to == 0); /* to all */
    assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, f->worker), ERR_OK);
    look(f);
    assert_int_equal(seen(f, EFFECT_NOTICE)->notice.kind, NOTICE_RUN_OVER);
    assert_true(seen(f, EFFECT_NOTICE)->notice_to == f->worker);
}

/* Or none is ever recorded, and what is written fills the disk. */
TEST_F(P9_while_disks_are_slower_than_steps_no_further_cut_is_ordered, coordinator, .steps = 99,
       .cut_every = 1)
{
    const uint64_t pending_max = 8;
    for (uint64_t t = 0; t < 20; t++)
        step_cuts(f, t, t < pending_max);
    record_all(f, 1);
    assert_int_equal(status(f).cut.version, 1);
    step_cuts(f, 20, true);
    step_cuts(f, 21, false);
    assert_int_equal(coordinator_checkpoint(f->coordinator), ERR_OK);
    step_cuts(f, 22, true); /* somebody asked for this one */
}

TEST_F(a_folder_that_a_server_may_not_write_is_said_in_true_words, coordinator, .steps = 9,
       .cut_every = 1)
{
    step(f, 0);
    assert_int_equal(say_manifest(f, 0, 1, err_from_errno(EACCES)), ERR_OK);
    assert_string_equal(status(f).cut_error,
                        "server s0 could not write the checkpoint of version 1: not permitted");
}

TEST_F(a_full_disk_is_said_and_training_goes_on, coordinator, .steps = 9, .cut_every = 1)
{
    step(f, 0);
    assert_int_equal(say_manifest(f, 0, 1, ERR_NO_SPACE), ERR_OK);
    assert_string_equal(
        status(f).cut_error,
        "server s0 could not write the checkpoint of version 1: no space left on device");
    step(f, 1);
    assert_int_equal(status(f).version, 2);
    record_all(f, 2);
    assert_string_equal(status(f).cut_error, "");
}

TEST_F(a_cut_that_cannot_be_written_down_is_not_recorded, coordinator, .steps = 9, .cut_every = 1)
{
    step(f, 0);
    f->store = ERR_NO_SPACE;
    record_all(f, 1);
    assert_int_equal(status(f).cut.version, 0);
    assert_null(command(f, 0, SERVER_RECORDED));
    f->store = ERR_OK;
    step(f, 1);
    record_all(f, 2);
    assert_int_equal(status(f).cut.version, 2);
}

/* Ticks until the newest commit is sent once more. */
static const struct server_command *next_attempt(struct coordinator_fixture *f, uint32_t attempt)
{
    const struct server_command *again = NULL;
    for (uint32_t i = 0; i < 3 && again == NULL; i++) {
        f->now_ms = coordinator_next_ms(f->coordinator);
        coordinator_tick(f->coordinator, f->now_ms);
        look(f);
        again = command(f, 0, SERVER_COMMIT);
    }
    assert_non_null(again);
    assert_true(again->commit.cut);
    assert_int_equal(again->attempt, attempt);
    return again;
}

TEST_F(a_full_disk_at_the_end_is_waited_for, coordinator, .plan = 1)
{
    f->run.cut_bytes = 2500000;
    start(f, &f->run);
    step(f, 0);
    uint64_t failed_ms = f->now_ms;
    assert_int_equal(say_manifest(f, 0, 1, ERR_NO_SPACE), ERR_OK);
    assert_int_equal(status(f).state, RUN_TRAINING);
    assert_string_equal(status(f).reason,
                        "it waits for room: server s0 could not write the checkpoint of version 1: "
                        "no space left on device; a checkpoint takes 2.5 MB");
    next_attempt(f, 1);
    assert_true(f->now_ms >= failed_ms + 500);
    commit_all(f, 0);
    f->attempt = 0;
    assert_int_equal(say_manifest(f, 1, 1, ERR_OK), ERR_OK); /* the first attempt's, again */
    f->attempt = 1;
    assert_int_equal(say_manifest(f, 0, 1, ERR_OK), ERR_OK);
    failed_ms = f->now_ms;
    assert_int_equal(say_manifest(f, 1, 1, ERR_NO_SPACE), ERR_OK);
    next_attempt(f, 2);
    assert_true(f->now_ms >= failed_ms + 1000); /* later than the one before */
    commit_all(f, 0);
    f->attempt = 2;
    record_all(f, 1);
    assert_int_equal(status(f).state, RUN_ENDED);
    assert_int_equal(status(f).cut.version, 1);
}

/* Or it would take the next attempt for the one that it has carried out. */
TEST_F(p9_a_server_that_comes_back_before_the_next_attempt_gets_the_failed_one, coordinator,
       .steps = 1)
{
    reduce_all(f, 0);
    assert_int_equal(say_committed(f, 0, 0), ERR_OK);
    assert_int_equal(say_manifest(f, 0, 1, ERR_NO_SPACE), ERR_OK);
    lose_server(f, 1);
    hello(f, 1, f->generation);
    const struct server_command *late = command(f, 1, SERVER_COMMIT);
    assert_non_null(late);
    assert_int_equal(late->attempt, 0);
    assert_int_equal(say_committed(f, 1, 0), ERR_OK);
    next_attempt(f, 1);
}

TEST_F(a_store_without_room_at_the_end_is_waited_for, coordinator, .steps = 1)
{
    step(f, 0);
    f->store = ERR_NO_SPACE;
    record_all(f, 1);
    assert_int_equal(status(f).state, RUN_TRAINING);
    next_attempt(f, 1);
    commit_all(f, 0);
    f->store = ERR_OK;
    f->attempt = 1;
    record_all(f, 1);
    assert_int_equal(status(f).state, RUN_ENDED);
}

TEST_F(a_disk_that_is_too_slow_for_the_last_cut_is_waited_for, coordinator, .steps = 1)
{
    step(f, 0);
    assert_int_equal(say_manifest(f, 0, 1, ERR_BUSY), ERR_OK);
    assert_int_equal(status(f).state, RUN_TRAINING);
    next_attempt(f, 1);
    commit_all(f, 0);
    f->attempt = 1;
    record_all(f, 1);
    assert_int_equal(status(f).state, RUN_ENDED);
}

TEST_F(another_failure_at_the_end_fails_the_run_by_name, coordinator, .steps = 1)
{
    step(f, 0);
    assert_int_equal(say_manifest(f, 0, 1, ERR_IO), ERR_OK);
    assert_int_equal(status(f).state, RUN_FAILED);
    assert_non_null(strstr(status(f).reason, "the newest recorded checkpoint is of version 0"));
}

TEST_F(a_stop_waits_for_room_until_it_is_asked_again, coordinator, .steps = 9)
{
    step(f, 0);
    stop(f);
    step(f, 1);
    assert_int_equal(say_manifest(f, 0, 2, ERR_NO_SPACE), ERR_OK);
    f->now_ms += STOP_MS;
    coordinator_tick(f->coordinator, f->now_ms);
    look(f);
    assert_int_equal(status(f).state, RUN_TRAINING);
    stop(f);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_non_null(strstr(status(f).reason, "version 2 is dropped"));
}

TEST_F(a_pause_does_not_wait_for_room, coordinator, .steps = 9)
{
    step(f, 0);
    assert_int_equal(coordinator_pause(f->coordinator, f->now_ms, "the daemon ends"), ERR_OK);
    step(f, 1);
    assert_int_equal(say_manifest(f, 0, 2, ERR_NO_SPACE), ERR_OK);
    assert_true(status(f).paused);
}

TEST_F(an_operator_can_ask_for_a_cut, coordinator, .steps = 9)
{
    assert_int_equal(coordinator_checkpoint(f->coordinator), ERR_OK);
    step_cuts(f, 0, true);
    reduce_all(f, 1);
    assert_false(command(f, 0, SERVER_COMMIT)->commit.cut);
}

/* Who asked waits for a version after the one that it asked at. */
TEST_F(a_rewind_does_not_forget_a_cut_that_was_asked_for, coordinator, .steps = 9)
{
    step_cuts(f, 0, false);
    assert_int_equal(coordinator_checkpoint(f->coordinator), ERR_OK);
    step_cuts(f, 1, true);
    restart_server(f, 0);
    f->generation = status(f).generation;
    ready_all(f, 0);
    step_cuts(f, 0, false);
    step_cuts(f, 1, true);
    record_all(f, 2);
    assert_int_equal(status(f).cut.version, 2);
    step_cuts(f, 2, false);
}

TEST_F(a_rewind_does_not_use_up_a_cut_that_was_just_asked_for, coordinator, .steps = 9)
{
    step_cuts(f, 0, false);
    assert_int_equal(coordinator_checkpoint(f->coordinator), ERR_OK);
    restart_server(f, 0);
    f->generation = status(f).generation;
    ready_all(f, 0);
    step_cuts(f, 0, false);
    step_cuts(f, 1, true);
}

/* The other one, who asked before, waits for a later version. */
TEST_F(a_cut_that_is_asked_for_after_a_rewind_comes_with_the_next_commit, coordinator, .steps = 9)
{
    for (uint64_t i = 0; i < 3; i++)
        step_cuts(f, i, false);
    assert_int_equal(coordinator_checkpoint(f->coordinator), ERR_OK);
    restart_server(f, 0);
    f->generation = status(f).generation;
    ready_all(f, 0);
    assert_int_equal(coordinator_checkpoint(f->coordinator), ERR_OK);
    step_cuts(f, 0, true);
    record_all(f, 1);
    step_cuts(f, 1, false);
    step_cuts(f, 2, false);
    step_cuts(f, 3, true);
}

/* ---- stopping ---- */

TEST_F(a_stop_finishes_the_step_in_flight_and_cuts, coordinator, .steps = 9, .workers = 1)
{
    ticket_of(f, f->worker, 1);
    assert_int_equal(coordinator_checkpoint(f->coordinator), ERR_OK);
    step(f, 0);
    record_all(f, 1);
    step(f, 1);
    stop(f);
    assert_int_equal(ticket_of(f, f->worker, 2).step, 2); /* it is still computed */
    step_cuts(f, 2, true);
    assert_int_equal(acquire(f, f->worker, 3, 5000), ERR_OK);
    assert_null(seen(f, EFFECT_ANSWER)); /* nothing of step 3 is granted */
    record_all(f, 3);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_string_equal(status(f).reason, "operator");
    assert_int_equal(status(f).cut.version, 3);
    assert_int_equal(answer(f, f->worker).result, ACQUIRE_END);
}

static void take_a_pause(struct coordinator_fixture *f)
{
    assert_int_equal(coordinator_pause(f->coordinator, f->now_ms, "reboot"), ERR_OK);
    look(f);
}

TEST_F(a_pause_cuts_and_leaves_the_run_to_a_successor, coordinator, .steps = 9, .workers = 1)
{
    step(f, 0);
    take_a_pause(f);
    assert_false(status(f).paused); /* the step in flight comes first */
    assert_int_equal(ticket_of(f, f->worker, 1).step, 1);
    step_cuts(f, 1, true);
    assert_int_equal(acquire(f, f->worker, 2, 5000), ERR_OK);
    record_all(f, 2);
    assert_true(status(f).paused);
    assert_int_equal(status(f).state, RUN_TRAINING);
    assert_int_equal(status(f).cut.version, 2);
    assert_null(seen(f, EFFECT_STORE_STATE));
    assert_null(seen(f, EFFECT_NOTICE));
    assert_null(seen(f, EFFECT_ANSWER));
    assert_null(command(f, 0, SERVER_END));
    assert_int_equal(coordinator_pause(f->coordinator, f->now_ms, "reboot"), ERR_NO_RUN);
    /* Who asks before the daemon has ended is told no end: it looks for the successor. */
    assert_int_equal(acquire(f, f->worker, 3, 5000), ERR_OK);
    assert_null(seen(f, EFFECT_ANSWER));
    assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, f->worker), ERR_OK);
    look(f);
    assert_null(seen(f, EFFECT_NOTICE));
}

TEST_F(a_run_that_ends_before_its_pause_does_is_over, coordinator, .steps = 1, .workers = 1)
{
    step(f, 0);
    take_a_pause(f);
    record_all(f, 1);
    assert_int_equal(status(f).state, RUN_ENDED);
    assert_false(status(f).paused);
    assert_int_equal(acquire(f, f->worker, 1, 5000), ERR_OK);
    assert_int_equal(answer(f, f->worker).result, ACQUIRE_END); /* no successor goes on with it */
}

TEST_F(a_run_whose_last_validation_a_pause_stops_is_a_successor_s, coordinator, .steps = 1,
       .validated = true, .workers = 1)
{
    step(f, 0);
    record_all(f, 1);
    assert_int_equal(ticket_of(f, f->worker, 1).kind, TICKET_VALIDATE);
    take_a_pause(f);
    assert_true(status(f).paused);
    assert_int_equal(status(f).state, RUN_TRAINING);
    assert_null(seen(f, EFFECT_STORE_STATE));
    hello(f, 0, f->generation); /* before the daemon has ended */
    assert_null(command(f, 0, SERVER_END));
}

TEST_F(a_pause_does_not_wait_for_ever, coordinator, .steps = 9)
{
    step(f, 0);
    take_a_pause(f);
    assert_false(status(f).paused);
    tick(f, STOP_MS);
    assert_false(status(f).paused);
    tick(f, STOP_MS);
    assert_true(status(f).paused);
    assert_null(seen(f, EFFECT_STORE_STATE));
}

/* The stop would wait for room, or for the lost server. */
TEST_F(a_pause_of_a_run_that_stops_waits_for_no_room, coordinator, .steps = 9)
{
    step(f, 0);
    stop(f);
    step(f, 1);
    say_manifest(f, 0, 2, ERR_NO_SPACE);
    while (command(f, 0, SERVER_COMMIT) == NULL)
        tick(f, coordinator_next_ms(f->coordinator) - f->now_ms);
    commit_all(f, 1); /* the second attempt is under way */
    tick(f, 10 * STOP_MS);
    lose_server(f, 1);
    assert_int_equal(status(f).state, RUN_TRAINING);
    take_a_pause(f);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(coordinator_next_ms(f->coordinator) <= f->now_ms + STOP_MS);
        tick(f, STOP_MS);
    }
    assert_true(status(f).paused);
}

TEST_F(a_stop_on_a_cut_needs_no_further_step, coordinator, .steps = 9)
{
    stop(f);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_int_equal(status(f).cut.version, 0);
}

/* The commit that made the newest version is sent once more, and cuts it. */
static void assert_cuts_newest(struct coordinator_fixture *f)
{
    const struct server_command *again = command(f, 0, SERVER_COMMIT);
    assert_non_null(again);
    assert_int_equal(again->commit.step, 0);
    assert_true(again->commit.cut);
    f->attempt = 1;
    record_all(f, 1);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_int_equal(status(f).cut.version, 1);
    assert_string_equal(status(f).reason, "operator");
}

TEST_F(a_stop_drops_a_step_that_nobody_finishes, coordinator, .steps = 9, .workers = 1)
{
    step(f, 0);
    stop(f);
    assert_int_equal(status(f).state, RUN_TRAINING);
    assert_true(coordinator_next_ms(f->coordinator) <= f->now_ms + STOP_MS);
    tick(f, STOP_MS);
    assert_cuts_newest(f);
}

TEST_F(a_stop_where_nobody_computes_waits_for_no_step, coordinator, .steps = 9)
{
    step(f, 0);
    stop(f);
    tick(f, 1);
    assert_cuts_newest(f);
}

/* Its worker has left with the step done; a server has not added all up yet. */
TEST_F(a_stop_drops_no_step_that_is_computed, coordinator, .steps = 9, .workers = 1,
       .whole_steps = true)
{
    step(f, 0);
    complete(f, f->worker, ticket_of(f, f->worker, 1), ERR_OK);
    say_reduced(f, 0, 1, 1);
    leave(f, f->worker, "done");
    look(f);
    stop(f);
    tick(f, 1);
    say_reduced(f, 1, 1, 1);
    assert_int_equal(status(f).version, 2);
}

TEST_F(a_stop_where_nobody_computes_waits_for_the_cut_under_way, coordinator, .steps = 9,
       .cut_every = 1)
{
    step(f, 0);
    stop(f);
    tick(f, 1);
    assert_int_equal(status(f).state, RUN_TRAINING);
    record_all(f, 1);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_int_equal(status(f).cut.version, 1);
}

TEST_F(a_cut_that_is_ordered_late_in_a_stop_has_time_of_its_own, coordinator, .steps = 9,
       .workers = 1)
{
    step(f, 0);
    stop(f);
    tick(f, STOP_MS - 1);
    step(f, 1);
    tick(f, 1);
    assert_int_equal(status(f).state, RUN_TRAINING);
    record_all(f, 2);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_int_equal(status(f).cut.version, 2);
}

TEST_F(a_stop_that_is_asked_again_drops_no_cut_under_way, coordinator, .steps = 9)
{
    step(f, 0);
    stop(f);
    tick(f, 1);
    stop(f);
    assert_int_equal(status(f).state, RUN_TRAINING);
    f->attempt = 1;
    record_all(f, 1);
    assert_int_equal(status(f).cut.version, 1);
    assert_string_equal(status(f).reason, "operator");
}

TEST_F(a_stop_whose_cut_takes_too_long_says_what_is_dropped, coordinator, .steps = 9)
{
    step(f, 0);
    stop(f);
    tick(f, 1);
    tick(f, STOP_MS);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_int_equal(status(f).cut.version, 0);
    assert_string_equal(status(f).reason,
                        "operator; version 1 is dropped, the newest checkpoint is of version 0");
}

TEST_F(a_stop_says_what_a_lost_server_took_along, coordinator, .steps = 9)
{
    step(f, 0);
    for (uint32_t i = 0; i < SERVERS; i++)
        coordinator_server_lost(f->coordinator, f->now_ms, f->link[i]);
    f->boot[0]++;
    hello(f, 0, 0);
    look(f);
    stop(f);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_string_equal(status(f).reason,
                        "operator; version 1 is dropped, the newest checkpoint is of version 0");
}

/* Of the generation before, the last cut had found no room. */
TEST_F(a_stop_waits_for_no_room_that_another_cut_had_not, coordinator, .steps = 2)
{
    step(f, 0);
    step(f, 1);
    say_manifest(f, 0, 2, ERR_NO_SPACE);
    restart_server(f, 1);
    f->generation = status(f).generation;
    ready_all(f, 0);
    step(f, 0);
    stop(f);
    tick(f, 1);
    assert_true(command(f, 0, SERVER_COMMIT)->commit.cut);
    commit_all(f, 0);
    stop(f);
    assert_int_equal(status(f).state, RUN_TRAINING);
    lose_server(f, 1);
    tick(f, STOP_MS);
    assert_int_equal(status(f).state, RUN_STOPPED);
}

TEST_F(a_stop_does_not_wait_for_validation, coordinator, .steps = 4, .validated = true)
{
    step(f, 0);
    step(f, 1);
    stop(f);
    step_cuts(f, 2, true);
    record_all(f, 3);
    assert_int_equal(status(f).state, RUN_STOPPED);
}

TEST_F(a_stop_before_the_first_step_is_immediate, coordinator, .plan = 9)
{
    assert_int_equal(coordinator_stop(f->coordinator, f->now_ms, "operator"), ERR_NO_RUN);
    assert_int_equal(coordinator_start(f->coordinator, f->now_ms, &f->run, NULL, NULL), ERR_OK);
    stop(f);
    assert_int_equal(status(f).state, RUN_STOPPED);
}

TEST_F(after_one_run_another_can_start_under_a_higher_generation, coordinator, .plan = 9)
{
    start(f, &f->run);
    uint64_t first = f->generation;
    stop(f);
    struct coordinator_past past = {.generation = first};
    f->run.run = 2;
    begin(f, &f->run, &past);
    assert_int_equal(command(f, 0, SERVER_PREPARE)->prepare.generation, first + 1);
    assert_int_equal(command(f, 0, SERVER_PREPARE)->prepare.run, 2);
    assert_false(command(f, 0, SERVER_PREPARE)->prepare.from_cut);
}
