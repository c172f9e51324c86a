/* What the carrier between places is made with. Borrowed as long as it lives. */
#ifndef ROOST_WORKER_PEERS_OPTIONS_H
#define ROOST_WORKER_PEERS_OPTIONS_H

#include "common/log.h"
#include "common/model/model.h"
#include "common/rpc/rpc.h"
#include "worker/executor_hooks.h"

enum { PEERS_LANES_MAX = WIRE_LEASES_MAX };

struct peers_options {
    struct rpc_loop *loop;               /* whose settings peers_settings() has seen */
    const struct tls_identity *identity; /* NULL: insecure, loopback only, nothing is compared */
    const char *address;                 /* to listen at: "host:port"; port 0: any */
    const char *advertise;               /* NULL: the address, with the port that it has */
    const struct spec *spec;             /* of the run: mesh and train */
    const struct model *model;           /* of the run */
    uint32_t answer_ms; /* a peer that answers nothing for so long, or for less (peers_joined()), is
                           named (S7); not 0 */
    uint32_t lanes;     /* that the worker computes in; at least 1 */
    /* A peer of the lease does not answer: any thread, no lock held. Called again now and then while
     * it is silent; it is asked again until the places change, or peers_cancel(). */
    void *context;
    void (*unreachable)(void *context, uint64_t attempt, uint64_t member);
    /* peers_take() is about to wait, on the lane's thread, without a lock; NULL: nobody cares. */
    void (*waits)(void *context, uint32_t lane);
    const struct logger *logger;
};

#endif
