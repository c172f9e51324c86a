/* What a run leaves for people. */
#include "tests/unit/faults.h"
#include "tests/unit/folder.h"

#include "common/files/json.h"
#include "server/disk/record.h"

struct record_fixture {
    void *folder;
    const char *directory;
    struct record record;
    uint64_t generation; /* since the newest rewind; 0: the first */
    uint64_t reached;
};

static void record_set_up(struct record_fixture *f)
{
    assert_int_equal(folder_make(&f->folder), 0);
    f->directory = folder_path(&f->folder, ".");
}

static void open_at(struct record_fixture *f, uint64_t version)
{
    const struct record_run run = {.directory = f->directory,
                                   .spec = "train: {}\n",
                                   .version = version,
                                   .generation = 1 + f->generation,
                                   .epoch_samples = 30};
    assert_int_equal(record_open(&f->record, &run, &f->reached, NULL), ERR_OK);
}

static void record_tear_down(struct record_fixture *f)
{
    record_release(&f->record);
    folder_remove(&f->folder);
}

/* A file of the run, as text. */
static char *text_of(const struct record_fixture *f, const char *name)
{
    char path[128];
    struct buf text = {0};
    snprintf(path, sizeof path, "%s/%s", f->directory, name);
    assert_int_equal(file_read(path, 1 << 20, &text, NULL), ERR_OK);
    assert_int_equal(buf_append(&text, "", 1), ERR_OK);
    return (char *)text.data;
}

static size_t rows(const struct record_fixture *f)
{
    char *text = text_of(f, "steps.jsonl");
    size_t count = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        count++;
    free(text);
    return count;
}

static void step(struct record_fixture *f, uint64_t number)
{
    record_step(&f->record,
                &(struct step_row){
                    .step = number, .generation = 1, .samples = 8, .step_samples = 8, .slots = 4});
}

TEST_F(a_step_is_one_object_a_line, record)
{
    struct json *row;
    uint64_t number;
    double loss;
    open_at(f, 0);
    record_step(&f->record,
                &(struct step_row){.step = 3,
                                   .metrics = {.loss = 0.5, .samples = 31, .digest = 10},
                                   .step_samples = 32,
                                   .slots = 8,
                                   .workers = 2});
    record_flush(&f->record);
    scoped(free_scoped) char *text = text_of(f, "steps.jsonl");
    assert_int_equal(json_parse("row", slice_of(text), &row, NULL), ERR_OK);
    assert_int_equal(json_get_uint(row, "step", &number, NULL), ERR_OK);
    assert_int_equal(number, 3);
    assert_int_equal(json_get_real(row, "loss", &loss, NULL), ERR_OK);
    assert_true(loss == 0.5);
    static const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{"ticket", 24},
                  {"slots", 8},
                  {"slot_samples", 4},
                  {"step_samples", 31},
                  {"epoch_samples", 30}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        assert_int_equal(json_get_uint(row, counts[i].key, &number, NULL), ERR_OK);
        assert_int_equal(number, counts[i].value);
    }
    const char *digest;
    assert_int_equal(json_get_text(row, "digest", &digest, NULL), ERR_OK);
    assert_string_equal(digest, "000000000000000a");
    json_free(row);
}

TEST_F(a_step_is_a_point_of_each_curve, record)
{
    static const char *const curves[] = {"train/loss", "train/norm", "train/lr", "cluster/workers"};
    open_at(f, 0);
    step(f, 0);
    const struct buf *scalars = &f->record.scalars;
    for (size_t i = 0; i < sizeof curves / sizeof curves[0]; i++)
        assert_non_null(memmem(scalars->data, scalars->bytes, curves[i], strlen(curves[i])));
}

TEST_F(the_effective_spec_lies_beside, record)
{
    open_at(f, 0);
    scoped(free_scoped) char *text = text_of(f, "run.yaml");
    assert_string_equal(text, "train: {}\n");
}

TEST_F(rows_that_a_rewind_undid_come_once, record)
{
    open_at(f, 0);
    for (uint64_t i = 0; i < 6; i++) {
        step(f, i);
        if (i == 3)
            record_validation(&f->record, &(struct validation_row){.version = 4});
    }
    record_rewind(&f->record, 4);
    record_flush(&f->record);
    assert_int_equal(rows(f), 4); /* 0 … 3; the validation of version 4 is done again, too */
    step(f, 4);
    record_flush(&f->record);
    assert_int_equal(rows(f), 5);
}

