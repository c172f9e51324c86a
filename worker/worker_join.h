/* Becoming a member, and following the chunk map. Main thread; for worker*.c only. */
#ifndef ROOST_WORKER_WORKER_JOIN_H
#define ROOST_WORKER_WORKER_JOIN_H

#include "worker/worker_core.h"

/* What the executor has taken, when it is more than was logged before: places change often. */
void worker_join_log_memory(struct worker *worker);

/* Builds the run that was described, and the agent. When it is called again, it only checks that
 * the run is the same. */
enum err worker_join_run(struct worker *worker, const struct describe_reply *description) MUST_USE;
/* Joins, and gives the agent the result. */
void worker_join(struct worker *worker);
/* Who asked for the map is answered: gives the agent the result. */
void worker_join_mapped(struct worker *worker, enum err err, struct slice response);

#endif
