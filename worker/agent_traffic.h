/* The agent's streams: weights in, gradients out, with credits. For agent*.c only. */
#ifndef ROOST_WORKER_AGENT_TRAFFIC_H
#define ROOST_WORKER_AGENT_TRAFFIC_H

#include "worker/agent_core.h"

/* A stream to open, a push or a pull that may go out now. */
bool agent_traffic_next(struct agent *agent, uint64_t now_ms, struct agent_effect *effect);
/* Whether only the server's retry_at is between it and something to be done. */
bool agent_traffic_waits(const struct agent *agent, const struct server *server);

#endif
