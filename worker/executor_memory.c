/* Making an executor: sizes from the program and the units, one allocation of all of it, tables of
 * where everything lies. */
#include "worker/executor_memory.h"

#include "common/scoped.h"
#include "common/shared/shared_pool.h"
#include "worker/carve.h"
#include "worker/plan.h"
#include "worker/program/mesh.h"
#include "worker/program/simulate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- programs ---- */

static uint32_t slot_microbatches(const struct executor *e)
{
    return e->train.slot_samples / e->train.microbatch;
}

static enum err judge_program(const struct executor *e, const struct program *program,
                              uint32_t local_steps, struct reason *reason)
{
    uint32_t microbatches = program->slots * slot_microbatches(e);
    TRY(program_validate(program, reason));
    if (program->places_count != 1)
        return reason_set(reason, ERR_INVALID,
                          "program has %u places, and there is no mesh of them",
                          program->places_count);
    if (program->units != e->model->units_count || program->microbatches != microbatches)
        return reason_set(
            reason, ERR_INVALID,
            "program has %u units and %u microbatches, the model has %u and %u slots %u",
            program->units, program->microbatches, e->model->units_count, program->slots,
            microbatches);
    if (program->local_steps != local_steps)
        return reason_set(reason, ERR_INVALID, "program has %u local steps, the run has %u",
                          program->local_steps, local_steps);
    return ERR_OK;
}

/* One place, a slot at a time, whatever the node. */
static enum err take_alone(struct executor *e, const struct executor_options *options,
                           struct reason *reason)
{
    const struct program_shape shape = {.units = e->model->units_count,
                                        .microbatches = slot_microbatches(e),
                                        .local_steps = options->local.steps,
                                        .recompute = spec_recompute(&e->train)};
    const struct mesh alone = mesh_alone(&e->train);
    const struct mesh_node slot = {1, shape.microbatches};
    bool passes = alone.offload || alone.residency.streamed;
    struct program *training = &e->trainings[e->trainings_count++].program;
    if (options->program != NULL)
        TRY(program_copy(options->program, training));
    else if (passes)
        TRY(mesh_training(&alone, e->model, slot, training, reason));
    else
        TRY(program_training(training, &shape));
    TRY(judge_program(e, training, shape.local_steps, reason));
    if (passes)
        TRY(mesh_validation(&alone, e->model, slot, &e->validation.program));
    else
        TRY(program_validation(&e->validation.program, &shape));
    return program_validate(&e->validation.program, reason);
}

static bool has_training(const struct executor *e, uint32_t slots)
{
    for (uint32_t i = 0; i < e->trainings_count; i++)
        if (e->trainings[i].program.slots == slots)
            return true;
    return false;
}

/* The program of the mesh for nodes of so many slots. There need not be one: not every schedule has
 * one for every node. */
static enum err take_training(struct executor *e, const struct mesh *mesh, uint32_t slots,
                              struct reason *reason)
{
    const struct mesh_node node = {slots, slot_microbatches(e)};
    if (slots == 0 || slots > e->node_slots_max || has_training(e, slots))
        return ERR_OK;
    check(e->trainings_count < EXECUTOR_PROGRAMS_MAX);
    struct program *training = &e->trainings[e->trainings_count].program;
    enum err err = mesh_training(mesh, e->model, node, training, reason);
    if (err == ERR_INVALID)
        return ERR_OK;
    TRY(err);
    e->trainings_count++;
    return program_validate(training, reason);
}

/* A program for each number of slots that a node of the step may have. */
static enum err take_mesh(struct executor *e, const struct mesh *mesh, struct reason *reason)
{
    struct reason refused = {.text = ""};
    for (uint32_t level = 0; level <= tree_level(e->train.slots); level++) {
        uint32_t whole = UINT32_C(1) << level;
        TRY(take_training(e, mesh, whole <= e->train.slots ? whole : 0, &refused));
        TRY(take_training(e, mesh, e->train.slots % whole, &refused));
    }
    if (e->trainings_count == 0 && e->node_slots_max > 0)
        return reason_set(reason, ERR_INVALID, "%s", refused.text);
    TRY(mesh_validation(mesh, e->model, (struct mesh_node){1, slot_microbatches(e)},
                        &e->validation.program));
    return program_validate(&e->validation.program, reason);
}

