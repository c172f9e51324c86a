/* The daemon's methods: one table of path, roles and handler. Handlers run on gRPC's polling
 * threads: they decode, and post an event to the main thread's inbox. Only Samples, health and
 * reflection are answered on the polling thread, because they touch no state of the daemon.
 *
 * A daemon that is not the coordinator refuses the Cluster service with ERR_NOT_COORDINATOR. */
#ifndef ROOST_SERVER_SERVICE_H
#define ROOST_SERVER_SERVICE_H

#include "common/data/data.h"
#include "common/digest.h"
#include "common/inbox.h"
#include "common/settings/spec.h"
#include "common/thread.h"
#include "server/events.h"
#include "server/health.h"

enum { SERVICE_METHODS_MAX = 32 };

/* A data set that is served to workers without a copy. References are counted: a call under way
 * holds one. */
struct served {
    atomic_uint references;
    uint64_t run;
    struct spec spec;
    struct data *data;
};

struct service {
    struct inbox *inbox;
    bool coordinator;
    struct health health;
    size_t method_count;
    struct rpc_method methods[SERVICE_METHODS_MAX];
    struct thread_mutex mutex; /* guards the rest */
    struct served *served;     /* NULL: none */
    struct digest_mac key;     /* of the coordinator's term */
};

/* `exchange` and `transfer` are the shards' rows. The service must not move in memory.
 * ERR_NOMEM. */
enum err service_init(struct service *service, struct inbox *inbox, bool coordinator,
                      struct rpc_method exchange, struct rpc_method transfer) MUST_USE;
/* After the rpc server is gone. */
void service_release(struct service *service);

/* From now on these samples are served (take_data may be NULL: none are), to those who prove by
 * the term's key that they are members of the run. ERR_NOMEM. */
enum err service_serve(struct service *service, uint64_t run,
                       const uint8_t key[static DIGEST_KEY_BYTES], const struct spec *spec,
                       struct data *take_data) MUST_USE;

#endif
