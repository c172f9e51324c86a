/* A commit's scalars and a run's settings, by the chunk's rule. */
#include "server/shard/optimizer.h"

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
        .gradient = chunk->sum,
        .published = chunk->published,
        .format = format,
        .n = chunk->n,
    };
    update_apply(kernels, &scalars, &arrays);
}

void optimizer_apply(const struct kernels *kernels, const struct spec_optimizer *settings,
                     const struct commit *commit, uint32_t slots, enum codec codec,
                     const struct optimizer_chunk *chunk)
{
    check(commit->apply && chunk->rule != MODEL_NONE);
    enum kernels_format format = codec == CODEC_BF16 ? KERNELS_BF16 : KERNELS_F32;
    if (chunk->rule == MODEL_MEAN)
        kernels->mean(kernels, chunk->weights, chunk->published, format, chunk->sum,
                      (float)(1 / (double)slots), chunk->n);
    else
        apply_step(kernels, settings, commit, format, chunk);
}
