/* The step log: segments, footers, rewinds, what a crash leaves. */
#include "tests/unit/faults.h"
#include "tests/unit/folder.h"

#include "common/files/step_log.h"
#include "common/scoped.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 4, SLOT_SAMPLES = 2, EPOCH_SAMPLES = 30, SEGMENT_BYTES = 1000 };

static uint64_t halved_from; /* steps from here on are half as large */

struct step_log_fixture {
    void *folder;
    const char *directory;
    struct step_log log;
    uint64_t generation; /* that it is opened for; 0: rows of any lead on */
    uint64_t reached;
    struct reason reason;
};

static enum err open_with(struct step_log_fixture *f, const struct file_ops *ops, uint64_t version)
{
    const struct step_log_place from = {version, f->generation};
    enum err err = step_log_open(ops, f->directory, from, &f->log, &f->reached, &f->reason);
    if (err == ERR_OK)
        f->log.segment_bytes = f->log.close_at = SEGMENT_BYTES;
    return err;
}

static void open_at(struct step_log_fixture *f, uint64_t version)
{
    assert_int_equal(open_with(f, &file_ops_real, version), ERR_OK);
}

static void step_log_set_up(struct step_log_fixture *f)
{
    halved_from = UINT64_MAX;
    assert_int_equal(folder_make(&f->folder), 0);
    f->directory = folder_path(&f->folder, ".");
    open_at(f, 0);
}

static void step_log_tear_down(struct step_log_fixture *f)
{
    step_log_release(&f->log);
    folder_remove(&f->folder);
}

/* Steps take longer and longer, and once the run stood still. */
static double time_s(uint64_t step)
{
    return 1000 + 0.25 * (double)(step * (step + 1)) + (step >= 12 ? 10 : 0);
}

static int slots_of(uint64_t step)
{
    return step < halved_from ? SLOTS : SLOTS / 2;
}

/* The row of a step, as record.c writes what the ledger reads of it. */
static void print_row(struct buf *out, uint64_t step)
{
    int slots = slots_of(step);
    assert_int_equal(buf_printf(out,
                                "{\"step\":%" PRIu64 ",\"samples\":%" PRIu64
                                ",\"skipped\":%s,\"ticket\":%" PRIu64
                                ",\"slots\":%d,\"slot_samples\":%d,\"step_samples\":%d,"
                                "\"epoch_samples\":%d,\"digest\":\"%016" PRIx64
                                "\",\"slot_ms\":%" PRIu64 ",\"generation\":1,\"time\":%.2f}\n",
                                step, (step + 1) * SLOTS * SLOT_SAMPLES,
                                step == 7 ? "true" : "false", step * (uint64_t)slots, slots,
                                SLOT_SAMPLES, slots * SLOT_SAMPLES, EPOCH_SAMPLES, step * 77,
                                1 + step % 5, time_s(step)),
                     ERR_OK);
}

static enum err append(struct step_log_fixture *f, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        scoped(buf_release) struct buf row = {0};
        print_row(&row, i);
        TRY(step_log_append(&f->log, buf_slice(&row), &f->reason));
    }
    return ERR_OK;
}

static void write_to(struct step_log_fixture *f, uint64_t offset, const char *text)
{
    int fd = open(f->log.file.path, O_WRONLY);
    assert_int_equal(pwrite(fd, text, strlen(text), (off_t)offset), strlen(text));
    assert_int_equal(close(fd), 0);
}

static size_t segments(struct step_log_fixture *f)
{
    scoped(file_names_release) struct file_names paths = {0};
    assert_int_equal(step_log_segments(f->directory, &paths, &f->reason), ERR_OK);
    return paths.count;
}

/* All rows in all files, in order. */
struct seen {
    uint64_t next;
    bool in_order;
};

static enum err see(void *context, const char *path, uint64_t line, struct slice row,
                    struct reason *reason)
{
    struct seen *seen = context;
    uint64_t number = 0;
    bool is_step;
    (void)path, (void)line, (void)reason;
    assert_true(step_log_row_number(row, &is_step, &number));
    seen->in_order = seen->in_order && (!is_step || number == seen->next);
    seen->next += is_step ? 1 : 0;
    return ERR_OK;
}

static void assert_each_once(struct step_log_fixture *f, uint64_t count)
{
    scoped(file_names_release) struct file_names paths = {0};
    struct seen seen = {.in_order = true};
    const struct step_log_reader reader = {see, &seen};
    char path[200];
    bool torn;
    assert_int_equal(step_log_segments(f->directory, &paths, &f->reason), ERR_OK);
    snprintf(path, sizeof path, "%s/steps.jsonl", f->directory);
    assert_int_equal(file_names_add(&paths, path), ERR_OK); /* behind the others */
    for (size_t i = 0; i < paths.count; i++)
        assert_int_equal(step_log_read(paths.names[i], &reader, &torn, &f->reason), ERR_OK);
    assert_true(seen.in_order && !torn);
    assert_int_equal(seen.next, count);
    assert_int_equal(f->log.sums.step_count, count);
}

