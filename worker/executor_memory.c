/* Making an executor: sizes from the program and the units, one allocation for each kind of memory,
 * tables of where everything lies. */
#include "worker/executor_memory.h"

#include "worker/local.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 32 }; /* numbers: at least 64 bytes */

static uint64_t align(uint64_t numbers)
{
    return (numbers + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static enum err copy_program(const struct program *from, struct program *ret_program)
{
    struct program program = *from;
    program.rows = malloc(from->rows_count * sizeof *program.rows);
    if (!program.rows)
        return ERR_NOMEM;
    memcpy(program.rows, from->rows, from->rows_count * sizeof *program.rows);
    *ret_program = program;
    return ERR_OK;
}

static enum err take_program(struct executor *e, const struct program *given, struct reason *reason)
{
    uint32_t microbatches = e->train.slot_samples / e->train.microbatch;
    if (given)
        TRY(copy_program(given, &e->program));
    else
        TRY(program_generate(&e->program, e->model->units_count, microbatches, e->train.recompute));
    TRY(program_validate(&e->program, reason));
    if (e->program.units != e->model->units_count || e->program.microbatches != microbatches)
        return reason_set(
            reason, ERR_INVALID,
            "program has %u units and %u microbatches, the model has %u and a slot %u",
            e->program.units, e->program.microbatches, e->model->units_count, microbatches);
    return ERR_OK;
}

/* Places of all activations, and the largest scratch. */
static enum err size_units(struct executor *e)
{
    struct program_sizes *sizes = calloc(e->program.units, sizeof *sizes);
    if (!sizes)
        return ERR_NOMEM;
    for (uint32_t unit = 0; unit < e->program.units; unit++) {
        struct unit_sizes u;
        e->operations->sizes(e->k, e->model, unit, e->train.microbatch, e->train.logits_bytes_max,
                             &u);
        sizes[unit] = (struct program_sizes){u.output, u.saved, u.dinput, u.in_place};
        if (u.scratch > e->memory.scratch)
            e->memory.scratch = u.scratch;
    }
    enum err err = program_place(&e->program, sizes, &e->places);
    free(sizes);
    e->memory.activations = e->places.arena_bytes;
    return err;
}

static void size_weights(struct executor *e)
{
    const struct model *model = e->model;
    for (uint32_t i = 0; i < model->parameters_count; i++)
        e->memory.weights += align(model->parameters[i].weights) * e->k->element_bytes;
    for (uint32_t use = 0; use < model->uses_count; use++)
        e->set_floats += align(model->parameters[model->uses[use].parameter].weights);
    if (e->node_slots_max > 0)
        e->memory.gradient_sets = tree_level(e->node_slots_max) + 1;
    e->memory.gradients = e->memory.gradient_sets * e->set_floats * sizeof(float);
}

/* NULL only when out of memory: also for 0 bytes there is a place. */
static void *device_alloc(struct executor *e, uint64_t bytes)
{
    return e->k->alloc(e->k, bytes > 0 ? bytes : ALIGNMENT);
}

static enum err alloc_slot(struct executor *e)
{
    uint64_t samples = e->train.slot_samples;
    uint64_t predictions = samples * e->model->sample_tokens;
    uint64_t inputs_bytes = samples * e->inputs.count * sizeof(float); /* or tokens; at most */
    e->device = (struct slot_memory){
        .inputs = device_alloc(e, inputs_bytes),
        .targets = device_alloc(e, predictions * sizeof(int32_t)),
        .losses = device_alloc(e, predictions * sizeof(float)),
        .correct = device_alloc(e, predictions * sizeof(int32_t)),
    };
    e->host = (struct slot_memory){
        .inputs = malloc(inputs_bytes),
        .targets = malloc(predictions * sizeof(int32_t)),
        .losses = malloc(predictions * sizeof(float)),
        .correct = malloc(predictions * sizeof(int32_t)),
    };
    e->memory.scratch += inputs_bytes + 3 * predictions * sizeof(int32_t);
    if (!e->device.inputs || !e->device.targets || !e->device.losses || !e->device.correct)
        return ERR_NOMEM;
    if (!e->host.inputs || !e->host.targets || !e->host.losses || !e->host.correct)
        return ERR_NOMEM;
    return ERR_OK;
}

static enum err alloc_device(struct executor *e)
{
    e->weights = device_alloc(e, e->memory.weights);
    e->gradient_sets = device_alloc(e, e->memory.gradients);
    e->arena = device_alloc(e, e->memory.activations);
    e->scratch = device_alloc(e, e->memory.scratch);
    if (!e->weights || !e->gradient_sets || !e->arena || !e->scratch)
        return ERR_NOMEM;
    TRY(alloc_slot(e));
    TRY(local_alloc(e));
    e->memory.total = e->memory.weights + e->memory.gradients + e->memory.activations +
                      e->memory.local + e->memory.scratch;
    return ERR_OK;
}

static enum err alloc_tables(struct executor *e)
{
    const struct model *model = e->model;
    e->parameters = calloc(model->parameters_count, sizeof *e->parameters);
    e->part_uses = calloc((size_t)model->parameters_count * MODEL_PARTS_MAX, sizeof *e->part_uses);
    e->use_weights = calloc(model->uses_count, sizeof *e->use_weights);
    e->gradients = calloc((e->memory.gradient_sets + 1) * model->uses_count, sizeof *e->gradients);
    if (!e->parameters || !e->part_uses || !e->use_weights || !e->gradients)
        return ERR_NOMEM;
    return ERR_OK;
}

static void fill_tables(struct executor *e)
{
    const struct model *model = e->model;
    uint64_t first = 0;
    for (uint32_t i = 0; i < model->parameters_count; i++) {
        e->parameters[i] = kernels_at(e->k, e->weights, (int64_t)first);
        first += align(model->parameters[i].weights);
    }
    for (uint32_t use = 0; use < model->uses_count; use++) {
        struct model_use u = model->uses[use];
        e->use_weights[use] = e->parameters[u.parameter];
        e->part_uses[(size_t)u.parameter * MODEL_PARTS_MAX + u.part] = use;
    }
    float *gradient = e->gradient_sets;
    for (uint64_t set = 0; set < e->memory.gradient_sets; set++) {
        for (uint32_t use = 0; use < model->uses_count; use++) {
            e->gradients[set * model->uses_count + use] = gradient;
            gradient += align(model->parameters[model->uses[use].parameter].weights);
        }
    }
}

static enum err set_up(struct executor *e, const struct program *program, struct reason *reason)
{
    TRY(take_program(e, program, reason));
    TRY(size_units(e));
    size_weights(e);
    TRY(alloc_device(e));
    TRY(alloc_tables(e));
    fill_tables(e);
    local_fill_tables(e);
    return ERR_OK;
}

enum err executor_new(const struct executor_options *options, struct executor **ret_executor,
                      struct reason *reason)
{
    struct executor *e = calloc(1, sizeof *e);
    if (!e)
        return ERR_NOMEM;
    e->k = options->kernels;
    e->model = options->model;
    e->operations = unit_operations(options->model);
    e->train = *options->train;
    e->node_slots_max = options->node_slots_max;
    e->local.settings = options->local;
    e->inputs = unit_inputs(options->model);
    enum err err = set_up(e, options->program, reason);
    if (err != ERR_OK) {
        executor_free(e);
        return err;
    }
    *ret_executor = e;
    return ERR_OK;
}

static void free_slot(struct executor *e)
{
    e->k->free(e->k, e->device.inputs);
    e->k->free(e->k, e->device.targets);
    e->k->free(e->k, e->device.losses);
    e->k->free(e->k, e->device.correct);
    free(e->host.inputs);
    free(e->host.targets);
    free(e->host.losses);
    free(e->host.correct);
}

void executor_free(struct executor *e)
{
    if (!e)
        return;
    free_slot(e);
    e->k->free(e->k, e->weights);
    e->k->free(e->k, e->gradient_sets);
    e->k->free(e->k, e->arena);
    e->k->free(e->k, e->scratch);
    local_release(e);
    free(e->parameters);
    free(e->part_uses);
    free(e->use_weights);
    free(e->gradients);
    program_places_release(&e->places);
    program_release(&e->program);
    free(e);
}
