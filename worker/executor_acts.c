#include "worker/executor_acts.h"

#include "worker/carve.h"

#include <stdio.h>

/* ---- where things are ---- */

static const struct program *program_of(const struct executor *e)
{
    return &e->walk.program->program;
}

static struct program_row row_of(const struct executor *e, uint32_t i)
{
    return program_of(e)->places[e->place].rows[i];
}

static bool is_last(const struct executor *e, uint32_t unit)
{
    return unit + 1 == e->model->units_count;
}

static void *at(const struct executor *e, uint64_t offset)
{
    return offset == PROGRAM_NOWHERE ? NULL : e->arena + offset;
}

/* Samples of a slot of the program; held-out samples may end early. */
static uint32_t slot_samples(const struct executor *e, uint32_t slot)
{
    const struct executor_walk *walk = &e->walk;
    if (walk->ticket.kind == TICKET_TRAIN)
        return e->train.slot_samples;
    uint64_t first = (walk->first + walk->slot + slot) * e->train.slot_samples;
    uint64_t rest = walk->samples.held_out - first;
    return rest < e->train.slot_samples ? (uint32_t)rest : e->train.slot_samples;
}

/* The place of a microbatch in its slot. */
static uint32_t in_slot(const struct executor *e, uint32_t microbatch)
{
    return microbatch % (program_of(e)->microbatches / program_of(e)->slots);
}

static uint32_t microbatch_samples(const struct executor *e, struct program_row row)
{
    uint32_t first = in_slot(e, row.microbatch) * e->train.microbatch;
    uint32_t all = slot_samples(e, program_slot(program_of(e), row));
    uint32_t rest = first >= all ? 0 : all - first;
    return rest < e->train.microbatch ? rest : e->train.microbatch;
}

/* The arrays of a slot that is loaded. */
static struct slot_memory memory_of(const struct executor *e, uint32_t slot)
{
    const struct slot_bytes bytes = executor_slot_bytes(e);
    uint64_t number = slot - e->walk.program->load_first;
    check(number < e->loads_max);
    uint64_t predictions = number * bytes.predictions / sizeof(int32_t);
    return (struct slot_memory){.inputs = (uint8_t *)e->device.inputs + number * bytes.inputs,
                                .targets = e->device.targets + predictions,
                                .losses = e->device.losses + predictions,
                                .correct = e->device.correct + predictions};
}

/* The set of gradients that a row adds to. */
static uint32_t set_of(struct executor *e, struct program_row row)
{
    uint32_t set = executor_sums_set(&e->sums, row.unit, program_slot(program_of(e), row));
    check(set < e->unit_sets[row.unit]);
    return set;
}

/* (uses) the gradients of a set. */
static float *const *gradients_of(const struct executor *e, uint32_t set)
{
    return e->gradients + (uint64_t)set * e->model->uses_count;
}

/* ---- units ---- */

/* What the model's first and last unit have of the slot's samples. */
static void add_samples(const struct executor *e, struct program_row row, struct unit_call *call)
{
    if (row.unit > 0 && !is_last(e, row.unit))
        return;
    const struct slot_memory memory = memory_of(e, program_slot(program_of(e), row));
    uint64_t sample = (uint64_t)in_slot(e, row.microbatch) * e->train.microbatch;
    uint64_t prediction = sample * e->model->sample_tokens;
    size_t input_bytes = e->sample.tokens ? sizeof(int32_t) : e->k->element_bytes;
    if (row.unit == 0)
        call->input = (uint8_t *)memory.inputs + sample * e->sample.inputs * input_bytes;
    call->targets = memory.targets + prediction;
    call->losses = memory.losses + prediction;
    call->correct = memory.correct + prediction;
}

static struct unit_call unit_call(struct executor *e, uint32_t i, uint32_t set)
{
    const struct program_offsets *offsets = &e->walk.program->memory.rows[i];
    struct program_row row = row_of(e, i);
    check(row.unit < e->model->units_count && e->units[row.unit]);
    uint32_t use = e->model->units[row.unit].use_first;
    bool own = program_of(e)->local_steps > 0;
    struct unit_call call = {
        .k = e->k,
        .model = e->model,
        .exchange = e->model->ranks > 1 ? &e->exchange.calls : NULL,
        .unit = row.unit,
        .samples = microbatch_samples(e, row),
        .logits_bytes_max = e->train.logits_bytes_max,
        .training = row.act != ACT_E,
        .weights = (own ? e->local.use_weights : e->use_weights) + use,
        .gradients = gradients_of(e, set) + use,
        .few = row.unit == 0 && e->few_count > 0 ? &e->few_sets[set] : NULL,
        .input = at(e, offsets->input),
        .output = at(e, offsets->output),
        .saved = at(e, offsets->saved),
        .left = at(e, offsets->left),
        .scratch = e->scratch,
        .doutput = at(e, offsets->doutput),
        .dinput = at(e, offsets->dinput),
    };
    add_samples(e, row, &call);
    return call;
}