/* An error of it would keep the next cut from being recorded, and end the coordinator. */
TEST_F(a_rewind_of_a_log_that_was_removed_keeps_no_cut_from_being_recorded, record)
{
    struct reason reason = {0};
    open_at(f, 0);
    step(f, 0);
    step(f, 1);
    record_flush(&f->record);
    assert_int_equal(remove(f->record.steps.file.path), 0);
    record_rewind(&f->record, 1);
    step(f, 1);
    assert_int_equal(record_sync(&f->record, &reason), ERR_OK);
    assert_int_equal(rows(f), 1);
}

TEST_F(p9_rows_that_are_not_on_disk_keep_their_cut_from_being_recorded, record)
{
    struct reason reason = {0};
    struct file_ops ops = file_ops_real;
    open_at(f, 0);
    f->record.steps.file.ops = &ops;
    step(f, 0);
    assert_int_equal(record_sync(&f->record, &reason), ERR_OK);
    ops.write = full_write;
    step(f, 1);
    assert_int_equal(record_sync(&f->record, &reason), ERR_NO_SPACE);
    assert_non_null(strstr(reason.text, "steps.jsonl"));
    assert_int_equal(record_sync(&f->record, &reason), ERR_NO_SPACE);
    ops.write = file_ops_real.write;
    assert_int_equal(record_sync(&f->record, &reason), ERR_OK); /* there is room again */
    assert_int_equal(rows(f), 2);
    ops.fsync = broken_fsync;
    step(f, 2);
    assert_int_equal(record_sync(&f->record, &reason), ERR_NOT_SYNCED);
    ops.fsync = file_ops_real.fsync;
    assert_int_equal(record_sync(&f->record, &reason), ERR_NOT_SYNCED); /* final */
    f->record.steps.file.ops = &file_ops_real;
}

TEST_F(rows_that_a_full_disk_does_not_take_are_lost_beyond_a_limit_alone, record)
{
    struct file_ops ops = file_ops_real;
    open_at(f, 0);
    f->record.steps.file.ops = &ops;
    f->record.late_rows_max = 8192;
    ops.write = full_write;
    uint64_t i = 0;
    for (; f->record.lines.bytes + 1024 < f->record.late_rows_max; i++)
        step(f, i);
    record_flush(&f->record);
    assert_false(f->record.rows_lost);
    assert_non_null(strstr(f->record.reason.text, "steps.jsonl"));
    char takes[64];
    snprintf(takes, sizeof takes, "; the rows that wait take %.1f kB",
             (double)f->record.lines.bytes / 1e3);
    assert_non_null(strstr(f->record.reason.text, takes));
    ops.write = file_ops_real.write;
    record_flush(&f->record);
    assert_int_equal(rows(f), i);
    ops.write = full_write;
    for (uint64_t k = 0; k < 2 * i; k++)
        step(f, i + k);
    record_flush(&f->record);
    assert_true(f->record.rows_lost);
    assert_int_equal(f->record.lines.bytes, 0);
    assert_null(strstr(f->record.reason.text, "that wait"));
    f->record.steps.file.ops = &file_ops_real;
}

static int full_truncate(const struct file_ops *ops, int fd, uint64_t bytes)
{
    (void)ops, (void)fd, (void)bytes;
    errno = ENOSPC;
    return -1;
}

/* Each of the steps below `count` once, in order. */
static void assert_steps(const struct record_fixture *f, uint64_t count)
{
    scoped(free_scoped) char *text = text_of(f, "steps.jsonl");
    const char *at = text;
    for (uint64_t i = 0; i < count; i++) {
        char begin[32];
        snprintf(begin, sizeof begin, "{\"step\":%d,", (int)i);
        assert_int_equal(strncmp(at, begin, strlen(begin)), 0);
        at = strchr(at, '\n') + 1;
    }
    assert_string_equal(at, "");
}

/* Half of the bytes, and then no full disk's error. */
static ssize_t torn_write(const struct file_ops *ops, int fd, const void *data, size_t bytes)
{
    assert_int_equal(file_ops_real.write(ops, fd, data, bytes / 2), bytes / 2);
    errno = EIO;
    return -1;
}

