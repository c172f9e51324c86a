/* What a run leaves for people, in its directory: run.yaml (the effective spec), steps.jsonl (one
 * JSON object a step or validation) and events/ (TensorBoard). Written by the coordinator's daemon,
 * in batches, a step's row before its commit is said; synced only with a cut: after the machine's
 * crash the last ones may miss, and a run that is continued from the cut writes those rows again.
 * One thread. */
#ifndef ROOST_SERVER_DISK_RECORD_H
#define ROOST_SERVER_DISK_RECORD_H

#include "common/files/tfevents.h"
#include "server/coordinator/coordinator.h"

struct record {
    struct file_log steps;
    struct tfevents events;
    struct buf lines;       /* rows not yet written */
    struct buf scalars;     /* the same for TensorBoard */
    uint64_t epoch_samples; /* training samples in the data set */
    enum err err;           /* NO_SPACE: tried again; else nothing is written after it */
    bool said;              /* it is in the log */
    struct reason reason;
};

struct record_run {
    const char *directory;
    const char *spec;
    uint64_t version; /* of the newest cut */
    uint64_t epoch_samples;
};

/* Makes the directory, writes run.yaml, cuts a torn row off steps.jsonl. *ret_reached: the version
 * that its rows lead to from the cut's, at least that one; a rewind cuts those beyond. */
enum err record_open(struct record *record, const struct record_run *run, uint64_t *ret_reached,
                     struct reason *reason) MUST_USE;
void record_release(struct record *record); /* flushes; {0} is fine */

/* Failures stick in record->err: a full disk costs the log, not the run. */
void record_step(struct record *record, const struct step_row *row);
void record_validation(struct record *record, const struct validation_row *row);
/* Writes the rows that are there; those for TensorBoard wait. */
void record_write(struct record *record);
/* Writes what is there; at least each second. */
void record_flush(struct record *record);
/* … and makes it durable, before a cut is recorded: what led to that cut is never missing. */
void record_sync(struct record *record);
/* A rewind: rows beyond `version` will come again. */
void record_rewind(struct record *record, uint64_t version);

/* Where the rows end that led to `version`: the rest of a steps.jsonl. Pure. */
size_t record_keep(struct slice text, uint64_t version);
/* The version that the rows lead to from `version` without a gap. Pure. */
uint64_t record_reach(struct slice text, uint64_t version);

#endif
