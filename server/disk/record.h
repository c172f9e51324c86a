/* What a run leaves for people, in its directory: run.yaml (the effective spec), steps.jsonl and
 * steps/ (one JSON object a step or validation: common/files/step_log.h) and events/ (TensorBoard).
 * The coordinator's daemon writes them in batches, and a step's row before its commit is sent. They
 * are synced only with a cut: when the machine crashes, the last rows may be missing, and a run
 * that is continued from the cut writes those rows again. One thread. */
#ifndef ROOST_SERVER_DISK_RECORD_H
#define ROOST_SERVER_DISK_RECORD_H

#include "common/files/step_log.h"
#include "common/files/tfevents.h"
#include "server/coordinator/coordinator.h"

struct record {
    struct step_log steps;
    struct tfevents events;
    struct buf lines;       /* rows not yet written */
    struct buf scalars;     /* the same for TensorBoard */
    uint64_t epoch_samples; /* training samples in the data set */
    bool owes_rewind;       /* the log on the disk has rows beyond `rewind_to` that are undone */
    uint64_t rewind_to;     /* a version */
    enum err err;           /* NO_SPACE: tried again; else nothing is written after it */
    bool said;              /* the log has a line about it */
    size_t late_rows_max;   /* bytes of rows that wait for room on a full disk */
    bool rows_lost;         /* more waited: the log has a gap; for who says so, who clears it */
    struct reason reason;
    enum err scalars_err; /* of events/, the newest: it costs points of the curves alone */
    bool scalars_said;    /* the log has a line about it */
    struct reason scalars_reason;
};

struct record_run {
    const char *directory;
    const char *spec;
    uint64_t version;    /* of the newest cut */
    uint64_t generation; /* the newest: the steps behind that cut are of it, or undone */
    uint64_t epoch_samples;
};

/* Makes the directory, writes run.yaml, drops what is no row from steps.jsonl. *ret_reached: the version
 * that its rows lead to from the cut's, at least that one; a rewind cuts those beyond. Rows of an
 * older generation lead nowhere: a dead coordinator owed their rewind. */
enum err record_open(struct record *record, const struct record_run *run, uint64_t *ret_reached,
                     struct reason *reason) MUST_USE;
void record_release(struct record *record); /* flushes; {0} is fine */
/* Writes run.yaml: the run's settings have changed. */
enum err record_spec(const char *directory, const char *spec, struct reason *reason) MUST_USE;

/* Failures stick in record->err: a full disk costs the log, not the run. So does ERR_OLD_TERM, which
 * says that steps.jsonl is another file: perhaps another coordinator's. What fails of events/ is in
 * record->scalars_err, and is tried again. */
void record_step(struct record *record, const struct step_row *row);
void record_validation(struct record *record, const struct validation_row *row);
/* Writes the rows that are there; those for TensorBoard wait. */
void record_write(struct record *record);
/* Writes the rows that are there; to be called at least each second. */
void record_flush(struct record *record);
/* Also makes them durable. To be called before a cut is recorded: so rows that led to a recorded
 * cut are never missing, unless rows_lost. Not OK: the rows are not on disk, and the cut must not be
 * recorded. */
enum err record_sync(struct record *record, struct reason *reason) MUST_USE;
/* After ERR_OLD_TERM, while no other coordinator writes the log: an operator replaced steps.jsonl, and
 * the log goes on with the rows that are there. */
enum err record_reopen(struct record *record, struct reason *reason) MUST_USE;
/* A rewind: rows beyond `version` will come again. On a full disk, and while steps.jsonl is
 * another file, it is done later, before any row is written; record_sync() tells whether it is done. */
void record_rewind(struct record *record, uint64_t version);

#endif