/* Row and set decide which arrays a whole microbatch's act has. */
static enum err operate(struct executor *e, uint32_t i,
                        void (*operation)(const struct unit_call *call))
{
    struct program_row row = row_of(e, i);
    bool adds = row.act == ACT_B || row.act == ACT_I || row.act == ACT_W ||
                (row.act == ACT_F && is_last(e, row.unit));
    uint32_t set = adds ? set_of(e, row) : 0;
    struct unit_call call = unit_call(e, i, set);
    uint64_t rows = program_of(e)->places[e->place].rows_count;
    uint64_t entry = e->walk.program->entries_first + set * rows + i;
    if (call.samples == e->train.microbatch)
        graphs_run(&e->graphs, entry, operation, &call);
    else if (call.samples > 0)
        operation(&call);
    return e->exchange.err;
}

static enum err run_forward(struct executor *e, uint32_t i)
{
    return operate(e, i, unit_forward);
}

static enum err run_evaluate(struct executor *e, uint32_t i)
{
    return operate(e, i, unit_forward);
}

static enum err run_recompute(struct executor *e, uint32_t i)
{
    return operate(e, i, unit_forward);
}

static enum err run_backward(struct executor *e, uint32_t i)
{
    return operate(e, i, unit_backward);
}

static enum err run_input(struct executor *e, uint32_t i)
{
    return operate(e, i, unit_backward_input);
}

static enum err run_weights(struct executor *e, uint32_t i)
{
    return operate(e, i, unit_backward_weights);
}

/* Nothing to do: the planner has given the places of dropped activations to other arrays. */
static enum err run_drop(struct executor *e, uint32_t i)
{
    (void)e;
    (void)i;
    return ERR_OK;
}

/* What a unit saves may be nothing. */
static enum err run_off_out(struct executor *e, uint32_t i)
{
    const struct program_offsets *offsets = &e->walk.program->memory.rows[i];
    if (offsets->hosted != PROGRAM_NOWHERE)
        e->k->copy_out(e->k, e->hosted + offsets->hosted, at(e, offsets->saved),
                       e->sizes[row_of(e, i).unit].saved);
    return ERR_OK;
}

static enum err run_off_in(struct executor *e, uint32_t i)
{
    const struct program_offsets *offsets = &e->walk.program->memory.rows[i];
    if (offsets->hosted != PROGRAM_NOWHERE)
        e->k->copy_in(e->k, at(e, offsets->saved), e->hosted + offsets->hosted,
                      e->sizes[row_of(e, i).unit].saved);
    return ERR_OK;
}

/* ---- samples and losses ---- */

static enum err run_load(struct executor *e, uint32_t i)
{
    struct executor_walk *walk = &e->walk;
    uint32_t slot = program_slot(program_of(e), row_of(e, i)), count = slot_samples(e, slot);
    const struct slot_memory device = memory_of(e, slot);
    uint64_t steps = program_of(e)->local_steps > 0 ? program_of(e)->local_steps : 1;
    uint64_t first =
        ((walk->first + walk->slot + slot) * steps + walk->local_step) * e->train.slot_samples;
    TRY(walk->samples.read(walk->samples.context, walk->ticket.kind, first, count, e->host.inputs,
                           e->host.targets));
    uint64_t inputs = (uint64_t)count * e->sample.inputs;
    uint64_t predictions = (uint64_t)count * e->model->sample_tokens;
    if (e->sample.tokens)
        e->k->copy_in(e->k, device.inputs, e->host.inputs, inputs * sizeof(int32_t));
    else
        e->k->cast_from_f32(e->k, device.inputs, e->host.inputs, (int64_t)inputs);
    e->k->copy_in(e->k, device.targets, e->host.targets, predictions * sizeof(int32_t));
    return ERR_OK;
}

enum err executor_settled(struct executor *e)
{
    const char *failure = e->k->synchronize(e->k);
    if (failure == NULL)
        return ERR_OK;
    snprintf(e->failure, sizeof e->failure, "%s", failure);
    return ERR_IO;
}

