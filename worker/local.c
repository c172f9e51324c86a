/* A slot's own steps. */
#include "worker/local.h"

#include "common/clip.h"
#include "common/settings/schedule.h"

#include <stdlib.h>

_Static_assert((int)SPEC_SGD == UPDATE_SGD && (int)SPEC_MOMENTUM == UPDATE_MOMENTUM &&
                   (int)SPEC_ADAMW == UPDATE_ADAMW,
               "the same optimizers");

struct executor_local executor_local_of(const struct spec *spec)
{
    bool local = spec->consistency.kind == SPEC_LOCAL;
    return (struct executor_local){.steps = local ? spec->consistency.local_steps : 0,
                                   .optimizer = spec->optimizer};
}

static bool is_on(const struct executor *e)
{
    return e->local.settings.steps > 0;
}

/* ---- memory ---- */

void local_size(struct executor *e)
{
    struct local_memory *local = &e->local;
    if (!is_on(e))
        return;
    local->states = update_states((enum update_kind)local->settings.optimizer.kind);
    e->memory.local = (1 + local->states) * e->memory.weights;
}

enum err local_alloc(struct executor *e)
{
    struct local_memory *local = &e->local;
    if (!is_on(e))
        return ERR_OK;
    local->parameters = calloc(e->model->parameters_count, sizeof *local->parameters);
    local->use_weights = calloc(e->model->uses_count, sizeof *local->use_weights);
    return local->parameters != NULL && local->use_weights != NULL ? ERR_OK : ERR_NOMEM;
}

void local_fill_tables(struct executor *e)
{
    struct local_memory *local = &e->local;
    uint64_t floats = e->memory.weights / sizeof(float);
    if (!is_on(e))
        return;
    for (uint32_t s = 0; s < local->states; s++)
        local->state[s] = local->values + (1 + s) * floats;
    for (uint32_t p = 0; p < e->model->parameters_count; p++)
        local->parameters[p] = local->values + (e->parameters[p] - e->weights);
    for (uint32_t use = 0; use < e->model->uses_count; use++)
        local->use_weights[use] = local->parameters[e->model->uses[use].parameter];
}

void local_release(struct executor *e)
{
    free(e->local.parameters);
    free(e->local.use_weights);
}

/* ---- the steps ---- */

static int64_t weights_of(const struct executor *e, uint32_t parameter)
{
    return (int64_t)e->model->parameters[parameter].weights;
}

static float *gradient_of(const struct executor *e, uint32_t set, uint32_t parameter, uint32_t part)
{
    uint32_t use = e->part_uses[(size_t)parameter * MODEL_PARTS_MAX + part];
    return e->gradients[(uint64_t)set * e->model->uses_count + use];
}

/* out (n) = from (n), exactly. */
static void copy(const struct executor *e, float *out, const float *from, int64_t n)
{
    e->k->mean(e->k, out, NULL, KERNELS_NONE, from, 1, n);
}

void local_begin(struct executor *e)
{
    struct local_memory *local = &e->local;
    copy(e, local->values, e->weights, (int64_t)(e->memory.weights / sizeof(float)));
    if (local->states > 0)
        e->k->zero(e->k, local->state[0], local->states * e->memory.weights);
}

/* Parts are added in part order, as servers do; *ret_norm is the whole mean gradient's. */
static double add_parts(struct executor *e, uint32_t set)
{
    double sum = 0;
    bool clips = e->local.settings.optimizer.clip_norm > 0;
    for (uint32_t p = 0; p < e->model->parameters_count; p++) {
        const struct model_parameter *parameter = &e->model->parameters[p];
        if (parameter->rule != MODEL_OPTIMIZER)
            continue;
        float *gradient = gradient_of(e, set, p, 0);
        for (uint32_t part = 1; part < parameter->parts; part++)
            e->k->add(e->k, gradient, gradient, gradient_of(e, set, p, part), weights_of(e, p));
        double sumsq = 0;
        if (clips)
            e->k->sum_squares(e->k, &sumsq, gradient, weights_of(e, p));
        sum += sumsq;
    }
    return __builtin_sqrt(sum) / e->train.slot_samples;
}

static struct update_scalars scalars_of(const struct executor *e, double norm, uint64_t step,
                                        uint32_t local)
{
    const struct spec_optimizer *optimizer = &e->local.settings.optimizer;
    uint64_t samples = (uint64_t)e->train.slots * e->train.slot_samples;
    const struct schedule schedule = schedule_of(optimizer, samples);
    uint64_t seen = (step * e->local.settings.steps + local) * samples;
    double clip = clip_factor(optimizer->clip_norm, norm);
    return (struct update_scalars){
        .kind = (enum update_kind)optimizer->kind,
        .scale = (float)(clip / e->train.slot_samples),
        .lr = (float)schedule_rate(&schedule, seen),
        .bias1 = schedule_bias_correction(optimizer->betas[0], local + UINT64_C(1)),
        .bias2 = schedule_bias_correction(optimizer->betas[1], local + UINT64_C(1)),
        .betas = {optimizer->betas[0], optimizer->betas[1]},
        .eps = optimizer->eps,
        .momentum = optimizer->momentum,
        .nesterov = optimizer->nesterov,
    };
}

void local_step(struct executor *e, uint32_t set, uint64_t step, uint32_t local)
{
    double norm = add_parts(e, set);
    struct update_scalars scalars = scalars_of(e, norm, step, local);
    double decay = e->local.settings.optimizer.weight_decay;
    for (uint32_t p = 0; p < e->model->parameters_count; p++) {
        const struct model_parameter *parameter = &e->model->parameters[p];
        int64_t at = e->parameters[p] - e->weights;
        if (parameter->rule != MODEL_OPTIMIZER)
            continue;
        struct update_arrays arrays = {.weights = e->local.parameters[p],
                                       .gradient = gradient_of(e, set, p, 0),
                                       .format = KERNELS_NONE,
                                       .n = weights_of(e, p)};
        for (uint32_t s = 0; s < e->local.states; s++)
            arrays.state[s] = e->local.state[s] + at;
        scalars.weight_decay = parameter->decay ? decay : 0;
        update_apply(e->k, &scalars, &arrays);
    }
}

void local_end(struct executor *e, uint32_t set)
{
    const struct kernels_sgd minus = {.scale = 1, .lr = 1};
    for (uint32_t p = 0; p < e->model->parameters_count; p++) {
        const struct model_parameter *parameter = &e->model->parameters[p];
        int64_t n = weights_of(e, p);
        if (parameter->rule != MODEL_OPTIMIZER)
            continue;
        float *difference = gradient_of(e, set, p, 0);
        copy(e, difference, e->parameters[p], n);
        e->k->sgd(e->k, difference, NULL, KERNELS_NONE, e->local.parameters[p], &minus, n);
        for (uint32_t part = 1; part < parameter->parts; part++)
            e->k->zero(e->k, gradient_of(e, set, p, part), (size_t)n * sizeof(float));
    }
}
