/* The effects of one call of the coordinator, in order. */
#ifndef ROOST_SERVER_COORDINATOR_EFFECTS_H
#define ROOST_SERVER_COORDINATOR_EFFECTS_H

#include "server/coordinator/coordinator.h"

enum {
    /* No single call makes more: four for each member (answer, expel, log, places), a few commands
     * for each server, and a handful. */
    EFFECTS_MAX = 5 * COORDINATOR_MEMBERS_MAX + 8 * WIRE_SERVERS_MAX + 256
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
