/* One worker: attached to a cluster, computing tickets until the run is over or it is told to go.
 */
#ifndef ROOST_WORKER_WORKER_H
#define ROOST_WORKER_WORKER_H

#include "common/log.h"
#include "common/rpc/tls.h"
#include "kernels/kernels.h"

#include <stdbool.h>

struct worker_config {
    const char *coordinator; /* host:port */
    const char *name;
    const struct tls_identity *identity; /* NULL: insecure, loopback only */
    enum kernels_backend backend;
    const char *data_path; /* NULL: the spec's */
    uint32_t leave_ms;     /* after SIGTERM or a notice: how long the ticket at hand may take */
    int notice_cloud;      /* enum notice_cloud; -1: whichever is there; -2: none is asked */
    const char *notice_endpoint;
    uint32_t notice_ms;
    uint32_t connect_s; /* give up when no coordinator with a run was found for so long; 0: never */
    const struct logger *logger;
};

/* Runs until the run is over (OK), a signal was obeyed (OK), or something that waiting does not
 * mend (the error, with its sentence). Process-wide: installs signal handling. */
enum err worker_run(const struct worker_config *config, struct reason *reason) MUST_USE;

#endif
