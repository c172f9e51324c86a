/* What a run leaves for people. */
#include "server/disk/record.h"

#include "common/files/json.h"
#include "common/scoped.h"
#include "common/time.h"

#include <string.h>

enum {
    BATCH_BYTES = 64 * 1024,
    LATE_BYTES_MAX = 8 << 20,
    STEPS_BYTES_MAX = 1 << 30,
    PATH_BYTES = 4096
};

/* ---- which rows stay ---- */

/* The number behind `key` at the beginning of a row; false: the row begins otherwise. */
static bool row_number(const char *row, size_t bytes, const char *key, uint64_t *ret_number)
{
    size_t length = strlen(key);
    if (bytes <= length || memcmp(row, key, length) != 0)
        return false;
    uint64_t number = 0;
    for (size_t i = length; i < bytes && row[i] >= '0' && row[i] <= '9'; i++)
        number = number * 10 + (uint64_t)(row[i] - '0');
    *ret_number = number;
    return true;
}

/* A step leads to the next version; a validation is of its version. */
static bool row_stays(const char *row, size_t bytes, uint64_t version)
{
    uint64_t number;
    if (row_number(row, bytes, "{\"step\":", &number))
        return number < version;
    return row_number(row, bytes, "{\"version\":", &number) && number < version;
}

size_t record_keep(struct slice text, uint64_t version)
{
    const char *rows = (const char *)text.data;
    size_t at = 0;
    while (at < text.bytes) {
        const char *end = memchr(rows + at, '\n', text.bytes - at);
        if (end == NULL || !row_stays(rows + at, (size_t)(end - rows) - at, version))
            break;
        at = (size_t)(end - rows) + 1;
    }
    return at;
}

uint64_t record_reach(struct slice text, uint64_t version)
{
    const char *rows = (const char *)text.data;
    size_t at = 0;
    while (at < text.bytes) {
        uint64_t number;
        const char *end = memchr(rows + at, '\n', text.bytes - at);
        if (end == NULL)
            break;
        if (row_number(rows + at, (size_t)(end - rows) - at, "{\"step\":", &number) &&
            number == version)
            version++;
        at = (size_t)(end - rows) + 1;
    }
    return version;
}

static enum err cut_back(struct record *record, uint64_t version, struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    if (record->steps.bytes == 0)
        return ERR_OK;
    TRY(file_read(record->steps.path, STEPS_BYTES_MAX, &text, reason));
    size_t kept = record_keep(buf_slice(&text), version);
    check(kept <= text.bytes);
    return file_log_truncate(&record->steps, kept, reason);
}

/* ---- open ---- */

static enum err join_path(char *ret_path, const char *directory, const char *name,
                          struct reason *reason)
{
    if (snprintf(ret_path, PATH_BYTES, "%s/%s", directory, name) >= PATH_BYTES)
        return reason_set(reason, ERR_INVALID, "the run's directory has too long a name: %s",
                          directory);
    return ERR_OK;
}

/* Whole rows alone stay. Another coordinator may not have heard yet that its term is over: what it
 * still appends is in the file that is replaced. */
static enum err open_steps(struct record *record, const char *path, uint64_t version,
                           uint64_t *ret_reached, struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    enum err err = file_read(path, STEPS_BYTES_MAX, &text, reason);
    if (err != ERR_OK && err != ERR_NOT_FOUND)
        return err;
    const struct slice rows = {text.data, record_keep(buf_slice(&text), UINT64_MAX)};
    *ret_reached = record_reach(rows, version);
    return file_log_replace(&file_ops_real, path, rows, &record->steps, reason);
}

static enum err open_files(struct record *record, const struct record_run *run,
                           uint64_t *ret_reached, struct reason *reason)
{
    const char *directory = run->directory, *spec = run->spec;
    char path[PATH_BYTES];
    TRY(join_path(path, directory, "events", reason));
    TRY(file_make_dirs(path, 0755, reason));
    TRY(tfevents_open(&file_ops_real, path, time_wall_s(), &record->events, reason));
    TRY(join_path(path, directory, "run.yaml", reason));
    TRY(file_write_atomic(&file_ops_real, path, 0644,
                          (struct slice){(const uint8_t *)spec, strlen(spec)}, reason));
    TRY(join_path(path, directory, "steps.jsonl", reason));
    return open_steps(record, path, run->version, ret_reached, reason);
}

enum err record_open(struct record *record, const struct record_run *run, uint64_t *ret_reached,
                     struct reason *reason)
{
    *record = (struct record){.epoch_samples = run->epoch_samples};
    enum err err = open_files(record, run, ret_reached, reason);
    if (err != ERR_OK)
        record_release(record);
    return err;
}

void record_release(struct record *record)
{
    record_flush(record);
    file_log_release(&record->steps);
    tfevents_release(&record->events);
    buf_release(&record->lines);
    buf_release(&record->scalars);
    *record = (struct record){0};
}

/* ---- rows ---- */

static void note(struct record *record, enum err err)
{
    if (record->err == ERR_OK && err != ERR_OK)
        record->err = err;
}

static bool takes_rows(const struct record *record)
{
    return record->steps.path != NULL && (record->err == ERR_OK || record->err == ERR_NO_SPACE);
}

