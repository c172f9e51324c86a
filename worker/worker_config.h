/* What one worker is started with. Borrowed as long as the worker runs. */
#ifndef ROOST_WORKER_WORKER_CONFIG_H
#define ROOST_WORKER_WORKER_CONFIG_H

#include "common/log.h"
#include "common/rpc/tls.h"
#include "kernels/kernels.h"

struct trace;

struct worker_config {
    const char *coordinator; /* host:port */
    const char *name;
    const char *address;   /* to listen at for other workers, host:port; NULL: nobody may ask */
    const char *advertise; /* where they reach it; NULL: there */
    uint64_t memory_bytes; /* that it may take for a place; 0: not known */
    uint32_t
        act_ms; /* for tests: a place's forward takes at least so long, its backward twice that */
    const struct tls_identity *identity; /* NULL: insecure, loopback only */
    bool network_only;                   /* no shared memory on this machine either */
    enum kernels_backend backend;
    uint32_t device;       /* CUDA: the first of them (kernels_options) */
    uint32_t devices;      /* that compute together, where the run lets them */
    const char *data_path; /* NULL: the spec's */
    uint32_t leave_ms;     /* after SIGTERM or a notice: how long the ticket at hand may take */
    int notice_cloud;      /* enum notice_cloud; -1: whichever is there; -2: none is asked */
    const char *notice_endpoint;
    uint32_t notice_ms;
    struct trace *trace; /* of what it does; NULL: none. The compute thread's */
    uint32_t connect_s; /* give up when no coordinator with a run was found for so long; 0: never */
    const struct logger *logger;
};

#endif
