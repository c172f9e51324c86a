/* A mesh: how places share a model, and the programs that follow from it.
 *
 * Stages are cut by the model's shapes alone (common/model/stages.h), so that the coordinator and
 * every worker make the same programs. */
#ifndef ROOST_WORKER_PROGRAM_MESH_H
#define ROOST_WORKER_PROGRAM_MESH_H

#include "common/model/model.h"
#include "worker/program/residency.h"
#include "worker/program/schedule.h"

struct mesh {
    enum schedule_kind schedule;
    uint32_t places;
    uint32_t runs;      /* of units that a place holds */
    uint32_t recompute; /* program_recomputes() */
    bool offload;       /* activations wait in the host's memory; not both */
    struct residency residency;
    uint64_t memory;            /* bytes of weights and gradients that a place may have; 0: any */
    const char *program, *rows; /* instead of the schedule, a user's (common/program/rows.h); NULL:
                                   none. Borrowed */
};

/* Of a worker that has all units: as the run's settings say. */
struct mesh mesh_alone(const struct spec_train *train);

/* The run's. Borrows the spec. */
struct mesh mesh_of(const struct spec *spec);

/* How many runs of units are behind a place's first one: pipeline_behind(). */
uint32_t mesh_behind(const struct mesh *mesh, uint32_t place);
/* How many leases of `leases` a place computes at a time, when each has so many microbatches: as
 * many as there are between a microbatch's forward there and its backward (PipeDream: stage k of p
 * keeps p - k versions, Narayanan et al. 2019, section 3.3). */
uint32_t mesh_lanes(const struct mesh *mesh, uint32_t place, uint32_t microbatches,
                    uint32_t leases);

/* Work on a node. */
struct mesh_node {
    uint32_t slots;
    uint32_t microbatches; /* of a slot */
};

/* Its shape, of a node. Borrows the mesh. */
struct schedule_shape mesh_shape(const struct mesh *mesh, const struct model *model,
                                 struct mesh_node node);

/* Training, of all places. ERR_INVALID: there is no such program (rows_judge); ERR_NOMEM. */
enum err mesh_training(const struct mesh *mesh, const struct model *model, struct mesh_node node,
                       struct program *ret_program, struct reason *reason) MUST_USE;

/* Validation. ERR_NOMEM. The mesh is one that trains. */
enum err mesh_validation(const struct mesh *mesh, const struct model *model, struct mesh_node node,
                         struct program *ret_program) MUST_USE;

#endif