static void assert_rows(struct step_log_fixture *f, uint64_t count)
{
    assert_each_once(f, count);
    assert_int_equal(f->log.sums.fault_count, 0);
}

TEST_F(full_segments_are_closed_and_the_newest_rows_are_in_steps_jsonl, step_log)
{
    assert_int_equal(append(f, 0, 50), ERR_OK);
    assert_true(segments(f) > 5);
    assert_true(f->log.file.bytes > 0 && f->log.file.bytes < 2 * SEGMENT_BYTES);
    assert_rows(f, 50);
}

TEST_F(footers_have_the_sums_from_the_beginning, step_log)
{
    scoped(file_names_release) struct file_names paths = {0};
    struct digest before = {{0}}, digest;
    assert_int_equal(append(f, 0, 50), ERR_OK);
    assert_int_equal(step_log_segments(f->directory, &paths, &f->reason), ERR_OK);
    for (size_t i = 0; i < paths.count; i++) {
        struct step_log_footer footer = {0};
        assert_int_equal(step_log_read_footer(paths.names[i], &footer, &f->reason), ERR_OK);
        const struct ledger *sums = &footer.state.sums;
        assert_int_equal(sums->step_count, sums->last.step + 1);
        assert_int_equal(sums->samples, sums->step_count * SLOTS * SLOT_SAMPLES);
        assert_int_equal(sums->position, sums->samples);
        assert_int_equal(sums->skipped_count, sums->last.step >= 7 ? 1 : 0);
        assert_int_equal(footer.state.segment_count, i + 1);
        assert_memory_equal(&footer.before, &before, sizeof before);
        assert_int_equal(step_log_digest(paths.names[i], &footer, &digest, &f->reason), ERR_OK);
        assert_memory_equal(&digest, &footer.rows, sizeof digest);
        before = footer.state.newest;
        ledger_release(&footer.state.sums);
    }
}

TEST_F(a_damaged_footer_is_found, step_log)
{
    scoped(file_names_release) struct file_names paths = {0};
    scoped(buf_release) struct buf bytes = {0};
    struct step_log_footer footer;
    assert_int_equal(append(f, 0, 9), ERR_OK);
    assert_int_equal(step_log_segments(f->directory, &paths, &f->reason), ERR_OK);
    assert_int_equal(file_read(paths.names[0], 1 << 20, &bytes, NULL), ERR_OK);
    char *steps = memmem(bytes.data, bytes.bytes, "\"steps\":", strlen("\"steps\":"));
    steps[strlen("\"steps\":")] ^= 1;
    assert_int_equal(
        file_write_atomic(&file_ops_real, paths.names[0], 0644, buf_slice(&bytes), NULL), ERR_OK);
    assert_int_equal(step_log_read_footer(paths.names[0], &footer, &f->reason), ERR_CORRUPT);
    assert_non_null(strstr(f->reason.text, "footer is damaged"));
    step_log_release(&f->log);
    assert_int_equal(open_with(f, &file_ops_real, 0), ERR_CORRUPT);
}

TEST_F(a_log_goes_on_behind_its_newest_footer, step_log)
{
    assert_int_equal(append(f, 0, 50), ERR_OK);
    size_t before = segments(f);
    step_log_release(&f->log);
    open_at(f, 20);
    assert_int_equal(f->reached, 50);
    assert_rows(f, 50);
    assert_int_equal(append(f, 50, 60), ERR_OK);
    assert_rows(f, 60);
    assert_true(segments(f) > before);
}

TEST_F(a_rewind_opens_the_one_segment_that_it_goes_back_into, step_log)
{
    for (uint64_t version = 50; version-- > 0;) {
        assert_int_equal(append(f, f->log.sums.step_count, 50), ERR_OK);
        assert_int_equal(step_log_rewind(&f->log, version, &f->reason), ERR_OK);
        assert_rows(f, version);
        step_log_release(&f->log);
        open_at(f, version);
        assert_int_equal(f->reached, version);
        assert_rows(f, version);
    }
    assert_int_equal(segments(f), 0);
}

/* Their samples were counted before, but each of them was made. */
TEST_F(a_log_of_steps_that_became_smaller_has_them_all, step_log)
{
    halved_from = 30;
    assert_int_equal(append(f, 0, 58), ERR_OK);
    assert_true(step_log_has_all(&f->log, 58));
    step_log_release(&f->log);
    open_at(f, 45);
    assert_int_equal(f->reached, 58);
    assert_int_equal(step_log_rewind(&f->log, 45, &f->reason), ERR_OK);
    assert_each_once(f, 45);
    assert_int_equal(append(f, 45, 58), ERR_OK);
    assert_each_once(f, 58);
}