static enum err take_programs(struct executor *e, const struct executor_options *options,
                              struct reason *reason)
{
    if (e->alone)
        return take_alone(e, options, reason);
    if (options->local.steps > 0)
        return reason_set(reason, ERR_INVALID, "local steps need all units in one place");
    return take_mesh(e, options->mesh, reason);
}

/* ---- what the place has ---- */

static const struct program_place *place_of(const struct executor *e,
                                            const struct executor_program *program)
{
    return &program->program.places[e->place];
}

/* The units that the place pulls, its slots of each, and the slots that it loads. */
static enum err look_through(struct executor *e, struct executor_program *program)
{
    const struct program_place *place = place_of(e, program);
    uint32_t load_end = 0;
    program->unit_slots = calloc(e->model->units_count, sizeof *program->unit_slots);
    if (program->unit_slots == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < place->rows_count; i++) {
        struct program_row row = place->rows[i];
        uint32_t slot = program_slot(&program->program, row);
        e->units[row.unit] |= row.act == ACT_PULL;
        program->unit_slots[row.unit] += row.act == ACT_PUSH;
        if (row.act != ACT_LOAD)
            continue;
        if (load_end == 0 || slot < program->load_first)
            program->load_first = slot;
        if (slot >= load_end)
            load_end = slot + 1;
    }
    program->loads = load_end - program->load_first;
    e->loads_max = program->loads > e->loads_max ? program->loads : e->loads_max;
    return ERR_OK;
}

/* The most gradient sets of each unit that are alive at once. A program of one slot is walked for
 * each slot of a node. */
static enum err count_sets(struct executor *e, const struct executor_program *program, bool again)
{
    scoped(free_scoped) uint32_t *sets = calloc(e->model->units_count, sizeof *sets);
    if (sets == NULL)
        return ERR_NOMEM;
    TRY(simulate_gradient_sets(&program->program, e->place, sets));
    for (uint32_t unit = 0; unit < e->model->units_count; unit++) {
        if (again)
            sets[unit] = executor_sums_sets(e->node_slots_max);
        if (sets[unit] > e->unit_sets[unit])
            e->unit_sets[unit] = sets[unit];
        if (sets[unit] > e->memory.gradient_sets)
            e->memory.gradient_sets = sets[unit];
    }
    return ERR_OK;
}

/* One arena serves all programs. */
static enum err plan_program(struct executor *e, struct executor_program *program)
{
    TRY(program_memory_plan(&program->program, place_of(e, program), e->sizes, &program->memory));
    if (program->memory.arena_bytes > e->memory.activations)
        e->memory.activations = program->memory.arena_bytes;
    if (program->memory.weights_bytes > e->streamed)
        e->streamed = program->memory.weights_bytes;
    if (program->memory.gradients_bytes > e->freed)
        e->freed = program->memory.gradients_bytes;
    if (program->memory.hosted_bytes > e->memory.hosted)
        e->memory.hosted = program->memory.hosted_bytes;
    if (program->memory.sent_bytes > e->memory.kept)
        e->memory.kept = program->memory.sent_bytes;
    return look_through(e, program);
}

/* The largest scratch of the place's units. */
static void size_scratch(struct executor *e)
{
    for (uint32_t unit = 0; unit < e->model->units_count; unit++) {
        struct unit_sizes u;
        if (!e->units[unit])
            continue;
        unit_size(e->k, e->model, unit, e->train.microbatch, e->train.logits_bytes_max, &u);
        if (carve_align(u.scratch) > e->memory.scratch)
            e->memory.scratch = carve_align(u.scratch);
        if (unit + 1 == e->model->units_count)
            e->memory.logits = u.scratch;
    }
}

