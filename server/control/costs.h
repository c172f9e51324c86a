/* What the places of a run have cost, as members say. Nothing is decided by it. Main thread. */
#ifndef ROOST_SERVER_CONTROL_COSTS_H
#define ROOST_SERVER_CONTROL_COSTS_H

#include "proto/wire.h"

struct costs {
    uint32_t count; /* of places that are known */
    struct place_cost places[WIRE_PLACES_MAX];
    uint64_t validation_bytes; /* of all places' peer_bytes: of validation */
};

/* Times and peer_bytes are added; of the others the most stays. Without a mesh all is place 0's. `kind`:
 * of the ticket that brings it. */
void costs_add(struct costs *costs, uint32_t stage, const struct place_cost *cost,
               enum ticket_kind kind);

#endif
