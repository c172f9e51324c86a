/* The coordinator's order log in a run's directory (common/files/order.h): what ssp's slots were
 * computed on. Appended in batches; a cut that is recorded is preceded by a sync, and a run that is
 * rewound or continued cuts the log back to what led to its cut. One thread. */
#ifndef ROOST_SERVER_DISK_ORDER_LOG_H
#define ROOST_SERVER_DISK_ORDER_LOG_H

#include "common/file.h"
#include "common/files/order.h"

struct order_log {
    struct file_log file; /* path NULL: this run keeps none */
    struct buf late;      /* not written yet */
};

/* Opens or makes the log of the run in `directory`, and cuts it back to what led to `version`.
 * Should it be shorter, the run goes on all the same; who repeats it will say what is missing.
 * ERR_NOMEM, and what files return. */
enum err order_log_open(struct order_log *log, const char *directory, uint64_t version,
                        struct reason *reason) MUST_USE;
void order_log_release(struct order_log *log); /* writes what is late; {0} is fine */

/* ERR_NO_SPACE: the disk has been full for too long. */
enum err order_log_add(struct order_log *log, const struct order_step *step,
                       struct reason *reason) MUST_USE;
/* All that was added is on disk. ERR_NO_SPACE, and what else files return; may be tried again. */
enum err order_log_sync(struct order_log *log, struct reason *reason) MUST_USE;
/* The steps from `version` on, which is a recorded cut's, will come again. */
enum err order_log_rewind(struct order_log *log, uint64_t version, struct reason *reason) MUST_USE;

#endif
