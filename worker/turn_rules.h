/* What turns go by (turn.h), and leases on a fake clock (stream.h). Pure. */
#ifndef ROOST_WORKER_TURN_RULES_H
#define ROOST_WORKER_TURN_RULES_H

#include "worker/program/mesh.h"

/* A place's activations, one for each unit and microbatch: as many as its tickets together keep at
 * once at most, and as one microbatch has. */
struct turn_room {
    uint32_t most, each;
};
/* In 1F1B the pipeline goes on with a microbatch for each run of units from there on, in a stream of
 * tickets as in one of many microbatches. Other schedules order a ticket's acts for a pipeline that
 * runs empty behind it: beside what one ticket keeps there is room for the first microbatches of the
 * next, until the pipeline is full of them (docs/schedules.md). */
struct turn_room turn_room(const struct mesh *mesh, const struct program *program, uint32_t place);
/* How many of so many are kept after the act. */
uint32_t turn_stored(uint32_t stored, enum act act);
/* Whether a row belongs to what was computed last: what a microbatch passed is sent on before
 * anything else is computed. */
bool turn_goes_on(enum act act, uint32_t microbatch, const struct program_row *row);

#endif
