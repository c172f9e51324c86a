/* One row per optimizer: its states, and how a commit's scalars go into its kernel. */
#include "server/optimizer.h"

struct apply {
    const struct kernels *kernels;
    const struct spec_optimizer *settings;
    const struct commit *commit;
    enum kernels_format format;
    const struct optimizer_chunk *chunk;
};

static double decay_of(const struct apply *a)
{
    return a->chunk->decay ? a->settings->weight_decay : 0;
}

static void apply_sgd(const struct apply *a)
{
    struct kernels_sgd step = {
        .scale = a->commit->scale, .lr = a->commit->lr, .weight_decay = (float)decay_of(a)};
    const struct optimizer_chunk *c = a->chunk;
    a->kernels->sgd(a->kernels, c->weights, c->published, a->format, c->sum, &step, c->n);
}

static void apply_momentum(const struct apply *a)
{
    struct kernels_momentum step = {.scale = a->commit->scale,
                                    .lr = a->commit->lr,
                                    .weight_decay = (float)decay_of(a),
                                    .momentum = (float)a->settings->momentum,
                                    .nesterov = a->settings->nesterov};
    const struct optimizer_chunk *c = a->chunk;
    a->kernels->momentum(a->kernels, c->weights, c->state[0], c->published, a->format, c->sum,
                         &step, c->n);
}

/* Loshchilov and Hutter 2019, algorithm 2, in PyTorch's form. The scalars are derived in double
 * from the commit's floats; sqrt is exact to the last bit on every machine (IEEE 754). */
static void apply_adamw(const struct apply *a)
{
    double lr = (double)a->commit->lr;
    double beta1 = a->settings->betas[0], beta2 = a->settings->betas[1];
    struct kernels_adamw step = {.scale = a->commit->scale,
                                 .decay = (float)(1 - lr * decay_of(a)),
                                 .beta1 = (float)beta1,
                                 .one_minus_beta1 = (float)(1 - beta1),
                                 .beta2 = (float)beta2,
                                 .one_minus_beta2 = (float)(1 - beta2),
                                 .rate = (float)(lr / (double)a->commit->bias1),
                                 .root = (float)(1 / __builtin_sqrt((double)a->commit->bias2)),
                                 .eps = (float)a->settings->eps};
    const struct optimizer_chunk *c = a->chunk;
    a->kernels->adamw(a->kernels, c->weights, c->state[0], c->state[1], c->published, a->format,
                      c->sum, &step, c->n);
}

static const struct {
    uint32_t states;
    void (*apply)(const struct apply *apply);
} optimizers[] = {
    [SPEC_SGD] = {0, apply_sgd},
    [SPEC_MOMENTUM] = {1, apply_momentum},
    [SPEC_ADAMW] = {2, apply_adamw},
};

uint32_t optimizer_states(enum spec_optimizer_kind kind)
{
    check((unsigned)kind < sizeof optimizers / sizeof optimizers[0]);
    return optimizers[kind].states;
}

void optimizer_apply(const struct kernels *kernels, const struct spec_optimizer *settings,
                     const struct commit *commit, uint32_t slots, enum codec codec,
                     const struct optimizer_chunk *chunk)
{
    check(commit->apply && chunk->rule != MODEL_NONE);
    struct apply apply = {kernels, settings, commit,
                          codec == CODEC_BF16 ? KERNELS_BF16 : KERNELS_F32, chunk};
    if (chunk->rule == MODEL_MEAN)
        kernels->mean(kernels, chunk->weights, chunk->published, apply.format, chunk->sum,
                      (float)(1 / (double)slots), chunk->n);
    else
        optimizers[settings->kind].apply(&apply);
}