/* In sample order. */
static enum err run_sum(struct executor *e, uint32_t i)
{
    uint32_t slot = program_slot(program_of(e), row_of(e, i)), count = slot_samples(e, slot);
    const struct slot_memory device = memory_of(e, slot);
    struct executor_loss *loss = &e->slot_losses[slot];
    uint32_t tokens = e->model->sample_tokens;
    uint64_t predictions = (uint64_t)count * tokens, correct = 0;
    TRY(executor_settled(e));
    e->k->copy_out(e->k, e->host.losses, device.losses, predictions * sizeof(float));
    e->k->copy_out(e->k, e->host.correct, device.correct, predictions * sizeof(int32_t));
    double sum = 0;
    for (uint64_t at = 0; at < predictions;) {
        double sample = 0;
        for (uint64_t end = at + tokens; at < end; at++) {
            sample += (double)e->host.losses[at];
            correct += (uint64_t)e->host.correct[at];
        }
        sum += sample / tokens;
    }
    loss->loss_sum += sum;
    loss->samples += count;
    loss->correct += correct;
    return ERR_OK;
}

static enum err run_loss(struct executor *e, uint32_t i)
{
    struct program_row row = row_of(e, i);
    const struct executor_loss *of_slot = &e->slot_losses[program_slot(program_of(e), row)];
    const float loss[MODEL_LOSS_WEIGHTS] = {
        [MODEL_LOSS_SUM] = (float)of_slot->loss_sum,
        [MODEL_LOSS_COUNT] = (float)of_slot->samples,
        [MODEL_LOSS_CORRECT] = (float)of_slot->correct,
    };
    uint32_t use = e->part_uses[(size_t)e->model->loss_parameter * MODEL_PARTS_MAX];
    e->k->copy_in(e->k, gradients_of(e, set_of(e, row))[use], loss, sizeof loss);
    return ERR_OK;
}

/* ---- weights and gradients ---- */

/* Streamed weights come where the planner has a place for them. */
static void place_weights(struct executor *e, uint32_t unit, uint64_t offset)
{
    const struct model_unit *u = &e->model->units[unit];
    uint8_t *place = (uint8_t *)e->weights + offset;
    for (uint32_t use = u->use_first; use < u->use_first + u->uses_count; use++) {
        uint32_t parameter = e->model->uses[use].parameter;
        e->use_weights[use] = e->parameters[parameter] = (element *)(void *)place;
        place += carve_align(e->model->parameters[parameter].weights) * e->k->element_bytes;
    }
}

/* What was there is computed with before anything new comes. */
static enum err run_ask(struct executor *e, uint32_t i)
{
    const struct executor_hooks *hooks = &e->walk.hooks;
    uint32_t unit = row_of(e, i).unit;
    uint64_t offset = e->walk.program->memory.rows[i].weights;
    if (offset == PROGRAM_NOWHERE)
        return ERR_OK; /* there already, or resident */
    place_weights(e, unit, offset);
    e->k->mark(e->k, unit);
    e->k->in->after(e->k->in, e->k, unit);
    return hooks->ask != NULL ? hooks->ask(hooks->context, unit) : ERR_OK;
}

static enum err run_forget(struct executor *e, uint32_t i)
{
    const struct model_unit *u = &e->model->units[row_of(e, i).unit];
    for (uint32_t use = u->use_first; use < u->use_first + u->uses_count; use++)
        e->use_weights[use] = NULL;
    return ERR_OK;
}

/* The device computes nothing that follows before the copies of the unit's weights are done. The
 * caller does not wait. All slots of a node have the same weights. */
static enum err run_pull(struct executor *e, uint32_t i)
{
    const struct executor_hooks *hooks = &e->walk.hooks;
    uint32_t unit = row_of(e, i).unit;
    if (e->walk.slot > 0 && e->streamed == 0)
        return ERR_OK;
    TRY(run_ask(e, i));
    if (hooks->pull != NULL)
        TRY(hooks->pull(hooks->context, unit));
    e->k->in->mark(e->k->in, unit);
    e->k->after(e->k, e->k->in, unit);
    return ERR_OK;
}

/* Gradients that are freed begin where the planner has a place for them. */
static void place_gradients(struct executor *e, uint32_t unit, uint64_t offset)
{
    const struct model_unit *u = &e->model->units[unit];
    float *place = e->gradient_sets + offset / sizeof *place;
    for (uint32_t use = u->use_first; use < u->use_first + u->uses_count; use++) {
        e->gradients[use] = place;
        place += carve_align(e->model->parameters[e->model->uses[use].parameter].weights);
    }
}

