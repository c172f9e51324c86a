/* What the places of a run's mesh push. Pure. */
#ifndef ROOST_SERVER_CONTROL_CONTROL_MESH_H
#define ROOST_SERVER_CONTROL_CONTROL_MESH_H

#include "common/model/model.h"
#include "server/coordinator/coordinator.h"

/* One for each place, to be freed by the caller; NULL: the mesh has one. ERR_INVALID: there is no such
 * mesh of the model; ERR_NOMEM. */
enum err control_mesh_places(const struct spec *spec, const struct model *model,
                             struct coordinator_place **ret_places, struct reason *reason) MUST_USE;

/* The smallest delay with which the pipeline does not run empty between leases: d · M >= P − 1 for
 * M microbatches of a lease and P runs of units. 0: the mesh has one place. */
uint32_t control_mesh_delay(const struct spec *spec);

#endif
