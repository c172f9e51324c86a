/* Becoming a member, and following the chunk map. Main thread; for worker*.c only. */
#ifndef ROOST_WORKER_WORKER_JOIN_H
#define ROOST_WORKER_WORKER_JOIN_H

#include "worker/worker_core.h"

/* The run that was described, built; the agent with it. Again: only that it is the same. */
enum err worker_join_run(struct worker *worker, const struct describe_reply *description) MUST_USE;
/* Joins; the agent is told what came of it. */
void worker_join(struct worker *worker);
/* Asks for the map; the agent is told what came of it. */
void worker_join_map(struct worker *worker);

#endif