TEST_F(rows_reach_as_far_as_none_is_missing_in_any_segment, step_log)
{
    assert_int_equal(append(f, 0, 20), ERR_OK);
    assert_int_equal(append(f, 21, 50), ERR_OK);
    step_log_release(&f->log);
    open_at(f, 25);
    assert_int_equal(f->reached, 50);
    assert_true(f->log.sums.fault_count > 0);
    step_log_release(&f->log);
    open_at(f, 10);
    assert_int_equal(f->reached, 10); /* not beyond the hole */
}

TEST_F(a_log_tells_whether_it_has_all_steps, step_log)
{
    assert_true(step_log_has_all(&f->log, 0));
    assert_false(step_log_has_all(&f->log, 1)); /* the file is gone */
    assert_int_equal(append(f, 0, 20), ERR_OK);
    assert_true(step_log_has_all(&f->log, 20));
    assert_false(step_log_has_all(&f->log, 21));
    assert_int_equal(append(f, 21, 50), ERR_OK);
    assert_false(step_log_has_all(&f->log, 50));
}

/* They are undone; a full disk kept them. */
TEST_F(rows_of_an_older_generation_lead_nowhere, step_log)
{
    for (uint64_t end = 2; end <= 50; end += 48) { /* in steps.jsonl, and in segments as well */
        assert_int_equal(append(f, f->log.sums.step_count, end), ERR_OK);
        for (f->generation = 1; f->generation <= 2; f->generation++) {
            step_log_release(&f->log);
            open_at(f, 1);
            assert_int_equal(f->reached, f->generation == 1 ? end : 1);
            assert_rows(f, end);
        }
    }
}

/* As the older layout has it, and as it is when somebody copies rows together. */
TEST_F(a_log_in_one_file_is_divided, step_log)
{
    scoped(buf_release) struct buf rows = {0};
    step_log_release(&f->log);
    for (uint64_t i = 0; i < 60000; i++)
        print_row(&rows, i);
    assert_true(rows.bytes > STEP_LOG_SEGMENT_BYTES);
    assert_int_equal(buf_printf(&rows, "{\"step\":60000,\"sam"), ERR_OK);
    assert_int_equal(file_write_atomic(&file_ops_real, folder_path(&f->folder, "steps.jsonl"), 0644,
                                       buf_slice(&rows), NULL),
                     ERR_OK);
    open_at(f, 100);
    assert_int_equal(f->reached, 60000);
    assert_true(segments(f) >= 1);
    assert_true(f->log.file.bytes < STEP_LOG_SEGMENT_BYTES);
    assert_rows(f, 60000);
}

/* ---- times ---- */

static struct step_times times_from(struct step_log_fixture *f, uint64_t first_step)
{
    struct step_times times = {0};
    uint64_t reached;
    assert_int_equal(step_log_times(f->directory, first_step, &times, &reached, &f->reason),
                     ERR_OK);
    return times;
}

/* The step up to which the log has all rows. */
static uint64_t reached_from(struct step_log_fixture *f, uint64_t first_step)
{
    struct step_times times;
    uint64_t reached;
    assert_int_equal(step_log_times(f->directory, first_step, &times, &reached, &f->reason),
                     ERR_OK);
    return reached;
}

/* As if an older roost had written the footer, or `text` in place of what it says there. */
static void change_footer(const char *path, const char *text)
{
    scoped(buf_release) struct buf bytes = {0};
    struct digest check;
    assert_int_equal(file_read(path, 1 << 20, &bytes, NULL), ERR_OK);
    assert_int_equal(buf_append(&bytes, "", 1), ERR_OK);
    const char *footer = memmem(bytes.data, bytes.bytes, "{\"segment\":", 11);
    const char *from = strstr(footer, ",\"slot_ms\":"), *to = strstr(footer, ",\"epoch_digest\"");
    const char *end = strstr(footer, ",\"check\"");
    scoped(buf_release) struct buf line = {0};
    assert_int_equal(
        buf_printf(&line, "%.*s%s%.*s}", (int)(from - footer), footer, text, (int)(end - to), to),
        ERR_OK);
    assert_int_equal(digest_sha256(buf_slice(&line), &check), ERR_OK);
    line.bytes--;
    assert_int_equal(buf_printf(&line, ",\"check\":\"%s\"}\n", digest_to_hex(&check).text), ERR_OK);
    bytes.bytes = (size_t)(footer - (const char *)bytes.data);
    assert_int_equal(buf_append(&bytes, line.data, line.bytes), ERR_OK);
    assert_int_equal(file_write_atomic(&file_ops_real, path, 0644, buf_slice(&bytes), NULL),
                     ERR_OK);
}

