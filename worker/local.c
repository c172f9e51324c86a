#include "worker/local.h"

#include "common/clip.h"
#include "common/settings/schedule.h"

#include <stdlib.h>

_Static_assert((int)SPEC_SGD == UPDATE_SGD && (int)SPEC_MOMENTUM == UPDATE_MOMENTUM &&
                   (int)SPEC_ADAMW == UPDATE_ADAMW,
               "the same optimizers");

struct local_settings local_settings_of(const struct spec *spec)
{
    bool local = spec->consistency.kind == SPEC_LOCAL;
    return (struct local_settings){.steps = local ? spec->consistency.local_steps : 0,
                                   .optimizer = spec->optimizer};
}

/* ---- memory ---- */

static uint32_t states_of(const struct local_settings *settings)
{
    return update_states((enum update_kind)settings->optimizer.kind);
}

uint64_t local_bytes(const struct local_settings *settings, uint64_t pulled_floats)
{
    if (settings->steps == 0)
        return 0;
    return (1 + states_of(settings)) * pulled_floats * sizeof(float);
}

enum err local_init(struct local *local, const struct local_settings *settings,
                    const struct local_tables *tables, float *memory)
{
    const struct model *model = tables->model;
    *local = (struct local){.settings = *settings, .tables = *tables};
    if (settings->steps == 0)
        return ERR_OK;
    local->parameters = calloc(model->parameters_count, sizeof *local->parameters);
    local->use_weights = calloc(model->uses_count, sizeof *local->use_weights);
    if (local->parameters == NULL || local->use_weights == NULL)
        return ERR_NOMEM;
    local->states = states_of(settings);
    for (uint32_t s = 0; s < local->states; s++)
        local->state[s] = memory + (1 + s) * tables->pulled_floats;
    for (uint32_t p = 0; p < model->parameters_count; p++)
        local->parameters[p] = memory + (tables->pulled[p] - tables->pulled[0]);
    for (uint32_t use = 0; use < model->uses_count; use++)
        local->use_weights[use] = local->parameters[model->uses[use].parameter];
    return ERR_OK;
}

void local_release(struct local *local)
{
    free(local->parameters);
    free(local->use_weights);
}

/* ---- acts ---- */

static float *state_of(const struct local *local, uint32_t parameter, uint32_t state)
{
    return local->state[state] + (local->tables.pulled[parameter] - local->tables.pulled[0]);
}

static uint64_t weights_of(const struct local *local, uint32_t parameter)
{
    return local->tables.model->parameters[parameter].weights;
}

void local_own(struct local *local, uint32_t unit)
{
    const struct kernels *k = local->tables.k;
    const struct model *model = local->tables.model;
    const struct model_unit *u = &model->units[unit];
    for (uint32_t use = u->use_first; use < u->use_first + u->uses_count; use++) {
        uint32_t p = model->uses[use].parameter;
        size_t bytes = weights_of(local, p) * sizeof(float);
        if (model->uses[use].part > 0)
            continue;
        k->copy(k, local->parameters[p], local->tables.pulled[p], bytes);
        for (uint32_t s = 0; s < local->states; s++)
            k->zero(k, state_of(local, p, s), bytes);
    }
}

/* Parts are added in part order, as servers do. The result is the whole mean gradient's norm. */
static double add_parts(const struct local *local, float *const *gradients)
{
    const struct kernels *k = local->tables.k;
    const struct model *model = local->tables.model;
    double sum = 0;
    bool clips = local->settings.optimizer.clip_norm > 0;
    for (uint32_t p = 0; p < model->parameters_count; p++) {
        const struct model_parameter *parameter = &model->parameters[p];
        const uint32_t *uses = local->tables.part_uses + (size_t)p * MODEL_PARTS_MAX;
        int64_t n = (int64_t)parameter->weights;
        if (parameter->rule != MODEL_OPTIMIZER)
            continue;
        for (uint32_t part = 1; part < parameter->parts; part++)
            k->add(k, gradients[uses[0]], gradients[uses[0]], gradients[uses[part]], n);
        double sumsq = 0;
        if (clips)
            k->sum_squares(k, &sumsq, gradients[uses[0]], n);
        sum += sumsq;
    }
    return __builtin_sqrt(sum) / local->tables.slot_samples;
}

static struct update_scalars scalars_of(const struct local *local, double norm, uint64_t step,
                                        uint32_t local_step)
{
    const struct spec_optimizer *optimizer = &local->settings.optimizer;
    uint64_t samples = (uint64_t)local->tables.slots * local->tables.slot_samples;
    const struct schedule schedule = schedule_of(optimizer, samples);
    uint64_t seen = (step * local->settings.steps + local_step) * samples;
    double clip = clip_factor(optimizer->clip_norm, norm);
    return (struct update_scalars){
        .kind = (enum update_kind)optimizer->kind,
        .scale = (float)(clip / local->tables.slot_samples),
        .lr = (float)schedule_rate(&schedule, seen),
        .bias1 = schedule_bias_correction(optimizer->betas[0], local_step + UINT64_C(1)),
        .bias2 = schedule_bias_correction(optimizer->betas[1], local_step + UINT64_C(1)),
        .betas = {optimizer->betas[0], optimizer->betas[1]},
        .eps = optimizer->eps,
        .momentum = optimizer->momentum,
        .nesterov = optimizer->nesterov,
    };
}

void local_step(struct local *local, float *const *gradients, uint64_t step, uint32_t local_step)
{
    const struct model *model = local->tables.model;
    double norm = add_parts(local, gradients);
    struct update_scalars scalars = scalars_of(local, norm, step, local_step);
    double decay = local->settings.optimizer.weight_decay;
    for (uint32_t p = 0; p < model->parameters_count; p++) {
        const struct model_parameter *parameter = &model->parameters[p];
        uint32_t use = local->tables.part_uses[(size_t)p * MODEL_PARTS_MAX];
        if (parameter->rule != MODEL_OPTIMIZER)
            continue;
        struct update_arrays arrays = {.weights = local->parameters[p],
                                       .gradient = gradients[use],
                                       .format = KERNELS_NONE,
                                       .n = (int64_t)parameter->weights};
        for (uint32_t s = 0; s < local->states; s++)
            arrays.state[s] = state_of(local, p, s);
        scalars.weight_decay = parameter->decay ? decay : 0;
        update_apply(local->tables.k, &scalars, &arrays);
    }
}

void local_diff(struct local *local, float *const *gradients, uint32_t unit)
{
    const struct kernels *k = local->tables.k;
    const struct model *model = local->tables.model;
    const struct model_unit *u = &model->units[unit];
    for (uint32_t use = u->use_first; use < u->use_first + u->uses_count; use++) {
        uint32_t p = model->uses[use].parameter;
        uint64_t weights = weights_of(local, p);
        if (model->parameters[p].rule != MODEL_OPTIMIZER)
            continue;
        if (model->uses[use].part == 0) /* the difference is one part: servers add the parts */
            k->subtract(k, gradients[use], local->tables.pulled[p], local->parameters[p],
                        (int64_t)weights);
        else
            k->zero(k, gradients[use], weights * sizeof(float));
    }
}
