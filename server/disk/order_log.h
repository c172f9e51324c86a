/* The coordinator's order log in a run's directory (common/files/order.h): what ssp's slots were
 * computed on. Steps are appended in batches. The log is synced before a cut is recorded. A run
 * that is rewound or continued cuts the log back to the steps that led to its cut. One thread. */
#ifndef ROOST_SERVER_DISK_ORDER_LOG_H
#define ROOST_SERVER_DISK_ORDER_LOG_H

#include "common/file.h"
#include "common/files/order.h"

struct order_log {
    struct file_log file;  /* path NULL: this run keeps none */
    struct buf late;       /* not written yet */
    size_t late_bytes_max; /* that wait for room on a full disk */
    bool steps_lost;       /* more waited: the log has a gap; for who says so, who clears it */
    bool owes_cut;         /* the file has steps from `cut_to` on that are undone */
    uint64_t cut_to;       /* a version */
};

/* Opens or makes the log of the run in `directory`, and cuts it back to what led to `version`. The
 * log may be shorter than that: the run goes on all the same, and whoever repeats the run is told
 * which steps are missing. ERR_NOMEM, and what files return. */
enum err order_log_open(struct order_log *log, const char *directory, uint64_t version,
                        struct reason *reason) MUST_USE;
void order_log_release(struct order_log *log); /* writes what is late; {0} is fine */

/* On a full disk the step waits for room; beyond a limit those that wait are lost. ERR_NOMEM, and
 * errors of files but ERR_NO_SPACE. */
enum err order_log_add(struct order_log *log, const struct order_step *step,
                       struct reason *reason) MUST_USE;
/* Syncs all that was added. ERR_NO_SPACE and other errors of files; the call may be repeated. */
enum err order_log_sync(struct order_log *log, struct reason *reason) MUST_USE;
/* Drops the steps from `version` on, because they will come again; `version` is a recorded
 * cut's. What a full disk has no room for is tried again before a step is written. */
enum err order_log_rewind(struct order_log *log, uint64_t version, struct reason *reason) MUST_USE;

#endif
