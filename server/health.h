/* The health service (grpc.health.v1): answers whether the daemon serves, and sends it again to
 * each watcher when it changes. All functions may be called from any thread. */
#ifndef ROOST_SERVER_HEALTH_H
#define ROOST_SERVER_HEALTH_H

#include "common/rpc/rpc.h"
#include "common/thread.h"

struct health_watch;

struct health {
    struct thread_mutex mutex; /* guards the rest */
    bool serving;
    struct health_watch *watches;
};

/* Not serving. */
void health_init(struct health *health);
/* After the rpc server is gone. */
void health_release(struct health *health);
/* Sends the new state to all watchers, when it has changed. */
void health_set(struct health *health, bool serving);

/* Handlers of Check and Watch; the owner of both methods is the struct health. */
void health_check(void *owner, struct rpc_request *request, struct slice bytes);
extern const struct rpc_stream_events health_watch_events;

#endif
