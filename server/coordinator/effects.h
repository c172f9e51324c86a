/* The effects of one call of the coordinator, in order. */
#ifndef ROOST_SERVER_COORDINATOR_EFFECTS_H
#define ROOST_SERVER_COORDINATOR_EFFECTS_H

#include "server/coordinator/coordinator.h"

enum {
    /* Members that one call may find lost by itself; the next one finds the others. */
    EFFECTS_LOST_MAX = 16,
    /* Each of them is told to all members of its leases. */
    EFFECTS_LOST = EFFECTS_LOST_MAX * WIRE_LEASES_MAX * WIRE_PLACES_MAX,
    /* No single call makes more: a few for each member (answer, expel, log), a few for each of its leases
     * (its place is lost, so is a neighbour's, both are filled again), a few commands for each server, and
     * a handful. Those that are not used take no memory. */
    EFFECTS_MAX = (5 + 4 * WIRE_LEASES_MAX) * COORDINATOR_MEMBERS_MAX + 2 * EFFECTS_LOST +
                  8 * WIRE_SERVERS_MAX + 256
};

struct effects {
    size_t count;
    struct effect *items; /* EFFECTS_MAX, touched only as far as used */
};

enum err effects_init(struct effects *effects) MUST_USE;
void effects_release(struct effects *effects);

/* The next effect, zeroed but for its kind; the caller fills it in. */
struct effect *effects_add(struct effects *effects, enum effect_kind kind);
/* "event  key=value key=value" */
void effects_log(struct effects *effects, bool warning, const char *format, ...) PRINTF_LIKE(3, 4);

#endif
