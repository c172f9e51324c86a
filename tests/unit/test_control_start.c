/* The coordinator's daemon: runs that begin, go on, go back to a checkpoint, or are refused. */
#include "tests/unit/control_fixture.h"

#include "common/files/step_log.h"
#include "common/time.h"
#include "server/control/control_core.h"
#include "server/disk/journal.h"
#include "server/disk/record.h"

#include <sched.h>
#include <sys/stat.h>

/* ---- runs ---- */

TEST_F(a_bad_spec_is_refused_with_its_place_and_nothing_is_stored, control)
{
    assert_int_equal(say(f, run_call(f, "model: {kind: mlp}\nnonsense: 3\n", false)), ERR_INVALID);
    assert_non_null(strstr(answer.text, ":2:"));
    assert_false(store_has_active_run(f));
    assert_int_equal(served_run, 0);
    assert_int_equal(f->shards.prepared, 0);
}

TEST_F(a_run_that_names_no_directory_gets_the_daemons, control)
{
    assert_int_equal(start_run(f), ERR_OK);
    assert_int_equal(f->shards.prepared, 1);
    assert_int_equal(access(folder_path(&f->folder, "run/run.yaml"), F_OK), 0);
    assert_true(store_has_active_run(f));
}

TEST_F(each_run_that_names_no_directory_gets_another_and_resume_takes_the_newest, control,
       .trains = true)
{
    stop_run(f);
    assert_int_equal(start_run(f), ERR_OK);
    assert_int_equal(access(folder_path(&f->folder, "run/run-2/run.yaml"), F_OK), 0);
    struct call *stop = call_new(f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    assert_int_equal(say(f, stop), ERR_OK); /* before it has a checkpoint */
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK);
    scoped(store_run_release) struct store_run active = {0};
    assert_int_equal(store_find_active_run(f->store, &active, NULL), ERR_OK);
    assert_string_equal(active.directory, folder_path(&f->folder, "run"));
}

/* mv /srv/run/... /archive */
TEST_F(a_directory_from_which_a_run_was_taken_away_is_left_to_it, control, .trains = true)
{
    const char *directory = folder_path(&f->folder, "run");
    stop_run(f);
    assert_int_equal(file_remove_tree(directory, NULL), ERR_OK);
    struct call *named = run_call(f, spec, false);
    named->start_run.directory = directory;
    assert_int_equal(say(f, named), ERR_EXISTS);
    assert_non_null(strstr(answer.text, "whose checkpoints are gone; name another directory with "
                                        "--directory"));
    assert_int_equal(start_run(f), ERR_OK);
    assert_int_equal(access(folder_path(&f->folder, "run/run-2/run.yaml"), F_OK), 0);
}

/* An older version stored the directory as somebody had spelled it. */
TEST_F(a_directory_that_is_stored_by_another_spelling_is_left_to_its_run, control, .trains = true)
{
    scoped(store_run_release) struct store_run run = {0};
    const struct cut_record cut = {.name = {1, 5}, .server_count = 1};
    const char *run_dir = folder_path(&f->folder, "./fresh");
    stop_run(f);
    assert_int_equal(store_find_newest_run(f->store, &run, NULL), ERR_OK);
    free(run.directory);
    run.directory = strdup(run_dir);
    run.state = RUN_STOPPED;
    uint64_t term = f->control->term;
    assert_int_equal(store_add_run(f->store, term, &run, NULL, NULL), ERR_OK);
    assert_int_equal(store_put_cut(f->store, term, run.run, &cut, 1, NULL, NULL), ERR_OK);
    f->control->config.run_dir = run_dir;
    assert_int_equal(start_run(f), ERR_OK);
    assert_int_equal(access(folder_path(&f->folder, "fresh/run-2/run.yaml"), F_OK), 0);
}

/* As tab completion spells it, and as an operator in the daemon's folder does. */
TEST_F(a_directory_that_is_spelled_otherwise_has_the_same_run, control, .trains = true)
{
    static const char *const spelled[] = {"run/", "./run", ".//run/."};
    scoped(store_run_release) struct store_run first = {0};
    assert_int_equal(store_find_newest_run(f->store, &first, NULL), ERR_OK);
    for (size_t i = 0; i < 2 * sizeof spelled / sizeof *spelled; i++) {
        scoped(store_run_release) struct store_run newest = {0};
        const char *name = spelled[i / 2];
        stop_run(f);
        struct call *resume = run_call(f, spec, true);
        resume->start_run.directory = i % 2 == 0 ? folder_path(&f->folder, name) : name;
        assert_int_equal(say(f, resume), ERR_OK);
        ready(f);
        assert_int_equal(store_find_newest_run(f->store, &newest, NULL), ERR_OK);
        assert_int_equal(newest.run, first.run);
    }
}

TEST_F(a_new_run_is_stored_by_the_one_name_of_its_directory, control)
{
    scoped(store_run_release) struct store_run active = {0};
    struct call *call = run_call(f, spec, false);
    call->start_run.directory = "./a//b/";
    assert_int_equal(say(f, call), ERR_OK);
    assert_int_equal(store_find_active_run(f->store, &active, NULL), ERR_OK);
    assert_string_equal(active.directory, folder_path(&f->folder, "a/b"));
}

TEST_F(a_directory_with_a_path_that_is_too_long_is_refused, control)
{
    char name[WIRE_TEXT_BYTES_MAX + 1];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    struct call *call = run_call(f, spec, false);
    call->start_run.directory = name;
    assert_int_equal(say(f, call), ERR_INVALID);
    assert_false(store_has_active_run(f));
}

/* The operator has no copy of the data. */
static enum err start_without_data(struct control_fixture *f, const char *text)
{
    struct call *call = run_call(f, text, false);
    call->start_run.samples = call->start_run.validation_samples = 0;
    return say(f, call);
}

/* The daemon reads them beside its other work, however little there is to read. */
static enum err start_when_data_are_read(struct control_fixture *f, const char *text)
{
    enum err err = start_without_data(f, text);
    assert_int_equal(err, ERR_SEARCHING);
    assert_string_equal(answer.text, "the coordinator reads the data set");
    while (err == ERR_SEARCHING)
        err = start_without_data(f, text);
    return err;
}

TEST_F(a_run_whose_operator_has_no_data_gets_the_daemons_facts, control)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    static const uint8_t zeros[WIRE_DIGEST_BYTES];
    struct describe_reply reply;
    assert_int_equal(start_when_data_are_read(f, spec_served), ERR_OK);
    assert_true(served_data);
    assert_int_equal(say(f, call_new(f, CALL_DESCRIBE)), ERR_OK);
    assert_int_equal(wire_decode_describe_reply(buf_slice(&answer.response), &arena, &reply, NULL),
                     ERR_OK);
    assert_int_equal(reply.samples, 54);
    assert_int_equal(reply.validation_samples, 6);
    assert_memory_not_equal(reply.data_digest, zeros, sizeof zeros);
}

TEST_F(data_that_nobody_has_is_refused_by_its_path, control)
{
    assert_int_equal(start_when_data_are_read(f, "data: {path: /nowhere/text}"), ERR_DATA_SET);
    assert_non_null(strstr(answer.text, "/nowhere/text"));
    assert_non_null(strstr(answer.text, "nor has the coordinator's"));
    assert_false(store_has_active_run(f));
}

TEST_F(a_second_run_is_refused_while_one_is_active, control)
{
    assert_int_equal(start_run(f), ERR_OK);
    ready(f);
    manifest(f, 0);
    struct call *call = run_call(f, spec, false);
    call->start_run.directory = folder_path(&f->folder, "other");
    assert_int_equal(say(f, call), ERR_BUSY);
    scoped(store_run_release) struct store_run other = {0};
    struct reason reason;
    assert_int_equal(store_find_run(f->store, folder_path(&f->folder, "other"), &other, &reason),
                     ERR_NOT_FOUND);
    assert_int_equal(f->shards.prepared, 1);
}

