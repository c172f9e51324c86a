#include "worker/model/unit.h"

#include "worker/carve.h"
#include "worker/model/norms.h"
#include "worker/model/operations.h"
#include "worker/model/ranges.h"

static int64_t predictions(const struct unit_call *call)
{
    return (int64_t)call->samples * call->model->sample_tokens;
}

static void place_arrays(struct act_arrays *act, struct carve *saved, struct carve *scratch)
{
    const struct model_unit *unit = act->unit;
    for (uint32_t i = MODEL_OWN_ARRAYS; i < unit->arrays_count; i++) {
        bool kept = unit->arrays[i].where == MODEL_SAVED;
        uint64_t elements = (uint64_t)ranges_rows(act, (uint8_t)i) * unit->arrays[i].width;
        act->arrays[i] = carve_take(kept ? saved : scratch, elements * act->call->k->element_bytes);
    }
    for (uint32_t i = 0; i < unit->operations_count; i++) {
        const struct model_operation *operation = &unit->operations[i];
        const struct operation_code *code = &operation_codes[operation->kind];
        uint64_t floats = code->statistics != NULL ? code->statistics(operation) : 0;
        uint64_t line = ((uint64_t)ranges_rows(act, operation->in) + 15) / 16 * 16;
        act->statistics[i] = carve_take(saved, floats * line * sizeof(float));
    }
    act->norm_sums = carve_take(scratch, norms_sums_bytes(act));
    act->scratch = carve_take(scratch, 0);
}

static struct act_arrays arrays_of(const struct unit_call *call)
{
    struct act_arrays act = {
        .call = call, .unit = &call->model->units[call->unit], .N = predictions(call)};
    struct carve saved = {.base = call->saved}, scratch = {.base = call->scratch};
    enum model_din din = act.unit->din;
    act.arrays[MODEL_IN] = (element *)call->input;
    act.arrays[MODEL_OUT] = call->output;
    act.arrays[MODEL_DOUT] = call->doutput;
    act.arrays[MODEL_DIN] = din == MODEL_DIN_ABSENT    ? NULL
                            : din == MODEL_DIN_INPLACE ? call->doutput
                                                       : call->dinput;
    place_arrays(&act, &saved, &scratch);
    return act;
}

/* Where the gradient of an operation's result is. */
static element **gradient_of_out(struct act_arrays *act, const struct model_operation *operation)
{
    return &act->arrays[act->unit->arrays[operation->out].gradient];
}

static size_t out_bytes(const struct act_arrays *act, const struct model_operation *operation)
{
    return (size_t)act->N * act->unit->arrays[operation->out].width * act->call->k->element_bytes;
}

/* Room for the gradient of the operation's result, where its weights' part needs it. */
static void *take_left(const struct act_arrays *act, const struct model_operation *operation,
                       struct carve *left)
{
    bool needed = operation_codes[operation->kind].backward_weights != NULL;
    return needed ? carve_take(left, out_bytes(act, operation)) : NULL;
}

/* Of an array, as far as the member has it. */
static uint64_t array_bytes(const struct act_arrays *act, uint8_t array)
{
    return (uint64_t)ranges_rows(act, array) * act->unit->arrays[array].width *
           act->call->k->element_bytes;
}

/* The most that is needed beside the unit's arrays: by an operation, or by what passes to and from
 * other places, which is of all predictions. */