static void assert_times(struct step_log_fixture *f, uint64_t first_step, uint64_t end)
{
    struct step_times times = times_from(f, first_step);
    assert_int_equal(reached_from(f, first_step), end);
    double gap_s = 0;
    uint64_t slot_ms = 0;
    for (uint64_t i = first_step; i < end; i++) {
        double since_s = i > first_step ? time_s(i) - time_s(i - 1) : 0;
        gap_s = since_s > gap_s ? since_s : gap_s;
        slot_ms += 1 + i % 5;
    }
    assert_int_equal(times.slot_ms, slot_ms);
    assert_int_equal(times.gap_us, (uint64_t)(gap_s * 1e6));
}

TEST_F(the_time_of_steps_is_summed_from_any_step_on, step_log)
{
    assert_int_equal(append(f, 0, 50), ERR_OK);
    for (uint64_t first = 0; first <= 50; first++)
        assert_times(f, first, 50);
    step_log_release(&f->log);
    open_at(f, 50);
    assert_int_equal(append(f, 50, 58), ERR_OK);
    assert_times(f, 0, 58);
    for (uint64_t version = 57; version > 1; version -= version % 2 + 1) {
        assert_int_equal(step_log_rewind(&f->log, version, &f->reason), ERR_OK);
        assert_int_equal(append(f, version, version + 4), ERR_OK);
        assert_times(f, 0, version + 4);
    }
}

TEST_F(a_run_without_rows_took_no_time, step_log)
{
    assert_int_equal(times_from(f, 0).slot_ms, 0);
    assert_int_equal(remove(f->log.file.path), 0);
    assert_int_equal(times_from(f, 0).slot_ms, 0);
    assert_int_equal(reached_from(f, 0), 0);
}

TEST_F(steps_are_timed_up_to_the_first_without_a_row, step_log)
{
    scoped(file_names_release) struct file_names paths = {0};
    assert_int_equal(append(f, 0, 50), ERR_OK);
    assert_int_equal(step_log_segments(f->directory, &paths, &f->reason), ERR_OK);
    uint64_t third = strtoull(strrchr(paths.names[2], '/') + 1, NULL, 10);
    uint64_t fourth = strtoull(strrchr(paths.names[3], '/') + 1, NULL, 10);
    assert_int_equal(remove(paths.names[2]), 0);
    assert_int_equal(reached_from(f, 0), third);
    assert_int_equal(reached_from(f, third - 1), third);
    assert_int_equal(reached_from(f, third), third);
    assert_int_equal(reached_from(f, fourth), 50);
    assert_int_equal(remove(f->log.file.path), 0);
    assert_true(reached_from(f, fourth) < 50);
}

TEST_F(closed_segments_are_timed_by_their_footers, step_log)
{
    scoped(file_names_release) struct file_names paths = {0};
    assert_int_equal(append(f, 0, 50), ERR_OK);
    struct step_times whole = times_from(f, 0);
    assert_int_equal(step_log_segments(f->directory, &paths, &f->reason), ERR_OK);
    for (size_t i = 2; i < 4; i++) /* of rows without a time, too */
        change_footer(paths.names[i], ",\"slot_ms\":100000,\"gap_us\":70000000,\"newest_us\":0");
    struct step_times seen = times_from(f, 0);
    assert_true(seen.slot_ms > 200000 && seen.gap_us >= 70000000);
    for (size_t i = 0; i < paths.count; i++) /* of an older roost: their rows are read */
        change_footer(paths.names[i], "");
    seen = times_from(f, 0);
    assert_memory_equal(&seen, &whole, sizeof whole);
    step_log_release(&f->log);
    open_at(f, 50);
    assert_int_equal(append(f, 50, 60), ERR_OK);
    assert_times(f, 0, 60);
    change_footer(paths.names[2], ",\"slot_ms\":1");
    uint64_t reached;
    assert_int_equal(step_log_times(f->directory, 0, &seen, &reached, &f->reason), ERR_CORRUPT);
}

TEST_F(validations_took_time_and_are_no_step, step_log)
{
    static const char row[] =
        "{\"version\":3,\"validation_loss\":1,\"slot_ms\":40,\"time\":9000.5}\n";
    assert_int_equal(append(f, 0, 3), ERR_OK);
    assert_int_equal(step_log_append(&f->log, slice_of(row), &f->reason), ERR_OK);
    assert_int_equal(append(f, 3, 5), ERR_OK);
    assert_int_equal(times_from(f, 0).slot_ms, 1 + 2 + 3 + 40 + 4 + 5);
    assert_int_equal(times_from(f, 4).slot_ms, 5);
    assert_int_equal(times_from(f, 0).gap_us, 2000000);
    step_log_release(&f->log); /* before a row that is none */
    assert_int_equal(file_write_atomic(&file_ops_real, folder_path(&f->folder, "steps.jsonl"), 0644,
                                       slice_of("{\"step\":0,\"time\":-1}\n"), NULL),
                     ERR_OK);
    struct step_times seen;
    uint64_t reached;
    assert_int_equal(step_log_times(f->directory, 0, &seen, &reached, &f->reason), ERR_MALFORMED);
    assert_non_null(strstr(f->reason.text, "time must be"));
}