TEST_F(a_start_that_failed_is_asked_for_again_as_if_it_had_not_been, control)
{
    assert_int_equal(mkdir(folder_path(&f->folder, "run"), 0755), 0);
    assert_int_equal(mkdir(folder_path(&f->folder, "run/steps.jsonl"), 0755),
                     0); /* no log can be there */
    assert_int_not_equal(start_run(f), ERR_OK);
    assert_false(store_has_active_run(f)); /* nor does a restart begin it */
    assert_int_equal(rmdir(folder_path(&f->folder, "run/steps.jsonl")), 0);
    assert_int_equal(start_run(f), ERR_OK);
    assert_true(store_has_active_run(f));
}

TEST_F(a_resume_of_nothing_is_refused, control)
{
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_INVALID);
    assert_false(store_has_active_run(f));
}

TEST_F(a_resume_on_other_data_is_refused_and_the_stored_run_stays, control, .trains = true)
{
    stop_run(f);
    struct call *call = run_call(f, spec, true);
    call->start_run.data_digest[0] = 9;
    assert_int_equal(say(f, call), ERR_DATA_SET);
    assert_false(store_has_active_run(f));
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK);
    assert_true(store_has_active_run(f));
}

TEST_F(weights_that_do_not_fit_are_refused_before_the_run_is_stored, control)
{
    struct call *call = run_call(f, spec, false);
    call->start_run.restore = folder_path(&f->folder, "nowhere.safetensors");
    assert_int_equal(say(f, call), ERR_INVALID);
    assert_non_null(strstr(answer.text, "nowhere.safetensors"));
    assert_false(store_has_active_run(f));
}

TEST_F(weights_that_only_the_servers_have_are_theirs_to_judge, control)
{
    control_free(f->control);
    open_bare_office(f);
    struct call *call = run_call(f, spec, false);
    call->start_run.restore = folder_path(&f->folder, "nowhere.safetensors");
    assert_int_equal(say(f, call), ERR_OK);
    assert_true(store_has_active_run(f));
}

/* Each is answered in the end, whoever asks in between. */
TEST_F(data_that_two_operators_ask_for_are_read_one_after_another, control)
{
    static const char *const texts[] = {"data: {path: /nowhere/a}", "data: {path: /nowhere/b}"};
    static const char *const paths[] = {"/nowhere/a", "/nowhere/b"};
    bool refused[2] = {false, false};
    for (unsigned i = 0; !refused[0] || !refused[1]; i++) {
        enum err err = start_without_data(f, texts[i % 2]);
        assert_true(err == ERR_SEARCHING || err == ERR_DATA_SET);
        assert_true(err == ERR_SEARCHING || strstr(answer.text, paths[i % 2]) != NULL);
        refused[i % 2] = refused[i % 2] || err == ERR_DATA_SET;
    }
}

TEST_F(a_refused_start_leaves_the_answer_to_who_asked_for_it, control)
{
    assert_int_equal(start_without_data(f, spec_served), ERR_SEARCHING);
    while (!atomic_load(&f->control->wanted_data.over))
        sched_yield();
    assert_int_equal(say(f, run_call(f, "nonsense: 3\n", false)), ERR_INVALID);
    assert_int_equal(start_without_data(f, "data: {path: /nowhere/a}"), ERR_SEARCHING);
    assert_string_equal(answer.text, "the coordinator reads the data set of another run");
    assert_int_equal(start_without_data(f, spec_served), ERR_OK);
}

TEST_F(the_cuts_that_a_refused_start_did_not_ask_for_stay, control)
{
    struct whole_cut *whole = &f->control->whole;
    *whole = (struct whole_cut){.dir = strdup("elsewhere"), .over = true, .asked_ns = f->now_ns};
    assert_int_equal(say(f, run_call(f, "nonsense: 3\n", false)), ERR_INVALID);
    assert_non_null(whole->dir);
}

/* It takes minutes to read, and no room. */
static void write_large(struct control_fixture *f)
{
    FILE *file = fopen(folder_path(&f->folder, "large"), "w");
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), INT64_C(1) << 38), 0);
    fclose(file);
}

TEST_F(a_daemon_ends_while_a_large_data_set_is_read, control)
{
    char text[256];
    write_large(f);
    snprintf(text, sizeof text, "data: {path: %s}", folder_path(&f->folder, "large"));
    assert_int_equal(start_without_data(f, text), ERR_SEARCHING);
    uint64_t began_ns = time_now_ns();
    control_free(f->control);
    assert_true(time_now_ns() < began_ns + 20 * SECOND);
    open_office(f);
}

TEST_F(a_large_data_set_that_nobody_asks_for_any_more_is_not_read_on, control)
{
    char text[256];
    write_large(f);
    snprintf(text, sizeof text, "data: {path: %s}", folder_path(&f->folder, "large"));
    assert_int_equal(start_without_data(f, text), ERR_SEARCHING);
    f->now_ns += 9 * SECOND;
    control_tick(f->control, f->now_ns);
    assert_int_equal(start_without_data(f, spec_served), ERR_SEARCHING);
    assert_string_equal(answer.text, "the coordinator reads the data set of another run");
    f->now_ns += SECOND;
    control_tick(f->control, f->now_ns);
    while (f->control->wanted_data.text != NULL && !atomic_load(&f->control->wanted_data.over))
        sched_yield();
    assert_int_equal(start_without_data(f, text), ERR_SEARCHING); /* back too late: anew */
    f->now_ns += 10 * SECOND;
    uint64_t began_ns = time_now_ns();
    enum err err = ERR_SEARCHING;
    while (err == ERR_SEARCHING) {
        control_tick(f->control, f->now_ns);
        err = start_without_data(f, spec_served);
        assert_true(time_now_ns() < began_ns + 20 * SECOND);
    }
    assert_int_equal(err, ERR_OK);
}

TEST_F(data_that_nobody_asks_for_any_more_are_forgotten, control)
{
    assert_int_equal(start_without_data(f, spec), ERR_SEARCHING);
    enum err err = ERR_SEARCHING;
    while (err == ERR_SEARCHING) {
        err = start_without_data(f, spec_served);
        f->now_ns += SECOND;
        control_tick(f->control, f->now_ns);
    }
    assert_int_equal(err, ERR_OK);
    assert_true(served_data);
}

TEST_F(a_successor_reads_the_data_that_it_serves_before_it_goes_on, control)
{
    assert_int_equal(start_when_data_are_read(f, spec_served), ERR_OK);
    control_free(f->control);
    open_office(f);
    served_data = false;
    unsigned prepared = f->shards.prepared;
    control_continue(f->control, f->now_ns);
    assert_int_equal(f->shards.prepared, prepared);
    assert_true(control_loading(f->control)); /* the daemon is not ready yet */
    while (f->shards.prepared == prepared) {
        f->now_ns = control_next_ns(f->control);
        control_tick(f->control, f->now_ns);
    }
    assert_true(served_data);
}

/* A successor that reads the data of the run that goes on then. */
static void read_stored(struct control_fixture *f)
{
    assert_int_equal(start_when_data_are_read(f, spec_served), ERR_OK);
    control_free(f->control);
    open_office(f);
    control_continue(f->control, f->now_ns);
    assert_true(control_reads_stored(f->control));
}

static void read_to_the_end(struct control_fixture *f)
{
    while (control_reads_stored(f->control)) {
        f->now_ns = control_next_ns(f->control);
        control_tick(f->control, f->now_ns);
    }
}

