/* One worker: attached to a cluster, computing tickets until the run is over or it is told to go.
 */
#ifndef ROOST_WORKER_WORKER_H
#define ROOST_WORKER_WORKER_H

#include "common/err.h"
#include "worker/worker_config.h"

/* Runs until the run is over (OK), a signal was obeyed (OK), or until an error that waiting does
 * not mend (the error, with its sentence). Process-wide: installs signal handling. */
enum err worker_run(const struct worker_config *config, struct reason *reason) MUST_USE;

#endif
