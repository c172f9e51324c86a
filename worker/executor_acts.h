/* The acts as the executor carries them out: a function for each row of the table in
 * common/program/act.h. */
#ifndef ROOST_WORKER_EXECUTOR_ACTS_H
#define ROOST_WORKER_EXECUTOR_ACTS_H

#include "worker/executor_memory.h"

/* Row i of the walk's program. ERR_BEHIND: a receive's value is not there yet; the row may be tried
 * again. Other errors are those of hooks and samples; ERR_IO: the device failed. */
enum err executor_act(struct executor *e, uint32_t i) MUST_USE;

/* Waits until the device has done everything. ERR_IO: it failed. */
enum err executor_settled(struct executor *e) MUST_USE;

#endif