TEST_F(no_run_takes_the_place_of_one_whose_data_are_still_read, control)
{
    scoped(store_run_release) struct store_run active = {0}, other = {0};
    read_stored(f);
    unsigned prepared = f->shards.prepared;
    assert_int_equal(store_find_active_run(f->store, &active, NULL), ERR_OK);
    for (int i = 0; i < 2; i++) {
        struct call *call = run_call(f, spec, false);
        call->start_run.directory = folder_path(&f->folder, "other");
        assert_int_equal(say(f, call), i == 0 ? ERR_SEARCHING : ERR_BUSY);
        if (i == 0)
            assert_string_equal(answer.text,
                                "the coordinator reads the data set of run 1, which goes on then");
        read_to_the_end(f);
    }
    assert_int_equal(f->shards.prepared, prepared + 1);
    assert_int_equal(served_run, active.run);
    assert_int_equal(store_find_run(f->store, folder_path(&f->folder, "other"), &other, NULL),
                     ERR_NOT_FOUND);
}

TEST_F(the_status_shows_a_run_whose_data_are_still_read, control)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    scoped(store_run_release) struct store_run active = {0};
    read_stored(f);
    assert_int_equal(store_find_active_run(f->store, &active, NULL), ERR_OK);
    struct status_reply now = status(f, &arena);
    assert_int_equal(now.state, RUN_STARTING);
    assert_string_equal(now.reason, "the coordinator reads its data set");
    assert_string_equal(now.directory, active.directory);
    assert_int_equal(now.run, active.run);
    assert_int_equal(now.steps, 10);
    assert_false(now.stops);
}

/* With the next tick, since nobody says what it holds. */
static void expect_stopped(struct control_fixture *f, struct arena *arena)
{
    f->now_ns += SECOND;
    control_tick(f->control, f->now_ns);
    struct status_reply now = status(f, arena);
    assert_int_equal(now.state, RUN_STOPPED);
    assert_string_equal(now.reason, "a test");
    assert_false(store_has_active_run(f));
}

TEST_F(p7_a_run_whose_data_are_still_read_takes_a_stop, control)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    read_stored(f);
    struct call *stop = call_new(f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    assert_int_equal(say(f, stop), ERR_OK);
    assert_true(status(f, &arena).stops);
    read_to_the_end(f);
    expect_stopped(f, &arena);
}

TEST_F(p7_a_stop_of_a_run_whose_data_are_still_read_needs_the_term, control)
{
    uint64_t term;
    read_stored(f);
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    struct call *stop = call_new(f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    assert_int_equal(say(f, stop), ERR_CANCELLED);
    assert_int_equal(control_failed(f->control), ERR_OLD_TERM);
}

TEST_F(data_that_this_daemon_would_serve_otherwise_is_refused, control)
{
    assert_int_equal(say(f, run_call(f, spec_served, false)), ERR_SEARCHING);
    while (say(f, run_call(f, spec_served, false)) == ERR_SEARCHING)
        ;
    assert_int_equal(answer.err, ERR_DATA_SET);
    assert_false(store_has_active_run(f));
    assert_int_equal(served_run, 0);
}

static uint64_t rows_wanted; /* of that generation, behind the newest cut */
static enum err opens;       /* what opening the run's log ends in; ERR_OK: as it is */

enum err __real_record_open(struct record *record, const struct record_run *run,
                            uint64_t *ret_reached, struct reason *reason);
enum err __wrap_record_open(struct record *record, const struct record_run *run,
                            uint64_t *ret_reached, struct reason *reason);

enum err __wrap_record_open(struct record *record, const struct record_run *run,
                            uint64_t *ret_reached, struct reason *reason)
{
    rows_wanted = run->generation;
    if (opens != ERR_OK)
        return reason_set(reason, opens, "the disk is full");
    return __real_record_open(record, run, ret_reached, reason);
}

TEST_F(a_successor_goes_on_with_the_stored_run_in_a_new_generation, control)
{
    control_continue(f->control, f->now_ns); /* nothing is stored yet */
    assert_int_equal(f->shards.prepared, 0);
    train(f);
    uint64_t generation = f->shards.generation;
    control_free(f->control);
    open_office(f);
    control_continue(f->control, f->now_ns);
    assert_int_equal(f->shards.prepared, 2);
    assert_int_equal(rows_wanted, generation);
    assert_true(f->shards.generation > generation);
    assert_true(served_run != 0);
    assert_false(served_data);
}

/* The operator has other settings, and the disk is full. */
TEST_F(a_resume_that_fails_leaves_all_to_the_run_that_goes_on, control, .trains = true)
{
    static const char other[] = SPEC("") "optimizer: {lr: 0.3}\n"; /* of other bits */
    struct file_claim claim;
    scoped(store_run_release) struct store_run before = {0}, after = {0};
    join(f); /* and brings the fingerprint */
    assert_int_equal(store_find_active_run(f->store, &before, NULL), ERR_OK);
    control_free(f->control);
    open_office(f);
    control_continue(f->control, f->now_ns);
    assert_true(before.has_fingerprint);
    opens = ERR_NO_SPACE;
    served_run = 0;
    enum err err = say(f, run_call(f, other, true));
    opens = ERR_OK;
    assert_int_equal(err, ERR_NO_SPACE);
    assert_int_equal(served_run, 0);
    assert_true(control_active(f->control));
    assert_int_equal(file_claim_take(folder_path(&f->folder, "run/lock"), false, &claim, NULL),
                     ERR_EXISTS);
    assert_int_equal(store_find_active_run(f->store, &after, NULL), ERR_OK);
    assert_string_equal(after.spec, before.spec);
    assert_true(after.has_fingerprint);
}

TEST_F(p7_a_successor_stops_the_run_when_its_operator_was_told_so, control, .trains = true)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    uint64_t term;
    control_free(f->control);
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    assert_int_equal(store_put_stop(f->store, term, 1, "a test", NULL), ERR_OK);
    open_office(f);
    control_continue(f->control, f->now_ns);
    f->now_ns += SECOND; /* nobody says what it holds */
    control_tick(f->control, f->now_ns);
    assert_int_equal(status(f, &arena).state, RUN_STOPPED);
    assert_false(store_has_active_run(f));
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK);
    assert_true(control_loading(f->control));
    assert_true(store_has_active_run(f));
}

TEST_F(a_daemon_that_starts_after_the_end_says_how_the_run_ended, control, .trains = true)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    scoped(store_run_release) struct store_run active = {0};
    uint64_t term;
    assert_int_equal(store_find_active_run(f->store, &active, NULL), ERR_OK);
    control_free(f->control);
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    assert_int_equal(store_put_stop(f->store, term, active.run, "a test", NULL), ERR_OK);
    assert_int_equal(store_put_state(f->store, term, active.run, RUN_FAILED, "no luck", NULL),
                     ERR_OK);
    open_office(f);
    assert_int_equal(status(f, &arena).state, RUN_NONE);
    control_continue(f->control, f->now_ns);
    struct status_reply now = status(f, &arena);
    assert_int_equal(now.state, RUN_FAILED);
    assert_string_equal(now.reason, "no luck");
    assert_false(now.stops);
    assert_int_equal(now.run, active.run);
    assert_string_equal(now.directory, active.directory);
    assert_int_equal(now.steps, 10);
    assert_int_equal(now.cut.generation, f->shards.generation);
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK);
    assert_int_equal(status(f, &arena).state, RUN_STARTING);
}

