/* Making an executor: sizes from the program and the units, one allocation of all of it, tables of
 * where everything lies. */
#include "worker/executor_memory.h"

#include "worker/local.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 }; /* of numbers more than enough, of bytes what units are promised */

static uint64_t align(uint64_t count)
{
    return (count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static enum err copy_program(const struct program *from, struct program *ret_program)
{
    struct program program = *from;
    program.rows = malloc(from->rows_count * sizeof *program.rows);
    if (program.rows == NULL)
        return ERR_NOMEM;
    memcpy(program.rows, from->rows, from->rows_count * sizeof *program.rows);
    *ret_program = program;
    return ERR_OK;
}

static enum err take_program(struct executor *e, const struct program *given, struct reason *reason)
{
    uint32_t microbatches = e->train.slot_samples / e->train.microbatch;
    if (given != NULL)
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
    if (sizes == NULL)
        return ERR_NOMEM;
    for (uint32_t unit = 0; unit < e->program.units; unit++) {
        struct unit_sizes u;
        e->operations->sizes(e->k, e->model, unit, e->train.microbatch, e->train.logits_bytes_max,
                             &u);
        sizes[unit] = (struct program_sizes){u.output, u.saved, u.dinput, u.in_place};
        if (align(u.scratch) > e->memory.scratch)
            e->memory.scratch = align(u.scratch);
        e->memory.logits = u.scratch; /* the last unit's */
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

/* Of what crosses between host and device once a slot. */
struct slot_bytes {
    uint64_t inputs, predictions; /* each of the three arrays with one number a prediction */
};

static struct slot_bytes slot_bytes(const struct executor *e)
{
    uint64_t samples = e->train.slot_samples;
    return (struct slot_bytes){
        .inputs = align(samples * e->inputs.count * sizeof(float)), /* or tokens; at most */
        .predictions = align(samples * e->model->sample_tokens * sizeof(float)),
    };
}

/* Memory that is given out piece by piece; with base NULL it only counts. */
struct region {
    uint8_t *base;
    uint64_t bytes;
};

static void *take(struct region *region, uint64_t bytes)
{
    void *at = region->base != NULL ? region->base + region->bytes : NULL;
    region->bytes += align(bytes);
    return at;
}

static void place_pieces(struct executor *e, struct region *region)
{
    struct slot_bytes slot = slot_bytes(e);
    e->weights = take(region, e->memory.weights);
    e->gradient_sets = take(region, e->memory.gradients);
    e->arena = take(region, e->memory.activations);
    e->scratch = take(region, e->memory.scratch - slot.inputs - 3 * slot.predictions);
    e->device.inputs = take(region, slot.inputs);
    e->device.targets = take(region, slot.predictions);
    e->device.losses = take(region, slot.predictions);
    e->device.correct = take(region, slot.predictions);
    e->local.values = take(region, e->memory.local);
}

/* The ledger of what needs what, and what makes it less. */
static enum err does_not_fit(const struct executor *e, const struct kernels_memory *device,
                             struct reason *reason)
{
    const struct executor_memory *m = &e->memory;
    return reason_set(
        reason, ERR_NOMEM,
        "the run needs %" PRIu64 " bytes of device memory, %" PRIu64 " of %" PRIu64
        " are free: weights %" PRIu64 ", gradients %" PRIu64 " (%" PRIu64 " sets), activations "
        "%" PRIu64 ", local steps %" PRIu64 ", scratch %" PRIu64 " (of it logits %" PRIu64
        "); the workspace has %" PRIu64 "; less: train.microbatch, train.recompute true "
        "(activations), train.logits_bytes_max (logits), train.node_slots (gradients)",
        m->total, device->free, device->total, m->weights, m->gradients, m->gradient_sets,
        m->activations, m->local, m->scratch, m->logits, m->workspace);
}

static enum err alloc_device(struct executor *e, struct reason *reason)
{
    struct kernels_memory device;
    struct slot_bytes slot = slot_bytes(e);
    struct region region = {0};
    e->memory.scratch += slot.inputs + 3 * slot.predictions;
    place_pieces(e, &region);
    e->k->memory(e->k, &device);
    e->memory.workspace = device.own;
    e->memory.total = region.bytes;
    if (device.total > 0 && region.bytes > device.free)
        return does_not_fit(e, &device, reason);
    e->memory_taken = e->k->alloc(e->k, region.bytes);
    if (e->memory_taken == NULL)
        return device.total > 0 ? does_not_fit(e, &device, reason) : ERR_NOMEM;
    region = (struct region){.base = e->memory_taken};
    place_pieces(e, &region);
    return ERR_OK;
}

static enum err alloc_host(struct executor *e)
{
    struct slot_bytes slot = slot_bytes(e);
    e->host = (struct slot_memory){
        .inputs = malloc(slot.inputs),
        .targets = malloc(slot.predictions),
        .losses = malloc(slot.predictions),
        .correct = malloc(slot.predictions),
    };
    if (e->host.inputs == NULL || e->host.targets == NULL || e->host.losses == NULL ||
        e->host.correct == NULL)
        return ERR_NOMEM;
    return ERR_OK;
}

static enum err alloc_tables(struct executor *e)
{
    const struct model *model = e->model;
    e->parameters = calloc(model->parameters_count, sizeof *e->parameters);
    e->part_uses = calloc((size_t)model->parameters_count * MODEL_PARTS_MAX, sizeof *e->part_uses);
    e->use_weights = calloc(model->uses_count, sizeof *e->use_weights);
    e->gradients = calloc((e->memory.gradient_sets + 1) * model->uses_count, sizeof *e->gradients);
    if (e->parameters == NULL || e->part_uses == NULL || e->use_weights == NULL ||
        e->gradients == NULL)
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

static enum err set_up(struct executor *e, const struct program *program, bool direct,
                       struct reason *reason)
{
    TRY(take_program(e, program, reason));
    TRY(size_units(e));
    size_weights(e);
    local_size(e);
    TRY(alloc_device(e, reason));
    TRY(alloc_host(e));
    TRY(alloc_tables(e));
    TRY(local_alloc(e));
    TRY(graphs_init(&e->graphs, e->k, (e->memory.gradient_sets + 1) * e->program.rows_count,
                    direct));
    fill_tables(e);
    local_fill_tables(e);
    return ERR_OK;
}

enum err executor_new(const struct executor_options *options, struct executor **ret_executor,
                      struct reason *reason)
{
    struct executor *e = calloc(1, sizeof *e);
    if (e == NULL)
        return ERR_NOMEM;
    e->k = options->kernels;
    e->model = options->model;
    e->operations = unit_operations(options->model);
    e->train = *options->train;
    e->node_slots_max = options->node_slots_max;
    e->local.settings = options->local;
    e->inputs = unit_inputs(options->model);
    enum err err = set_up(e, options->program, options->direct, reason);
    if (err != ERR_OK) {
        executor_free(e);
        return err;
    }
    *ret_executor = e;
    return ERR_OK;
}

void executor_free(struct executor *e)
{
    if (e == NULL)
        return;
    graphs_release(&e->graphs);
    e->k->free(e->k, e->memory_taken);
    free(e->host.inputs);
    free(e->host.targets);
    free(e->host.losses);
    free(e->host.correct);
    local_release(e);
    free(e->parameters);
    free(e->part_uses);
    free(e->use_weights);
    free(e->gradients);
    program_places_release(&e->places);
    program_release(&e->program);
    free(e);
}