/* ---- what a crash leaves ---- */

TEST_F(a_crash_while_a_segment_is_closed_loses_and_doubles_no_row, step_log)
{
    enum err err = ERR_IO;
    for (int operations = 1; err != ERR_OK; operations++) {
        struct faults faults;
        faults_init(&faults, 0, EIO);
        assert_int_equal(step_log_rewind(&f->log, 0, &f->reason), ERR_OK);
        step_log_release(&f->log);
        assert_int_equal(open_with(f, &faults.ops, 0), ERR_OK);
        faults.fail_at = faults.count + operations;
        faults.dies = true;
        err = append(f, 0, 20);
        struct step_times left = times_from(f, 0);
        step_log_release(&f->log);
        open_at(f, 0);
        struct step_times mended = times_from(f, 0);
        assert_memory_equal(&left, &mended, sizeof left);
        assert_rows(f, f->reached);
        assert_int_equal(append(f, f->reached, 30), ERR_OK);
        assert_rows(f, 30);
    }
}

TEST_F(without_room_a_segment_is_closed_later, step_log)
{
    struct faults full;
    faults_init(&full, 1, ENOSPC);
    full.dies = true;
    struct file_ops ops = file_ops_real;
    ops.rename = full.ops.rename;
    ops.context = &full;
    f->log.file.ops = &ops;
    assert_int_equal(append(f, 0, 20), ERR_OK);
    assert_int_equal(segments(f), 0);
    assert_rows(f, 20);
    ops.rename = file_ops_real.rename;
    assert_int_equal(append(f, 20, 25), ERR_OK);
    assert_int_equal(segments(f), 1);
    assert_rows(f, 25);
    f->log.file.ops = &file_ops_real;
}

/* Somebody's line is in a log that has almost the size of a segment. */
static void begin_with_a_note(struct step_log_fixture *f)
{
    assert_int_equal(step_log_rewind(&f->log, 0, &f->reason), ERR_OK);
    assert_int_equal(append(f, 0, 2), ERR_OK);
    write_to(f, f->log.file.bytes, "# lr lowered\n");
    f->log.close_at = f->log.segment_bytes = f->log.file.bytes + 1;
}

TEST_F(a_crash_while_a_log_with_a_note_is_closed_doubles_no_row, step_log)
{
    enum err err = ERR_IO;
    for (int operations = 2; err != ERR_OK; operations++) {
        struct faults faults;
        begin_with_a_note(f);
        faults_init(&faults, operations, EIO);
        faults.dies = true;
        f->log.file.ops = &faults.ops;
        err = append(f, 2, 4);
        step_log_release(&f->log);
        open_at(f, 0);
        assert_true(f->reached >= 2);
        assert_rows(f, f->reached);
        assert_int_equal(append(f, f->reached, 20), ERR_OK);
        assert_rows(f, 20);
    }
}

/* For one operation, or for all from it on. */
TEST_F(a_note_and_no_room_for_a_segment_double_no_row, step_log)
{
    for (int dies = 0; dies < 2; dies++) {
        bool failed = true;
        for (int operations = 2; failed; operations++) {
            struct faults faults;
            begin_with_a_note(f);
            faults_init(&faults, operations, ENOSPC);
            faults.dies = dies != 0;
            struct file_ops ops = file_ops_real;
            ops.write = faults.ops.write;
            ops.rename = faults.ops.rename;
            ops.context = &faults;
            f->log.file.ops = &ops;
            assert_int_equal(append(f, 2, 3), ERR_OK);
            failed = faults.count >= operations;
            f->log.file.ops = &file_ops_real;
            assert_int_equal(append(f, 3, 20), ERR_OK);
            assert_rows(f, 20);
        }
    }
}

/* Somebody copied rows into it that come to several segments, behind those that are closed. */
TEST_F(a_crash_while_a_long_log_is_divided_doubles_no_row, step_log)
{
    scoped(buf_release) struct buf rows = {0};
    enum err err = ERR_IO;
    for (uint64_t i = 10; i < 10000; i++)
        print_row(&rows, i);
    for (int operations = 1; err != ERR_OK; operations++) {
        struct faults faults;
        assert_int_equal(step_log_rewind(&f->log, 0, &f->reason), ERR_OK);
        f->log.close_at = f->log.segment_bytes = SEGMENT_BYTES;
        assert_int_equal(append(f, 0, 10), ERR_OK);
        size_t before = segments(f);
        assert_true(before > 0);
        f->log.close_at = UINT64_MAX;
        assert_int_equal(step_log_append(&f->log, buf_slice(&rows), &f->reason), ERR_OK);
        faults_init(&faults, operations, EIO);
        faults.dies = true;
        f->log.file.ops = &faults.ops;
        err = step_log_reopen(&f->log, &f->reason);
        assert_true(err != ERR_OK || segments(f) > before + 1);
        step_log_release(&f->log);
        open_at(f, 0);
        assert_int_equal(f->reached, 10000);
        assert_rows(f, 10000);
    }
}