TEST_F(a_stored_run_that_cannot_go_on_is_tried_again, control, .trains = true)
{
    control_free(f->control);
    assert_int_equal(file_remove_tree(folder_path(&f->folder, "run"), NULL), ERR_OK);
    FILE *file = fopen(folder_path(&f->folder, "run"), "w"); /* where its directory was */
    assert_non_null(file);
    fclose(file);
    open_office(f);
    control_continue(f->control, f->now_ns);
    assert_int_equal(control_failed(f->control), ERR_OK);
    assert_false(control_loading(f->control));
    uint64_t due_ns = f->now_ns + 10 * SECOND;
    f->now_ns += 10 * SECOND - SECOND / 2;
    control_tick(f->control, f->now_ns); /* heartbeats and rows are due later than that */
    assert_true(control_next_ns(f->control) <= due_ns);
    assert_int_equal(unlink(folder_path(&f->folder, "run")), 0); /* an operator mends it */
    assert_int_equal(mkdir(folder_path(&f->folder, "run"), 0755), 0);
    f->now_ns = due_ns;
    control_tick(f->control, f->now_ns);
    assert_true(control_loading(f->control));
}

/* Its disk is not mounted. */
TEST_F(a_stored_runs_directory_that_is_missing_is_not_made_anew, control, .trains = true)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    const char *directory = folder_path(&f->folder, "run");
    control_free(f->control);
    assert_int_equal(rename(directory, folder_path(&f->folder, "elsewhere")), 0);
    open_office(f);
    control_continue(f->control, f->now_ns);
    assert_false(control_loading(f->control));
    struct status_reply now = status(f, &arena);
    assert_int_equal(now.state, RUN_STARTING);
    assert_non_null(strstr(now.reason, "run is missing, with the run's checkpoints"));
    struct call *resume = run_call(f, spec, true);
    resume->start_run.directory = directory;
    assert_int_equal(say(f, resume), ERR_NOT_FOUND);
    assert_non_null(strstr(answer.text, "is its disk mounted?"));
    assert_int_equal(access(directory, F_OK), -1);
    assert_int_equal(rename(folder_path(&f->folder, "elsewhere"), directory), 0);
    f->now_ns += 10 * SECOND;
    control_tick(f->control, f->now_ns);
    assert_true(control_loading(f->control));
}

TEST_F(a_run_that_never_trained_begins_where_its_directory_is_missing, control)
{
    const char *directory = folder_path(&f->folder, "run");
    assert_int_equal(start_run(f), ERR_OK);
    control_free(f->control);
    assert_int_equal(file_remove_tree(directory, NULL), ERR_OK);
    open_office(f);
    control_continue(f->control, f->now_ns);
    assert_true(control_loading(f->control));
    assert_int_equal(access(directory, F_OK), 0);
}

/* A successor of the run's coordinator meets whoever chooses or removes its checkpoints. */
static struct file_claim meet_claim(struct control_fixture *f)
{
    struct file_claim claim;
    control_free(f->control);
    assert_int_equal(file_claim_take(folder_path(&f->folder, "run/lock"), false, &claim, NULL),
                     ERR_OK);
    open_office(f);
    control_continue(f->control, f->now_ns);
    return claim;
}

/* At its next look. */
static void look_again(struct control_fixture *f)
{
    f->now_ns += 10 * SECOND;
    control_tick(f->control, f->now_ns);
}

static enum err say_stop(struct control_fixture *f)
{
    struct call *stop = call_new(f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    return say(f, stop);
}

TEST_F(the_status_shows_a_run_that_cannot_go_on_yet_and_why, control, .trains = true)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    scoped(store_run_release) struct store_run active = {0};
    struct file_claim claim = meet_claim(f);
    assert_int_equal(store_find_active_run(f->store, &active, NULL), ERR_OK);
    assert_false(control_loading(f->control)); /* the daemon serves */
    for (int i = 0; i < 2; i++) {
        struct status_reply now = status(f, &arena);
        assert_int_equal(now.state, RUN_STARTING);
        assert_non_null(strstr(now.reason, "roost checkpoint works in it"));
        assert_string_equal(now.directory, active.directory);
        assert_int_equal(now.run, active.run);
        assert_int_equal(now.steps, 10);
        assert_false(now.stops);
        look_again(f);
    }
    file_claim_release(&claim);
    look_again(f);
    assert_true(control_loading(f->control));
    assert_null(strstr(status(f, &arena).reason, "roost checkpoint"));
}

TEST_F(p7_a_run_that_cannot_go_on_yet_takes_a_stop, control, .trains = true)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    struct file_claim claim = meet_claim(f);
    assert_int_equal(say_stop(f), ERR_OK);
    assert_true(status(f, &arena).stops);
    look_again(f);
    assert_true(status(f, &arena).stops);
    assert_true(store_has_active_run(f));
    file_claim_release(&claim);
    look_again(f);
    expect_stopped(f, &arena);
}

TEST_F(a_second_stop_ends_a_run_that_cannot_go_on, control, .trains = true)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    struct file_claim claim = meet_claim(f);
    uint64_t run = status(f, &arena).run;
    assert_int_equal(say_stop(f), ERR_OK);
    assert_int_equal(say_stop(f), ERR_OK);
    assert_false(store_has_active_run(f));
    assert_int_equal(say_stop(f), ERR_NO_RUN);
    look_again(f);
    struct status_reply now = status(f, &arena);
    assert_int_equal(now.state, RUN_STOPPED);
    assert_string_equal(now.reason, "a test");
    assert_int_equal(now.run, run);
    assert_int_equal(start_run(f), ERR_OK); /* another one may begin */
    file_claim_release(&claim);
}

TEST_F(no_run_takes_the_place_of_one_that_cannot_go_on_yet, control, .trains = true)
{
    scoped(store_run_release) struct store_run first = {0}, newest = {0};
    stop_run(f);
    assert_int_equal(store_find_newest_run(f->store, &first, NULL), ERR_OK);
    struct call *second = run_call(f, spec, false);
    second->start_run.directory = folder_path(&f->folder, "second");
    assert_int_equal(say(f, second), ERR_OK); /* and has no checkpoint yet */
    unsigned prepared = f->shards.prepared;
    control_free(f->control);
    struct file_claim claim;
    assert_int_equal(file_claim_take(folder_path(&f->folder, "second/lock"), false, &claim, NULL),
                     ERR_OK);
    open_office(f);
    control_continue(f->control, f->now_ns);
    assert_int_equal(start_run(f), ERR_BUSY);
    assert_non_null(strstr(answer.text, "the stored run cannot go on yet: "));
    assert_non_null(strstr(answer.text, "roost checkpoint works in it"));
    struct call *resume = run_call(f, spec, true);
    resume->start_run.directory = first.directory;
    assert_int_equal(say(f, resume), ERR_BUSY); /* of the other one */
    assert_int_equal(store_find_newest_run(f->store, &newest, NULL), ERR_OK);
    assert_int_equal(newest.run, first.run + 1);
    file_claim_release(&claim);
    resume = run_call(f, spec, true);
    resume->start_run.directory = folder_path(&f->folder, "second");
    assert_int_equal(say(f, resume), ERR_OK);
    assert_int_equal(f->shards.prepared, prepared + 1);
    assert_false(control_expects_run(f->control));
    assert_int_equal(say_stop(f), ERR_OK);
    assert_false(store_has_active_run(f));
}

static enum err finds; /* what comes of it when the store is asked for its run */

enum err __real_store_find_active_run(struct store *store, struct store_run *ret_run,
                                      struct reason *reason);
enum err __wrap_store_find_active_run(struct store *store, struct store_run *ret_run,
                                      struct reason *reason);

enum err __wrap_store_find_active_run(struct store *store, struct store_run *ret_run,
                                      struct reason *reason)
{
    if (finds != ERR_OK)
        return reason_set(reason, finds, "the store gives nothing");
    return __real_store_find_active_run(store, ret_run, reason);
}