static int stale_truncate(const struct file_ops *ops, int fd, uint64_t bytes)
{
    (void)ops, (void)fd, (void)bytes;
    errno = ESTALE;
    return -1;
}

TEST_F(events_that_cannot_be_written_cost_points_of_the_curves_alone, record)
{
    struct reason reason = {0};
    struct file_ops ops = file_ops_real;
    struct file_info info;
    open_at(f, 0);
    struct file_log *events = &f->record.events.log;
    events->ops = &ops;
    ops.write = torn_write;
    ops.truncate = stale_truncate;
    for (uint64_t i = 0; i < 2; i++) {
        step(f, i);
        assert_int_equal(record_sync(&f->record, &reason), ERR_OK);
        assert_int_equal(f->record.scalars_err, ERR_IO);
        assert_non_null(strstr(f->record.scalars_reason.text, "events/"));
        assert_int_equal(f->record.scalars.bytes, 0);
    }
    ops = file_ops_real;
    step(f, 2);
    assert_int_equal(record_sync(&f->record, &reason), ERR_OK);
    assert_int_equal(f->record.scalars_err, ERR_OK);
    assert_steps(f, 3);
    assert_int_equal(file_stat(events->path, &info, NULL), ERR_OK);
    assert_int_equal(info.bytes, events->bytes); /* no half of a point lies in between */
    events->ops = &file_ops_real;
}

TEST_F(points_that_a_full_disk_does_not_take_wait_and_keep_no_cut_back, record)
{
    struct reason reason = {0};
    struct file_ops ops = file_ops_real;
    open_at(f, 0);
    f->record.events.log.ops = &ops;
    ops.write = full_write;
    step(f, 0);
    assert_int_equal(record_sync(&f->record, &reason), ERR_OK);
    assert_int_equal(f->record.scalars_err, ERR_NO_SPACE);
    assert_true(f->record.scalars.bytes > 0);
    ops.write = file_ops_real.write;
    record_flush(&f->record);
    assert_int_equal(f->record.scalars_err, ERR_OK);
    assert_int_equal(f->record.scalars.bytes, 0);
    f->record.events.log.ops = &file_ops_real;
}

TEST_F(a_rewind_for_which_there_is_no_room_comes_before_the_next_rows, record)
{
    struct reason reason = {0};
    struct file_ops ops = file_ops_real;
    open_at(f, 0);
    f->record.steps.file.ops = &ops;
    for (uint64_t i = 0; i < 6; i++)
        step(f, i);
    record_flush(&f->record);
    ops.truncate = full_truncate;
    record_rewind(&f->record, 2);
    assert_int_equal(f->record.err, ERR_NO_SPACE);
    for (uint64_t i = 2; i < 6; i++)
        step(f, i);
    record_write(&f->record);
    assert_int_equal(record_sync(&f->record, &reason), ERR_NO_SPACE); /* P9: it keeps a cut back */
    assert_non_null(strstr(reason.text, "steps.jsonl"));
    assert_steps(f, 6); /* of before; nothing is behind them */
    record_rewind(&f->record, 4);
    record_rewind(&f->record, 5);
    ops.truncate = file_ops_real.truncate;
    step(f, 4);
    assert_int_equal(record_sync(&f->record, &reason), ERR_OK);
    assert_steps(f, 5);
    step(f, 5);
    record_flush(&f->record);
    assert_steps(f, 6); /* it was owed once */
    f->record.steps.file.ops = &file_ops_real;
}

/* `cp` and `mv` of steps.jsonl, when a segment is due. */
static void replace_steps(struct record_fixture *f)
{
    scoped(free_scoped) char *text = text_of(f, "steps.jsonl");
    assert_int_equal(
        file_write_atomic(&file_ops_real, f->record.steps.file.path, 0644, slice_of(text), NULL),
        ERR_OK);
    f->record.steps.close_at = 1;
}

TEST_F(a_rewind_while_the_log_is_another_file_is_done_when_it_is_opened_again, record)
{
    struct reason reason = {0};
    open_at(f, 0);
    for (uint64_t i = 0; i < 5; i++)
        step(f, i);
    record_flush(&f->record);
    replace_steps(f);
    step(f, 5);
    record_flush(&f->record);
    assert_int_equal(f->record.err, ERR_OLD_TERM);
    record_rewind(&f->record, 2);
    record_rewind(&f->record, 3);
    assert_int_equal(record_reopen(&f->record, &reason), ERR_OK);
    for (uint64_t i = 2; i < 6; i++)
        step(f, i);
    assert_int_equal(record_sync(&f->record, &reason), ERR_OK);
    assert_steps(f, 6);
}

