/* A stream of leases on a fake clock: how long steps take that follow each other without a flush
 * (consistency `delay`).
 *
 * Each lease is the same program. A place computes in lanes, as workers do (turn.h): one act at a
 * time, of the oldest lease whose inputs are there, and no forward of a younger one beyond the
 * place's room. A lease is granted when an earlier one is over, and the version that it computes on
 * is committed. Calls, pulls and pushes take no time. */
#ifndef ROOST_WORKER_STREAM_H
#define ROOST_WORKER_STREAM_H

#include "worker/program/mesh.h"
#include "worker/program/simulate.h"

struct stream_options {
    const struct simulate_options *simulate;
    const struct mesh *mesh;
    const uint32_t *lanes; /* (places) */
    uint32_t delay;
    uint32_t nodes; /* leases of a step */
    uint32_t steps;
};

/* When each step is done, in ticks: (steps). The program is valid. ERR_NOMEM. */
enum err stream_simulate(const struct program *program, const struct stream_options *options,
                         uint64_t *ret_ends) MUST_USE;

#endif
