#include "worker/model/unit.h"

#include "worker/carve.h"
#include "worker/model/operations.h"

static int64_t predictions(const struct unit_call *call)
{
    return (int64_t)call->samples * call->model->sample_tokens;
}

static void place_arrays(struct act_arrays *act, struct carve *saved, struct carve *scratch)
{
    const struct model_unit *unit = act->unit;
    for (uint32_t i = MODEL_OWN_ARRAYS; i < unit->arrays_count; i++) {
        bool kept = unit->arrays[i].where == MODEL_SAVED;
        uint64_t elements = (uint64_t)act->N * unit->arrays[i].width;
        act->arrays[i] = carve_take(kept ? saved : scratch, elements * act->call->k->element_bytes);
    }
    for (uint32_t i = 0; i < unit->operations_count; i++) {
        const struct model_operation *operation = &unit->operations[i];
        const struct operation_code *code = &operation_codes[operation->kind];
        uint64_t floats = code->statistics != NULL ? code->statistics(operation) : 0;
        uint64_t line = ((uint64_t)act->N + 15) / 16 * 16;
        act->statistics[i] = carve_take(saved, floats * line * sizeof(float));
    }
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
    uint64_t most = 0, stream = (uint64_t)act.N * k->element_bytes;
    place_arrays(&act, &saved, &scratch);
    for (uint32_t i = 0; i < u->operations_count; i++) {
        const struct operation_code *code = &operation_codes[u->operations[i].kind];
        uint64_t bytes =
            code->scratch_bytes != NULL ? code->scratch_bytes(&act, &u->operations[i]) : 0;
        most = bytes > most ? bytes : most;
    }
    for (uint32_t i = 0; i < u->operations_count; i++)
        take_left(&act, &u->operations[i], &left);
    bool own_din = u->din == MODEL_DIN_SET || u->din == MODEL_DIN_ZEROED;
    *ret_sizes = (struct unit_sizes){
        .output = stream * u->arrays[MODEL_OUT].width,
        .saved = saved.bytes,
        .dinput = own_din ? stream * u->arrays[MODEL_IN].width : 0,
        .in_place = u->din == MODEL_DIN_INPLACE,
        .left = left.bytes,
        .scratch = scratch.bytes + most,
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
        k->zero(k, act->arrays[MODEL_DIN],
                (size_t)act->N * act->unit->arrays[MODEL_IN].width * k->element_bytes);
}

void unit_backward(const struct unit_call *call)
{
    struct act_arrays act = arrays_of(call);
    begin_dinput(&act);
    for (uint32_t i = act.unit->operations_count; i-- > 0;) {
        const struct model_operation *operation = &act.unit->operations[i];
        const struct operation_code *code = &operation_codes[operation->kind];
        if (code->backward_weights != NULL)
            code->backward_weights(&act, operation);
        if (code->backward_input != NULL)
            code->backward_input(&act, operation);
    }
}

void unit_backward_input(const struct unit_call *call)
{
    struct act_arrays act = arrays_of(call);
    struct carve left = {.base = call->left};
    begin_dinput(&act);
    for (uint32_t i = act.unit->operations_count; i-- > 0;) {
        const struct model_operation *operation = &act.unit->operations[i];
        const struct operation_code *code = &operation_codes[operation->kind];
        void *copy = take_left(&act, operation, &left);
        if (copy != NULL)
            call->k->copy(call->k, copy, *gradient_of_out(&act, operation),
                          out_bytes(&act, operation));
        if (code->backward_input != NULL)
            code->backward_input(&act, operation);
    }
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
        if (code->exchange_backward != NULL)
            code->exchange_backward(&act, operation);
    }
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