TEST_F(a_rewind_needs_no_room, step_log)
{
    struct file_ops ops = file_ops_real;
    for (uint64_t version = 50; version-- > 0;) {
        assert_int_equal(append(f, f->log.sums.step_count, 50), ERR_OK);
        f->log.file.ops = &ops;
        ops.write = full_write;
        assert_int_equal(step_log_rewind(&f->log, version, &f->reason), ERR_OK);
        ops.write = file_ops_real.write;
        f->log.file.ops = &file_ops_real;
        assert_rows(f, version);
    }
}

/* As a file system says that has no room for a name either, at each operation, and from it on. */
TEST_F(a_rewind_that_found_no_room_is_repeated, step_log)
{
    for (int dies = 0; dies < 2; dies++) {
        enum err err = ERR_NO_SPACE;
        for (int operations = 1; err != ERR_OK; operations++) {
            struct faults faults;
            faults_init(&faults, operations, ENOSPC);
            faults.dies = dies != 0;
            assert_int_equal(append(f, f->log.sums.step_count, 50), ERR_OK);
            f->log.file.ops = &faults.ops;
            err = step_log_rewind(&f->log, 20, &f->reason);
            f->log.file.ops = &file_ops_real;
            if (err != ERR_OK && operations % 2 == 0) { /* the daemon ends meanwhile */
                step_log_release(&f->log);
                open_at(f, 20);
                assert_rows(f, f->reached);
            }
            assert_int_equal(step_log_rewind(&f->log, 20, &f->reason), ERR_OK);
            assert_rows(f, 20);
            assert_int_equal(append(f, 20, 30), ERR_OK);
            assert_rows(f, 30);
        }
    }
}

TEST_F(a_crash_within_a_rewind_doubles_no_row, step_log)
{
    enum err err = ERR_IO;
    for (int operations = 1; err != ERR_OK; operations++) {
        struct faults faults;
        faults_init(&faults, operations, EIO);
        faults.dies = true;
        assert_int_equal(append(f, f->log.sums.step_count, 50), ERR_OK);
        f->log.file.ops = &faults.ops;
        err = step_log_rewind(&f->log, 20, &f->reason);
        f->log.file.ops = &file_ops_real;
        (void)times_from(f, 0); /* whoever reads meanwhile finds rows alone */
        step_log_release(&f->log);
        open_at(f, 20);
        assert_true(f->reached >= 20);
        assert_rows(f, f->reached);
    }
    assert_int_equal(f->reached, 20);
}

/* P7: its store refuses it at its next cut; until then it writes rows. */
TEST_F(p7_who_was_followed_closes_no_segment, step_log)
{
    assert_int_equal(append(f, 0, 3), ERR_OK);
    struct step_log older = f->log;
    open_at(f, 0);
    struct step_log newer = f->log;
    f->log = older;
    assert_int_equal(append(f, 3, 20), ERR_OLD_TERM);
    older = f->log;
    f->log = newer;
    assert_int_equal(segments(f), 0);
    assert_rows(f, 3);
    assert_int_equal(append(f, 3, 20), ERR_OK);
    size_t closed = segments(f);
    older.closed.segment_count = 1; /* as if it had closed one before */
    assert_int_equal(step_log_rewind(&older, 0, &f->reason), ERR_OLD_TERM);
    assert_int_equal(segments(f), closed);
    step_log_release(&older);
}

TEST_F(a_validation_of_the_version_that_a_rewind_goes_to_is_done_again, step_log)
{
    scoped(buf_release) struct buf row = {0};
    assert_int_equal(append(f, 0, 4), ERR_OK);
    f->log.close_at = 1;
    assert_int_equal(buf_printf(&row, "{\"version\":4,\"validation_loss\":1}\n"), ERR_OK);
    assert_int_equal(step_log_append(&f->log, buf_slice(&row), &f->reason), ERR_OK);
    assert_int_equal(f->log.file.bytes, 0);
    assert_int_equal(step_log_rewind(&f->log, 4, &f->reason), ERR_OK);
    assert_int_equal(segments(f), 0);
    row.bytes = 0;
    assert_int_equal(file_read(f->log.file.path, 1 << 20, &row, NULL), ERR_OK);
    assert_int_equal(buf_append(&row, "", 1), ERR_OK);
    assert_null(strstr((const char *)row.data, "version"));
    assert_rows(f, 4);
}

