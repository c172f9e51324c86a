/* Which errors a question is asked again after; how long it waits then is agent_backoff_ms(). For
 * agent*.c, and for worker.c while there is no agent yet. */
#ifndef ROOST_WORKER_AGENT_BACKOFF_H
#define ROOST_WORKER_AGENT_BACKOFF_H

#include "worker/agent.h"

/* The answer may be another one later. A daemon that ends cancels the calls it has not answered. */
bool agent_backoff_helps(enum err err);

#endif
