/* How a commit changes a chunk's weights: the parameter's rule, and the optimizer's formulas with
 * the commit's scalars. */
#ifndef ROOST_SERVER_SHARD_OPTIMIZER_H
#define ROOST_SERVER_SHARD_OPTIMIZER_H

#include "common/model/model.h"
#include "common/settings/spec.h"
#include "kernels/update.h"
#include "proto/wire.h"

enum { OPTIMIZER_STATES_MAX = UPDATE_STATES_MAX };

/* Arrays of optimizer state beside the weights: 0, 1 (momentum) or 2 (adamw: m, v). */
uint32_t optimizer_states(enum spec_optimizer_kind kind);

/* One chunk as apply sees it: n weights, their state, the sum of a step's gradients. */
struct optimizer_chunk {
    enum model_rule rule;
    bool decay; /* this parameter's weights decay */
    uint32_t n;
    float *weights;
    float *state[OPTIMIZER_STATES_MAX];
    struct kernels_apart apart; /* where the new ones go; NULL: in place */
    const float *sum;
    void *published; /* n values in bf16, written in the same pass; NULL: the weights are what is
                        published */
};

/* Applies `commit` (whose `apply` is set) by the chunk's rule, not MODEL_NONE: one step of the
 * optimizer, or (MODEL_MEAN) weights = sum / slots. Of the settings it uses betas, eps, momentum,
 * nesterov and weight_decay; rates come with the commit. */
void optimizer_apply(const struct kernels *kernels, const struct spec_optimizer *settings,
                     const struct commit *commit, uint32_t slots,
                     const struct optimizer_chunk *chunk);

#endif
