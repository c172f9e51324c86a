/* The coordinator's daemon: runs that begin, go on or are refused, and other calls. */
#include "tests/unit/control_fixture.h"

#include "common/files/step_log.h"
#include "common/time.h"
#include "server/control/control_core.h"
#include "server/disk/order_log.h"
#include "server/disk/record.h"

#include <errno.h>
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

/* At version 0, which is recorded. */
static void stop_run(struct control_fixture *f)
{
    struct call *stop = call_new(f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    assert_int_equal(say(f, stop), ERR_OK);
    manifest(f, 0);
    assert_false(store_has_active_run(f));
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

TEST_F(p7_a_run_whose_data_are_still_read_takes_a_stop, control)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    read_stored(f);
    struct call *stop = call_new(f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    assert_int_equal(say(f, stop), ERR_OK);
    assert_true(status(f, &arena).stops);
    read_to_the_end(f);
    f->now_ns += SECOND; /* nobody says what it holds */
    control_tick(f->control, f->now_ns);
    struct status_reply now = status(f, &arena);
    assert_int_equal(now.state, RUN_STOPPED);
    assert_string_equal(now.reason, "a test");
    assert_false(store_has_active_run(f));
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

enum err __real_record_open(struct record *record, const struct record_run *run,
                            uint64_t *ret_reached, struct reason *reason);
enum err __wrap_record_open(struct record *record, const struct record_run *run,
                            uint64_t *ret_reached, struct reason *reason);

enum err __wrap_record_open(struct record *record, const struct record_run *run,
                            uint64_t *ret_reached, struct reason *reason)
{
    rows_wanted = run->generation;
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

TEST_F(p7_a_stop_that_the_store_refuses_is_not_acknowledged, control, .trains = true)
{
    uint64_t term;
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    struct call *stop = call_new(f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    assert_int_equal(say(f, stop), ERR_CANCELLED);
    assert_int_equal(control_failed(f->control), ERR_OLD_TERM);
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
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    assert_int_equal(status(f, &arena).state, RUN_NONE);
    uint64_t due_ns = f->now_ns + 10 * SECOND;
    f->now_ns += 10 * SECOND - SECOND / 2;
    control_tick(f->control, f->now_ns); /* heartbeats and rows are due later than that */
    assert_true(control_next_ns(f->control) <= due_ns);
    assert_int_equal(unlink(folder_path(&f->folder, "run")), 0); /* an operator mends it */
    f->now_ns = due_ns;
    control_tick(f->control, f->now_ns);
    assert_true(control_loading(f->control));
}

TEST_F(p7_a_term_that_was_taken_ends_the_daemon, control)
{
    uint64_t term;
    assert_int_equal(start_run(f), ERR_OK);
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    assert_int_equal(control_failed(f->control), ERR_OK);
    ready(f); /* version 0 is a fact to store */
    assert_int_equal(control_failed(f->control), ERR_OLD_TERM);
    /* Its successor may have written one of that name. */
    assert_int_equal(access(folder_path(&f->folder, "run/checkpoints/g1-v0/cut.json"), F_OK), -1);
    assert_int_equal(say(f, call_new(f, CALL_STATUS)),
                     ERR_CANCELLED); /* it came just before the end */
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

static bool syncs_fail;
int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    if (!syncs_fail)
        return __real_fsync(fd);
    errno = EIO;
    return -1;
}

/* P9: a cut whose rows may not be on disk is not recorded. */
TEST_F(a_failed_sync_of_the_steps_ends_the_daemon_before_the_cut_is_recorded, control)
{
    struct coordinator_past past;
    assert_int_equal(start_run(f), ERR_OK);
    syncs_fail = true;
    ready(f);
    syncs_fail = false;
    assert_int_equal(control_failed(f->control), ERR_NOT_SYNCED);
    assert_int_equal(store_get_past(f->store, 1, &past, NULL), ERR_OK);
    assert_int_equal(past.cut.name.generation, 0);
}

TEST_F(a_failed_sync_while_a_run_starts_ends_the_daemon, control)
{
    syncs_fail = true;
    assert_int_equal(start_run(f), ERR_NOT_SYNCED);
    syncs_fail = false;
    assert_int_equal(control_failed(f->control), ERR_NOT_SYNCED);
}

/* ---- other calls ---- */

static enum err store_says; /* when something is to be stored */

enum err __real_store_put_conviction(struct store *store, uint64_t term, uint64_t run,
                                     const struct conviction *conviction, struct reason *reason);
enum err __wrap_store_put_conviction(struct store *store, uint64_t term, uint64_t run,
                                     const struct conviction *conviction, struct reason *reason);

enum err __wrap_store_put_conviction(struct store *store, uint64_t term, uint64_t run,
                                     const struct conviction *conviction, struct reason *reason)
{
    if (store_says != ERR_OK)
        return reason_set(reason, store_says, "the store takes nothing");
    return __real_store_put_conviction(store, term, run, conviction, reason);
}

enum err __real_store_put_stop(struct store *store, uint64_t term, uint64_t run, const char *why,
                               struct reason *reason);
enum err __wrap_store_put_stop(struct store *store, uint64_t term, uint64_t run, const char *why,
                               struct reason *reason);

enum err __wrap_store_put_stop(struct store *store, uint64_t term, uint64_t run, const char *why,
                               struct reason *reason)
{
    if (store_says != ERR_OK)
        return reason_set(reason, store_says, "the store takes nothing");
    return __real_store_put_stop(store, term, run, why, reason);
}

enum err __real_store_put_fingerprint(struct store *store, uint64_t term, uint64_t run,
                                      const uint8_t fingerprint[static WIRE_DIGEST_BYTES],
                                      struct reason *reason);
enum err __wrap_store_put_fingerprint(struct store *store, uint64_t term, uint64_t run,
                                      const uint8_t fingerprint[static WIRE_DIGEST_BYTES],
                                      struct reason *reason);

enum err __wrap_store_put_fingerprint(struct store *store, uint64_t term, uint64_t run,
                                      const uint8_t fingerprint[static WIRE_DIGEST_BYTES],
                                      struct reason *reason)
{
    if (store_says != ERR_OK)
        return reason_set(reason, store_says, "the store takes nothing");
    return __real_store_put_fingerprint(store, term, run, fingerprint, reason);
}

enum err __real_store_put_generation(struct store *store, uint64_t term, uint64_t run,
                                     uint64_t generation, struct reason *reason);
enum err __wrap_store_put_generation(struct store *store, uint64_t term, uint64_t run,
                                     uint64_t generation, struct reason *reason);

enum err __wrap_store_put_generation(struct store *store, uint64_t term, uint64_t run,
                                     uint64_t generation, struct reason *reason)
{
    if (store_says != ERR_OK)
        return reason_set(reason, store_says, "the store takes nothing");
    return __real_store_put_generation(store, term, run, generation, reason);
}

enum err __real_store_put_state(struct store *store, uint64_t term, uint64_t run,
                                enum run_state state, const char *why, struct reason *reason);
enum err __wrap_store_put_state(struct store *store, uint64_t term, uint64_t run,
                                enum run_state state, const char *why, struct reason *reason);

enum err __wrap_store_put_state(struct store *store, uint64_t term, uint64_t run,
                                enum run_state state, const char *why, struct reason *reason)
{
    if (store_says != ERR_OK)
        return reason_set(reason, store_says, "the store takes nothing");
    return __real_store_put_state(store, term, run, state, why, reason);
}

/* What the store knows of the run a while later. */
static struct coordinator_past past_later(struct control_fixture *f)
{
    scoped(store_run_release) struct store_run active = {0};
    struct coordinator_past past;
    f->now_ns += SECOND;
    control_tick(f->control, f->now_ns);
    assert_int_equal(control_failed(f->control), ERR_OK);
    assert_int_equal(store_find_active_run(f->store, &active, NULL), ERR_OK);
    assert_int_equal(store_get_past(f->store, active.run, &past, NULL), ERR_OK);
    return past;
}

TEST_F(convictions_for_which_there_is_no_room_are_stored_when_there_is, control, .trains = true)
{
    store_says = ERR_NO_SPACE;
    for (unsigned i = 0; i < 2; i++) {
        struct server_report twice = {.kind = SERVER_WRONG_BITS};
        twice.wrong_bits.member = twice.wrong_bits.first_member = join_as(f, i == 0 ? "a" : "b");
        report(f, twice);
    }
    assert_int_equal(past_later(f).convictions.count, 0);
    assert_int_equal(past_later(f).convictions.count, 0);
    store_says = ERR_OK;
    assert_int_equal(past_later(f).convictions.count, 2);
}

TEST_F(a_fingerprint_for_which_there_is_no_room_is_stored_when_there_is, control, .trains = true)
{
    store_says = ERR_NO_SPACE;
    uint64_t member = join(f);
    say_and_wait(f, acquire_call(f, member, 1));
    assert_false(past_later(f).has_fingerprint);
    unsigned before = answer.count;
    store_says = ERR_OK;
    assert_true(past_later(f).has_fingerprint);
    assert_int_equal(answer.count, before + 1);
    assert_int_equal(answer.err, ERR_OK);
}

TEST_F(p10_a_run_begins_when_the_store_has_room_for_it, control)
{
    store_says = ERR_NO_SPACE;
    assert_int_equal(start_run(f), ERR_OK);
    assert_int_equal(past_later(f).generation, 0);
    assert_int_equal(f->shards.prepared, 0);
    store_says = ERR_OK;
    assert_int_equal(past_later(f).generation, 0); /* the second time it waits twice as long */
    assert_int_equal(past_later(f).generation, 1);
    assert_int_equal(f->shards.prepared, 1);
}

TEST_F(a_stop_that_is_stored_late_is_not_the_next_runs, control, .trains = true)
{
    struct call *stop = call_new(f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    store_says = ERR_NO_SPACE;
    assert_int_equal(say(f, stop), ERR_OK);
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_NO_SPACE);
    store_says = ERR_OK;
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_OK);
    assert_false(past_later(f).stops);
}

/* The start is refused, with the store's words, and the daemon goes on. */
static void expect_refused_by_store(struct control_fixture *f)
{
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_IO);
    assert_non_null(strstr(answer.text, "the store takes nothing"));
    assert_int_equal(control_failed(f->control), ERR_OK);
}

TEST_F(a_stop_that_an_error_of_the_store_kept_late_is_stored_when_it_can_be, control,
       .trains = true)
{
    struct call *stop = call_new(f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    store_says = ERR_NO_SPACE;
    assert_int_equal(say(f, stop), ERR_OK);
    store_says = ERR_IO;
    expect_refused_by_store(f);
    store_says = ERR_OK;
    f->now_ns += SECOND;
    control_tick(f->control, f->now_ns);
    assert_false(store_has_active_run(f));
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

enum err __wrap_whole_cut_read(struct whole_cut_reader *reader, const char *checkpoint_dir,
                               struct checkpoint_name name, bool *ret_whole, struct reason *reason);

/* Version 0 alone is whole. */
enum err __wrap_whole_cut_read(struct whole_cut_reader *reader, const char *checkpoint_dir,
                               struct checkpoint_name name, bool *ret_whole, struct reason *reason)
{
    (void)reader, (void)checkpoint_dir;
    cuts_read++;
    *ret_whole = name.version == 0;
    return *ret_whole ? ERR_OK : reason_set(reason, ERR_CORRUPT, "damaged");
}

/* A directory with a recorded version 0 of a run that the store has never heard of. */
static const char *directory_of_run(struct control_fixture *f, const char *name,
                                    const struct digest *data_digest)
{
    struct checkpoint_record record = {.name = {1, 0},
                                       .run = 1,
                                       .data_digest = *data_digest,
                                       .spec = spec_served,
                                       .server_count = 1};
    struct checkpoint_writer *writer;
    const float weight = 1;
    char path[300];
    const char *directory = folder_path(&f->folder, name);
    snprintf(path, sizeof path, "%s/checkpoints", directory);
    assert_int_equal(checkpoint_writer_new(&file_ops_real, path, record.name, 0,
                                           (struct checkpoint_arrays){0}, &writer, NULL),
                     ERR_OK);
    assert_int_equal(checkpoint_writer_add(writer, 0, 1, &weight, NULL, NULL), ERR_OK);
    assert_int_equal(checkpoint_writer_finish(writer, &record.manifests[0], NULL), ERR_OK);
    checkpoint_writer_free(writer);
    assert_int_equal(checkpoint_record(&file_ops_real, path, &record, NULL), ERR_OK);
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

/* What the newest answer tells the operator of the run that was started. */
static bool notes_have(const char *words)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    struct start_run_reply reply;
    assert_int_equal(wire_decode_start_run_reply(buf_slice(&answer.response), &arena, &reply, NULL),
                     ERR_OK);
    return strstr(reply.notes, words) != NULL;
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

/* The operator hears of it, and nothing is lost: no restart begins the run, and the choice stays. */
static void expect_no_room(struct control_fixture *f, const char *dir)
{
    struct checkpoint_name chosen;
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_NO_SPACE);
    assert_true(answer.text[0] != 0);
    assert_int_equal(control_failed(f->control), ERR_OK);
    assert_false(store_has_active_run(f));
    assert_int_equal(checkpoint_chosen(dir, &chosen, NULL), ERR_OK);
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

/* ---- the order log, and a full disk ---- */

static bool order_full;           /* its disk, when it is synced */
static bool order_has_gap;        /* it was full for too long */
static struct order_log *ordered; /* the newest that a step was added to */

enum err __real_order_log_sync(struct order_log *log, struct reason *reason);
enum err __wrap_order_log_sync(struct order_log *log, struct reason *reason);

enum err __wrap_order_log_sync(struct order_log *log, struct reason *reason)
{
    if (order_full)
        return reason_set(reason, ERR_NO_SPACE, "the disk is full");
    return __real_order_log_sync(log, reason);
}

enum err __real_order_log_add(struct order_log *log, const struct order_step *step,
                              struct reason *reason);
enum err __wrap_order_log_add(struct order_log *log, const struct order_step *step,
                              struct reason *reason);

enum err __wrap_order_log_add(struct order_log *log, const struct order_step *step,
                              struct reason *reason)
{
    ordered = log;
    log->steps_lost = order_has_gap;
    return __real_order_log_add(log, step, reason);
}

TEST_F(p9_the_order_of_steps_is_on_disk_before_their_cut_is_recorded, control)
{
    assert_int_equal(start_run(f), ERR_OK);
    order_full = true;
    ready(f);
    manifest(f, 0);
    assert_int_equal(past_later(f).cut.name.generation, 0);
    assert_true(control_loading(f->control));
    order_full = false;
    for (int i = 0; i < 40 && control_loading(f->control); i++) {
        f->now_ns += SECOND;
        control_tick(f->control, f->now_ns);
        manifest(f, 0);
    }
    assert_int_equal(past_later(f).cut.name.generation, 1);
}

enum { CHUNKS = 5 /* of the spec's model */ };

static void reduce(struct control_fixture *f, uint64_t step)
{
    struct chunk_seal seals[CHUNKS];
    for (uint32_t i = 0; i < CHUNKS; i++)
        seals[i] = (struct chunk_seal){i, true, 1};
    report(f, (struct server_report){.kind = SERVER_REDUCED,
                                     .reduced = {.generation = f->shards.generation,
                                                 .step = step,
                                                 .seal_count = CHUNKS,
                                                 .seals = seals,
                                                 .has_loss = true,
                                                 .loss_sum = 4,
                                                 .sample_count = 6}});
}

static struct status_reply status_of(struct control_fixture *f, struct arena *arena)
{
    struct status_reply reply;
    assert_int_equal(say(f, call_new(f, CALL_STATUS)), ERR_OK);
    assert_int_equal(wire_decode_status_reply(buf_slice(&answer.response), arena, &reply, NULL),
                     ERR_OK);
    return reply;
}

/* The server's journal has step 0. */
TEST_F(the_speed_is_without_steps_that_servers_read_again, control)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    static const char text[] = "model: {kind: mlp, layers: [2, 8, 3]}\n"
                               "data: {kind: spiral, points: 20, validation: 0.1}\n"
                               "train: {steps: 10, slots: 2, slot_samples: 3, microbatch: 3}\n"
                               "consistency: {kind: async}\n";
    const uint64_t none = 0;
    assert_int_equal(say(f, run_call(f, text, false)), ERR_OK);
    report(f, (struct server_report){.kind = SERVER_READY,
                                     .ready = {.cut = {f->shards.generation, 0},
                                               .text = "",
                                               .applied_low = 2,
                                               .applied = &none,
                                               .applied_words = 1}});
    manifest(f, 0);
    f->now_ns += SECOND;
    reduce(f, 0);
    struct status_reply status = status_of(f, &arena);
    assert_int_equal(status.step, 1);
    assert_int_equal(status.samples, 6);
    assert_int_equal(status.samples_here, 0);
    f->now_ns += SECOND;
    report(f, (struct server_report){.kind = SERVER_COMMITTED,
                                     .committed = {f->shards.generation, 0}});
    reduce(f, 1);
    status = status_of(f, &arena);
    assert_int_equal(status.samples_here, 6);
    assert_true(status.seconds == 1);
}

TEST_F(a_gap_in_the_order_log_is_said_and_the_run_goes_on, control)
{
    scoped(buf_release) struct buf text = {0};
    assert_int_equal(buf_printf(&text, "%sconsistency: {kind: ssp, staleness: 1}\n", spec), ERR_OK);
    assert_int_equal(say(f, run_call(f, (const char *)text.data, false)), ERR_OK);
    ready(f);
    manifest(f, 0);
    uint64_t member = join(f);
    assert_int_equal(say(f, acquire_call(f, member, 1)), ERR_OK);
    log_begin(f);
    ordered = NULL;
    order_has_gap = true;
    reduce(f, 0);
    order_has_gap = false;
    assert_non_null(ordered);
    assert_true(is_logged(f, "order log has a gap"));
    assert_false(ordered->steps_lost); /* it was said, once */
    assert_int_equal(control_failed(f->control), ERR_OK);
}

static bool rows_wait_too_long; /* the disk has been full for so many that some are lost */

void __real_record_flush(struct record *record);
void __wrap_record_flush(struct record *record);

void __wrap_record_flush(struct record *record)
{
    __real_record_flush(record);
    if (!rows_wait_too_long)
        return;
    record->rows_lost = true;
    ignore(reason_set(&record->reason, ERR_NO_SPACE, "steps.jsonl: the disk is full")); /* said */
}

TEST_F(rows_that_are_lost_are_said_once_each_time_and_the_run_goes_on, control, .trains = true)
{
    const char *words = "rows of the run's log are lost  reason=\"steps.jsonl: the disk is full\" "
                        "next=\"go on; roost ledger names the steps\"";
    log_begin(f);
    for (uint32_t i = 0; i < 2; i++) {
        rows_wait_too_long = true;
        f->now_ns += SECOND;
        control_tick(f->control, f->now_ns);
        rows_wait_too_long = false;
        assert_true(is_logged(f, words));
        f->now_ns += SECOND;
        control_tick(f->control, f->now_ns);
        assert_false(is_logged(f, words));
    }
    assert_int_equal(control_failed(f->control), ERR_OK);
}

/* As an operator's `mv` does. The log's next row finds it. */
static void replace_log(struct control_fixture *f)
{
    f->control->record.steps.close_at = 1;
    assert_int_equal(file_write_atomic(&file_ops_real, folder_path(&f->folder, "run/steps.jsonl"),
                                       0644, slice_of("my notes\n"), NULL),
                     ERR_OK);
}

TEST_F(a_log_that_an_operator_replaced_is_said_once_and_the_run_goes_on, control, .trains = true)
{
    const char *words =
        "run's log was changed  reason=\"somebody removed, emptied, replaced or wrote "
        "to steps.jsonl\" next=\"go on with the rows that are there; roost ledger "
        "names the steps that are missing\"";
    replace_log(f);
    reduce(f, 0);
    log_begin(f);
    f->now_ns += SECOND;
    control_tick(f->control, f->now_ns);
    assert_true(is_logged(f, words));
    f->now_ns += SECOND;
    control_tick(f->control, f->now_ns);
    assert_false(is_logged(f, words));
    assert_int_equal(f->control->record.err, ERR_OK);
    assert_true(file_log_in_place(&f->control->record.steps.file));
}

TEST_F(a_log_that_an_operator_replaced_keeps_no_cut_from_being_recorded, control, .trains = true)
{
    struct coordinator_status status;
    say_and_wait(f, call_new(f, CALL_CHECKPOINT));
    replace_log(f);
    reduce(f, 0);
    assert_int_equal(f->control->record.err, ERR_OLD_TERM);
    manifest(f, 1);
    assert_int_equal(control_failed(f->control), ERR_OK);
    coordinator_status(f->control->coordinator, &status);
    assert_int_equal(status.cut.version, 1);
}

TEST_F(p7_a_log_that_a_successor_replaced_stays_the_successors, control, .trains = true)
{
    scoped(buf_release) struct buf bytes = {0};
    uint64_t term;
    replace_log(f);
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    reduce(f, 0);
    f->now_ns += SECOND;
    control_tick(f->control, f->now_ns);
    assert_int_equal(file_read(folder_path(&f->folder, "run/steps.jsonl"), 100, &bytes, NULL),
                     ERR_OK);
    assert_memory_equal(bytes.data, "my notes\n", bytes.bytes);
    assert_int_equal(f->control->record.err, ERR_OLD_TERM);
}

static enum run_state described(struct control_fixture *f)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    struct describe_reply reply;
    assert_int_equal(say(f, call_new(f, CALL_DESCRIBE)), ERR_OK);
    assert_int_equal(wire_decode_describe_reply(buf_slice(&answer.response), &arena, &reply, NULL),
                     ERR_OK);
    return reply.state;
}

TEST_F(p9_a_worker_that_asks_hears_of_the_end_when_the_store_has_it, control, .trains = true)
{
    struct call *stop = call_new(f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    store_says = ERR_NO_SPACE;
    assert_int_equal(say(f, stop), ERR_OK);
    assert_int_equal(described(f), RUN_TRAINING);
    store_says = ERR_OK;
    f->now_ns += SECOND;
    control_tick(f->control, f->now_ns);
    assert_int_equal(described(f), RUN_STOPPED);
}

TEST_F(the_coordinators_own_server_is_not_drained, control)
{
    struct call *call = call_new(f, CALL_DRAIN);
    call->drain.server = "here";
    assert_int_equal(say(f, call), ERR_INVALID);
    call = call_new(f, CALL_DRAIN);
    call->drain.server = "nobody";
    assert_int_equal(say(f, call), ERR_NOT_FOUND);
}

static enum err give_up_nobody(struct control_fixture *f)
{
    struct call *call = call_new(f, CALL_DRAIN);
    call->drain.server = "nobody";
    call->drain.lost = true;
    return say(f, call);
}

TEST_F(p11_an_operator_asks_again_until_the_stored_run_goes_on, control, .trains = true)
{
    const char *log = folder_path(&f->folder, "run/steps.jsonl");
    control_free(f->control);
    assert_int_equal(unlink(log), 0);
    assert_int_equal(mkdir(log, 0755), 0); /* no log can be there */
    open_office(f);
    control_continue(f->control, f->now_ns);
    assert_int_equal(give_up_nobody(f), ERR_BUSY);
    assert_int_equal(rmdir(log), 0);
    f->now_ns += 10 * SECOND;
    control_tick(f->control, f->now_ns);
    assert_int_equal(give_up_nobody(f), ERR_NOT_FOUND);
}

TEST_F(without_a_run_what_needs_one_is_refused, control)
{
    assert_int_equal(say(f, call_new(f, CALL_CHECKPOINT)), ERR_NO_RUN);
    struct call *call = call_new(f, CALL_STOP_RUN);
    call->stop_run.reason = "";
    assert_int_equal(say(f, call), ERR_NO_RUN);
    call = call_new(f, CALL_JOIN);
    call->join = (struct join_request){.wire_version = WIRE_VERSION};
    assert_int_equal(say(f, call), ERR_NO_RUN);
    assert_int_equal(say(f, acquire_call(f, 7, 1)), ERR_UNKNOWN_MEMBER);
}

TEST_F(a_checkpoint_waits_for_its_cut_and_fails_when_the_run_ends_before, control, .trains = true)
{
    uint64_t number = say_and_wait(f, call_new(f, CALL_CHECKPOINT));
    struct call *call = call_new(f, CALL_STOP_RUN);
    call->stop_run.reason = "a test";
    unsigned before = answer.count;
    control_call(f->control, f->now_ns, call);
    assert_int_equal(answer.count, before + 2); /* nothing is in flight: it stops at once */
    assert_int_equal(answer.number_before, number);
    assert_int_equal(answer.err_before, ERR_NO_RUN);
    assert_int_equal(answer.err, ERR_OK);
    assert_false(store_has_active_run(f));
}

TEST_F(a_member_that_asks_anew_gets_one_answer, control, .trains = true)
{
    uint64_t member = join(f);
    assert_int_equal(say(f, acquire_call(f, member, 1)), ERR_OK);
    uint64_t other = join(f);
    uint64_t parked = say_and_wait(f, acquire_call(f, other, 1)); /* both slots are out */
    unsigned before = answer.count;
    control_call(f->control, f->now_ns, acquire_call(f, other, 2));
    assert_int_equal(answer.count, before + 1);
    assert_int_equal(answer.number, parked);
    assert_int_equal(answer.err, ERR_CANCELLED);
    control_call_cancelled(f->control, parked); /* late */
    assert_int_equal(answer.count, before + 1);
    control_call_cancelled(f->control, f->calls);
    assert_int_equal(answer.count, before + 2);
    assert_int_equal(answer.err, ERR_CANCELLED);
}

TEST_F(a_pause_leaves_the_run_to_the_next_start, control)
{
    assert_true(control_paused(f->control)); /* no run */
    train(f);
    assert_false(control_paused(f->control));
    control_pause(f->control, f->now_ns, "a test");
    for (int i = 0; i < 10 && !control_paused(f->control); i++) {
        f->now_ns += SECOND;
        control_tick(f->control, f->now_ns);
    }
    assert_true(control_paused(f->control));
    assert_true(store_has_active_run(f));
}

TEST_F(the_status_says_where_the_run_lies, control)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    assert_string_equal(status(f, &arena).directory, "");
    assert_string_equal(status(f, &arena).coordinator, "here");
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder_path(&f->folder, ".")), 0); /* a relative one, of an operator */
    struct call *call = run_call(f, spec, false);
    call->start_run.directory = "relative";
    enum err err = say(f, call);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(err, ERR_OK);
    assert_string_equal(status(f, &arena).directory, "/the/daemon's/relative");
}

TEST_F(the_status_line_counts_servers_workers_and_steps, control)
{
    scoped(buf_release) struct buf line = {0};
    train(f);
    join(f);
    assert_int_equal(control_status_line(f->control, &line), ERR_OK);
    assert_non_null(
        strstr((const char *)line.data, "1/1 servers, 1 worker, step 0 of 10, checkpoint 0"));
}

/* ---- what places cost ---- */

static struct call *complete_call(struct control_fixture *f, uint64_t member, struct ticket ticket,
                                  struct place_cost cost)
{
    struct call *call = call_new(f, CALL_COMPLETE);
    call->complete = (struct complete_request){.member = member,
                                               .secret = f->secrets[member % SECRETS_MAX],
                                               .ticket = ticket,
                                               .cost = cost};
    return call;
}

TEST_F(the_status_adds_times_and_bytes_of_tickets_and_keeps_the_most_memory, control,
       .trains = true)
{
    static const struct place_cost costs[] = {{10, 20, 100, 7, 5, 1}, {30, 50, 200, 6, 8, 1}};
    static const struct place_cost sums = {40, 70, 300, 7, 8, 1};
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    uint64_t member = join(f);
    assert_int_equal(status(f, &arena).cost_count, 0);
    struct acquire_reply acquired;
    assert_int_equal(say(f, acquire_call(f, member, 1)), ERR_OK);
    assert_int_equal(
        wire_decode_acquire_reply(buf_slice(&answer.response), &arena, &acquired, NULL), ERR_OK);
    for (uint64_t i = 0; i < 2; i++) {
        struct call *nobodys = complete_call(f, member + 1, acquired.ticket, costs[i]);
        assert_int_equal(say(f, nobodys), ERR_UNKNOWN_MEMBER);
        assert_int_equal(say(f, complete_call(f, member, acquired.ticket, costs[i])), ERR_OK);
    }
    struct status_reply reply = status(f, &arena);
    assert_int_equal(reply.cost_count, 1);
    assert_memory_equal(&reply.costs[0], &sums, sizeof sums);
    assert_int_equal(reply.validation_peer_bytes, 0);
    stop_run(f);
    assert_int_equal(start_run(f), ERR_OK);
    assert_int_equal(status(f, &arena).cost_count, 0);
}
