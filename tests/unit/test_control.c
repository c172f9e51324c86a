/* The coordinator's daemon: what it stores and logs while a run goes on, and calls. */
#include "tests/unit/control_fixture.h"

#include "server/control/control_core.h"
#include "server/disk/order_log.h"
#include "server/disk/record.h"

#include <errno.h>
#include <sys/stat.h>

/* ---- a term that is over, and a disk that fails ---- */

TEST_F(p7_a_stop_that_the_store_refuses_is_not_acknowledged, control, .trains = true)
{
    uint64_t term;
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    struct call *stop = call_new(f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    assert_int_equal(say(f, stop), ERR_CANCELLED);
    assert_int_equal(control_failed(f->control), ERR_OLD_TERM);
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

/* ---- what the store has no room for ---- */

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

/* ---- the run's logs ---- */

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
    struct status_reply now = status(f, &arena);
    assert_int_equal(now.step, 1);
    assert_int_equal(now.samples, 6);
    assert_int_equal(now.samples_here, 0);
    f->now_ns += SECOND;
    report(f, (struct server_report){.kind = SERVER_COMMITTED,
                                     .committed = {f->shards.generation, 0}});
    reduce(f, 1);
    now = status(f, &arena);
    assert_int_equal(now.samples_here, 6);
    assert_true(now.seconds == 1);
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

static ssize_t stale_write(const struct file_ops *ops, int fd, const void *data, size_t bytes)
{
    (void)ops, (void)fd, (void)data, (void)bytes;
    errno = ESTALE;
    return -1;
}

/* With the next tick, and not with the one behind it. */
static void expect_once(struct control_fixture *f, const char *words)
{
    f->now_ns += SECOND;
    control_tick(f->control, f->now_ns);
    assert_true(is_logged(f, words));
    f->now_ns += SECOND;
    control_tick(f->control, f->now_ns);
    assert_false(is_logged(f, words));
}

TEST_F(curves_that_cannot_be_written_are_said_once_and_cuts_go_on, control, .trains = true)
{
    const char *words = "run's curves not written  err=IO";
    struct coordinator_status status;
    struct file_ops ops = file_ops_real;
    struct file_log *events = &f->control->record.events.log;
    events->ops = &ops;
    ops.write = stale_write;
    say_and_wait(f, call_new(f, CALL_CHECKPOINT));
    log_begin(f);
    reduce(f, 0);
    expect_once(f, words);
    manifest(f, 1);
    events->ops = &file_ops_real;
    assert_int_equal(control_failed(f->control), ERR_OK);
    coordinator_status(f->control->coordinator, &status);
    assert_int_equal(status.cut.version, 1);
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
    expect_once(f, words);
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

/* ---- calls ---- */

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

TEST_F(who_asks_in_the_name_of_another_member_ends_no_call_of_that_one, control, .trains = true)
{
    uint64_t member = join(f);
    assert_int_equal(say(f, acquire_call(f, member, 1)), ERR_OK);
    uint64_t other = join(f);
    uint64_t parked = say_and_wait(f, acquire_call(f, other, 1)); /* both slots are out */
    struct call *forged = acquire_call(f, other, 2);
    forged->acquire.secret.bytes[0] ^= 1;
    assert_int_equal(say(f, forged), ERR_UNKNOWN_MEMBER);
    unsigned before = answer.count;
    control_call_cancelled(f->control, parked); /* it still waits */
    assert_int_equal(answer.count, before + 1);
    assert_int_equal(answer.number, parked);
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
    struct call *call = run_call(f, spec, false);
    call->start_run.directory = "relative";
    assert_int_equal(say(f, call), ERR_OK);
    assert_string_equal(status(f, &arena).directory, folder_path(&f->folder, "relative"));
}

/* An older version stored the directory as it was named. */
TEST_F(the_status_says_absolutely_where_the_run_of_an_older_version_lies, control)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    struct store_run old = {.spec = (char *)(uintptr_t)spec, .state = RUN_ENDED, .samples = 54};
    uint64_t term;
    char directory[] = "./relative/", none[] = "";
    old.directory = directory;
    old.restore = none;
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    assert_int_equal(store_add_run(f->store, term, &old, NULL, NULL), ERR_OK);
    control_free(f->control);
    open_office(f);
    control_continue(f->control, f->now_ns);
    assert_string_equal(status(f, &arena).directory, folder_path(&f->folder, "relative"));
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