/* Gradients are freed when no training keeps sums of slots: the memory of each would be whole. */
static void decide_freed(struct executor *e)
{
    bool again = e->alone && e->node_slots_max > 1;
    for (uint32_t i = 0; i < e->trainings_count; i++)
        if (again || e->trainings[i].memory.gradients_bytes == 0)
            e->freed = 0;
    e->memory.freed = e->freed > 0;
}

static enum err plan_programs(struct executor *e, struct reason *reason)
{
    const struct plan plan = {e->k, e->model, &e->train};
    plan_sizes(&plan, e->sizes);
    for (uint32_t i = 0; i < e->trainings_count; i++) {
        uint64_t sums = plan_sums_kept(&plan, place_of(e, &e->trainings[i]));
        uint32_t slots = e->trainings[i].program.slots;
        TRY(plan_program(e, &e->trainings[i]));
        TRY(count_sets(e, &e->trainings[i], e->alone && slots == 1));
        e->slots_max = slots > e->slots_max ? slots : e->slots_max;
        e->memory.sums = sums > e->memory.sums ? sums : e->memory.sums;
    }
    if (e->memory.gradient_sets > EXECUTOR_SETS_MAX)
        return reason_set(reason, ERR_INVALID,
                          "place %u keeps the gradients of %" PRIu64
                          " slots at once, and %d is the most; another schedule or smaller nodes "
                          "would do",
                          e->place, e->memory.gradient_sets, EXECUTOR_SETS_MAX);
    decide_freed(e);
    TRY(plan_program(e, &e->validation));
    size_scratch(e);
    return ERR_OK;
}

/* What local steps compute with is whole, and what is freed is planned as such. There is room for the
 * rows of all that is added to it. */
static enum err choose_few(struct executor *e, const struct executor_options *options)
{
    bool may = e->units[0] && options->local.steps == 0 && e->freed == 0;
    uint32_t slots = options->sum_slots_max > 0 ? options->sum_slots_max : e->node_slots_max;
    if (!may || !few_rows_fit(e->k, e->model, &e->train, slots, &e->few))
        return ERR_OK;
    e->few_sets = calloc(e->unit_sets[0], sizeof *e->few_sets);
    if (e->few_sets == NULL)
        return ERR_NOMEM;
    for (; e->few_count < e->unit_sets[0]; e->few_count++)
        e->few_sets[e->few_count] = e->few;
    return ERR_OK;
}

static void size_gradient(struct executor *e, uint32_t unit, uint32_t use)
{
    uint64_t weights = carve_align(e->model->parameters[e->model->uses[use].parameter].weights);
    if (use == e->few.use)
        return;
    e->set_floats += weights;
    e->whole_bytes += e->unit_sets[unit] * weights * sizeof(float);
}

/* Each parameter that the place's units use once. */
static void size_weights(struct executor *e)
{
    const struct model *model = e->model;
    for (uint32_t unit = 0; unit < model->units_count; unit++) {
        const struct model_unit *u = &model->units[unit];
        for (uint32_t use = u->use_first; e->units[unit] && use < u->use_first + u->uses_count;
             use++) {
            e->used[model->uses[use].parameter] = true;
            size_gradient(e, unit, use);
        }
    }
    if (e->freed > 0)
        e->whole_bytes = e->freed;
    e->memory.gradients = e->whole_bytes;
    if (e->few_count > 0)
        e->memory.gradients += e->few_count * few_rows_bytes(&e->few);
    e->memory.weights = e->streamed;
    for (uint32_t i = 0; i < model->parameters_count; i++)
        if (e->used[i] && e->streamed == 0)
            e->memory.weights += carve_align(model->parameters[i].weights) * e->k->element_bytes;
}

/* ---- memory ---- */

struct slot_bytes executor_slot_bytes(const struct executor *e)
{
    uint64_t samples = e->train.slot_samples;
    return (struct slot_bytes){
        .inputs = carve_align(samples * e->sample.inputs * sizeof(float)), /* or tokens; at most */
        .predictions = carve_align(samples * e->model->sample_tokens * sizeof(float)),
    };
}