static void clear_unit(struct executor *e, uint32_t unit, uint32_t set)
{
    const struct model_unit *u = &e->model->units[unit];
    for (uint32_t use = u->use_first; use < u->use_first + u->uses_count; use++) {
        struct few_rows *few = executor_few(e, use, set);
        uint64_t weights = e->model->parameters[e->model->uses[use].parameter].weights;
        if (few != NULL)
            few_rows_clear(few);
        else
            e->k->zero(e->k, gradients_of(e, set)[use], weights * sizeof(float));
    }
}

static enum err run_clear(struct executor *e, uint32_t i)
{
    struct program_row row = row_of(e, i);
    uint64_t offset = e->walk.program->memory.rows[i].gradients;
    if (e->freed > 0 && offset != PROGRAM_NOWHERE)
        place_gradients(e, row.unit, offset);
    clear_unit(e, row.unit, set_of(e, row));
    return ERR_OK;
}

/* Where all units are in the same set, it is one piece. */
static enum err run_zero(struct executor *e, uint32_t i)
{
    uint64_t sets = e->memory.gradient_sets;
    bool even = e->whole_bytes == sets * e->set_floats * sizeof(float);
    struct program_row row = row_of(e, i);
    uint32_t set = set_of(e, row);
    for (; row.unit < e->model->units_count; row.unit++)
        even &= set_of(e, row) == set;
    for (row.unit = 0; !even && row.unit < e->model->units_count; row.unit++)
        clear_unit(e, row.unit, set_of(e, row));
    if (even)
        e->k->zero(e->k, e->gradient_sets + set * e->set_floats, e->set_floats * sizeof(float));
    if (even && e->few_count > 0)
        few_rows_clear(&e->few_sets[set]);
    return ERR_OK;
}

static void add_sets(struct executor *e, uint32_t unit, struct executor_addition addition)
{
    const struct model_unit *u = &e->model->units[unit];
    for (uint32_t use = u->use_first; use < u->use_first + u->uses_count; use++) {
        struct few_rows *few = executor_few(e, use, addition.left);
        float *left = gradients_of(e, addition.left)[use];
        const float *right = gradients_of(e, addition.right)[use];
        uint32_t parameter = e->model->uses[use].parameter;
        if (few != NULL)
            few_rows_add(few, executor_few(e, use, addition.right), e->k);
        else
            e->k->add(e->k, left, left, right, (int64_t)e->model->parameters[parameter].weights);
    }
}

/* The place's part of the ticket's node: all of it, or the half that its slots are. */
static struct node node_of(const struct executor *e, uint32_t unit, uint32_t last_slot)
{
    const struct executor_walk *walk = &e->walk;
    uint32_t slots = walk->program->unit_slots[unit];
    if (slots == program_of(e)->slots)
        return walk->ticket.node;
    uint32_t level = tree_level(slots);
    return (struct node){level, (node_first(walk->ticket.node) + last_slot) >> level};
}

/* The unit's gradients of the slot are complete: adds them to the node's sum, and lets them be
 * pushed when the sum is whole. */
static enum err run_push(struct executor *e, uint32_t i)
{
    struct executor_walk *walk = &e->walk;
    const struct executor_hooks *hooks = &walk->hooks;
    struct program_row row = row_of(e, i);
    struct executor_addition additions[TREE_LEVEL_MAX + 2];
    uint32_t slot = program_slot(program_of(e), row);
    uint32_t slots = walk->slots / program_of(e)->slots * walk->program->unit_slots[row.unit];
    bool last = e->sums.units[row.unit].finished + 1 == slots;
    uint32_t count = executor_sums_finish(&e->sums, row.unit, slot, last, additions);
    for (uint32_t j = 0; j < count; j++)
        add_sets(e, row.unit, additions[j]);
    if (!last)
        return ERR_OK;
    e->k->mark(e->k, row.unit); /* for executor_encode(): the device may come to it much later */
    return hooks->push != NULL ? hooks->push(hooks->context, row.unit, node_of(e, row.unit, slot))
                               : ERR_OK;
}

/* The next unit's gradients take the place of these. */
static enum err run_free(struct executor *e, uint32_t i)
{
    const struct executor_hooks *hooks = &e->walk.hooks;
    return e->freed > 0 && hooks->acknowledged != NULL
               ? hooks->acknowledged(hooks->context, row_of(e, i).unit)
               : ERR_OK;
}

/* ---- local steps ---- */

static enum err run_own(struct executor *e, uint32_t i)
{
    local_own(&e->local, row_of(e, i).unit);
    return ERR_OK;
}

static enum err run_step(struct executor *e, uint32_t i)
{
    check(e->walk.local_step < e->local.settings.steps);
    local_step(&e->local, gradients_of(e, set_of(e, row_of(e, i))), e->walk.ticket.step,
               e->walk.local_step);
    return ERR_OK;
}

