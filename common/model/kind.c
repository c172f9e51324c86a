#include "common/model/kind.h"

#include <stdlib.h>
#include <string.h>

enum err kind_reserve(struct model *model, struct kind_counts counts)
{
    model->parameters = calloc(counts.parameters, sizeof *model->parameters);
    model->units = calloc(counts.units, sizeof *model->units);
    model->uses = calloc(counts.uses, sizeof *model->uses);
    model->tensors = calloc(counts.tensors, sizeof *model->tensors);
    return model->parameters == NULL || model->units == NULL || model->uses == NULL ||
                   model->tensors == NULL
               ? ERR_NOMEM
               : ERR_OK;
}

struct model_unit *kind_begin_unit(struct model *model, double flops_forward)
{
    struct model_unit *unit = &model->units[model->units_count++];
    unit->use_first = model->uses_count;
    unit->flops_forward = flops_forward;
    model->flops_forward += flops_forward;
    return unit;
}

/* ---- parameters ---- */

struct model_parameter *kind_add(struct model *model, uint32_t rows, uint32_t cols)
{
    struct model_parameter *parameter = &model->parameters[model->parameters_count];
    *parameter = (struct model_parameter){
        .dims = cols == 0 ? 1 : 2,
        .shape = {rows, cols == 0 ? 1 : cols},
        .rows = rows,
        .cols = cols == 0 ? 1 : cols,
        .decay = cols != 0,
        .split_groups = 1,
        .split_joined = 1,
        .split_pieces = 1,
        .pieces = 1,
    };
    kind_use(model, model->parameters_count++);
    return parameter;
}

void kind_use(struct model *model, uint32_t parameter)
{
    struct model_parameter *used = &model->parameters[parameter];
    check(used->parts < MODEL_PARTS_MAX);
    model->uses[model->uses_count++] = (struct model_use){parameter, used->parts};
    used->part_units[used->parts++] = model->units_count - 1;
    model->units[model->units_count - 1].uses_count++;
}

void kind_add_loss(struct model *model)
{
    model->loss_parameter = model->parameters_count;
    struct model_parameter *loss = kind_add(model, MODEL_LOSS_WEIGHTS, 0);
    snprintf(loss->name, sizeof loss->name, "loss");
    loss->rule = MODEL_NONE;
}

void kind_pad_rows(struct model_parameter *parameter)
{
    uint32_t multiple = MODEL_VOCABULARY_MULTIPLE;
    parameter->rows = (parameter->rows + multiple - 1) / multiple * multiple;
}

void kind_start_normal(struct model_parameter *parameter, double std)
{
    parameter->initial = MODEL_NORMAL;
    parameter->initial_std = (float)std;
}

struct model_tensor *kind_add_tensor_rows(struct model *model, uint32_t rows)
{
    uint32_t p = model->parameters_count - 1, row = 0;
    struct model_parameter *parameter = &model->parameters[p];
    struct model_tensor *tensor = &model->tensors[model->tensors_count];
    if (parameter->tensors_count++ == 0)
        parameter->tensor_first = model->tensors_count;
    else
        row = tensor[-1].row + tensor[-1].rows;
    model->tensors_count++;
    *tensor = (struct model_tensor){
        .parameter = p,
        .row = row,
        .rows = rows,
        .dims = parameter->dims,
        .shape = {rows, parameter->shape[1]},
    };
    return tensor;
}

struct model_tensor *kind_add_tensor(struct model *model)
{
    const struct model_parameter *parameter = &model->parameters[model->parameters_count - 1];
    struct model_tensor *tensor = kind_add_tensor_rows(model, parameter->shape[0]);
    memcpy(tensor->name, parameter->name, sizeof tensor->name);
    return tensor;
}

/* ---- operations ---- */

void kind_compute(struct model *model, const struct kind_program *program)
{
    struct model_unit *unit = &model->units[model->units_count - 1];
    uint32_t in = program->input_width, out = program->output_width;
    check(MODEL_OWN_ARRAYS + program->arrays_count <= MODEL_UNIT_ARRAYS_MAX);
    check(program->operations_count <= MODEL_UNIT_OPERATIONS_MAX);
    unit->din = program->din;
    bool wanted = program->din != MODEL_DIN_ABSENT;
    unit->arrays[MODEL_IN] =
        (struct model_array){MODEL_IN, in, .gradient = wanted ? MODEL_DIN : MODEL_NO_ARRAY};
    unit->arrays[MODEL_OUT] = (struct model_array){MODEL_OUT, out, .gradient = MODEL_DOUT};
    unit->arrays[MODEL_DIN] = (struct model_array){MODEL_DIN, in};
    unit->arrays[MODEL_DOUT] = (struct model_array){MODEL_DOUT, out};
    for (uint32_t i = 0; i < program->arrays_count; i++)
        unit->arrays[MODEL_OWN_ARRAYS + i] = program->arrays[i];
    for (uint32_t i = 0; i < program->operations_count; i++)
        unit->operations[i] = program->operations[i];
    unit->arrays_count = MODEL_OWN_ARRAYS + program->arrays_count;
    unit->operations_count = program->operations_count;
}
