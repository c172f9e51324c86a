/* The traces of all workers of `roost up --trace-out`, put together in one file. */
#ifndef ROOST_DEPLOY_ROOST_TRACES_H
#define ROOST_DEPLOY_ROOST_TRACES_H

#include "common/err.h"

/* A worker's file in the folder (worker/trace.h) has its name, worker-N, and this behind it; other
 * files there are left alone. */
#define TRACES_END ".trace.json"

/* Removes the files of an earlier start. */
enum err traces_clear(const char *folder, struct reason *reason) MUST_USE;
/* The file is replaced when it is whole. */
enum err traces_join(const char *folder, const char *path, struct reason *reason) MUST_USE;

#endif
