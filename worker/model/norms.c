#include "worker/model/norms.h"

#include "common/model/pieces.h"
#include "worker/carve.h"
#include "worker/model/ranges.h"

enum { GAMMA, BETA };

/* ---- sums of ranges ---- */

static bool is_norm(const struct model_operation *o)
{
    return o->kind == MODEL_LAYERNORM || o->kind == MODEL_RMSNORM;
}

/* Ranges that are here. */
static uint32_t held(const struct act_arrays *act)
{
    const struct model *model = act->call->model;
    return model->settings.pieces / model->ranks;
}

/* From one use's weights to the next one's, in floats: kernels get aligned arrays. */
static int64_t line_floats(const struct act_arrays *act, const struct model_operation *o)
{
    return (int64_t)(carve_align(act_width(act, o->in) * sizeof(float)) / sizeof(float));
}

/* Of the norms before that operation, in one range. */
static int64_t floats_before(const struct act_arrays *act, const struct model_operation *end)
{
    int64_t floats = 0;
    for (const struct model_operation *o = act->unit->operations; o < end; o++)
        floats += is_norm(o) ? o->uses_count * line_floats(act, o) : 0;
    return floats;
}

static int64_t floats_of_all(const struct act_arrays *act)
{
    return floats_before(act, act->unit->operations + act->unit->operations_count);
}

uint64_t norms_sums_bytes(const struct act_arrays *act)
{
    if (!pieces_ranged(act->call->model))
        return 0;
    return held(act) * (uint64_t)floats_of_all(act) * sizeof(float);
}

void norms_begin(const struct act_arrays *act)
{
    const struct kernels *k = act->call->k;
    if (norms_sums_bytes(act) > 0)
        k->zero(k, act->norm_sums, norms_sums_bytes(act));
}

/* sum(left) + sum(right), to the first range's. */
static void add_ranges(const struct act_arrays *act, int64_t floats)
{
    const struct kernels *k = act->call->k;
    float *sums = act->norm_sums;
    for (uint32_t half = held(act) / 2; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            k->add(k, sums + i * floats, sums + 2 * i * floats, sums + (2 * i + 1) * floats,
                   floats);
}

void norms_exchange_end(const struct act_arrays *act)
{
    const struct unit_exchange *exchange = act->call->exchange;
    if (norms_sums_bytes(act) > 0 && ranges_members(act) > 1)
        exchange->add(exchange->context, act->norm_sums, floats_of_all(act));
}

void norms_end(const struct act_arrays *act)
{
    const struct kernels *k = act->call->k;
    if (norms_sums_bytes(act) == 0)
        return;
    add_ranges(act, floats_of_all(act));
    norms_exchange_end(act);
    for (uint32_t i = 0; i < act->unit->operations_count; i++) {
        const struct model_operation *o = &act->unit->operations[i];
        const float *sum = act->norm_sums + floats_before(act, o);
        for (uint8_t use = 0; is_norm(o) && use < o->uses_count; use++)
            k->add(k, act_gradients(act, o, use), act_gradients(act, o, use),
                   sum + use * line_floats(act, o), act_width(act, o->in));
    }
}

/* ---- what both norms share ---- */

/* Backward of some of the predictions that are here: the gradient of `in`, and that of the weights,
 * dweights[GAMMA] and [BETA] +=. */
struct rows {
    int64_t first, count;
    float *dweights[2];
};
typedef void backward_rows(const struct act_arrays *act, const struct model_operation *o,
                           const struct rows *rows);

static void backward(const struct act_arrays *act, const struct model_operation *o,
                     backward_rows *of_rows)
{
    int64_t here = ranges_rows(act, o->in), floats = floats_of_all(act);
    if (!pieces_ranged(act->call->model)) {
        of_rows(
            act, o,
            &(struct rows){0, here, {act_gradients(act, o, GAMMA), act_gradients(act, o, BETA)}});
        return;
    }
    check(here % held(act) == 0);
    for (uint32_t i = 0; i < held(act); i++) {
        float *gamma = act->norm_sums + i * floats + floats_before(act, o);
        const struct rows rows = {
            i * (here / held(act)), here / held(act), {gamma, gamma + line_floats(act, o)}};
        of_rows(act, o, &rows);
    }
}

static element *out_here(const struct act_arrays *act, const struct model_operation *o)
{
    return ranges_own(act, act->arrays[o->out], act_width(act, o->out));
}

static element *at_row(const struct act_arrays *act, const struct model_operation *o,
                       const element *array, int64_t row)
{
    return kernels_at(act->call->k, array, row * act_width(act, o->in));
}

static element *dout_at(const struct act_arrays *act, const struct model_operation *o, int64_t row)
{
    return at_row(act, o, ranges_own(act, act_gradient(act, o->out), act_width(act, o->out)), row);
}

void norms_exchange_forward(const struct act_arrays *act, const struct model_operation *o)
{
    ranges_gather(act, act->arrays[o->out], act_width(act, o->out));
}

/* ---- layer norm ---- */

static float *rstds(const struct act_arrays *act, const struct model_operation *o)
{
    return act_statistics(act, o) + (ranges_rows(act, o->in) + 15) / 16 * 16;
}

uint32_t norms_layer_statistics(const struct model_operation *o)
{
    (void)o;
    return 2;
}

void norms_layer_forward(const struct act_arrays *act, const struct model_operation *o)
{
    const struct kernels *k = act->call->k;
    k->layernorm_forward(k, out_here(act, o), act_statistics(act, o), rstds(act, o),
                         act->arrays[o->in], act_weights(act, o, GAMMA), act_weights(act, o, BETA),
                         ranges_rows(act, o->in), act_width(act, o->in));
    norms_exchange_forward(act, o);
}

static void layer_rows(const struct act_arrays *act, const struct model_operation *o,
                       const struct rows *rows)
{
    const struct kernels *k = act->call->k;
    int64_t row = rows->first;
    k->layernorm_backward(k, at_row(act, o, act_gradient(act, o->in), row), rows->dweights[GAMMA],
                          rows->dweights[BETA], dout_at(act, o, row),
                          at_row(act, o, act->arrays[o->in], row), act_statistics(act, o) + row,
                          rstds(act, o) + row, act_weights(act, o, GAMMA), rows->count,
                          act_width(act, o->in));
}

void norms_layer_backward(const struct act_arrays *act, const struct model_operation *o)
{
    backward(act, o, layer_rows);
}

/* ---- root mean square ---- */

uint32_t norms_rms_statistics(const struct model_operation *o)
{
    (void)o;
    return 1;
}

void norms_rms_forward(const struct act_arrays *act, const struct model_operation *o)
{
    const struct kernels *k = act->call->k;
    k->rmsnorm_forward(k, out_here(act, o), act_statistics(act, o), act->arrays[o->in],
                       act_weights(act, o, GAMMA), ranges_rows(act, o->in), act_width(act, o->in));
    norms_exchange_forward(act, o);
}

static void rms_rows(const struct act_arrays *act, const struct model_operation *o,
                     const struct rows *rows)
{
    const struct kernels *k = act->call->k;
    int64_t row = rows->first;
    k->rmsnorm_backward(k, at_row(act, o, act_gradient(act, o->in), row), rows->dweights[GAMMA],
                        dout_at(act, o, row), at_row(act, o, act->arrays[o->in], row),
                        act_statistics(act, o) + row, act_weights(act, o, GAMMA), rows->count,
                        act_width(act, o->in));
}

void norms_rms_backward(const struct act_arrays *act, const struct model_operation *o)
{
    backward(act, o, rms_rows);
}
