/* A run as one worker has it: spec, model, backend, data, executor, fingerprint. */
#ifndef ROOST_WORKER_RUN_H
#define ROOST_WORKER_RUN_H

#include "common/digest.h"
#include "common/log.h"
#include "worker/executor.h"
#include "worker/samples.h"
#include "worker/whole.h"

struct run_options {
    enum kernels_backend backend;
    const char *data_path;       /* overrides the spec's; NULL: the spec's */
    struct rpc_channel *channel; /* to the coordinator, for served samples */
    const struct logger *logger;
};

struct run {
    uint64_t number;
    struct spec spec;
    struct model model;
    const struct kernels *kernels;
    struct data *data; /* NULL: served */
    struct samples samples;
    struct executor *executor;
    bool async;
    struct whole pushing; /* async: of the main thread */
    struct whole scaling; /* async: of the compute thread */
    struct digest fingerprint;
    struct digest data_digest; /* zeros: served */
    enum codec push_codec, weights_codec;
};

/* Builds everything that joining needs from what the coordinator described. Takes seconds for a
 * large model. The reason names what is wrong with spec, data or machine: it is
 * the error of what was opened. *ret_run must stay where
 * it is: the executor borrows its model. */
enum err run_open(const struct describe_reply *description, const struct run_options *options,
                  struct run *ret_run, struct reason *reason) MUST_USE;
void run_release(struct run *run); /* {0} is fine */

#endif
