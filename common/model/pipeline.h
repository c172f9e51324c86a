/* The shape of a pipeline: which units belong to which of its places, and which shapes there are.
 *
 * The model's units are cut into places × runs consecutive runs (stages.h); run r belongs to place
 * r mod places. Chimera has both directions: place p has run p of the half that runs down the places,
 * and run places − 1 − p of the half that runs up. A program that a user wrote says how many runs
 * there are, and whose each is (common/program/rows.h). */
#ifndef ROOST_COMMON_MODEL_PIPELINE_H
#define ROOST_COMMON_MODEL_PIPELINE_H

#include "common/err.h"
#include "common/settings/spec.h"

enum {
    PROGRAM_MICROBATCHES_MAX = 65536,
    PROGRAM_ROWS_MAX = 1 << 20, /* of all places */
    PIPELINE_BOUNDARIES_MAX =
        16, /* of a place: over which it hands values to others, or gets them */
};

struct schedule_shape {
    enum schedule_kind schedule;
    uint32_t places;
    uint32_t runs; /* of units that a place holds; chimera: in each direction */
    uint32_t units;
    uint32_t microbatches; /* of all slots */
    uint32_t slots;        /* of the node */
    uint64_t memory;       /* bytes of weights and gradients that a place may have; 0: any */
    const char *program; /* its name, where a user wrote it, and its rows; borrowed, may be NULL */
    const char *rows;    /* NULL or empty: the schedule makes the program */
};

/* The model's runs of units, and whose they are. */
struct pipeline_runs {
    uint32_t count;
    uint32_t *cuts; /* (count + 1) run r is units cuts[r] to cuts[r + 1] − 1; owned, with places */
    uint32_t *places; /* (count); chimera: of the half that runs down */
};

/* Room for so many. ERR_NOMEM. */
enum err pipeline_runs_new(uint32_t count, struct pipeline_runs *ret_runs) MUST_USE;
void pipeline_runs_release(struct pipeline_runs *runs); /* {0} is fine */

/* The place that computes the unit, in chimera of the half that runs down. */
uint32_t pipeline_place(const struct pipeline_runs *runs, uint32_t unit);

/* Of so many slots; UINT32_MAX, which no program has: there are more than that. */
uint32_t pipeline_microbatches(uint32_t slots, uint32_t of_slot);
/* Of the mesh: all that the runs of units follow from. Borrows the mesh. */
struct schedule_shape pipeline_cut_shape(const struct spec_mesh *mesh, uint32_t units);
/* And with the microbatches of nodes of so many slots; 0: of one. Borrows the spec. */
struct schedule_shape pipeline_shape(const struct spec *spec, uint32_t units, uint32_t slots);

/* Whether there is such a program. ERR_INVALID: one sentence, with the nearest setting that works
 * where there is one. */
enum err schedule_judge(const struct schedule_shape *shape, struct reason *reason) MUST_USE;
/* Where the coordinator chooses the nodes of a step of so many slots: how many the largest one has that
 * there is a program for. There is one for `slot`, the shape of a node of one slot. */
uint32_t schedule_slots_max(const struct schedule_shape *slot, uint32_t slots);

/* How many runs of units are behind a place's first: so many microbatches begin there, without a
 * wait, between one's forward and its backward. Needs the shape's schedule, places, runs and rows. */
uint32_t pipeline_behind(const struct schedule_shape *shape, uint32_t place);

/* Whether places wait between leases although the run has a delay: d leases behind the first one are
 * to have as many microbatches as runs of units are behind the first, d · M >= P − 1, and a member
 * shares SPEC_PLACE_LEASES_MAX of them at most. Then *ret_sentence says what would do. */
bool pipeline_waits(const struct schedule_shape *shape, const struct spec *spec,
                    struct reason *ret_sentence);

/* Whether the place has the unit, in some run. */
bool schedule_has(const struct schedule_shape *shape, const struct pipeline_runs *runs,
                  uint32_t place, uint32_t unit);

#endif