/* Its successor takes none of these rows for those of the steps that came again. */
TEST_F(a_rewind_that_a_dead_coordinator_owes_is_done_by_its_successor, record)
{
    struct file_ops ops = file_ops_real;
    open_at(f, 0);
    f->record.steps.file.ops = &ops;
    for (uint64_t i = 0; i < 6; i++)
        step(f, i);
    record_flush(&f->record);
    ops.truncate = full_truncate;
    record_rewind(&f->record, 2);
    for (uint64_t i = 2; i < 5; i++)
        step(f, i);
    record_release(&f->record); /* what waited for room is gone */
    assert_steps(f, 6);
    f->generation = 1;
    open_at(f, 2);
    assert_int_equal(f->reached, 2); /* so a run that is further cannot be adopted */
    record_rewind(&f->record, 2);
    assert_steps(f, 2);
}

TEST_F(a_continued_run_goes_on_behind_its_cut, record)
{
    open_at(f, 0);
    for (uint64_t i = 0; i < 6; i++)
        step(f, i);
    record_release(&f->record);
    open_at(f, 2);
    assert_int_equal(f->reached, 6);
    assert_int_equal(rows(f), 6); /* until it is known whether it is rewound */
    record_rewind(&f->record, 2);
    assert_int_equal(rows(f), 2);
}

/* Its store refuses it at its next cut; until then it writes rows, and some at its end. */
TEST_F(p7_a_coordinator_whose_term_is_over_writes_no_row, record)
{
    open_at(f, 0);
    step(f, 0);
    record_flush(&f->record);
    struct record older = f->record;
    open_at(f, 0);
    struct record newer = f->record;
    f->record = older;
    step(f, 1);
    record_release(&f->record);
    f->record = newer;
    assert_int_equal(rows(f), 1);
    step(f, 1);
    record_flush(&f->record);
    assert_int_equal(rows(f), 2);
}

TEST(rows_lead_as_far_as_none_is_missing)
{
    const struct step_log_place from = {.version = 3};
    assert_int_equal(step_log_reach(slice_of(""), from), 3);
    assert_int_equal(
        step_log_reach(slice_of("{\"step\":2}\n{\"step\":3}\n{\"version\":4}\n{\"step\":4}\n"),
                       from),
        5);
    assert_int_equal(step_log_reach(slice_of("{\"step\":3}\n{\"step\":5}\n"), from), 4);
    assert_int_equal(step_log_reach(slice_of("{\"step\":3}\n{\"step\":4"), from), 4);
}

TEST_F(a_step_s_row_can_be_written_by_itself, record)
{
    open_at(f, 0);
    step(f, 0);
    assert_int_equal(rows(f), 0);
    record_write(&f->record);
    assert_int_equal(rows(f), 1);
}

TEST(a_torn_row_ends_what_is_kept_and_a_line_that_is_none_does_not)
{
    static const char torn[] = "{\"step\":0,\"loss\":1}\n{\"step\":1,\"lo";
    static const char foreign[] = "{\"step\":0}\nhello\n{\"step\":1}\nhello\n";
    assert_int_equal(step_log_keep(slice_of(torn), 9), strlen("{\"step\":0,\"loss\":1}\n"));
    assert_int_equal(step_log_keep(slice_of(foreign), 1), strlen("{\"step\":0}\n"));
    assert_int_equal(step_log_keep(slice_of(foreign), 9),
                     strlen("{\"step\":0}\nhello\n{\"step\":1}\n"));
    assert_int_equal(step_log_keep((struct slice){NULL, 0}, 9), 0);
}

TEST(a_run_whose_directory_cannot_be_is_refused_by_name)
{
    struct record record;
    struct reason reason;
    uint64_t reached;
    assert_int_not_equal(
        record_open(
            &record,
            &(struct record_run){.directory = "/proc/nowhere", .spec = "", .epoch_samples = 1},
            &reached, &reason),
        ERR_OK);
    assert_non_null(strstr(reason.text, "/proc/nowhere"));
}
