/* Making an executor: sizes from the program and the units, one allocation of all of it, tables of
 * where everything lies. */
#include "worker/executor_memory.h"

#include "common/tree.h"
#include "worker/pieces.h"

#include <inttypes.h>
#include <stdlib.h>

/* One arena serves both programs. */
static enum err plan_memory(struct executor_program *program, const struct program_sizes *sizes,
                            struct executor_memory *memory)
{
    TRY(program_memory_plan(&program->program, program->program.places, sizes, &program->memory));
    if (program->memory.arena_bytes > memory->activations)
        memory->activations = program->memory.arena_bytes;
    return ERR_OK;
}

static struct program_shape shape_of(const struct executor *e, const struct local_settings *local)
{
    return (struct program_shape){.units = e->model->units_count,
                                  .microbatches = e->train.slot_samples / e->train.microbatch,
                                  .local_steps = local->steps,
                                  .recompute = e->train.recompute};
}

/* The executor walks one place, a slot at a time, with the acts that it has. */
static enum err judge_acts(const struct program *program, struct reason *reason)
{
#define ALONE(NAME, name) [ACT_##NAME] = true,
    static const bool alone[ACT_COUNT] = {ACT_LIST_ALONE(ALONE)};
#undef ALONE
    if (program->places_count != 1 || program->slots != 1)
        return reason_set(reason, ERR_INVALID,
                          "program has %u places and %u slots, and a worker computes one place, a "
                          "slot at a time",
                          program->places_count, program->slots);
    for (uint32_t i = 0; i < program->places->rows_count; i++)
        if (!alone[program->places->rows[i].act])
            return reason_set(reason, ERR_INVALID, "program row %u (%s): a worker has no such act",
                              i + 1, program_row_text(program, program->places->rows[i]).text);
    return ERR_OK;
}

static enum err judge_program(const struct program *program, const struct program_shape *shape,
                              struct reason *reason)
{
    TRY(program_validate(program, reason));
    TRY(judge_acts(program, reason));
    if (program->units != shape->units || program->microbatches != shape->microbatches)
        return reason_set(
            reason, ERR_INVALID,
            "program has %u units and %u microbatches, the model has %u and a slot %u",
            program->units, program->microbatches, shape->units, shape->microbatches);
    if (program->local_steps != shape->local_steps)
        return reason_set(reason, ERR_INVALID, "program has %u local steps, the run has %u",
                          program->local_steps, shape->local_steps);
    return ERR_OK;
}

static enum err take_programs(struct executor *e, const struct executor_options *options,
                              struct reason *reason)
{
    struct program_shape shape = shape_of(e, &options->local);
    if (options->program != NULL)
        TRY(program_copy(options->program, &e->training.program));
    else
        TRY(program_training(&e->training.program, &shape));
    TRY(judge_program(&e->training.program, &shape, reason));
    TRY(program_validation(&e->validation.program, &shape));
    return program_validate(&e->validation.program, reason);
}

/* Places of all activations, and the largest scratch. */
static enum err size_units(struct executor *e)
{
    uint32_t units = e->model->units_count;
    struct program_sizes *sizes = calloc(units, sizeof *sizes);
    if (sizes == NULL)
        return ERR_NOMEM;
    for (uint32_t unit = 0; unit < units; unit++) {
        struct unit_sizes u;
        unit_size(e->k, e->model, unit, e->train.microbatch, e->train.logits_bytes_max, &u);
        sizes[unit] = (struct program_sizes){u.output, u.saved, u.dinput, u.in_place};
        if (pieces_align(u.scratch) > e->memory.scratch)
            e->memory.scratch = pieces_align(u.scratch);
        e->memory.logits = u.scratch; /* the last unit's */
    }
    enum err err = plan_memory(&e->training, sizes, &e->memory);
    if (err == ERR_OK)
        err = plan_memory(&e->validation, sizes, &e->memory);
    free(sizes);
    return err;
}

