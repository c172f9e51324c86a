/* A run as one worker has it: spec, model, backend, data, executor, fingerprint. */
#ifndef ROOST_WORKER_WORKER_RUN_H
#define ROOST_WORKER_WORKER_RUN_H

#include "common/digest.h"
#include "common/log.h"
#include "worker/crew.h"
#include "worker/lent_weights.h"
#include "worker/program/mesh.h"
#include "worker/program/simulate.h"
#include "worker/replicated.h"
#include "worker/samples.h"
#include "worker/whole.h"

struct worker_run_options {
    enum kernels_backend backend;
    uint32_t device;             /* CUDA: the first of those */
    uint32_t devices;            /* that may compute together */
    const char *data_path;       /* overrides the spec's; NULL: the spec's */
    struct rpc_channel *channel; /* to the coordinator, for samples and products */
    struct shared_pool *pool;    /* of what is sent; NULL: there is none */
    uint64_t memory_bytes;       /* of the host, that a place may take; 0: not known */
    uint32_t act_ms;             /* that acts are made to take (worker_config.h) */
    struct crew_lock lock;       /* of gradients that are read */
    const struct logger *logger;
};

struct worker_run {
    uint64_t number;
    struct spec spec;
    struct model model; /* whole */
    struct model
        share; /* of the member of a place whose executors are made; {0}: it has all of it */
    const struct kernels *kernels;
    struct data *data; /* NULL: served */
    struct samples samples;
    struct mesh mesh;
    struct shared_pool *pool;
    uint64_t memory_bytes; /* of the device, likewise */
    uint32_t act_ms;       /* likewise */
    uint32_t lanes;        /* tickets that are computed at a time, at most */
    /* By lane, of the whole model; with several places of the one that the newest ticket is for,
     * and NULL before: a compute thread makes them. */
    struct executor *executors[WIRE_LEASES_MAX];
    uint32_t devices; /* that compute a training ticket together */
    struct crew_lock lock;
    struct crew *crew; /* of the first executor and these; NULL: of one device */
    struct executor *others[CREW_DEVICES_MAX];
    const struct kernels *others_kernels[CREW_DEVICES_MAX]; /* NULL: the first one's */
    struct samples others_samples[CREW_DEVICES_MAX];
    struct lent_weights lent; /* of the first one's; {0}: it has all weights in its own memory */
    uint32_t stage, rank;     /* that they are of */
    struct reason refused;    /* why the newest ones could not be made */
    struct simulate_cost *act_costs; /* (units) nanoseconds that acts take at least; NULL: none */
    struct replicated replicated;    /* mesh.tensor: of the main thread */
    bool async;
    struct whole pushing; /* async: of the main thread */
    struct whole scaling; /* async: of the compute thread */
    struct digest fingerprint;
    struct digest data_digest; /* zeros: served */
    enum codec push_codec, weights_codec;
};

/* Builds everything that joining needs from what the coordinator described. Takes seconds for a
 * large model. The error is that of what was opened, and the reason names what is wrong with spec,
 * data or machine. *ret_run must stay where it is: the executor borrows its model. */
enum err worker_run_open(const struct describe_reply *description,
                         const struct worker_run_options *options, struct worker_run *ret_run,
                         struct reason *reason) MUST_USE;
/* Whether it is the run that was opened, and has the same settings still: one that is resumed keeps
 * its number. ERR_RUN_CHANGED, or that of a spec which this worker does not read. */
enum err worker_run_is_same(const struct worker_run *run, const struct describe_reply *description,
                            struct reason *reason) MUST_USE;
/* Makes the executors of that place, unless they are there. One thread at a time. The errors of
 * executor_new(), with the sentence in run->refused. */
enum err worker_run_place(struct worker_run *run, const struct place *place,
                          bool *ret_made) MUST_USE;
/* How many lanes a place of that stage has (mesh_lanes). */
uint32_t worker_run_lanes(const struct worker_run *run, uint32_t stage);
/* What computes, for people: "CPU, AVX-512", "2 x CUDA, NVIDIA H200, …". */
void worker_run_device(const struct worker_run *run, char *ret_text, size_t bytes);
/* Why the lane's newest ticket failed: its devices' sentence after ERR_IO, else the samples'. */
const char *worker_run_failure(const struct worker_run *run, uint32_t lane, enum err err);
void worker_run_release(struct worker_run *run); /* {0} is fine */

/* On a CPU the device's memory is the host's, and an act is done when its call returns. */
static inline bool worker_run_is_host(const struct worker_run *run)
{
    return run->kernels->in == run->kernels;
}

#endif
