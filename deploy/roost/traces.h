/* The traces of all workers of `roost up --trace-out`, put together in one file. */
#ifndef ROOST_DEPLOY_ROOST_TRACES_H
#define ROOST_DEPLOY_ROOST_TRACES_H

#include "common/err.h"

/* `folder` holds the workers' files (worker/trace.h). The file is replaced when it is whole. */
enum err traces_join(const char *folder, const char *path, struct reason *reason) MUST_USE;

#endif