static enum err run_diff(struct executor *e, uint32_t i)
{
    struct program_row row = row_of(e, i);
    local_diff(&e->local, gradients_of(e, set_of(e, row)), row.unit);
    return ERR_OK;
}

/* ---- between places ---- */

/* A forward's value is the input of `boundary`, a backward's the gradient of that. */
static struct executor_value value_of(const struct executor *e, struct program_row row,
                                      enum executor_way way, uint32_t boundary)
{
    uint64_t sample_bytes = program_value_bytes(&e->sizes[boundary - 1]) / e->train.microbatch;
    return (struct executor_value){
        .way = way,
        .boundary = boundary,
        .slot = e->walk.slot + program_slot(program_of(e), row),
        .microbatch = in_slot(e, row.microbatch),
        .bytes = sample_bytes * microbatch_samples(e, row),
    };
}

/* A value passes whole: all members of a place give the same. Where a member has ranges of it
 * (common/model/pieces.h), it is whole in the scratch memory alone, in which there is room for it. */
static uint64_t own_bytes(const struct executor *e, const struct executor_value *value)
{
    uint32_t ranges = e->sizes[value->boundary - 1].ranges;
    return ranges > 1 ? value->bytes / ranges : value->bytes;
}

static uint8_t *own_in_scratch(const struct executor *e, uint64_t own)
{
    return (uint8_t *)e->scratch + e->model->rank * own;
}

/* The other members' ranges come there. */
static enum err gather_in_scratch(struct executor *e, uint32_t i, uint32_t boundary)
{
    const struct unit_call call = {.k = e->k,
                                   .model = e->model,
                                   .exchange = &e->exchange.calls,
                                   .unit = boundary - 1,
                                   .samples = microbatch_samples(e, row_of(e, i))};
    unit_exchange_value(&call, e->scratch);
    return e->exchange.err;
}

static enum err send(struct executor *e, uint32_t i, struct executor_value value, uint64_t offset)
{
    const struct executor_hooks *hooks = &e->walk.hooks;
    uint64_t own = own_bytes(e, &value);
    if (value.bytes == 0)
        return ERR_OK;
    if (own == value.bytes)
        return hooks->send(hooks->context, &value, at(e, offset));
    e->k->copy(e->k, own_in_scratch(e, own), at(e, offset), own);
    TRY(gather_in_scratch(e, i, value.boundary));
    return hooks->send(hooks->context, &value, e->scratch);
}

static enum err receive(struct executor *e, struct executor_value value, uint64_t offset)
{
    const struct executor_hooks *hooks = &e->walk.hooks;
    uint64_t own = own_bytes(e, &value);
    if (value.bytes == 0)
        return ERR_OK;
    if (own == value.bytes)
        return hooks->receive(hooks->context, &value, at(e, offset));
    TRY(hooks->receive(hooks->context, &value, e->scratch));
    e->k->copy(e->k, at(e, offset), own_in_scratch(e, own), own);
    return ERR_OK;
}

static enum err run_send_forward(struct executor *e, uint32_t i)
{
    struct program_row row = row_of(e, i);
    return send(e, i, value_of(e, row, EXECUTOR_FORWARD, row.unit + 1),
                e->walk.program->memory.rows[i].output);
}

static enum err run_send_evaluated(struct executor *e, uint32_t i)
{
    return run_send_forward(e, i);
}

static enum err run_receive_forward(struct executor *e, uint32_t i)
{
    struct program_row row = row_of(e, i);
    return receive(e, value_of(e, row, EXECUTOR_FORWARD, row.unit),
                   e->walk.program->memory.rows[i].input);
}

static enum err run_send_backward(struct executor *e, uint32_t i)
{
    struct program_row row = row_of(e, i);
    return send(e, i, value_of(e, row, EXECUTOR_BACKWARD, row.unit),
                e->walk.program->memory.rows[i].dinput);
}

static enum err run_receive_backward(struct executor *e, uint32_t i)
{
    struct program_row row = row_of(e, i);
    return receive(e, value_of(e, row, EXECUTOR_BACKWARD, row.unit + 1),
                   e->walk.program->memory.rows[i].doutput);
}

/* The column that the executor adds to the table of acts. */
#define RUN(NAME, name) [ACT_##NAME] = run_##name,
static enum err (*const runs[ACT_COUNT])(struct executor *e, uint32_t i) = {ACT_LIST(RUN)};
#undef RUN

enum err executor_act(struct executor *e, uint32_t i)
{
    return runs[row_of(e, i).act](e, i);
}