/* *ret_local: what local_init() gets. */
static void carve_device(struct executor *e, struct carve *carve, float **ret_local)
{
    struct slot_bytes slot = executor_slot_bytes(e);
    uint64_t loaded = e->loads_max * (slot.inputs + 3 * slot.predictions);
    e->weights = carve_take(carve, e->memory.weights);
    if (!e->lends)
        e->gradient_sets = carve_take(carve, e->whole_bytes);
    for (uint32_t set = 0; set < e->few_count; set++)
        few_rows_carve(&e->few_sets[set], carve);
    e->arena = carve_take(carve, e->memory.activations);
    e->scratch = carve_take(carve, e->memory.scratch - loaded);
    e->device.inputs = carve_take(carve, e->loads_max * slot.inputs);
    e->device.targets = carve_take(carve, e->loads_max * slot.predictions);
    e->device.losses = carve_take(carve, e->loads_max * slot.predictions);
    e->device.correct = carve_take(carve, e->loads_max * slot.predictions);
    *ret_local = carve_take(carve, e->memory.local);
}

/* What a device has for a run: some is kept for what it takes later by itself. */
static uint64_t room_of(const struct kernels_memory *device)
{
    return device->free > device->reserved ? device->free - device->reserved : 0;
}

/* The ledger of what needs what, and what makes it less. */
static enum err does_not_fit(const struct executor_memory *m, uint64_t bytes,
                             const struct kernels_memory *device, struct reason *reason)
{
    struct reason kept = {.text = "freed when acknowledged"}, reserve = {.text = ""};
    if (!m->freed)
        snprintf(kept.text, sizeof kept.text, "%" PRIu64 " sets", m->gradient_sets);
    if (device->reserved > 0)
        snprintf(reserve.text, sizeof reserve.text, " beside a reserve of %" PRIu64,
                 device->reserved);
    return reason_set(
        reason, ERR_UNSUPPORTED,
        "the run needs %" PRIu64 " bytes, %" PRIu64 " of %" PRIu64 " are free%s: weights %" PRIu64
        ", gradients %" PRIu64 " (%s), activations "
        "%" PRIu64 ", local steps %" PRIu64 ", scratch %" PRIu64 " (of it logits %" PRIu64
        "), on the host offloaded %" PRIu64 ", kept for others %" PRIu64
        "; the workspace has %" PRIu64 "; less: train.microbatch, train.recompute "
        "(activations), residency.weights streamed (weights, gradients), train.logits_bytes_max "
        "(logits), train.node_slots (gradients), more of mesh.stage or mesh.tensor",
        bytes, room_of(device), device->total, reserve.text, m->weights, m->gradients, kept.text,
        m->activations, m->local, m->scratch, m->logits, m->hosted, m->kept + m->sums,
        m->workspace);
}

/* What shares the host's memory: executors, and values of leases that are no longer computed. */
static struct executor_memory of_host(const struct executor_memory *one,
                                      const struct executor_options *options)
{
    const uint64_t executors = options->executors > 0 ? options->executors : 1;
    const uint64_t leases = options->leases > 0 ? options->leases : 1;
    struct executor_memory all = *one;
    all.weights *= executors;
    all.gradients *= executors;
    all.activations *= executors;
    all.local *= executors;
    all.scratch *= executors;
    all.logits *= executors;
    all.total *= executors;
    all.hosted *= executors;
    all.kept *= leases;
    all.sums *= leases;
    return all;
}

/* A block that nobody reads. */
static enum err take_gradients(struct executor *e)
{
    struct counted *block = shared_pool_counted(e->pool, e->whole_bytes);
    if (block == NULL)
        return ERR_NOMEM;
    counted_unref(e->lent);
    e->lent = block;
    e->gradient_sets = (float *)(void *)block->data;
    return ERR_OK;
}