static void size_weights(struct executor *e)
{
    const struct model *model = e->model;
    for (uint32_t i = 0; i < model->parameters_count; i++)
        e->memory.weights += pieces_align(model->parameters[i].weights) * e->k->element_bytes;
    for (uint32_t use = 0; use < model->uses_count; use++)
        e->set_floats += pieces_align(model->parameters[model->uses[use].parameter].weights);
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
        .inputs = pieces_align(samples * e->sample.inputs * sizeof(float)), /* or tokens; at most */
        .predictions = pieces_align(samples * e->model->sample_tokens * sizeof(float)),
    };
}

/* *ret_local: what local_init() gets. */
static void place_pieces(struct executor *e, struct pieces *pieces, float **ret_local)
{
    struct slot_bytes slot = slot_bytes(e);
    e->weights = pieces_take(pieces, e->memory.weights);
    e->gradient_sets = pieces_take(pieces, e->memory.gradients);
    e->arena = pieces_take(pieces, e->memory.activations);
    e->scratch = pieces_take(pieces, e->memory.scratch - slot.inputs - 3 * slot.predictions);
    e->device.inputs = pieces_take(pieces, slot.inputs);
    e->device.targets = pieces_take(pieces, slot.predictions);
    e->device.losses = pieces_take(pieces, slot.predictions);
    e->device.correct = pieces_take(pieces, slot.predictions);
    *ret_local = pieces_take(pieces, e->memory.local);
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

static enum err alloc_device(struct executor *e, float **ret_local, struct reason *reason)
{
    struct kernels_memory device;
    struct slot_bytes slot = slot_bytes(e);
    struct pieces pieces = {0};
    e->memory.scratch += slot.inputs + 3 * slot.predictions;
    place_pieces(e, &pieces, ret_local);
    e->k->memory(e->k, &device);
    e->memory.workspace = device.own;
    e->memory.total = pieces.bytes;
    if (device.total > 0 && pieces.bytes > device.free)
        return does_not_fit(e, &device, reason);
    e->memory_taken = e->k->alloc(e->k, pieces.bytes);
    if (e->memory_taken == NULL)
        return device.total > 0 ? does_not_fit(e, &device, reason) : ERR_NOMEM;
    pieces = (struct pieces){.base = e->memory_taken};
    place_pieces(e, &pieces, ret_local);
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
        first += pieces_align(model->parameters[i].weights);
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
            gradient += pieces_align(model->parameters[model->uses[use].parameter].weights);
        }
    }
}

/* An entry for each row and set of gradients; validation has no gradients. */
static enum err init_graphs(struct executor *e, bool direct)
{
    uint64_t trained = e->memory.gradient_sets * e->training.program.places->rows_count;
    e->validation.entries_first = trained;
    return graphs_init(&e->graphs, e->k, trained + e->validation.program.places->rows_count,
                       direct);
}

enum err executor_memory_take(struct executor *e, const struct executor_options *options,
                              struct reason *reason)
{
    float *own;
    e->k = options->kernels;
    e->model = options->model;
    e->train = *options->train;
    e->node_slots_max = options->node_slots_max;
    e->sample = model_sample(&options->model->settings);
    TRY(take_programs(e, options, reason));
    TRY(size_units(e));
    size_weights(e);
    uint64_t floats = e->memory.weights / sizeof(float);
    e->memory.local = local_bytes(&options->local, floats);
    TRY(alloc_device(e, &own, reason));
    TRY(alloc_host(e));
    TRY(alloc_tables(e));
    TRY(init_graphs(e, options->direct));
    fill_tables(e);
    const struct local_tables tables = {.k = e->k,
                                        .model = e->model,
                                        .pulled = e->parameters,
                                        .pulled_floats = floats,
                                        .part_uses = e->part_uses,
                                        .slots = e->train.slots,
                                        .slot_samples = e->train.slot_samples};
    return local_init(&e->local, &options->local, &tables, own);
}

static void release_program(struct executor_program *program)
{
    program_memory_release(&program->memory);
    program_release(&program->program);
}

void executor_memory_release(struct executor *e)
{
    graphs_release(&e->graphs);
    e->k->free(e->k, e->memory_taken);
    free(e->host.inputs);
    free(e->host.targets);
    free(e->host.losses);
    free(e->host.correct);
    local_release(&e->local);
    free(e->parameters);
    free(e->part_uses);
    free(e->use_weights);
    free(e->gradients);
    release_program(&e->training);
    release_program(&e->validation);
}
