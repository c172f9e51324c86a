/* The errors after which a question is asked again; agent_backoff_ms() is the pause before that.
 * For agent*.c, and for worker.c while there is no agent yet. */
#ifndef ROOST_WORKER_AGENT_BACKOFF_H
#define ROOST_WORKER_AGENT_BACKOFF_H

#include "worker/agent.h"

/* Whether a later answer may be another one. A daemon that ends cancels the calls that it has not
 * answered. */
bool agent_backoff_helps(enum err err);

#endif