static enum err alloc_device(struct executor *e, const struct executor_options *options,
                             float **ret_local, struct reason *reason)
{
    struct kernels_memory device;
    struct slot_bytes slot = executor_slot_bytes(e);
    struct carve carve = {0};
    e->memory.scratch += e->loads_max * (slot.inputs + 3 * slot.predictions);
    e->k->memory(e->k, &device);
    bool is_host = device.total == 0; /* which keeps the rest as well */
    if (is_host)
        device.total = device.free = options->memory_max;
    e->lends = is_host && e->freed == 0 && e->whole_bytes > 0;
    e->pool = options->pool;
    carve_device(e, &carve, ret_local);
    e->memory.workspace = device.own;
    e->memory.total = carve.bytes + (e->lends ? carve_align(e->whole_bytes) : 0);
    const struct executor_memory all = is_host ? of_host(&e->memory, options) : e->memory;
    uint64_t bytes = all.total + (is_host ? all.hosted + all.kept + all.sums : 0);
    if (device.total > 0 && bytes > room_of(&device))
        return does_not_fit(&all, bytes, &device, reason);
    e->memory_taken = e->k->alloc(e->k, carve.bytes);
    if (e->memory_taken == NULL)
        return device.total > 0 ? does_not_fit(&all, bytes, &device, reason) : ERR_NOMEM;
    carve = (struct carve){.base = e->memory_taken};
    carve_device(e, &carve, ret_local);
    for (uint32_t set = 0; set < e->few_count; set++)
        few_rows_init(&e->few_sets[set]);
    return e->lends ? take_gradients(e) : ERR_OK;
}

static enum err alloc_host(struct executor *e)
{
    struct slot_bytes slot = executor_slot_bytes(e);
    e->host = (struct slot_memory){
        .inputs = malloc(slot.inputs),
        .targets = malloc(slot.predictions),
        .losses = malloc(slot.predictions),
        .correct = malloc(slot.predictions),
    };
    e->hosted = malloc(e->memory.hosted + 1);
    if (e->hosted == NULL || e->host.inputs == NULL || e->host.targets == NULL ||
        e->host.losses == NULL || e->host.correct == NULL)
        return ERR_NOMEM;
    return ERR_OK;
}

/* What is known before the programs are. */
static enum err alloc_lists(struct executor *e)
{
    const struct model *model = e->model;
    e->units = calloc(model->units_count, sizeof *e->units);
    e->unit_sets = calloc(model->units_count, sizeof *e->unit_sets);
    e->sizes = calloc(model->units_count, sizeof *e->sizes);
    e->used = calloc(model->parameters_count, sizeof *e->used);
    return e->units != NULL && e->unit_sets != NULL && e->sizes != NULL && e->used != NULL
               ? ERR_OK
               : ERR_NOMEM;
}

static enum err alloc_tables(struct executor *e)
{
    const struct model *model = e->model;
    e->parameters = calloc(model->parameters_count, sizeof *e->parameters);
    e->own = calloc(model->parameters_count, sizeof *e->own);
    e->part_uses = calloc((size_t)model->parameters_count * MODEL_PARTS_MAX, sizeof *e->part_uses);
    e->use_weights = calloc(model->uses_count, sizeof *e->use_weights);
    e->gradients = calloc((e->memory.gradient_sets + 1) * model->uses_count, sizeof *e->gradients);
    e->slot_losses = calloc(e->slots_max, sizeof *e->slot_losses);
    if (e->parameters == NULL || e->own == NULL || e->part_uses == NULL || e->use_weights == NULL ||
        e->gradients == NULL || e->slot_losses == NULL)
        return ERR_NOMEM;
    return executor_sums_init(&e->sums, model->units_count, e->slots_max);
}

/* Set 0 of all units, then set 1 of those that have one, and so on. Those that are freed get their
 * place when they begin. */
static void fill_gradients(struct executor *e)
{
    const struct model *model = e->model;
    float *gradient = e->gradient_sets;
    for (uint64_t set = 0; set < e->memory.gradient_sets && e->freed == 0; set++)
        for (uint32_t unit = 0; unit < model->units_count; unit++) {
            const struct model_unit *u = &model->units[unit];
            bool there = e->units[unit] && set < e->unit_sets[unit];
            for (uint32_t use = u->use_first; there && use < u->use_first + u->uses_count; use++) {
                if (use == e->few.use)
                    continue;
                e->gradients[set * model->uses_count + use] = gradient;
                gradient += carve_align(model->parameters[model->uses[use].parameter].weights);
            }
        }
}

