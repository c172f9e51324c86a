/* What turns go by (turn.h), and leases on a fake clock (stream.h). Pure. */
#ifndef ROOST_WORKER_TURN_RULES_H
#define ROOST_WORKER_TURN_RULES_H

#include "common/program/program.h"

/* A place's activations, one for each unit and microbatch: as many as it keeps at once at most, and
 * as one microbatch has. */
struct turn_room {
    uint32_t most, each;
};
struct turn_room turn_room(const struct program_place *place);
/* How many of so many are kept after the act. */
uint32_t turn_stored(uint32_t stored, enum act act);
/* Whether a row belongs to what was computed last: what a microbatch passed is sent on before
 * anything else is computed. */
bool turn_goes_on(enum act act, uint32_t microbatch, const struct program_row *row);

#endif
