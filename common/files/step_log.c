/* The step log as it is written. */
#include "common/files/step_log.h"

#include "common/files/step_log_format.h"
#include "common/scoped.h"

#include <inttypes.h>
#include <string.h>

enum {
    PIECE_BYTES = 1 << 20,
    AGAIN_SHARE = 8 /* of a segment, until it is tried again to close it */
};

/* ---- which rows stay ---- */

/* The next line at `at`, without its end; false: there is none that is whole. */
static bool next_line(struct slice rows, size_t at, struct slice *ret_row)
{
    const uint8_t *end = at < rows.bytes ? memchr(rows.data + at, '\n', rows.bytes - at) : NULL;
    if (end == NULL)
        return false;
    *ret_row = (struct slice){rows.data + at, (size_t)(end - rows.data) - at};
    return true;
}

/* Step n leads to version n + 1. A validation of version n comes behind step n - 1, and goes with
 * it when the run goes back to n. */
size_t step_log_keep(struct slice rows, uint64_t version)
{
    struct slice row;
    size_t kept = 0;
    for (size_t at = 0; next_line(rows, at, &row); at += row.bytes + 1) {
        uint64_t number;
        bool is_step;
        if (!step_log_row_number(row, &is_step, &number))
            continue; /* somebody wrote it between the rows */
        if (number >= version)
            break;
        kept = at + row.bytes + 1;
    }
    return kept;
}

static uint64_t end_of(const struct ledger *sums)
{
    return sums->step_count > 0 ? sums->last.step + 1 : 0;
}

/* Somebody may have put an older copy in the place of steps.jsonl: steps before `end`, which closed
 * segments have, and the validations behind them. */
struct row_filter {
    uint64_t end;
    bool behind_old;
};

static bool stays(struct row_filter *filter, struct slice line)
{
    uint64_t number;
    bool is_step;
    if (!step_log_row_number(line, &is_step, &number))
        return false;
    if (is_step)
        filter->behind_old = number < filter->end;
    return !filter->behind_old;
}

/* Takes the lines from `at` on out of *rows that are no rows, or old ones, but not the last one when
 * it has no end. The end of those that stay. */
static size_t take_out_others(struct buf *rows, size_t at, struct row_filter *filter)
{
    struct slice line;
    size_t kept = at;
    for (; next_line(buf_slice(rows), at, &line); at += line.bytes + 1) {
        if (!stays(filter, line))
            continue;
        memmove(rows->data + kept, line.data, line.bytes + 1);
        kept += line.bytes + 1;
    }
    memmove(rows->data + kept, rows->data + at, rows->bytes - at);
    rows->bytes -= at - kept;
    return kept;
}

static bool is_of(struct slice text, uint64_t generation)
{
    struct ledger_row row;
    bool is_step;
    return generation == 0 || (ledger_parse("row", 1, text, &row, &is_step, NULL) == ERR_OK &&
                               row.generation >= generation);
}

/* Rows of an older generation are undone, and a full disk kept the rewind from removing them. */
uint64_t step_log_reach(struct slice rows, struct step_log_place from)
{
    struct slice row;
    uint64_t version = from.version;
    for (size_t at = 0; next_line(rows, at, &row); at += row.bytes + 1) {
        uint64_t number;
        bool is_step;
        if (step_log_row_number(row, &is_step, &number) && is_step && number == version &&
            is_of(row, from.generation))
            version++;
    }
    return version;
}

/* ---- sums ---- */

static enum err copy_sums(const struct ledger *from, struct ledger *to)
{
    struct ledger copy = *from;
    copy.epochs = copy.skipped = copy.faults = copy.seen = (struct buf){0};
    TRY(buf_append(&copy.epochs, from->epochs.data, from->epochs.bytes));
    ledger_release(to);
    *to = copy;
    return ERR_OK;
}

