/* What a run leaves for people. */
#include "server/disk/record.h"

#include "common/files/json.h"
#include "common/scoped.h"
#include "common/time.h"

#include <string.h>

enum {
    BATCH_BYTES = 64 * 1024,
    LATE_ROWS_BYTES_MAX = 256 << 20, /* some 700,000 steps */
    LATE_POINTS_BYTES_MAX = 8 << 20,
    PATH_BYTES = 4096
};

/* ---- open ---- */

static enum err join_path(char *ret_path, const char *directory, const char *name,
                          struct reason *reason)
{
    if (snprintf(ret_path, PATH_BYTES, "%s/%s", directory, name) >= PATH_BYTES)
        return reason_set(reason, ERR_INVALID, "the run's directory has too long a name: %s",
                          directory);
    return ERR_OK;
}

enum err record_spec(const char *directory, const char *spec, struct reason *reason)
{
    char path[PATH_BYTES];
    TRY(join_path(path, directory, "run.yaml", reason));
    return file_write_atomic(&file_ops_real, path, 0644,
                             (struct slice){(const uint8_t *)spec, strlen(spec)}, reason);
}

static enum err open_files(struct record *record, const struct record_run *run,
                           uint64_t *ret_reached, struct reason *reason)
{
    const char *directory = run->directory, *spec = run->spec;
    char path[PATH_BYTES];
    TRY(join_path(path, directory, "events", reason));
    TRY(file_make_dirs(path, 0755, reason));
    TRY(tfevents_open(&file_ops_real, path, time_wall_s(), &record->events, reason));
    TRY(record_spec(directory, spec, reason));
    const struct step_log_place cut = {run->version, run->generation};
    return step_log_open(&file_ops_real, directory, cut, &record->steps, ret_reached, reason);
}

enum err record_open(struct record *record, const struct record_run *run, uint64_t *ret_reached,
                     struct reason *reason)
{
    *record =
        (struct record){.epoch_samples = run->epoch_samples, .late_rows_max = LATE_ROWS_BYTES_MAX};
    enum err err = open_files(record, run, ret_reached, reason);
    if (err != ERR_OK)
        record_release(record);
    return err;
}

void record_release(struct record *record)
{
    record_flush(record);
    step_log_release(&record->steps);
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
    return record->steps.file.path != NULL &&
           (record->err == ERR_OK || record->err == ERR_NO_SPACE);
}

static void put_scalar(struct record *record, uint64_t step, const char *tag, double value)
{
    const struct tfevents_scalar scalar = {
        .wall_s = time_wall_s(), .step = step, .tag = tag, .value = (float)value};
    size_t before = record->scalars.bytes;
    if (tfevents_put_scalar(&record->scalars, &scalar) != ERR_OK)
        record->scalars.bytes = before; /* no memory: the curve has a gap */
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
    json_member_uint(&writer, "step", row->step); /* first: the step log looks for it */
    json_member_real(&writer, "loss", row->metrics.loss);
    json_member_real(&writer, "accuracy", row->metrics.accuracy);
    json_member_real(&writer, "norm", row->metrics.norm);
    json_member_real(&writer, "lr", row->metrics.lr);
    json_member_uint(&writer, "samples", row->samples);
    json_member_bool(&writer, "skipped", row->skipped);
    /* What common/files/ledger.h proves: which tickets, and what came with their gradients. */
    json_member_uint(&writer, "ticket", row->step * row->slots);
    json_member_uint(&writer, "slots", row->slots);
    json_member_uint(&writer, "slot_samples", row->step_samples / row->slots);
    json_member_uint(&writer, "step_samples", row->metrics.samples);
    json_member_uint(&writer, "epoch_samples", record->epoch_samples);
    json_member_hex(&writer, "digest", row->metrics.digest);
    json_member_uint(&writer, "behind", row->behind);
    json_member_uint(&writer, "workers", row->workers);
    json_member_uint(&writer, "redone", row->redone);
    json_member_uint(&writer, "speculative", row->speculative);
    json_member_uint(&writer, "audited", row->audited);
    json_member_uint(&writer, "duration_ms", row->duration_ms);
    json_member_uint(&writer, "slot_ms", row->slot_ms);
    json_member_uint(&writer, "generation", row->generation);
    json_member_real(&writer, "time", time_wall_s());
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
    json_member_uint(&writer, "version", row->version); /* first: the step log looks for it */
    json_member_real(&writer, "validation_loss", row->loss);
    json_member_real(&writer, "validation_accuracy", row->accuracy);
    json_member_uint(&writer, "validation_samples", row->samples);
    json_member_uint(&writer, "slot_ms", row->slot_ms);
    json_member_uint(&writer, "generation", row->generation);
    json_member_real(&writer, "time", time_wall_s());
    end_row(record, &writer);
    put_scalar(record, row->version, "validation/loss", row->loss);
    put_scalar(record, row->version, "validation/accuracy", row->accuracy);
}