/* The steps of steps.jsonl alone are those from `first` to `last`. */
static void assert_newest_rows(struct step_log_fixture *f, uint64_t first, uint64_t last)
{
    struct seen seen = {.next = first, .in_order = true};
    const struct step_log_reader reader = {see, &seen};
    bool torn;
    assert_true(file_log_in_place(&f->log.file));
    assert_int_equal(step_log_read(f->log.file.path, &reader, &torn, &f->reason), ERR_OK);
    assert_true(seen.in_order && !torn);
    assert_int_equal(seen.next, last + 1);
}

TEST_F(a_rewind_of_a_log_that_was_removed_begins_a_new_one, step_log)
{
    assert_int_equal(append(f, 0, 3), ERR_OK);
    assert_int_equal(remove(f->log.file.path), 0);
    assert_int_equal(step_log_rewind(&f->log, 2, &f->reason), ERR_OK);
    assert_int_equal(append(f, 2, 4), ERR_OK);
    assert_newest_rows(f, 2, 3);
    assert_false(step_log_has_all(&f->log, 4));
}

/* Closed segments have the rows that a rewind keeps. */
TEST_F(a_rewind_into_a_segment_needs_no_steps_jsonl, step_log)
{
    assert_int_equal(append(f, 0, 50), ERR_OK);
    assert_int_equal(remove(f->log.file.path), 0);
    assert_int_equal(step_log_rewind(&f->log, 20, &f->reason), ERR_OK);
    assert_int_equal(append(f, 20, 30), ERR_OK);
    assert_rows(f, 30);
}

TEST_F(a_log_that_was_removed_is_not_closed_but_begun_anew, step_log)
{
    assert_int_equal(append(f, 0, 3), ERR_OK);
    assert_int_equal(remove(f->log.file.path), 0);
    f->log.close_at = 1;
    assert_int_equal(append(f, 3, 4), ERR_OK);
    assert_int_equal(append(f, 4, 6), ERR_OK);
    assert_int_equal(segments(f), 0);
    assert_newest_rows(f, 4, 5);
}

/* The rows that somebody removed by `> steps.jsonl` are lost, and no others. */
TEST_F(a_log_that_was_emptied_goes_on_with_the_rows_since, step_log)
{
    for (int rewinds = 0; rewinds < 2; rewinds++) {
        assert_int_equal(step_log_rewind(&f->log, 0, &f->reason), ERR_OK);
        f->log.changed = false;
        assert_int_equal(append(f, 0, 3), ERR_OK);
        assert_int_equal(truncate(f->log.file.path, 0), 0);
        assert_int_equal(append(f, 3, 5), ERR_OK);
        if (rewinds != 0)
            assert_int_equal(step_log_rewind(&f->log, 5, &f->reason), ERR_OK);
        else
            f->log.close_at = 1;
        assert_int_equal(append(f, 5, 6), ERR_OK);
        assert_newest_rows(f, 3, 5);
        assert_true(f->log.changed);
    }
}

/* The steps of steps.jsonl are those, in that order, and no other line is in it. */
static void assert_steps(struct step_log_fixture *f, const uint64_t *steps, size_t count)
{
    scoped(buf_release) struct buf rows = {0}, expected = {0};
    for (size_t i = 0; i < count; i++)
        print_row(&expected, steps[i]);
    assert_int_equal(file_read(f->log.file.path, 1 << 20, &rows, NULL), ERR_OK);
    assert_int_equal(rows.bytes, expected.bytes);
    assert_memory_equal(rows.data, expected.data, rows.bytes);
}

/* Also of the same size, which is no sign of it. The ledger finds the step that is missing. */
TEST_F(a_log_that_somebody_wrote_to_loses_the_row_that_is_none_any_more, step_log)
{
    static const uint64_t kept[] = {0, 2, 3};
    assert_int_equal(append(f, 0, 3), ERR_OK);
    write_to(f, f->log.file.bytes / 3, "#");
    f->log.close_at = 1;
    assert_int_equal(append(f, 3, 4), ERR_OK);
    assert_steps(f, kept, 3);
    assert_true(f->log.changed);
    assert_true(f->log.sums.fault_count > 0);
    assert_int_equal(segments(f), 0);
}

/* As `echo '# lr lowered' >> steps.jsonl` does: when the segment is closed, at a rewind, and when
 * another coordinator begins. */
TEST_F(a_line_that_somebody_appended_costs_no_row, step_log)
{
    static const char note[] = "# lr lowered\n";
    for (int way = 0; way < 3; way++) {
        assert_int_equal(step_log_rewind(&f->log, 0, &f->reason), ERR_OK);
        assert_int_equal(append(f, 0, 3), ERR_OK);
        write_to(f, f->log.file.bytes, note);
        if (way == 0)
            f->log.close_at = strlen(note);
        assert_int_equal(append(f, 3, 5), ERR_OK);
        if (way == 1)
            assert_int_equal(step_log_rewind(&f->log, 5, &f->reason), ERR_OK);
        if (way == 2) {
            step_log_release(&f->log);
            open_at(f, 2);
            assert_int_equal(f->reached, 5);
        }
        assert_rows(f, 5);
    }
}

