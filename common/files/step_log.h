/* The step log of a run: one line of JSON for each step and each validation, in segments.
 *
 *     RUN/steps.jsonl                 the newest rows: `tail -F` follows them
 *     RUN/steps/000000045321.jsonl    a closed segment, named by its first step
 *
 * Rows are appended to steps.jsonl. When it has some 8 MiB, its rows are written to a closed
 * segment, which appears whole or not at all, and steps.jsonl is emptied. A crash in between leaves
 * rows twice: whoever reads passes over the rows of steps.jsonl that a closed segment has. So does
 * a run of the older layout become one of this layout, in which all rows are in steps.jsonl.
 *
 * A closed segment ends with one line more, its footer: the SHA-256 of its rows and of the footer
 * before, the state of a ledger (ledger.h) after its last row, as sums over all rows from the
 * run's beginning, and where the time of its own rows went (step_times.h). Thus a coordinator goes
 * on behind the newest footer without reading what is before it, however long the run is, and
 * footers alone tell what the rows come to. A rewind opens the one segment that it goes back into,
 * and removes those behind it: it renames and shortens files, and needs no room on the disk.
 *
 * Who removes steps.jsonl while the run goes on, or puts another file in its place, loses its rows,
 * and those that come until the next rewind, or until it would be closed: then a new one is begun,
 * with the rows of the file that is there, but for those that closed segments have, where it is an
 * older copy. Of one that was emptied the rows since stay. Lines that are no rows are dropped then,
 * and the rows before and behind them stay: first in a steps.jsonl without such lines, and only then
 * in segments, whose rows are thus found in it after a crash.
 *
 * Reading needs the memory of a row, writing that of a segment, or of all rows behind a line that is
 * none. One thread. */
#ifndef ROOST_COMMON_FILES_STEP_LOG_H
#define ROOST_COMMON_FILES_STEP_LOG_H

#include "common/digest.h"
#include "common/file.h"
#include "common/files/step_times.h"

enum { STEP_LOG_SEGMENT_BYTES = 8 << 20, STEP_LOG_PATH_BYTES = 4096 };

/* ---- writing ---- */

/* What is known at some row: sums from the run's beginning. */
struct step_log_state {
    struct ledger sums;      /* .by_positions */
    struct step_times times; /* of the newest closed segment */
    struct digest newest;    /* of the newest closed segment's footer; zeros: there is none */
    uint64_t segment_count;  /* closed ones */
};

struct step_log {
    struct file_log file;         /* steps.jsonl; path NULL: closed */
    char *folder;                 /* RUN/steps */
    struct step_log_state closed; /* at the beginning of steps.jsonl */
    struct ledger sums;           /* at its end */
    struct step_times times;      /* of its rows */
    uint64_t segment_bytes;       /* STEP_LOG_SEGMENT_BYTES, or a test's */
    uint64_t close_at;            /* the size at which it is closed, or closing is tried again */
    bool changed;                 /* somebody else did; who says so clears it */
};

/* Where rows are looked for: steps from `version` on, of `generation` or a newer one. */
struct step_log_place {
    uint64_t version, generation;
};

/* Opens or makes the log of the run's directory; drops a torn row, and lines that are no rows.
 * Another process that has it open appends to what nobody reads any more. *ret_reached: the version
 * that its rows lead to from that place on without a gap, at least the place's. */
enum err step_log_open(const struct file_ops *ops, const char *directory,
                       struct step_log_place from, struct step_log *ret_log, uint64_t *ret_reached,
                       struct reason *reason) MUST_USE;
void step_log_release(struct step_log *log); /* {0} is fine */
/* Opens the log again, with the rows that are in its files now, whoever wrote them. */
enum err step_log_reopen(struct step_log *log, struct reason *reason) MUST_USE;
/* Whether it has the row of each step below `version`. */
bool step_log_has_all(const struct step_log *log, uint64_t version);
/* Appends whole rows, and closes the segment when it is large enough. Without room for that it is
 * closed later. ERR_OLD_TERM, also of a rewind: another file is in the place of steps.jsonl, and may
 * be another coordinator's (P7); if it is not, step_log_reopen(). */
enum err step_log_append(struct step_log *log, struct slice rows, struct reason *reason) MUST_USE;
enum err step_log_sync(struct step_log *log, struct reason *reason) MUST_USE;
/* Cuts the log back to the rows that led to `version`. ERR_NO_SPACE, of which some file systems have
 * that for a rename as well: to be repeated before a row is appended. */
enum err step_log_rewind(struct step_log *log, uint64_t version, struct reason *reason) MUST_USE;

/* Where the rows end that led to `version`; lines between them that are no rows do not end them.
 * Pure. */
size_t step_log_keep(struct slice rows, uint64_t version);
/* The version that the rows lead to from that place without a gap. Pure. */
uint64_t step_log_reach(struct slice rows, struct step_log_place from);

/* ---- reading ---- */

/* The closed segments of a run's directory, as paths, the oldest first; none: an empty list. */
enum err step_log_segments(const char *directory, struct file_names *ret_paths,
                           struct reason *reason) MUST_USE;
/* A closed segment's footer, without its rows. ERR_CORRUPT. `before`, `rows`: of the digests. */
struct step_log_footer {
    struct step_log_state state;
    struct digest before; /* the footer before; zeros: it is the first */
    struct digest rows;
    uint64_t rows_bytes;
    bool has_times; /* false: an older roost wrote it */
};
enum err step_log_read_footer(const char *path, struct step_log_footer *ret_footer,
                              struct reason *reason) MUST_USE;

/* Calls `take` with each row of the file, from `line` 1 on, without footers. *ret_torn: it ends
 * within a line. */
struct step_log_reader {
    enum err (*take)(void *context, const char *path, uint64_t line, struct slice row,
                     struct reason *reason);
    void *context;
};
enum err step_log_read(const char *path, const struct step_log_reader *reader, bool *ret_torn,
                       struct reason *reason) MUST_USE;
/* The number of a row's step, or of its validation's version; false: it is neither. Pure. */
bool step_log_row_number(struct slice row, bool *ret_step, uint64_t *ret_number);
/* Where the time of the steps from `first_step` on went. By footers; rows are read of what is not
 * closed, of the segment in which a later `first_step` is, and where a footer lacks the times.
 * *ret_reached: the step up to which all of them have rows. */
enum err step_log_times(const char *directory, uint64_t first_step, struct step_times *ret_times,
                        uint64_t *ret_reached, struct reason *reason) MUST_USE;
/* The SHA-256 of a closed segment's rows. */
enum err step_log_digest(const char *path, const struct step_log_footer *footer,
                         struct digest *ret_digest, struct reason *reason) MUST_USE;

#endif