TEST_F(a_store_that_does_not_read_yet_may_have_a_run, control, .trains = true)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    control_free(f->control);
    open_office(f);
    finds = ERR_IO;
    control_continue(f->control, f->now_ns);
    finds = ERR_OK;
    struct status_reply now = status(f, &arena);
    assert_int_equal(now.state, RUN_STARTING);
    assert_string_equal(now.reason, "the store gives nothing");
    assert_int_equal(say_stop(f), ERR_BUSY);
    assert_int_equal(start_run(f), ERR_BUSY);
    look_again(f);
    assert_true(control_loading(f->control));
    assert_int_equal(status(f, &arena).run, 1);
}

/* Its successor has them open, and whoever opens them takes their place. */
TEST_F(p7_an_old_coordinator_leaves_the_logs_to_its_successor, control, .trains = true)
{
    struct stat before, after;
    uint64_t term;
    control_free(f->control);
    assert_int_equal(stat(folder_path(&f->folder, "run/steps.jsonl"), &before), 0);
    open_office(f);
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    control_continue(f->control, f->now_ns);
    assert_int_equal(control_failed(f->control), ERR_OLD_TERM);
    assert_int_equal(stat(folder_path(&f->folder, "run/steps.jsonl"), &after), 0);
    assert_true(before.st_ino == after.st_ino);
}

/* ---- a damaged checkpoint, and a full disk ---- */

static enum err forgets; /* what comes of it when the store is to forget cuts */

enum err __real_store_forget_cuts(struct store *store, uint64_t term, uint64_t run,
                                  struct cut_name newest, struct reason *reason);
enum err __wrap_store_forget_cuts(struct store *store, uint64_t term, uint64_t run,
                                  struct cut_name newest, struct reason *reason);

enum err __wrap_store_forget_cuts(struct store *store, uint64_t term, uint64_t run,
                                  struct cut_name newest, struct reason *reason)
{
    if (forgets != ERR_OK)
        return reason_set(reason, forgets, "the store takes nothing");
    return __real_store_forget_cuts(store, term, run, newest, reason);
}

static unsigned cuts_read;
static enum err newer_is; /* what comes of reading a newer one than version 0; OK: it is damaged */

enum err __wrap_whole_cut_read(struct whole_cut_reader *reader, const char *checkpoint_dir,
                               struct checkpoint_name name, bool *ret_whole, struct reason *reason);

/* Version 0 alone is whole. */
enum err __wrap_whole_cut_read(struct whole_cut_reader *reader, const char *checkpoint_dir,
                               struct checkpoint_name name, bool *ret_whole, struct reason *reason)
{
    (void)reader, (void)checkpoint_dir;
    cuts_read++;
    *ret_whole = name.version == 0;
    if (*ret_whole)
        return ERR_OK;
    return reason_set(reason, newer_is == ERR_OK ? ERR_CORRUPT : newer_is, "damaged");
}

/* A cut that is recorded in the directory. */
static void record_as(const char *directory, uint64_t run, struct checkpoint_name name,
                      const struct digest *data_digest)
{
    struct checkpoint_record record = {.name = name,
                                       .run = run,
                                       .data_digest = *data_digest,
                                       .spec = spec_served,
                                       .server_count = 1};
    struct checkpoint_writer *writer;
    const float weight = 1;
    char path[300];
    snprintf(path, sizeof path, "%s/checkpoints", directory);
    assert_int_equal(checkpoint_writer_new(&file_ops_real, path, record.name, 0,
                                           (struct checkpoint_arrays){0}, &writer, NULL),
                     ERR_OK);
    assert_int_equal(checkpoint_writer_add(writer, 0, 1, &weight, NULL, NULL), ERR_OK);
    assert_int_equal(checkpoint_writer_finish(writer, &record.manifests[0], NULL), ERR_OK);
    checkpoint_writer_free(writer);
    assert_int_equal(checkpoint_record(&file_ops_real, path, &record, NULL), ERR_OK);
}

static void record_on_disk(const char *directory, struct checkpoint_name name,
                           const struct digest *data_digest)
{
    record_as(directory, 1, name, data_digest);
}

/* A directory with a recorded version 0 of a run that the store has never heard of. */
static const char *directory_of_run(struct control_fixture *f, const char *name,
                                    const struct digest *data_digest)
{
    const char *directory = folder_path(&f->folder, name);
    record_on_disk(directory, (struct checkpoint_name){1, 0}, data_digest);
    return directory;
}

/* `samples` 0: the operator has no copy of the data. */
static enum err resume_in(struct control_fixture *f, const char *directory,
                          const struct digest *data_digest, uint64_t samples)
{
    struct call *call = run_call(f, spec_served, true);
    call->start_run.directory = directory;
    call->start_run.samples = samples;
    memcpy(call->start_run.data_digest, data_digest->bytes, WIRE_DIGEST_BYTES);
    return say(f, call);
}

/* One has its data set read and waits for the checkpoints, the other one has those and waits for
 * its data set. */
TEST_F(two_resumes_of_runs_that_the_store_does_not_know_do_not_wait_for_each_other, control)
{
    struct digest none = {0}, digest;
    struct spec parsed;
    struct data *data;
    assert_int_equal(spec_parse(slice_of(spec_served), "spec", NULL, &parsed, NULL), ERR_OK);
    assert_int_equal(run_data_open(&parsed, NULL, &data, NULL), ERR_OK);
    digest = *data_digest(data);
    data_free(data);
    const char *first = directory_of_run(f, "first", &digest);
    const char *second = directory_of_run(f, "second", &digest);
    assert_int_equal(resume_in(f, first, &none, 0), ERR_SEARCHING);
    assert_int_equal(resume_in(f, second, &digest, 54), ERR_SEARCHING);
    assert_string_equal(answer.text, "the coordinator reads the data set of another run");
    while (!atomic_load(&f->control->wanted_data.over))
        sched_yield();
    assert_int_equal(resume_in(f, first, &none, 0), ERR_OK);
    assert_int_equal(resume_in(f, second, &digest, 54), ERR_BUSY);
}

/* It is cut off from its operators, and still reaches the directory. */
TEST_F(a_run_that_another_coordinator_goes_on_with_is_not_taken_from_its_directory, control)
{
    const struct digest none = {0};
    scoped(store_run_release) struct store_run run = {0};
    struct file_claim claim;
    const char *directory = directory_of_run(f, "first", &none);
    for (int shared = 1; shared >= 0; shared--) {
        assert_int_equal(
            file_claim_take(folder_path(&f->folder, "first/lock"), shared == 1, &claim, NULL),
            ERR_OK);
        struct call *call = run_call(f, spec, true);
        call->start_run.directory = directory;
        assert_int_equal(say(f, call), ERR_BUSY);
        assert_non_null(strstr(answer.text, shared == 1
                                                ? "another coordinator goes on with this run"
                                                : "roost checkpoint works in it"));
        assert_int_equal(store_find_run(f->store, directory, &run, NULL), ERR_NOT_FOUND);
        file_claim_release(&claim);
    }
    struct call *call = run_call(f, spec, true);
    call->start_run.directory = directory;
    assert_int_equal(say(f, call), ERR_OK);
}