/* On a full disk rows stay for the next time, up to a limit. True: they are lost. */
static bool done(struct buf *bytes, size_t late_max, enum err err)
{
    if (err == ERR_NO_SPACE && bytes->bytes <= late_max)
        return false;
    bytes->bytes = 0;
    return err == ERR_NO_SPACE;
}

/* How much room is needed. */
static void add_late_bytes(struct record *record)
{
    const struct reason why = record->reason;
    ignore(reason_set(&record->reason, record->err, "%s; the rows that wait take %.1f kB", why.text,
                      (double)record->lines.bytes / 1e3)); /* record->err keeps it */
}

static enum err rewind_owed(struct record *record)
{
    if (!record->owes_rewind)
        return ERR_OK;
    TRY(step_log_rewind(&record->steps, record->rewind_to, &record->reason));
    record->owes_rewind = false;
    return ERR_OK;
}

/* Behind rows that are undone, the same steps would count their samples a second time. */
static enum err write_rows(struct record *record)
{
    TRY(rewind_owed(record));
    if (record->lines.bytes == 0)
        return ERR_OK;
    return step_log_append(&record->steps, buf_slice(&record->lines), &record->reason);
}

void record_write(struct record *record)
{
    if (!takes_rows(record))
        return;
    record->err = write_rows(record);
    if (done(&record->lines, record->late_rows_max, record->err))
        record->rows_lost = true;
    else if (record->err == ERR_NO_SPACE)
        add_late_bytes(record);
}

/* What a failed append may have left would make the file unreadable behind it. */
static enum err append_scalars(struct record *record)
{
    struct file_log *log = &record->events.log;
    if (record->scalars_err != ERR_OK)
        TRY(file_log_truncate(log, log->bytes, &record->scalars_reason));
    return file_log_append(log, buf_slice(&record->scalars), &record->scalars_reason);
}

/* A curve may have a gap. */
static void write_scalars(struct record *record)
{
    if (record->scalars.bytes == 0)
        return;
    record->scalars_err = append_scalars(record);
    (void)done(&record->scalars, LATE_POINTS_BYTES_MAX, record->scalars_err);
}

void record_flush(struct record *record)
{
    if (!takes_rows(record))
        return;
    record_write(record);
    write_scalars(record);
}

enum err record_sync(struct record *record, struct reason *reason)
{
    record_flush(record);
    if (takes_rows(record))
        note(record, step_log_sync(&record->steps, &record->reason));
    return record->err == ERR_OK ? ERR_OK
                                 : reason_set(reason, record->err, "%s", record->reason.text);
}

enum err record_reopen(struct record *record, struct reason *reason)
{
    TRY(step_log_reopen(&record->steps, reason));
    record->err = ERR_OK;
    return ERR_OK;
}

/* Also while steps.jsonl is another file: it is owed until the log is opened again. */
void record_rewind(struct record *record, uint64_t version)
{
    record_flush(record);
    size_t kept = step_log_keep(buf_slice(&record->lines), version);
    check(kept <= record->lines.bytes);
    record->lines.bytes = kept;
    if (!record->owes_rewind || version < record->rewind_to)
        record->rewind_to = version;
    record->owes_rewind = true;
    record_write(record);
}
