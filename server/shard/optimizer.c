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
        .gradient = chunk->sum,
        .published = chunk->published,
        .format = format,
        .n = chunk->n,
    };
    update_apply(kernels, &scalars, &arrays);
}

static void apply_in_place(const struct kernels *kernels, const struct spec_optimizer *settings,
                           const struct commit *commit, uint32_t slots, enum codec codec,
                           const struct optimizer_chunk *chunk)
{
    enum kernels_format format = codec == CODEC_BF16 ? KERNELS_BF16 : KERNELS_F32;
    if (chunk->rule == MODEL_MEAN)
        kernels->mean(kernels, chunk->weights, chunk->published, format, chunk->sum,
                      (float)(1 / (double)slots), chunk->n);
    else
        apply_step(kernels, settings, commit, format, chunk);
}

/* A piece is updated in the nearest cache, and goes from there to its place around the caches: so
 * memory moves as many bytes as it does in place. */
static void apply_apart(const struct kernels *kernels, const struct spec_optimizer *settings,
                        const struct commit *commit, uint32_t slots, enum codec codec,
                        const struct optimizer_chunk *chunk)
{
    enum { PIECE = 2048 };
    _Alignas(64) float piece[1 + OPTIMIZER_STATES_MAX][PIECE];
    uint32_t arrays = 1 + optimizer_states(settings->kind);
    struct optimizer_chunk part = *chunk;
    part.weights = piece[0];
    for (uint32_t s = 0; s < OPTIMIZER_STATES_MAX; s++)
        part.state[s] = piece[1 + s];
    for (uint32_t at = 0; at < chunk->n; at += PIECE) {
        part.n = chunk->n - at < PIECE ? chunk->n - at : PIECE;
        size_t bytes = part.n * sizeof(float);
        part.sum = chunk->sum + at;
        part.published = (uint8_t *)chunk->published + at * codec_bytes(codec);
        for (uint32_t a = 0; a < arrays; a++)
            memcpy(piece[a], chunk->from + (size_t)a * chunk->n + at, bytes);
        apply_in_place(kernels, settings, commit, slots, codec, &part);
        for (uint32_t a = 0; a < arrays; a++) {
            float *to = a == 0 ? chunk->weights : chunk->state[a - 1];
            kernels->copy_in_uncached(kernels, to + at, piece[a], bytes);
        }
    }
}

void optimizer_apply(const struct kernels *kernels, const struct spec_optimizer *settings,
                     const struct commit *commit, uint32_t slots, enum codec codec,
                     const struct optimizer_chunk *chunk)
{
    check(commit->apply && chunk->rule != MODEL_NONE);
    if (chunk->from == NULL)
        apply_in_place(kernels, settings, commit, slots, codec, chunk);
    else
        apply_apart(kernels, settings, commit, slots, codec, chunk);
}
