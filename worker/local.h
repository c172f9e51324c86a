/* The state of a slot of consistency `local` between pull and push: its own weights and its own
 * optimizer's state; and the acts on them (executor.h has the numbers). On the executor's
 * thread. */
#ifndef ROOST_WORKER_LOCAL_H
#define ROOST_WORKER_LOCAL_H

#include "common/model/model.h"
#include "kernels/kernels.h"
#include "kernels/update.h"

struct local_settings {
    uint32_t steps; /* 0: slots bring gradients */
    struct spec_optimizer optimizer;
};

/* The local steps of the run's consistency. */
struct local_settings local_settings_of(const struct spec *spec);

/* What it borrows from the executor. */
struct local_tables {
    const struct kernels *k;
    const struct model *model;
    float *const *pulled;      /* (parameters) whole parameters' weights … */
    uint64_t pulled_floats;    /* … which lie in one piece of memory, so many floats with gaps */
    const uint32_t *part_uses; /* (parameters, MODEL_PARTS_MAX) the use of a part */
    uint32_t slots, slot_samples;
};

struct local {
    struct local_settings settings;
    struct local_tables tables;
    uint32_t states;
    float **parameters;              /* (parameters) its weights, laid out like the pulled ones */
    float **use_weights;             /* (uses) the same by use */
    float *state[UPDATE_STATES_MAX]; /* laid out like the weights */
};

/* Bytes of device memory: its weights, then each state. Without local steps 0. */
uint64_t local_bytes(const struct local_settings *settings, uint64_t pulled_floats);
/* `memory` has that many. ERR_NOMEM. */
enum err local_init(struct local *local, const struct local_settings *settings,
                    const struct local_tables *tables, float *memory) MUST_USE;
void local_release(struct local *local); /* {0} is fine */

/* OWN: the slot's weights of the unit are the pulled ones, its optimizer state is new. */
void local_own(struct local *local, uint32_t unit);
/* STEP: one update with the gradients, (uses) of a set, which change. It is local step `local_step`
 * of a slot of `step`. */
void local_step(struct local *local, float *const *gradients, uint64_t step, uint32_t local_step);
/* DIFF: the unit's gradients are pulled minus reached weights. */
void local_diff(struct local *local, float *const *gradients, uint32_t unit);

#endif
