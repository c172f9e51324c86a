/* A run starts: its settings are checked, its tables are made. Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_START_H
#define ROOST_SERVER_COORDINATOR_START_H

#include "server/coordinator/run.h"

/* Whether any run may start at all. ERR_BUSY: one has committed steps, and goes on. */
enum err start_judge_any(const struct run *active, struct reason *reason) MUST_USE;
/* Whether start_run() would take the run, from `past` (NULL: from nothing); the same errors. */
enum err start_judge(const struct run *active, const struct coordinator_run *settings,
                     const struct coordinator_past *past, uint32_t *ret_chunk_count,
                     struct reason *reason) MUST_USE;
/* coordinator_start() */
enum err start_run(struct coordinator *coordinator, uint64_t now_ms,
                   const struct coordinator_run *settings, const struct coordinator_past *past,
                   struct reason *reason) MUST_USE;
void start_release(struct run *run);

#endif