/* The row behind it is in the same line. */
TEST_F(a_line_without_its_end_that_somebody_appended_costs_one_row, step_log)
{
    static const uint64_t kept[] = {0, 1, 2, 4};
    assert_int_equal(append(f, 0, 3), ERR_OK);
    write_to(f, f->log.file.bytes, "lr lowered ");
    assert_int_equal(append(f, 3, 5), ERR_OK);
    assert_int_equal(step_log_rewind(&f->log, 5, &f->reason), ERR_OK);
    assert_steps(f, kept, 4);
    assert_true(f->log.sums.fault_count > 0);
}

/* It goes when the segment is closed. */
TEST_F(a_rewind_keeps_the_rows_behind_a_line_that_is_none, step_log)
{
    static const uint64_t kept[] = {0, 2, 3};
    assert_int_equal(append(f, 0, 4), ERR_OK);
    write_to(f, f->log.file.bytes / 4, "#"); /* of the same size */
    assert_int_equal(step_log_rewind(&f->log, 3, &f->reason), ERR_OK);
    f->log.close_at = 1;
    assert_int_equal(append(f, 3, 4), ERR_OK);
    assert_steps(f, kept, 3);
    assert_true(f->log.sums.fault_count > 0);
}

/* A row is never so long; what is behind it is not looked at. */
TEST_F(a_line_without_end_ends_the_log, step_log)
{
    scoped(buf_release) struct buf bytes = {0};
    assert_int_equal(append(f, 0, 3), ERR_OK);
    step_log_release(&f->log);
    print_row(&bytes, 0);
    for (size_t i = 0; i < (size_t)5 << 20; i++)
        assert_int_equal(buf_append(&bytes, "#", 1), ERR_OK);
    assert_int_equal(file_write_atomic(&file_ops_real, folder_path(&f->folder, "steps.jsonl"), 0644,
                                       buf_slice(&bytes), NULL),
                     ERR_OK);
    open_at(f, 0);
    assert_rows(f, 1);
}

/* `cp`, or `mv`, of one that was saved before segments were closed; at once, and at a start. */
TEST_F(an_older_copy_of_the_log_costs_no_closed_row, step_log)
{
    for (int starts = 0; starts < 2; starts++) {
        scoped(buf_release) struct buf copy = {0};
        assert_int_equal(step_log_rewind(&f->log, 0, &f->reason), ERR_OK);
        assert_int_equal(append(f, 0, 50), ERR_OK);
        uint64_t end = 50;
        for (; f->log.file.bytes > 0; end++)
            assert_int_equal(append(f, end, end + 1), ERR_OK);
        for (uint64_t i = 0; i < 3; i++)
            print_row(&copy, i);
        assert_int_equal(buf_printf(&copy, "{\"version\":3,\"validation_loss\":1}\n"), ERR_OK);
        assert_int_equal(
            file_write_atomic(&file_ops_real, f->log.file.path, 0644, buf_slice(&copy), NULL),
            ERR_OK);
        if (starts == 0) {
            assert_int_equal(step_log_reopen(&f->log, &f->reason), ERR_OK);
        } else {
            step_log_release(&f->log);
            open_at(f, end);
            assert_int_equal(f->reached, end);
        }
        assert_int_equal(f->log.file.bytes, 0);
        assert_int_equal(append(f, end, end + 50), ERR_OK);
        assert_rows(f, end + 50);
    }
}

/* As an editor does, and `mv`. */
TEST_F(a_log_that_was_replaced_goes_on_with_the_rows_that_are_there, step_log)
{
    scoped(buf_release) struct buf rows = {0};
    assert_int_equal(append(f, 0, 3), ERR_OK);
    for (uint64_t i = 0; i < 3; i++)
        print_row(&rows, i);
    assert_int_equal(
        file_write_atomic(&file_ops_real, f->log.file.path, 0644, buf_slice(&rows), NULL), ERR_OK);
    assert_int_equal(step_log_rewind(&f->log, 2, &f->reason), ERR_OLD_TERM); /* who knows whose */
    f->log.close_at = 1;
    assert_int_equal(append(f, 3, 4), ERR_OLD_TERM);
    assert_int_equal(step_log_reopen(&f->log, &f->reason), ERR_OK);
    assert_int_equal(step_log_rewind(&f->log, 2, &f->reason), ERR_OK);
    assert_int_equal(append(f, 2, 4), ERR_OK);
    assert_rows(f, 4);
    assert_true(f->log.changed);
}
