/* The shape of a pipeline: which units belong to which of its places, and which shapes there are.
 *
 * The model's units are cut into places × runs consecutive runs (stages.h); run r belongs to place
 * r mod places. Chimera has both directions: place p has run p of the half that runs down the places,
 * and run places − 1 − p of the half that runs up. */
#ifndef ROOST_COMMON_MODEL_PIPELINE_H
#define ROOST_COMMON_MODEL_PIPELINE_H

#include "common/err.h"
#include "common/settings/spec.h"

enum {
    PROGRAM_MICROBATCHES_MAX = 65536,
    PROGRAM_ROWS_MAX = 1 << 20, /* of all places */
};

struct schedule_shape {
    enum schedule_kind schedule;
    uint32_t places;
    uint32_t runs; /* of units that a place holds; chimera: in each direction */
    uint32_t units;
    uint32_t microbatches; /* of all slots */
    uint32_t slots;        /* of the node */
};

/* Whether there is such a program. ERR_INVALID: one sentence, with the nearest setting that works
 * where there is one. */
enum err schedule_judge(const struct schedule_shape *shape, struct reason *reason) MUST_USE;

/* Whether the place has the unit, in some run. Run r is units cuts[r] to cuts[r + 1] − 1. */
bool schedule_has(const struct schedule_shape *shape, const uint32_t *cuts, uint32_t place,
                  uint32_t unit);

#endif
