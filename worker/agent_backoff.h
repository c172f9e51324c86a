/* The errors after which a question is asked again; agent_backoff_ms() is the pause before that.
 * For agent*.c, and for worker.c while there is no agent yet. */
#ifndef ROOST_WORKER_AGENT_BACKOFF_H
#define ROOST_WORKER_AGENT_BACKOFF_H

#include "common/err.h"
#include "common/rand.h"

#include <stdbool.h>

enum {
    AGENT_BACKOFF_MS_MIN = 100, /* doubled with each failure in a row, ±50 % */
    AGENT_BACKOFF_MS_MAX = 10000,
    /* that raise the backoff where waiting helps: so it asks each second or so */
    AGENT_WAIT_FAILURES_MAX = 3,
    AGENT_BUSY_MAX = 6, /* pushes of a ticket refused in a row: some six seconds of backoff */
};

/* How long a worker waits after that many failures in a row, before it asks anything again.
 * Jittered, so that workers that lost the same thing at once do not come back at once. */
uint64_t agent_backoff_ms(struct rand_state *jitter, unsigned failures);

/* Whether a later answer may be another one. A daemon that ends cancels the calls that it has not
 * answered. */
bool agent_backoff_helps(enum err err);
/* The same for who has been served in the run: while that goes on certificates are renewed, and a new
 * CA reaches one machine after another. */
bool agent_backoff_helps_member(enum err err);

#endif