static uint64_t largest_scratch(const struct act_arrays *act)
{
    uint64_t most = 0;
    if (ranges_members(act) > 1)
        for (uint8_t array = MODEL_IN; array <= MODEL_OUT; array++) {
            uint64_t bytes = ranges_members(act) * array_bytes(act, array);
            most = act->unit->arrays[array].ranged && bytes > most ? bytes : most;
        }
    for (uint32_t i = 0; i < act->unit->operations_count; i++) {
        const struct model_operation *operation = &act->unit->operations[i];
        const struct operation_code *code = &operation_codes[operation->kind];
        uint64_t bytes = code->scratch_bytes != NULL ? code->scratch_bytes(act, operation) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

void unit_size(const struct kernels *k, const struct model *model, uint32_t unit, uint32_t samples,
               uint64_t logits_bytes_max, struct unit_sizes *ret_sizes)
{
    const struct unit_call call = {.k = k,
                                   .model = model,
                                   .unit = unit,
                                   .samples = samples,
                                   .logits_bytes_max = logits_bytes_max};
    const struct model_unit *u = &model->units[unit];
    struct act_arrays act = {.call = &call, .unit = u, .N = predictions(&call)};
    struct carve saved = {0}, scratch = {0}, left = {0};
    place_arrays(&act, &saved, &scratch);
    for (uint32_t i = 0; i < u->operations_count; i++)
        take_left(&act, &u->operations[i], &left);
    bool own_din = u->din == MODEL_DIN_SET || u->din == MODEL_DIN_ZEROED;
    *ret_sizes = (struct unit_sizes){
        .output = array_bytes(&act, MODEL_OUT),
        .ranges = u->arrays[MODEL_OUT].ranged ? ranges_members(&act) : 1,
        .saved = saved.bytes,
        .dinput = own_din ? array_bytes(&act, MODEL_DIN) : 0,
        .in_place = u->din == MODEL_DIN_INPLACE,
        .left = left.bytes,
        .scratch = scratch.bytes + largest_scratch(&act),
    };
}

void unit_forward(const struct unit_call *call)
{
    struct act_arrays act = arrays_of(call);
    for (uint32_t i = 0; i < act.unit->operations_count; i++)
        operation_codes[act.unit->operations[i].kind].forward(&act, &act.unit->operations[i]);
}

static void begin_dinput(const struct act_arrays *act)
{
    const struct kernels *k = act->call->k;
    if (act->unit->din == MODEL_DIN_ZEROED)
        k->zero(k, act->arrays[MODEL_DIN], array_bytes(act, MODEL_DIN));
}

static void exchange_gradient(const struct act_arrays *act, const struct model_operation *operation,
                              element *all)
{
    if (act->unit->arrays[operation->out].ranged)
        ranges_gather(act, all, act->unit->arrays[operation->out].width);
}

/* An operation reads the gradient of all predictions of its result. Where the member has ranges of it,
 * it becomes `all`, and the other members' ranges come. Returns where the member's own are. */
static element *gather_gradient(struct act_arrays *act, const struct model_operation *operation,
                                void *all)
{
    element **gradient = gradient_of_out(act, operation), *own = *gradient;
    if (act->unit->arrays[operation->out].ranged && ranges_members(act) > 1) {
        *gradient = all;
        ranges_put(act, all, own, act->unit->arrays[operation->out].width);
        exchange_gradient(act, operation, all);
    }
    return own;
}

void unit_backward(const struct unit_call *call)
{
    struct act_arrays act = arrays_of(call);
    begin_dinput(&act);
    norms_begin(&act);
    for (uint32_t i = act.unit->operations_count; i-- > 0;) {
        const struct model_operation *operation = &act.unit->operations[i];
        const struct operation_code *code = &operation_codes[operation->kind];
        element *own = gather_gradient(&act, operation, act.scratch);
        if (code->backward_weights != NULL)
            code->backward_weights(&act, operation);
        if (code->backward_input != NULL)
            code->backward_input(&act, operation);
        *gradient_of_out(&act, operation) = own;
    }
    norms_end(&act);
}

void unit_backward_input(const struct unit_call *call)
{
    struct act_arrays act = arrays_of(call);
    struct carve left = {.base = call->left};
    begin_dinput(&act);
    norms_begin(&act);
    for (uint32_t i = act.unit->operations_count; i-- > 0;) {
        const struct model_operation *operation = &act.unit->operations[i];
        const struct operation_code *code = &operation_codes[operation->kind];
        void *copy = take_left(&act, operation, &left);
        element *own = gather_gradient(&act, operation, copy);
        if (copy != NULL && *gradient_of_out(&act, operation) == own)
            call->k->copy(call->k, copy, own, out_bytes(&act, operation));
        if (code->backward_input != NULL)
            code->backward_input(&act, operation);
        *gradient_of_out(&act, operation) = own;
    }
    norms_end(&act);
}

void unit_backward_weights(const struct unit_call *call)
{
    struct act_arrays act = arrays_of(call);
    struct carve left = {.base = call->left};
    for (uint32_t i = act.unit->operations_count; i-- > 0;) {
        const struct model_operation *operation = &act.unit->operations[i];
        void *copy = take_left(&act, operation, &left);
        if (copy == NULL)
            continue;
        *gradient_of_out(&act, operation) = copy;
        operation_codes[operation->kind].backward_weights(&act, operation);
    }
}

void unit_exchange_forward(const struct unit_call *call)
{
    const struct act_arrays act = arrays_of(call);
    for (uint32_t i = 0; i < act.unit->operations_count; i++) {
        const struct model_operation *operation = &act.unit->operations[i];
        const struct operation_code *code = &operation_codes[operation->kind];
        if (code->exchange_forward != NULL)
            code->exchange_forward(&act, operation);
    }
}

void unit_exchange_backward(const struct unit_call *call)
{
    const struct act_arrays act = arrays_of(call);
    for (uint32_t i = act.unit->operations_count; i-- > 0;) {
        const struct model_operation *operation = &act.unit->operations[i];
        const struct operation_code *code = &operation_codes[operation->kind];
        exchange_gradient(&act, operation, NULL);
        if (code->exchange_backward != NULL)
            code->exchange_backward(&act, operation);
    }
    norms_exchange_end(&act);
}

void unit_exchange_value(const struct unit_call *call, element *value)
{
    const struct act_arrays act = arrays_of(call);
    if (act.unit->arrays[MODEL_OUT].ranged)
        ranges_gather(&act, value, act.unit->arrays[MODEL_OUT].width);
}

uint32_t unit_logits_count(const struct model *model)
{
    const struct model_unit *unit = &model->units[model->units_count - 1];
    uint32_t use = unit->use_first + unit->operations[unit->operations_count - 1].use;
    return model->parameters[model->uses[use].parameter].rows;
}

void unit_logits(const struct unit_call *call, element *logits)
{
    struct act_arrays act = arrays_of(call);
    uint32_t last = act.unit->operations_count - 1;
    for (uint32_t i = 0; i < last; i++)
        operation_codes[act.unit->operations[i].kind].forward(&act, &act.unit->operations[i]);
    operation_logits(&act, &act.unit->operations[last], logits);
}