/* With its store, and the daemon was started for that place. */
TEST_F(a_run_whose_directory_was_moved_is_resumed_where_it_is_now, control, .trains = true)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    scoped(store_run_release) struct store_run before = {0}, active = {0};
    control_free(f->control);
    assert_int_equal(store_find_active_run(f->store, &before, NULL), ERR_OK);
    assert_int_equal(rename(folder_path(&f->folder, "run"), folder_path(&f->folder, "moved")), 0);
    open_office(f);
    f->control->config.continue_only = folder_path(&f->folder, "moved");
    control_continue(f->control, f->now_ns);
    assert_false(control_loading(f->control));
    assert_int_equal(access(before.directory, F_OK), -1);
    struct call *call = run_call(f, spec, true);
    call->start_run.directory = folder_path(&f->folder, "moved");
    assert_int_equal(say(f, call), ERR_OK);
    assert_int_equal(store_find_active_run(f->store, &active, NULL), ERR_OK);
    assert_string_equal(active.directory, folder_path(&f->folder, "moved"));
    control_free(f->control);
    open_office(f);
    f->control->config.continue_only = folder_path(&f->folder, "./moved/"); /* spelled otherwise */
    control_continue(f->control, f->now_ns);                                /* as after a crash */
    assert_true(control_loading(f->control));
    assert_int_equal(say_stop(f), ERR_OK);
    expect_stopped(f, &arena); /* and no other is active */
}

/* The store comes from a backup: servers refuse a generation that is older than their logs. */
TEST_F(a_stored_run_is_resumed_above_all_generations_of_its_directory, control, .trains = true)
{
    const struct digest digest = {0};
    for (int i = 0; i < 2; i++) {
        uint64_t later = f->shards.generation + 3;
        record_on_disk(folder_path(&f->folder, "run"), (struct checkpoint_name){later, 9}, &digest);
        control_free(f->control);
        open_office(f);
        if (i == 0)
            control_continue(f->control, f->now_ns);
        else
            assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK);
        assert_true(f->shards.generation > later);
    }
}

/* What the newest answer tells the operator of the run that was started. */
static bool notes_have(const char *words)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    struct start_run_reply reply;
    assert_int_equal(wire_decode_start_run_reply(buf_slice(&answer.response), &arena, &reply, NULL),
                     ERR_OK);
    return strstr(reply.notes, words) != NULL;
}

/* Killed, and started anew for that place. */
static void go_on_in(struct control_fixture *f, const char *directory)
{
    control_free(f->control);
    open_office(f);
    f->control->config.continue_only = directory;
    control_continue(f->control, f->now_ns);
}

static enum err resume_with(struct control_fixture *f, const char *text, const char *directory)
{
    struct call *call = run_call(f, text, true);
    call->start_run.directory = directory;
    return say(f, call);
}

/* The fixture's run is moved, what is resumed there with that spec records version 5, and then it is
 * moved back. */
static void move_there_and_back(struct control_fixture *f, const char *text)
{
    scoped(store_run_release) struct store_run away = {0};
    const char *here = folder_path(&f->folder, "run"), *there = folder_path(&f->folder, "moved");
    uint64_t term;
    assert_int_equal(rename(here, there), 0);
    go_on_in(f, there);
    assert_int_equal(resume_with(f, text, there), ERR_OK);
    assert_int_equal(store_find_active_run(f->store, &away, NULL), ERR_OK);
    assert_int_equal(away.run, 2);
    const struct cut_record cut = {.name = {f->shards.generation, 5}, .server_count = 1};
    record_as(there, away.run, (struct checkpoint_name){f->shards.generation, 5},
              &(struct digest){0});
    control_free(f->control);
    f->control = NULL;
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    assert_int_equal(store_put_cut(f->store, term, away.run, &cut, 9, NULL, NULL), ERR_OK);
    assert_int_equal(rename(there, here), 0);
    go_on_in(f, here);
}

TEST_F(a_run_whose_directory_was_moved_there_and_back_goes_on_from_its_newest_checkpoint, control,
       .trains = true)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    scoped(store_run_release) struct store_run ended = {0}, active = {0};
    const char *here = folder_path(&f->folder, "run"), *there = folder_path(&f->folder, "moved");
    move_there_and_back(f, spec);
    assert_false(control_loading(f->control));
    assert_int_equal(resume_with(f, spec, here), ERR_OK);
    assert_int_equal(store_find_active_run(f->store, &active, NULL), ERR_OK);
    assert_string_equal(active.directory, here);
    assert_int_equal(past_later(f).cut.name.version, 5);
    assert_int_equal(store_find_run(f->store, there, &ended, NULL), ERR_OK);
    assert_int_equal(ended.state, RUN_STOPPED);
    go_on_in(f, here); /* as after a crash */
    assert_true(control_loading(f->control));
    assert_int_equal(say_stop(f), ERR_OK);
    expect_stopped(f, &arena); /* and no other is active */
}

/* Behind the adoption of the checkpoints. */
TEST_F(p12_a_failed_resume_of_a_run_that_was_moved_back_keeps_the_settings_that_logged, control,
       .trains = true)
{
    static const char slower[] = SPEC("") "optimizer: {lr: 0.0001}\n";
    scoped(store_run_release) struct store_run away = {0}, back = {0};
    const char *here = folder_path(&f->folder, "run");
    move_there_and_back(f, slower);
    opens = ERR_NO_SPACE;
    enum err err = resume_with(f, spec, here);
    opens = ERR_OK;
    assert_int_equal(err, ERR_NO_SPACE);
    assert_int_equal(store_find_run(f->store, folder_path(&f->folder, "moved"), &away, NULL),
                     ERR_OK);
    assert_int_equal(store_find_run(f->store, here, &back, NULL), ERR_OK);
    assert_string_equal(back.spec, away.spec);
    assert_int_equal(resume_with(f, spec, here), ERR_OK);
    assert_true(notes_have("optimizer.lr"));
}

/* A crash came between the begin of the one and the end of the other. */
TEST_F(a_daemon_goes_on_with_the_run_of_its_place_though_a_newer_one_is_active, control,
       .trains = true)
{
    scoped(store_run_release) struct store_run newer = {0};
    uint64_t term;
    control_free(f->control);
    f->control = NULL;
    assert_int_equal(store_find_active_run(f->store, &newer, NULL), ERR_OK);
    free(newer.directory);
    newer.directory = strdup("/elsewhere");
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    assert_int_equal(store_add_run(f->store, term, &newer, NULL, NULL), ERR_OK);
    go_on_in(f, folder_path(&f->folder, "run"));
    assert_true(control_loading(f->control));
    assert_int_equal(served_run, newer.run - 1);
}

/* Behind the recorded version 0, from a coordinator that is gone. */
static void record_version_5(struct control_fixture *f)
{
    scoped(store_run_release) struct store_run active = {0};
    struct cut_record cut = {
        .name = {1, 5}, .counters = {30, 5, 0}, .server_count = 1, .servers = {{.name = "here"}}};
    uint64_t term;
    control_free(f->control);
    f->control = NULL;
    assert_int_equal(store_find_active_run(f->store, &active, NULL), ERR_OK);
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    assert_int_equal(store_put_cut(f->store, term, active.run, &cut, 3, NULL, NULL), ERR_OK);
}

TEST_F(p9_a_run_goes_back_to_a_whole_checkpoint_when_the_store_has_room, control, .trains = true)
{
    record_version_5(f);
    open_office(f);
    control_continue(f->control, f->now_ns);
    unsigned prepared = f->shards.prepared;
    forgets = ERR_NO_SPACE;
    cuts_read = 0;
    for (int i = 0; i < 2; i++) /* once while it waits */
        report(f, (struct server_report){.kind = SERVER_READY,
                                         .ready = {.cut = {f->shards.generation, 0},
                                                   .code = ERR_CORRUPT,
                                                   .text = "damaged"}});
    assert_int_equal(control_next_ns(f->control), 0);
    while (control_next_ns(f->control) == 0)
        control_tick(f->control, f->now_ns);
    report(f, (struct server_report){.kind = SERVER_READY,
                                     .ready = {.cut = {f->shards.generation, 0},
                                               .code = ERR_CORRUPT,
                                               .text = "damaged"}});
    assert_int_equal(past_later(f).cut.name.version, 5);
    assert_true(control_next_ns(f->control) > 0); /* it asks once a second */
    assert_int_equal(f->shards.prepared, prepared);
    assert_int_equal(cuts_read, 2);
    forgets = ERR_OK;
    assert_int_equal(past_later(f).cut.name.version, 0);
    assert_true(f->shards.prepared > prepared);
    assert_int_equal(cuts_read, 2);
}

