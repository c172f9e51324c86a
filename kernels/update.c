/* One row per optimizer: its states, and how the scalars go into its kernel. */
#include "kernels/update.h"

static void update_sgd(const struct kernels *k, const struct update_scalars *s,
                       const struct update_arrays *a)
{
    struct kernels_sgd step = {
        .scale = s->scale, .lr = s->lr, .weight_decay = (float)s->weight_decay, .apart = a->apart};
    k->sgd(k, a->weights, a->published, a->format, a->gradient, &step, a->n);
}

static void update_momentum(const struct kernels *k, const struct update_scalars *s,
                            const struct update_arrays *a)
{
    struct kernels_momentum step = {.scale = s->scale,
                                    .lr = s->lr,
                                    .weight_decay = (float)s->weight_decay,
                                    .momentum = (float)s->momentum,
                                    .nesterov = s->nesterov,
                                    .apart = a->apart};
    k->momentum(k, a->weights, a->state[0], a->published, a->format, a->gradient, &step, a->n);
}

/* Loshchilov and Hutter 2019, algorithm 2, in PyTorch's form. The scalars are derived in double
 * from floats; sqrt is exact to the last bit on every machine (IEEE 754). */
static void update_adamw(const struct kernels *k, const struct update_scalars *s,
                         const struct update_arrays *a)
{
    double lr = (double)s->lr, beta1 = s->betas[0], beta2 = s->betas[1];
    struct kernels_adamw step = {.scale = s->scale,
                                 .decay = (float)(1 - lr * s->weight_decay),
                                 .beta1 = (float)beta1,
                                 .one_minus_beta1 = (float)(1 - beta1),
                                 .beta2 = (float)beta2,
                                 .one_minus_beta2 = (float)(1 - beta2),
                                 .rate = (float)(lr / (double)s->bias1),
                                 .root = (float)(1 / __builtin_sqrt((double)s->bias2)),
                                 .eps = (float)s->eps,
                                 .apart = a->apart};
    k->adamw(k, a->weights, a->state[0], a->state[1], a->published, a->format, a->gradient, &step,
             a->n);
}

static const struct {
    uint32_t states;
    void (*update)(const struct kernels *k, const struct update_scalars *scalars,
                   const struct update_arrays *arrays);
} optimizers[] = {
    [UPDATE_SGD] = {0, update_sgd},
    [UPDATE_MOMENTUM] = {1, update_momentum},
    [UPDATE_ADAMW] = {2, update_adamw},
};

uint32_t update_states(enum update_kind kind)
{
    check((unsigned)kind < sizeof optimizers / sizeof optimizers[0]);
    return optimizers[kind].states;
}

void update_apply(const struct kernels *k, const struct update_scalars *scalars,
                  const struct update_arrays *arrays)
{
    optimizers[scalars->kind].update(k, scalars, arrays);
}
