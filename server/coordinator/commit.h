/* The coordinator's decision of a step: when it is due, what comes with it (a cut, moves), and what
 * is open behind it. Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_COMMIT_H
#define ROOST_SERVER_COORDINATOR_COMMIT_H

#include "server/coordinator/run.h"

/* The version can be computed on: its tickets are open. */
void commit_open_version(struct coordinator *coordinator);
/* P6: every server has acknowledged the newest commit. */
bool commit_is_acknowledged(const struct coordinator *coordinator);
/* The version's validation is over when all its pieces are there, or the run ends. */
void commit_finish_validation(struct coordinator *coordinator);
/* Commits the step if everything about it is there: P6, and the version's validation, for which the
 * version must stay readable (P5). */
void commit_try(struct coordinator *coordinator, uint64_t now_ms);

#endif