/* Its disk is not well for a moment: the store forgets no checkpoint that may be whole. */
TEST_F(p9_a_checkpoint_that_cannot_be_read_is_read_again, control, .trains = true)
{
    record_version_5(f);
    open_office(f);
    control_continue(f->control, f->now_ns);
    cuts_read = 0;
    newer_is = ERR_IO;
    report(f, (struct server_report){.kind = SERVER_READY,
                                     .ready = {.cut = {f->shards.generation, 0},
                                               .code = ERR_CORRUPT,
                                               .text = "damaged"}});
    while (control_next_ns(f->control) == 0)
        control_tick(f->control, f->now_ns);
    assert_int_equal(cuts_read, 1);
    assert_int_equal(past_later(f).cut.name.version, 5);
    assert_int_equal(cuts_read, 2);
    newer_is = ERR_OK;
    past_later(f);
    while (control_next_ns(f->control) == 0)
        control_tick(f->control, f->now_ns);
    assert_int_equal(past_later(f).cut.name.version, 0);
}

/* It trains by the time that an older one has been read. */
TEST_F(p9_a_run_that_has_its_newest_checkpoint_after_all_keeps_it, control, .trains = true)
{
    record_version_5(f);
    open_office(f);
    control_continue(f->control, f->now_ns);
    struct server_report ready_of_5 = {
        .kind = SERVER_READY,
        .ready = {.cut = {f->shards.generation, 5}, .code = ERR_NOT_FOUND, .text = "no folder"}};
    report(f, ready_of_5);
    assert_int_equal(control_next_ns(f->control), 0); /* the search is under way */
    ready_of_5.ready.code = ERR_OK;
    report(f, ready_of_5);
    assert_false(control_loading(f->control));
    while (control_next_ns(f->control) == 0)
        control_tick(f->control, f->now_ns);
    assert_int_equal(past_later(f).cut.name.version, 5);
}

TEST_F(p9_a_run_goes_back_to_a_whole_checkpoint_though_the_store_refused_it_in_a_start, control,
       .trains = true)
{
    record_version_5(f);
    open_office(f);
    control_continue(f->control, f->now_ns);
    unsigned prepared = f->shards.prepared;
    forgets = ERR_NO_SPACE;
    report(f, (struct server_report){.kind = SERVER_READY,
                                     .ready = {.cut = {f->shards.generation, 0},
                                               .code = ERR_CORRUPT,
                                               .text = "damaged"}});
    while (control_next_ns(f->control) == 0)
        control_tick(f->control, f->now_ns);
    forgets = ERR_IO;
    expect_refused_by_store(f);
    forgets = ERR_OK;
    assert_int_equal(past_later(f).cut.name.version, 0);
    assert_true(f->shards.prepared > prepared);
}

TEST_F(who_waits_for_room_to_go_back_may_be_stopped, control, .trains = true)
{
    struct coordinator_past past;
    record_version_5(f);
    open_office(f);
    control_continue(f->control, f->now_ns);
    forgets = ERR_NO_SPACE;
    report(f, (struct server_report){.kind = SERVER_READY,
                                     .ready = {.cut = {f->shards.generation, 0},
                                               .code = ERR_CORRUPT,
                                               .text = "damaged"}});
    while (control_next_ns(f->control) == 0)
        control_tick(f->control, f->now_ns);
    struct call *stop = call_new(f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    assert_int_equal(say(f, stop), ERR_OK);
    assert_false(store_has_active_run(f));
    forgets = ERR_OK;
    f->now_ns += SECOND;
    control_tick(f->control, f->now_ns);
    assert_int_equal(control_failed(f->control), ERR_OK);
    assert_int_equal(store_get_past(f->store, 1, &past, NULL), ERR_OK);
    assert_int_equal(past.cut.name.version, 5);
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK); /* nothing is late any more */
}

static bool rewinds_full; /* the disk of the steps' rows */

enum err __real_step_log_rewind(struct step_log *log, uint64_t version, struct reason *reason);
enum err __wrap_step_log_rewind(struct step_log *log, uint64_t version, struct reason *reason);

enum err __wrap_step_log_rewind(struct step_log *log, uint64_t version, struct reason *reason)
{
    if (rewinds_full)
        return reason_set(reason, ERR_NO_SPACE, "the disk is full");
    return __real_step_log_rewind(log, version, reason);
}

TEST_F(a_chosen_checkpoint_is_taken_when_there_is_room_to_undo_the_rows, control, .trains = true)
{
    struct checkpoint_name chosen;
    const char *dir = folder_path(&f->folder, "run/checkpoints");
    record_version_5(f);
    assert_int_equal(checkpoint_choose(dir, (struct checkpoint_name){1, 0}, NULL), ERR_OK);
    open_office(f);
    rewinds_full = true;
    control_continue(f->control, f->now_ns);
    assert_int_equal(control_failed(f->control), ERR_OK);
    assert_false(control_loading(f->control));
    assert_int_equal(checkpoint_chosen(dir, &chosen, NULL), ERR_OK); /* it is begun anew */
    rewinds_full = false;
    f->now_ns += 10 * SECOND;
    control_tick(f->control, f->now_ns);
    assert_true(control_loading(f->control));
    assert_int_equal(checkpoint_chosen(dir, &chosen, NULL), ERR_NOT_FOUND);
}

/* The operator hears of it, and nothing is lost: the choice stays. */
static void expect_no_room(struct control_fixture *f, const char *dir)
{
    struct checkpoint_name chosen;
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_NO_SPACE);
    assert_true(answer.text[0] != 0);
    assert_int_equal(control_failed(f->control), ERR_OK);
    assert_false(control_loading(f->control));
    assert_true(store_has_active_run(f)); /* as it was, for the next start */
    assert_int_equal(checkpoint_chosen(dir, &chosen, NULL), ERR_OK);
}

/* A gradient that an async run's server took behind version 5. */
static void write_journal(const char *folder)
{
    static const float gradient[4];
    const struct journal_entry entry = {
        .n = 4, .ticket = 10, .version = 10, .scale = 1, .gradient = gradient};
    const struct journal_name name = {.generation = 1, .boot = BOOT};
    struct journal journal;
    assert_int_equal(journal_open(&file_ops_real, folder, name, &journal, NULL), ERR_OK);
    assert_int_equal(journal_put(&journal, &entry), ERR_OK);
    assert_int_equal(journal_commit(&journal, NULL), ERR_OK);
    journal_release(&journal);
}

static enum err count_entry(void *context, const struct journal_entry *entry, struct reason *reason)
{
    (void)entry, (void)reason;
    ++*(unsigned *)context;
    return ERR_OK;
}

static unsigned journal_entries(const char *folder)
{
    unsigned count = 0;
    uint64_t torn;
    const struct journal_reader reader = {&count, count_entry};
    assert_int_equal(journal_read(&file_ops_real, folder, &reader, &torn, NULL), ERR_OK);
    return count;
}

TEST_F(p12_what_was_logged_behind_a_newer_checkpoint_goes_with_it, control, .trains = true)
{
    const char *dir = folder_path(&f->folder, "run/checkpoints");
    const char *journal = folder_path(&f->folder, "run/checkpoints/journal");
    record_version_5(f);
    write_journal(journal);
    assert_int_equal(checkpoint_choose(dir, (struct checkpoint_name){1, 0}, NULL), ERR_OK);
    open_office(f);
    forgets = ERR_NO_SPACE;
    expect_no_room(f, dir);
    forgets = ERR_OK;
    assert_int_equal(journal_entries(journal), 1);
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK);
    assert_int_equal(journal_entries(journal), 0);
}

