/* What the places of a run's mesh push. Pure. */
#ifndef ROOST_SERVER_CONTROL_CONTROL_MESH_H
#define ROOST_SERVER_CONTROL_CONTROL_MESH_H

#include "common/model/model.h"
#include "server/coordinator/coordinator.h"

struct control_mesh {
    struct coordinator_place *places; /* NULL: a ticket has one member */
    uint8_t *chunk_ranks;             /* by chunk, which member of a place pushes it; NULL: each has
                                         one */
    bool *
        boundary_pieces; /* by boundary: each rank has its own pieces of what passes; NULL likewise */
    bool ring;           /* the last place and the first hand each other values */
    uint32_t node_slots_max; /* larger nodes of a chosen length have no program; 0: all have */
};

/* ERR_INVALID: there is no such mesh of the model; ERR_NOMEM. */
enum err control_mesh_new(const struct spec *spec, const struct model *model,
                          struct control_mesh *ret_mesh, struct reason *reason) MUST_USE;
void control_mesh_release(struct control_mesh *mesh); /* {0} is fine */

/* Whether the members of a place have pieces of anything (MODEL_UNIT_CUT_MIN): if not, each has and
 * computes all of its place. */
bool control_mesh_shares(const struct control_mesh *mesh, const struct model *model);

#endif
