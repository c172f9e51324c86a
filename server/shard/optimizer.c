/* A commit's scalars and a run's settings, by the chunk's rule. */
#include "server/shard/optimizer.h"

#include <string.h>

_Static_assert((int)SPEC_SGD == UPDATE_SGD && (int)SPEC_MOMENTUM == UPDATE_MOMENTUM &&
                   (int)SPEC_ADAMW == UPDATE_ADAMW,
               "the same optimizers");

uint32_t optimizer_states(enum spec_optimizer_kind kind)
{
    return update_states((enum update_kind)kind);
}

static void apply_step(const struct kernels *kernels, const struct spec_optimizer *settings,
                       const struct commit *commit, enum kernels_format format,
                       const struct optimizer_chunk *chunk)
{
    const struct update_scalars scalars = {
        .kind = (enum update_kind)settings->kind,
        .scale = commit->scale,
        .lr = commit->lr,
        .bias1 = commit->bias1,
        .bias2 = commit->bias2,
        .betas = {settings->betas[0], settings->betas[1]},
        .eps = settings->eps,
        .momentum = settings->momentum,
        .nesterov = settings->nesterov,
        .weight_decay = chunk->decay ? settings->weight_decay : 0,
    };
    const struct update_arrays arrays = {
        .weights = chunk->weights,
        .state = {chunk->state[0], chunk->state[1]},
        .apart = chunk->apart,
        .gradient = chunk->sum,
        .published = chunk->published,
        .format = format,
        .n = chunk->n,
    };
    update_apply(kernels, &scalars, &arrays);
}

/* Averages have no use for the optimizer's state: it stays what it is. */
static void apply_mean(const struct kernels *kernels, uint32_t slots, enum kernels_format format,
                       const struct optimizer_chunk *chunk)
{
    const struct kernels_apart *apart = &chunk->apart;
    float *const state[OPTIMIZER_STATES_MAX] = {apart->m, apart->v};
    kernels->mean(kernels, apart->w != NULL ? apart->w : chunk->weights, chunk->published, format,
                  chunk->sum, (float)(1 / (double)slots), chunk->n);
    for (uint32_t s = 0; s < OPTIMIZER_STATES_MAX; s++)
        if (state[s] != NULL)
            memcpy(state[s], chunk->state[s], chunk->n * sizeof *state[s]);
}

void optimizer_apply(const struct kernels *kernels, const struct spec_optimizer *settings,
                     const struct commit *commit, uint32_t slots,
                     const struct optimizer_chunk *chunk)
{
    enum kernels_format format = chunk->published == NULL ? KERNELS_NONE : KERNELS_BF16;
    check(commit->apply && chunk->rule != MODEL_NONE);
    if (chunk->rule == MODEL_MEAN)
        apply_mean(kernels, slots, format, chunk);
    else
        apply_step(kernels, settings, commit, format, chunk);
}
