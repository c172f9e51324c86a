/* The coordinator's decision of a step: when it is due, what it carries (a cut, moves), and which
 * tickets are open after it. Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_COMMIT_H
#define ROOST_SERVER_COORDINATOR_COMMIT_H

#include "server/coordinator/run.h"

/* Opens the tickets of the run's version, which can be computed on. */
void commit_open_version(struct coordinator *coordinator);
/* The run's last cut did not fit on a disk, and everybody has carried its commit out: it is written
 * again. ERR_NOMEM. */
enum err commit_cut_again(struct coordinator *coordinator) MUST_USE;
/* P6: commit(t + 1) is sent only when every server has acknowledged commit(t). Whether that is
 * so. */
bool commit_is_acknowledged(const struct coordinator *coordinator);
/* The version's validation is over, or given up: nobody is granted a piece of it or holds one. */
void commit_stop_validation(struct run *run);
/* Ends the version's validation when all its pieces are there, or the run ends. */
void commit_finish_validation(struct coordinator *coordinator);
/* Commits the step if nothing is missing: every seal, the acknowledgements (P6), and the version's
 * validation, for which the version must stay readable (P5). */
void commit_try(struct coordinator *coordinator, uint64_t now_ms);

#endif
