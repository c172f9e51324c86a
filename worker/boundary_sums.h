/* What a place says of the values that passed: one sum for each boundary, way and direction, which
 * Complete brings to the coordinator (server/coordinator/said.h). The digests of values begin with
 * their names, so the sum tells which values there were, in whatever order they passed. Pure. */
#ifndef ROOST_WORKER_BOUNDARY_SUMS_H
#define ROOST_WORKER_BOUNDARY_SUMS_H

#include "proto/wire.h"

struct boundary_sums {
    uint32_t count;
    struct boundary_sum list[WIRE_BOUNDARIES_MAX];
};

/* One more value; `value->sum` is its digest. */
void boundary_sums_add(struct boundary_sums *sums, const struct boundary_sum *value);

#endif
