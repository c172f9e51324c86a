/* How a run begins on the coordinator's daemon: its data are read, its directory is claimed, its facts
 * are stored, and the core gets it. control_continue() (control.h) does the same for the store's run.
 * For control*.c only. */
#ifndef ROOST_SERVER_CONTROL_CONTROL_START_H
#define ROOST_SERVER_CONTROL_CONTROL_START_H

#include "server/control/control_core.h"

/* Starts or resumes the run that an operator asks for. *response: a start_run_reply, appended.
 * ERR_SEARCHING: data or checkpoints are read; ask again. Other errors: why there is no such run. */
enum err control_start_run(struct control *control, uint64_t now_ns,
                           const struct start_run_request *request, struct buf *response,
                           struct reason *reason) MUST_USE;

#endif