/* Rows that an older roost wrote, or that somebody changed, are a fault of the sums and no more. */
static enum err add_rows(struct step_log *log, struct slice rows)
{
    struct slice text;
    for (size_t at = 0; next_line(rows, at, &text); at += text.bytes + 1) {
        struct ledger_row row;
        struct reason reason;
        bool is_step;
        enum err err = ledger_parse("row", 1, text, &row, &is_step, &reason);
        if (err == ERR_NOMEM)
            return err;
        if (err != ERR_OK)
            ledger_fault(&log->sums, "%s", reason.text);
        else
            step_times_add(&log->times, &row, is_step);
        if (err == ERR_OK && is_step)
            TRY(ledger_add(&log->sums, &row));
    }
    return ERR_OK;
}

/* Those of the closed segments alone. */
static enum err begin_sums(struct step_log *log)
{
    log->times = (struct step_times){.newest_us = log->closed.times.newest_us};
    return copy_sums(&log->closed.sums, &log->sums);
}

/* The sums at the end of these rows, which are all of steps.jsonl. */
static enum err sum_up(struct step_log *log, struct slice rows)
{
    TRY(begin_sums(log));
    return add_rows(log, rows);
}

/* ---- writing a segment ---- */

static enum err segment_path(const struct step_log *log, struct slice rows,
                             char path[static STEP_LOG_PATH_BYTES], struct reason *reason)
{
    struct slice row = {0};
    uint64_t number = 0;
    bool is_step, found = next_line(rows, 0, &row) && step_log_row_number(row, &is_step, &number);
    check(found);
    if (snprintf(path, STEP_LOG_PATH_BYTES, "%s/%012" PRIu64 ".jsonl", log->folder, number) >=
        STEP_LOG_PATH_BYTES)
        return reason_set(reason, ERR_INVALID, "%s has too long a name", log->folder);
    return ERR_OK;
}

/* `rows`: from the end of the closed segments on; the sums are those at their end. */
static enum err write_segment(struct step_log *log, struct slice rows, struct reason *reason)
{
    scoped(file_writer_release) struct file_writer writer = {0};
    scoped(buf_release) struct buf line = {0};
    char path[STEP_LOG_PATH_BYTES];
    struct step_log_footer footer = {.state.sums = log->sums,
                                     .state.times = log->times,
                                     .state.segment_count = log->closed.segment_count + 1,
                                     .before = log->closed.newest,
                                     .rows_bytes = rows.bytes};
    TRY(segment_path(log, rows, path, reason));
    TRY(file_make_dirs(log->folder, 0755, reason));
    TRY(digest_sha256(rows, &footer.rows));
    TRY(step_log_print_footer(&footer, &line));
    TRY(file_writer_open(log->file.ops, path, 0644, &writer, reason));
    TRY(file_writer_write(&writer, rows, reason));
    TRY(file_writer_write(&writer, buf_slice(&line), reason));
    TRY(file_writer_commit(&writer, reason));
    TRY(copy_sums(&log->sums, &log->closed.sums));
    log->closed.times = log->times;
    log->times = (struct step_times){.newest_us = log->times.newest_us};
    log->closed.segment_count++;
    struct step_log_footer written = {0};
    TRY(step_log_read_footer(path, &written, reason));
    log->closed.newest = written.state.newest;
    ledger_release(&written.state.sums);
    return ERR_OK;
}

/* ---- opening ---- */

static enum err read_newest(struct step_log *log, const struct file_names *segments,
                            struct reason *reason)
{
    struct step_log_footer newest = {0};
    if (segments->count == 0)
        return ERR_OK;
    TRY(step_log_read_footer(segments->names[segments->count - 1], &newest, reason));
    ledger_release(&log->closed.sums);
    log->closed = newest.state;
    return ERR_OK;
}