static void put_real(struct json_writer *writer, const char *key, double value)
{
    json_put_key(writer, key);
    json_put_real(writer, value);
}

static void put_uint(struct json_writer *writer, const char *key, uint64_t value)
{
    json_put_key(writer, key);
    json_put_uint(writer, value);
}

static void put_hex(struct json_writer *writer, const char *key, uint64_t value)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
    json_put_key(writer, key);
    json_put_text(writer, text);
}

static void put_scalar(struct record *record, uint64_t step, const char *tag, double value)
{
    const struct tfevents_scalar scalar = {
        .wall_s = time_wall_s(), .step = step, .tag = tag, .value = (float)value};
    note(record, tfevents_put_scalar(&record->scalars, &scalar));
}

static void end_row(struct record *record, struct json_writer *writer)
{
    json_put_end(writer);
    note(record, json_writer_finish(writer));
    note(record, buf_append(&record->lines, "\n", 1));
    if (record->lines.bytes >= BATCH_BYTES && record->err == ERR_OK)
        record_flush(record);
}

void record_step(struct record *record, const struct step_row *row)
{
    struct json_writer writer = json_writer(&record->lines);
    if (!takes_rows(record))
        return;
    check(row->slots > 0 && row->step_samples % row->slots == 0); /* all slots are alike */
    json_put_object(&writer);
    put_uint(&writer, "step", row->step); /* first: record_keep() looks for it */
    put_real(&writer, "loss", row->metrics.loss);
    put_real(&writer, "accuracy", row->metrics.accuracy);
    put_real(&writer, "norm", row->metrics.norm);
    put_real(&writer, "lr", row->metrics.lr);
    put_uint(&writer, "samples", row->samples);
    json_put_key(&writer, "skipped");
    json_put_bool(&writer, row->skipped);
    /* What common/files/ledger.h proves: which tickets, and what came with their gradients. */
    put_uint(&writer, "ticket", row->step * row->slots);
    put_uint(&writer, "slots", row->slots);
    put_uint(&writer, "slot_samples", row->step_samples / row->slots);
    put_uint(&writer, "step_samples", row->metrics.samples);
    put_uint(&writer, "epoch_samples", record->epoch_samples);
    put_hex(&writer, "digest", row->metrics.digest);
    put_uint(&writer, "behind", row->behind);
    put_uint(&writer, "workers", row->workers);
    put_uint(&writer, "redone", row->redone);
    put_uint(&writer, "speculative", row->speculative);
    put_uint(&writer, "duration_ms", row->duration_ms);
    put_uint(&writer, "slot_ms", row->slot_ms);
    put_uint(&writer, "generation", row->generation);
    put_real(&writer, "time", time_wall_s());
    end_row(record, &writer);
    put_scalar(record, row->step, "train/loss", row->metrics.loss);
    put_scalar(record, row->step, "train/norm", row->metrics.norm);
    put_scalar(record, row->step, "train/lr", row->metrics.lr);
    put_scalar(record, row->step, "cluster/workers", row->workers);
}

void record_validation(struct record *record, const struct validation_row *row)
{
    struct json_writer writer = json_writer(&record->lines);
    if (!takes_rows(record))
        return;
    json_put_object(&writer);
    put_uint(&writer, "version", row->version); /* first: record_keep() looks for it */
    put_real(&writer, "validation_loss", row->loss);
    put_real(&writer, "validation_accuracy", row->accuracy);
    put_uint(&writer, "validation_samples", row->samples);
    put_uint(&writer, "slot_ms", row->slot_ms);
    put_uint(&writer, "generation", row->generation);
    put_real(&writer, "time", time_wall_s());
    end_row(record, &writer);
    put_scalar(record, row->version, "validation/loss", row->loss);
    put_scalar(record, row->version, "validation/accuracy", row->accuracy);
}

/* Appends what is there. On a full disk it stays for the next time, up to a limit. */
static enum err write_out(struct file_log *log, struct buf *bytes, struct reason *reason)
{
    if (bytes->bytes == 0)
        return ERR_OK;
    enum err err = file_log_append(log, buf_slice(bytes), reason);
    if (err != ERR_NO_SPACE || bytes->bytes > LATE_BYTES_MAX)
        bytes->bytes = 0;
    return err;
}

void record_write(struct record *record)
{
    if (takes_rows(record))
        record->err = write_out(&record->steps, &record->lines, &record->reason);
}

void record_flush(struct record *record)
{
    if (!takes_rows(record))
        return;
    record_write(record);
    note(record, write_out(&record->events.log, &record->scalars, &record->reason));
}

enum err record_sync(struct record *record, struct reason *reason)
{
    record_flush(record);
    if (takes_rows(record))
        note(record, file_log_sync(&record->steps, &record->reason));
    return record->err == ERR_OK || record->err == ERR_MALFORMED
               ? ERR_OK
               : reason_set(reason, record->err, "%s", record->reason.text);
}

void record_rewind(struct record *record, uint64_t version)
{
    record_flush(record);
    if (!takes_rows(record))
        return;
    size_t kept = record_keep(buf_slice(&record->lines), version);
    check(kept <= record->lines.bytes);
    record->lines.bytes = kept;
    note(record, cut_back(record, version, &record->reason));
}