static void fill_tables(struct executor *e)
{
    const struct model *model = e->model;
    uint64_t first = 0;
    for (uint32_t i = 0; i < model->parameters_count; i++) {
        if (!e->used[i] || e->streamed > 0)
            continue;
        e->own[i] = e->parameters[i] = kernels_at(e->k, e->weights, (int64_t)first);
        first += carve_align(model->parameters[i].weights);
    }
    for (uint32_t use = 0; use < model->uses_count; use++) {
        struct model_use u = model->uses[use];
        e->use_weights[use] = e->parameters[u.parameter];
        e->part_uses[(size_t)u.parameter * MODEL_PARTS_MAX + u.part] = use;
    }
    fill_gradients(e);
}

/* An entry for each row and set of gradients; validation has no gradients. */
static enum err init_graphs(struct executor *e, bool direct)
{
    uint64_t entries = 0;
    for (uint32_t i = 0; i < e->trainings_count; i++) {
        e->trainings[i].entries_first = entries;
        entries += e->memory.gradient_sets * place_of(e, &e->trainings[i])->rows_count;
    }
    e->validation.entries_first = entries;
    return graphs_init(&e->graphs, e->k, entries + place_of(e, &e->validation)->rows_count, direct);
}

enum err executor_memory_take(struct executor *e, const struct executor_options *options,
                              struct reason *reason)
{
    float *own;
    e->k = options->kernels;
    e->model = options->model;
    e->train = *options->train;
    e->node_slots_max = options->node_slots_max;
    e->place = options->place;
    e->alone = options->mesh == NULL;
    e->slots_max = 1;
    e->few.use = FEW_ROWS_NO_USE;
    e->sample = model_sample(&options->model->settings);
    TRY(alloc_lists(e));
    TRY(take_programs(e, options, reason));
    TRY(plan_programs(e, reason));
    TRY(choose_few(e, options));
    size_weights(e);
    uint64_t floats = e->memory.weights / sizeof(float);
    e->memory.local = local_bytes(&options->local, floats);
    TRY(alloc_device(e, options, &own, reason));
    TRY(alloc_host(e));
    TRY(alloc_tables(e));
    exchange_init(&e->exchange, e->k, e->model);
    TRY(init_graphs(e, options->direct || e->model->ranks > 1));
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

enum err executor_memory_renew(struct executor *e)
{
    if (!e->lends || atomic_load_explicit(&e->lent->references, memory_order_acquire) == 1)
        return ERR_OK;
    TRY(take_gradients(e));
    fill_gradients(e);
    return ERR_OK;
}

static void release_program(struct executor_program *program)
{
    free(program->unit_slots);
    program_memory_release(&program->memory);
    program_release(&program->program);
}

void executor_memory_release(struct executor *e)
{
    graphs_release(&e->graphs);
    exchange_release(&e->exchange);
    e->k->free(e->k, e->memory_taken);
    counted_unref(e->lent);
    for (uint32_t set = 0; set < e->few_count; set++)
        few_rows_release(&e->few_sets[set]);
    free(e->few_sets);
    free(e->host.inputs);
    free(e->host.targets);
    free(e->host.losses);
    free(e->host.correct);
    free(e->hosted);
    local_release(&e->local);
    free(e->parameters);
    free(e->own);
    free(e->part_uses);
    free(e->use_weights);
    free(e->gradients);
    free(e->units);
    free(e->unit_sets);
    free(e->sizes);
    free(e->used);
    free(e->slot_losses);
    executor_sums_release(&e->sums);
    for (uint32_t i = 0; i < EXECUTOR_PROGRAMS_MAX; i++)
        release_program(&e->trainings[i]);
    release_program(&e->validation);
}