/* The store had forgotten the newer ones when the coordinator was killed. */
TEST_F(p12_a_start_that_was_killed_after_the_store_forgot_drops_the_journal_later, control,
       .trains = true)
{
    const char *dir = folder_path(&f->folder, "run/checkpoints");
    const char *journal = folder_path(&f->folder, "run/checkpoints/journal");
    const struct checkpoint_record newer = {
        .name = {1, 5}, .run = 1, .spec = spec, .server_count = 1, .by_seed = true};
    stop_run(f);
    assert_int_equal(checkpoint_record(&file_ops_real, dir, &newer, NULL), ERR_OK);
    write_journal(journal);
    assert_int_equal(checkpoint_choose(dir, (struct checkpoint_name){1, 0}, NULL), ERR_OK);
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK);
    assert_int_equal(journal_entries(journal), 0);
}

/* Who changed their mind, and chose the newest again. */
TEST_F(p12_the_newest_checkpoint_keeps_what_was_logged_behind_it, control, .trains = true)
{
    const char *dir = folder_path(&f->folder, "run/checkpoints");
    const char *journal = folder_path(&f->folder, "run/checkpoints/journal");
    stop_run(f);
    write_journal(journal);
    assert_int_equal(checkpoint_choose(dir, (struct checkpoint_name){1, 0}, NULL), ERR_OK);
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK);
    assert_int_equal(journal_entries(journal), 1);
}

/* A stop's last checkpoint has not what came while it was written. */
TEST_F(p12_other_settings_of_a_stopped_run_change_nothing_that_was_logged, control, .trains = true)
{
    static const char slower[] = SPEC("") "optimizer: {lr: 0.0001}\n";
    const char *journal = folder_path(&f->folder, "run/checkpoints/journal");
    stop_run(f);
    write_journal(journal);
    assert_int_equal(say(f, run_call(f, slower, true)), ERR_OK);
    assert_int_equal(journal_entries(journal), 0);
}

/* The store is lost, and the disk is full: a crash would leave the same. */
TEST_F(p12_a_failed_resume_of_a_run_that_is_not_stored_leaves_no_journal_to_other_settings, control)
{
    static const char slower[] = SPEC("") "optimizer: {lr: 0.0001}\n";
    const struct digest none = {0};
    const char *directory = directory_of_run(f, "lost", &none);
    const char *journal = folder_path(&f->folder, "lost/checkpoints/journal");
    write_journal(journal);
    assert_int_equal(checkpoint_choose(folder_path(&f->folder, "lost/checkpoints"),
                                       (struct checkpoint_name){1, 0}, NULL),
                     ERR_OK);
    struct call *call = run_call(f, slower, true);
    call->start_run.directory = directory;
    opens = ERR_NO_SPACE;
    enum err err = say(f, call);
    opens = ERR_OK;
    assert_int_equal(err, ERR_NO_SPACE);
    assert_int_equal(journal_entries(journal), 0);
}

TEST_F(an_operator_hears_that_steps_are_missing_in_the_log, control, .trains = true)
{
    static const char words[] = "steps are missing in the run's log";
    stop_run(f);
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK);
    assert_false(notes_have(words)); /* version 0 needs none */
    record_version_5(f);
    open_office(f);
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK);
    assert_true(notes_have(words));
    assert_true(notes_have("\nsteps are missing")); /* a line of its own */
}

TEST_F(a_resume_from_a_chosen_checkpoint_is_refused_while_there_is_no_room, control, .trains = true)
{
    struct checkpoint_name chosen;
    const char *dir = folder_path(&f->folder, "run/checkpoints");
    record_version_5(f);
    assert_int_equal(checkpoint_choose(dir, (struct checkpoint_name){1, 0}, NULL), ERR_OK);
    open_office(f);
    forgets = ERR_NO_SPACE;
    expect_no_room(f, dir);
    forgets = ERR_OK;
    rewinds_full = true;
    expect_no_room(f, dir);
    rewinds_full = false;
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK);
    assert_true(control_loading(f->control));
    assert_int_equal(checkpoint_chosen(dir, &chosen, NULL), ERR_NOT_FOUND);
    assert_int_equal(past_later(f).cut.name.version, 0);
}

/* Version 5 was written down when the store had no room for it, and roost checkpoint prune left it
 * alone. */
TEST_F(a_run_goes_on_from_the_only_checkpoint_though_the_store_lacks_it, control, .trains = true)
{
    const struct digest digest = {0};
    record_on_disk(folder_path(&f->folder, "run"), (struct checkpoint_name){1, 5}, &digest);
    assert_int_equal(file_remove_tree(folder_path(&f->folder, "run/checkpoints/g1-v0"), NULL),
                     ERR_OK);
    control_free(f->control);
    open_office(f);
    control_continue(f->control, f->now_ns);
    assert_true(control_loading(f->control));
    assert_int_equal(past_later(f).cut.name.version, 5);
}

/* The store knows version 5, and the directory comes from a backup of before: an async run would
 * wait for that version for ever. */
TEST_F(a_run_goes_on_from_a_directory_that_is_older_than_the_store, control, .trains = true)
{
    const struct digest digest = {0};
    record_on_disk(folder_path(&f->folder, "run"), (struct checkpoint_name){1, 3}, &digest);
    assert_int_equal(file_remove_tree(folder_path(&f->folder, "run/checkpoints/g1-v0"), NULL),
                     ERR_OK);
    record_version_5(f);
    open_office(f);
    control_continue(f->control, f->now_ns);
    assert_true(control_loading(f->control));
    assert_int_equal(past_later(f).cut.name.version, 3);
}

TEST_F(a_run_goes_on_from_a_chosen_checkpoint_that_the_store_lacks, control, .trains = true)
{
    const struct digest digest = {0};
    const char *dir = folder_path(&f->folder, "run/checkpoints");
    struct checkpoint_name chosen;
    record_on_disk(folder_path(&f->folder, "run"), (struct checkpoint_name){1, 3}, &digest);
    record_version_5(f);
    assert_int_equal(checkpoint_choose(dir, (struct checkpoint_name){1, 3}, NULL), ERR_OK);
    open_office(f);
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK);
    assert_int_equal(checkpoint_chosen(dir, &chosen, NULL), ERR_NOT_FOUND);
    assert_int_equal(past_later(f).cut.name.version, 3);
}

TEST_F(p9_a_run_goes_back_by_as_many_damaged_checkpoints_as_there_are, control, .trains = true)
{
    scoped(store_run_release) struct store_run active = {0};
    uint64_t term;
    record_version_5(f);
    assert_int_equal(store_find_active_run(f->store, &active, NULL), ERR_OK);
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    for (uint64_t generation = 2; generation < 40; generation++) {
        const struct cut_record cut = {
            .name = {generation, 5}, .server_count = 1, .servers = {{.name = "here"}}};
        assert_int_equal(store_put_cut(f->store, term, active.run, &cut, 50, NULL, NULL), ERR_OK);
    }
    open_office(f);
    control_continue(f->control, f->now_ns);
    report(f, (struct server_report){.kind = SERVER_READY,
                                     .ready = {.cut = {f->shards.generation, 0},
                                               .code = ERR_CORRUPT,
                                               .text = "damaged"}});
    while (control_next_ns(f->control) == 0)
        control_tick(f->control, f->now_ns);
    assert_int_equal(past_later(f).cut.name.version, 0);
}