static enum err begins_with(const char *path, const struct step_log_footer *footer, bool *ret_does,
                            struct reason *reason)
{
    struct digest digest;
    enum err err = step_log_digest_part(path, 0, footer->rows_bytes, &digest, reason);
    *ret_does = err == ERR_OK && memcmp(&digest, &footer->rows, sizeof digest) == 0;
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

/* UINT64_MAX: it does not begin with a row. */
static enum err first_number(const char *path, uint64_t *ret_number, struct reason *reason)
{
    scoped(buf_release) struct buf rows = {0};
    struct slice row;
    bool is_step;
    *ret_number = UINT64_MAX;
    enum err err = file_read_part(path, 0, PIECE_BYTES, &rows, reason);
    if (err == ERR_OK && next_line(buf_slice(&rows), 0, &row))
        (void)step_log_row_number(row, &is_step, ret_number);
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

/* So many bytes at the beginning of steps.jsonl are in closed segments, when a crash came before it
 * was emptied or replaced: in the one with its first row, and in all behind that. */
static enum err count_doubled(const char *path, const struct file_names *segments,
                              uint64_t *ret_bytes, struct reason *reason)
{
    uint64_t first;
    bool doubled = false;
    *ret_bytes = 0;
    TRY(first_number(path, &first, reason));
    for (size_t i = 0; i < segments->count; i++) {
        struct step_log_footer footer;
        uint64_t number = step_log_segment_number(segments->names[i]);
        if (number < first)
            continue;
        TRY(step_log_read_footer(segments->names[i], &footer, reason));
        ledger_release(&footer.state.sums);
        if (number == first)
            TRY(begins_with(path, &footer, &doubled, reason));
        if (doubled)
            *ret_bytes += footer.rows_bytes;
    }
    return ERR_OK;
}

/* Moves the rows of steps.jsonl into *rows, without other lines, and all but the last of them into
 * segments when there are many. Rows behind another line go into no segment before steps.jsonl is
 * without that line: count_doubled() would not find them. */
static enum err divide(struct step_log *log, const char *path, uint64_t offset, struct buf *rows,
                       struct reason *reason)
{
    struct row_filter filter = {.end = end_of(&log->closed.sums)};
    size_t whole = 0;
    bool had_others = false;
    for (;;) {
        size_t before = rows->bytes;
        enum err err = file_read_part(path, offset, PIECE_BYTES, rows, reason);
        if (err != ERR_OK && err != ERR_NOT_FOUND)
            return err;
        size_t read = rows->bytes;
        if (read == before)
            break;
        offset += read - before;
        size_t kept = take_out_others(rows, whole, &filter);
        had_others = had_others || rows->bytes < read;
        TRY(add_rows(log, (struct slice){rows->data + whole, kept - whole}));
        whole = kept;
        if (rows->bytes - whole >= PIECE_BYTES)
            break; /* no row is so long */
        if (whole < log->segment_bytes || had_others)
            continue;
        TRY(write_segment(log, (struct slice){rows->data, whole}, reason));
        memmove(rows->data, rows->data + whole, rows->bytes - whole);
        rows->bytes -= whole;
        whole = 0;
    }
    rows->bytes = whole;
    return ERR_OK;
}

/* The version that closed segments lead to. Nothing is appended behind rows that are undone, so the
 * last row is undone where those before it are. */
static uint64_t reach_closed(const struct step_log *log, struct step_log_place from)
{
    const struct ledger *sums = &log->closed.sums;
    uint64_t end = end_of(sums);
    bool leads = from.version < end && sums->whole_from <= from.version &&
                 sums->last.generation >= from.generation;
    return leads ? end : from.version;
}

static enum err open_log(struct step_log *log, const char *directory, struct step_log_place from,
                         uint64_t *ret_reached, struct reason *reason)
{
    scoped(file_names_release) struct file_names segments = {0};
    scoped(buf_release) struct buf rows = {0};
    scoped(free_scoped) char *path = NULL;
    uint64_t doubled;
    if (asprintf(&path, "%s/steps.jsonl", directory) < 0 ||
        asprintf(&log->folder, "%s/steps", directory) < 0)
        return reason_set(reason, ERR_NOMEM, "no memory to open %s/steps.jsonl", directory);
    TRY(step_log_segments(directory, &segments, reason));
    TRY(read_newest(log, &segments, reason));
    TRY(count_doubled(path, &segments, &doubled, reason));
    TRY(begin_sums(log));
    TRY(divide(log, path, doubled, &rows, reason));
    from.version = reach_closed(log, from);
    *ret_reached = step_log_reach(buf_slice(&rows), from);
    return file_log_replace(log->file.ops, path, buf_slice(&rows), &log->file, reason);
}

static struct step_log no_log(const struct file_ops *ops, uint64_t segment_bytes)
{
    return (struct step_log){.file.ops = ops,
                             .file.fd = -1,
                             .closed.sums.by_positions = true,
                             .sums.by_positions = true,
                             .segment_bytes = segment_bytes,
                             .close_at = segment_bytes};
}

enum err step_log_open(const struct file_ops *ops, const char *directory,
                       struct step_log_place from, struct step_log *ret_log, uint64_t *ret_reached,
                       struct reason *reason)
{
    scoped(step_log_release) struct step_log log = no_log(ops, STEP_LOG_SEGMENT_BYTES);
    TRY(open_log(&log, directory, from, ret_reached, reason));
    *ret_log = log;
    log = (struct step_log){0};
    return ERR_OK;
}

void step_log_release(struct step_log *log)
{
    file_log_release(&log->file);
    ledger_release(&log->closed.sums);
    ledger_release(&log->sums);
    free(log->folder);
    *log = (struct step_log){0};
}

bool step_log_has_all(const struct step_log *log, uint64_t version)
{
    return version == 0 || (log->sums.whole_from == 0 && end_of(&log->sums) >= version);
}

/* ---- a steps.jsonl that somebody changed ---- */

static void run_directory_of(const struct step_log *log, char ret_path[static STEP_LOG_PATH_BYTES])
{
    snprintf(ret_path, STEP_LOG_PATH_BYTES, "%.*s", (int)(strlen(log->folder) - strlen("/steps")),
             log->folder);
}

enum err step_log_reopen(struct step_log *log, struct reason *reason)
{
    const struct step_log_place beginning = {0};
    char directory[STEP_LOG_PATH_BYTES];
    scoped(step_log_release) struct step_log anew = no_log(log->file.ops, log->segment_bytes);
    uint64_t reached;
    run_directory_of(log, directory);
    TRY(file_make_dirs(directory, 0755, reason));
    TRY(open_log(&anew, directory, beginning, &reached, reason));
    anew.changed = true;
    step_log_release(log);
    *log = anew;
    anew = (struct step_log){0};
    return ERR_OK;
}

/* Whether somebody removed, emptied or wrote to steps.jsonl, which is no other coordinator's. */
static bool is_changed(const struct file_log *file)
{
    struct file_info there;
    enum err err = file_stat(file->path, &there, NULL);
    return err == ERR_NOT_FOUND ||
           (err == ERR_OK && there.bytes != file->bytes && file_log_in_place(file));
}

/* The rows that are gone are lost; those that are there stay, also behind somebody's lines. */
static enum err take_changed(struct step_log *log, struct reason *reason)
{
    return is_changed(&log->file) ? step_log_reopen(log, reason) : ERR_OK;
}

/* P7: another coordinator may go on in another file of that name: this one's rows are nobody's. */
static enum err is_replaced(const struct step_log *log, struct reason *reason)
{
    return reason_set(reason, ERR_OLD_TERM, "%s is another file now, perhaps another coordinator's",
                      log->file.path);
}

/* ---- closing a segment ---- */

static enum err close_segment(struct step_log *log, struct reason *reason)
{
    scoped(buf_release) struct buf rows = {0};
    TRY(take_changed(log, reason));
    struct row_filter filter = {.end = end_of(&log->closed.sums)};
    if (log->file.bytes < log->close_at)
        return ERR_OK;
    if (!file_log_in_place(&log->file))
        return is_replaced(log, reason);
    TRY(file_read_part(log->file.path, 0, (size_t)log->file.bytes, &rows, reason));
    if (rows.bytes != log->file.bytes || take_out_others(&rows, 0, &filter) != log->file.bytes)
        return step_log_reopen(log, reason); /* somebody wrote to it */
    TRY(write_segment(log, buf_slice(&rows), reason));
    return file_log_truncate(&log->file, 0, reason);
}

static enum err close_where_due(struct step_log *log, struct reason *reason)
{
    if (log->file.bytes < log->close_at)
        return ERR_OK;
    enum err err = close_segment(log, reason);
    log->close_at = log->segment_bytes;
    if (err != ERR_NO_SPACE)
        return err;
    log->close_at = log->file.bytes + log->segment_bytes / AGAIN_SHARE;
    return ERR_OK; /* steps.jsonl has the rows */
}

/* ---- rows ---- */

enum err step_log_append(struct step_log *log, struct slice rows, struct reason *reason)
{
    TRY(file_log_append(&log->file, rows, reason));
    TRY(add_rows(log, rows));
    return close_where_due(log, reason);
}

enum err step_log_sync(struct step_log *log, struct reason *reason)
{
    return file_log_sync(&log->file, reason);
}

/* Cuts steps.jsonl alone: the closed segments stay. */
static enum err cut_open(struct step_log *log, uint64_t version, struct reason *reason)
{
    scoped(buf_release) struct buf rows = {0};
    struct row_filter filter = {.end = end_of(&log->closed.sums)};
    if (log->file.bytes == 0)
        return sum_up(log, buf_slice(&rows));
    TRY(file_read_part(log->file.path, 0, (size_t)log->file.bytes, &rows, reason));
    rows.bytes = step_log_keep(buf_slice(&rows), version);
    TRY(file_log_truncate(&log->file, rows.bytes, reason));
    (void)take_out_others(&rows, 0, &filter); /* they go when the segment is closed */
    return sum_up(log, buf_slice(&rows));
}

/* The segment takes the place of steps.jsonl, whose rows all go. That needs no room, so a full disk
 * does not keep the rows that are undone. Its footer is no row: cut_open() takes it away, or whoever
 * opens the log after a crash. */
static enum err take_back(struct step_log *log, const char *path, struct reason *reason)
{
    const struct file_ops *ops = log->file.ops;
    scoped(file_log_release) struct file_log segment = {0};
    TRY(file_log_open(ops, path, &segment, reason));
    if (ops->rename(ops, path, log->file.path) != 0)
        return file_failed("rename", path, reason);
    int emptied = log->file.fd;
    log->file.fd = segment.fd;
    log->file.bytes = segment.bytes;
    segment.fd = emptied;
    return ERR_OK;
}

/* A crash in between leaves the log as it was. */
static enum err remove_whole(struct step_log *log, const char *path, struct reason *reason)
{
    TRY(file_log_truncate(&log->file, 0, reason));
    return file_remove_tree(path, reason);
}

static enum err read_closed(const char *path, struct step_log_state *ret_closed,
                            struct reason *reason)
{
    struct step_log_footer footer = {.state.sums.by_positions = true};
    if (path != NULL)
        TRY(step_log_read_footer(path, &footer, reason));
    *ret_closed = footer.state;
    return ERR_OK;
}

/* The newest closed segment goes; the rows of it that may stay are those of steps.jsonl then.
 * `before`: NULL: it was the only one. Without room for that the log is as it was. */
static enum err open_newest(struct step_log *log, uint64_t version, const char *path,
                            const char *before, struct reason *reason)
{
    struct step_log_state closed;
    TRY(read_closed(before, &closed, reason));
    enum err err = step_log_segment_number(path) >= version ? remove_whole(log, path, reason)
                                                            : take_back(log, path, reason);
    if (err != ERR_OK) {
        ledger_release(&closed.sums);
        return err;
    }
    ledger_release(&log->closed.sums);
    log->closed = closed;
    TRY(file_sync_parent(log->file.ops, log->file.path, reason));
    return file_sync_parent(log->file.ops, path, reason);
}

/* Whether a closed segment may have rows to remove: steps from `version` on, or its validation. */
static bool goes_back(const struct step_log *log, uint64_t version)
{
    return log->closed.segment_count > 0 && log->closed.sums.last.step + 1 >= version;
}

enum err step_log_rewind(struct step_log *log, uint64_t version, struct reason *reason)
{
    scoped(file_names_release) struct file_names segments = {0};
    char directory[STEP_LOG_PATH_BYTES];
    TRY(take_changed(log, reason));
    if (!file_log_in_place(&log->file))
        return is_replaced(log, reason);
    if (!goes_back(log, version))
        return cut_open(log, version, reason);
    run_directory_of(log, directory);
    TRY(step_log_segments(directory, &segments, reason));
    for (size_t i = segments.count; i-- > 0 && goes_back(log, version);)
        TRY(open_newest(log, version, segments.names[i], i > 0 ? segments.names[i - 1] : NULL,
                        reason));
    return cut_open(log, version, reason);
}
