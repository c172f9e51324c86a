/* The executor. Downwards: the acts, a slot's rows, a ticket's slots, chunks. What it owns and
 * how that is made is in executor_memory.c.
 *
 * Gradient sets. A node's slots are summed like a binary counter counts: slot i of the node is
 * computed into set popcount(i); when it is done, every trailing 1 of i means that a sum of the
 * same size lies one set below, and the two are added there. Slots that a step does not have (no
 * power of two) are simply missing at the end: the last slot adds all sets downwards. Set 0 then
 * holds the node's sum, and no more than log2(slots) + 1 sets were ever alive. All of this happens
 * unit by unit in the PUSH rows, so the first push of a node can leave while its last backward is
 * still running. */
#include "worker/executor.h"

#include "common/digest.h"
#include "worker/executor_memory.h"
#include "worker/local.h"

/* One walk over the rows: a slot of a ticket. */
struct walk {
    struct executor *e;
    const struct executor_hooks *hooks;
    float *const *weights; /* (uses) what is computed on: the pulled or the slot's own */
    bool training;
    bool local;       /* gradients are for the slot's own step */
    bool first, last; /* slot of the ticket's node */
    uint32_t slot;    /* in the node */
    uint32_t set;     /* of gradients */
    uint32_t samples; /* in the slot */
    struct executor_loss loss;
};

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- acts ---- */

/* Samples of a microbatch; a slot of held-out samples may end early. */
static uint32_t microbatch_samples(const struct walk *walk, uint32_t microbatch)
{
    uint32_t first = microbatch * walk->e->train.microbatch;
    return first >= walk->samples ? 0 : smaller(walk->samples - first, walk->e->train.microbatch);
}

static void *at(const struct executor *e, uint64_t place)
{
    return place == PROGRAM_NOWHERE ? NULL : e->arena + place;
}

static struct unit_call unit_call(const struct walk *walk, uint32_t i)
{
    struct executor *e = walk->e;
    const struct program_place *place = &e->places.rows[i];
    struct row row = e->program.rows[i];
    uint64_t sample = (uint64_t)row.microbatch * e->train.microbatch;
    uint64_t prediction = sample * e->model->sample_tokens;
    uint32_t use = e->model->units[row.unit].use_first;
    size_t input_bytes = e->inputs.tokens ? sizeof(int32_t) : e->k->element_bytes;
    return (struct unit_call){
        .k = e->k,
        .model = e->model,
        .unit = row.unit,
        .samples = microbatch_samples(walk, row.microbatch),
        .logits_bytes_max = e->train.logits_bytes_max,
        .training = walk->training,
        .weights = walk->weights + use,
        .gradients = e->gradients + (uint64_t)walk->set * e->model->uses_count + use,
        .input = row.unit > 0
                     ? at(e, place->input)
                     : (uint8_t *)e->device.inputs + sample * e->inputs.count * input_bytes,
        .targets = e->device.targets + prediction,
        .output = at(e, place->output),
        .saved = at(e, place->saved),
        .scratch = e->scratch,
        .doutput = at(e, place->doutput),
        .dinput = at(e, place->dinput),
        .losses = e->device.losses + prediction,
        .correct = e->device.correct + prediction,
    };
}

/* Row and set decide which arrays a whole microbatch's act has; without gradients the set is one
 * that there is not. */
static void operate(struct walk *walk, uint32_t i, void (*operation)(const struct unit_call *call))
{
    struct executor *e = walk->e;
    struct unit_call call = unit_call(walk, i);
    uint64_t set = walk->training ? walk->set : e->memory.gradient_sets;
    if (call.samples == e->train.microbatch)
        graphs_run(&e->graphs, set * e->program.rows_count + i, operation, &call);
    else if (call.samples > 0)
        operation(&call);
}

static enum err act_forward(struct walk *walk, uint32_t i)
{
    operate(walk, i, walk->e->operations->forward);
    return ERR_OK;
}

static enum err act_backward(struct walk *walk, uint32_t i)
{
    operate(walk, i, walk->e->operations->backward);
    return ERR_OK;
}

/* Nothing to do: the places of dropped activations are given to others already. */
static enum err act_drop(struct walk *walk, uint32_t i)
{
    (void)walk;
    (void)i;
    return ERR_OK;
}

/* What is computed from here on waits for the copies that brought the unit's weights, not for its
 * caller. */
static enum err pull_unit(struct walk *walk, uint32_t unit)
{
    const struct kernels *k = walk->e->k;
    if (walk->hooks->pull != NULL)
        TRY(walk->hooks->pull(walk->hooks->context, unit));
    k->in->mark(k->in, unit);
    k->after(k, k->in, unit);
    return ERR_OK;
}

static enum err act_pull(struct walk *walk, uint32_t i)
{
    if (!walk->first || walk->local)
        return ERR_OK;
    return pull_unit(walk, walk->e->program.rows[i].unit);
}

static enum err settled(struct executor *e)
{
    const char *failure = e->k->synchronize(e->k);
    if (failure == NULL)
        return ERR_OK;
    snprintf(e->failure, sizeof e->failure, "%s", failure);
    return ERR_IO;
}

/* The slot's losses, in sample order: what the slot brings to the loss chunk. */
static enum err sum_losses(struct walk *walk)
{
    struct executor *e = walk->e;
    uint32_t tokens = e->model->sample_tokens;
    uint64_t predictions = (uint64_t)walk->samples * tokens;
    TRY(settled(e));
    e->k->copy_out(e->k, e->host.losses, e->device.losses, predictions * sizeof(float));
    e->k->copy_out(e->k, e->host.correct, e->device.correct, predictions * sizeof(int32_t));
    double slot_sum = 0;
    for (uint32_t sample = 0; sample < walk->samples; sample++) {
        double sum = 0;
        for (uint64_t i = (uint64_t)sample * tokens; i < (uint64_t)(sample + 1) * tokens; i++) {
            sum += (double)e->host.losses[i];
            walk->loss.correct += (uint64_t)e->host.correct[i];
        }
        slot_sum += sum / tokens;
    }
    walk->loss.loss_sum = slot_sum;
    walk->loss.samples = walk->samples;
    return ERR_OK;
}

static void write_loss(struct walk *walk)
{
    struct executor *e = walk->e;
    const float loss[MODEL_LOSS_WEIGHTS] = {
        [MODEL_LOSS_SUM] = (float)walk->loss.loss_sum,
        [MODEL_LOSS_COUNT] = (float)walk->loss.samples,
        [MODEL_LOSS_CORRECT] = (float)walk->loss.correct,
    };
    uint32_t use = e->part_uses[(size_t)e->model->loss_parameter * MODEL_PARTS_MAX];
    e->k->copy_in(e->k, e->gradients[(uint64_t)walk->set * e->model->uses_count + use], loss,
                  sizeof loss);
}

/* Adds the unit's gradients of set `right` to those one set below. */
static void add_sets(struct executor *e, uint32_t unit, uint32_t right)
{
    const struct model_unit *u = &e->model->units[unit];
    for (uint32_t use = u->use_first; use < u->use_first + u->uses_count; use++) {
        float *left = e->gradients[(uint64_t)(right - 1) * e->model->uses_count + use];
        const float *add = e->gradients[(uint64_t)right * e->model->uses_count + use];
        uint32_t parameter = e->model->uses[use].parameter;
        e->k->add(e->k, left, left, add, (int64_t)e->model->parameters[parameter].weights);
    }
}

/* The unit's part of the slot is there: into the node's sum, and on its way when that is whole. */
static enum err finish_unit(struct walk *walk, uint32_t unit)
{
    struct executor *e = walk->e;
    uint32_t set = walk->set;
    for (uint32_t bits = walk->slot; set > 0 && (walk->last || bits & 1); bits >>= 1)
        add_sets(e, unit, set--);
    if (!walk->last)
        return ERR_OK;
    e->k->mark(e->k, unit); /* for executor_encode(): the device may come to it much later */
    return walk->hooks->push != NULL ? walk->hooks->push(walk->hooks->context, unit) : ERR_OK;
}

static enum err act_push(struct walk *walk, uint32_t i)
{
    uint32_t unit = walk->e->program.rows[i].unit;
    bool last = unit + 1 == walk->e->program.units;
    if (last)
        TRY(sum_losses(walk));
    if (walk->local)
        return ERR_OK; /* local_step() takes what is there */
    if (last)
        write_loss(walk);
    return finish_unit(walk, unit);
}

static enum err (*const acts[ACT_COUNT])(struct walk *walk, uint32_t i) = {
    [ACT_F] = act_forward, [ACT_B] = act_backward, [ACT_RC] = act_forward,
    [ACT_DROP] = act_drop, [ACT_PULL] = act_pull,  [ACT_PUSH] = act_push,
};

/* ---- slots ---- */

static bool is_forward(enum act act)
{
    return act == ACT_PULL || act == ACT_F;
}

static enum err walk_rows(struct walk *walk)
{
    const struct program *program = &walk->e->program;
    const struct executor_hooks *hooks = walk->hooks;
    for (uint32_t i = 0; i < program->rows_count; i++) {
        if (!walk->training && !is_forward(program->rows[i].act))
            continue;
        if (hooks->cancelled != NULL && hooks->cancelled(hooks->context))
            return ERR_CANCELLED;
        TRY(acts[program->rows[i].act](walk, i));
    }
    return ERR_OK;
}

static enum err load(struct walk *walk, const struct executor_samples *samples,
                     enum ticket_kind kind, uint64_t first)
{
    struct executor *e = walk->e;
    uint64_t predictions = (uint64_t)walk->samples * e->model->sample_tokens;
    TRY(samples->read(samples->context, kind, first, walk->samples, e->host.inputs,
                      e->host.targets));
    uint64_t inputs = (uint64_t)walk->samples * e->inputs.count;
    if (e->inputs.tokens)
        e->k->copy_in(e->k, e->device.inputs, e->host.inputs, inputs * sizeof(int32_t));
    else
        e->k->cast_from_f32(e->k, e->device.inputs, e->host.inputs, (int64_t)inputs);
    e->k->copy_in(e->k, e->device.targets, e->host.targets, predictions * sizeof(int32_t));
    return ERR_OK;
}

static struct walk walk_slot(struct executor *e, const struct executor_hooks *hooks, uint32_t slot,
                             uint32_t slots)
{
    return (struct walk){
        .e = e,
        .hooks = hooks,
        .weights = e->use_weights,
        .first = slot == 0,
        .last = slot + 1 == slots,
        .slot = slot,
        .samples = e->train.slot_samples,
    };
}

/* Gradients of slot_samples samples, in the walk's set. */
static enum err train_samples(struct walk *walk, const struct executor_samples *samples,
                              uint64_t first)
{
    struct executor *e = walk->e;
    TRY(load(walk, samples, TICKET_TRAIN, first));
    e->k->zero(e->k, e->gradient_sets + walk->set * e->set_floats, e->set_floats * sizeof(float));
    return walk_rows(walk);
}

static enum err pull_all(struct walk *walk)
{
    for (uint32_t unit = 0; unit < walk->e->program.units; unit++)
        TRY(pull_unit(walk, unit));
    return ERR_OK;
}

/* The slot's own steps, and the difference they make. */
static enum err train_local(struct walk *walk, const struct executor_samples *samples,
                            uint64_t ticket)
{
    struct executor *e = walk->e;
    uint64_t k = e->train.slot_samples, steps = e->local.settings.steps;
    struct executor_loss loss = {0};
    if (walk->first)
        TRY(pull_all(walk));
    walk->local = true;
    walk->weights = e->local.use_weights;
    local_begin(e);
    for (uint32_t step = 0; step < steps; step++) {
        TRY(train_samples(walk, samples, (ticket * steps + step) * k));
        local_step(e, walk->set, ticket / e->train.slots, step);
        loss.loss_sum += walk->loss.loss_sum;
        loss.samples += k;
    }
    loss.correct = walk->loss.correct; /* counts up over the walks */
    walk->loss = loss;
    local_end(e, walk->set);
    write_loss(walk);
    for (uint32_t unit = e->program.units; unit-- > 0;)
        TRY(finish_unit(walk, unit));
    return ERR_OK;
}

static enum err train_slot(struct walk *walk, const struct executor_samples *samples,
                           uint64_t ticket)
{
    walk->training = true;
    walk->set = (uint32_t)__builtin_popcount(walk->slot);
    if (walk->e->local.settings.steps > 0)
        return train_local(walk, samples, ticket);
    return train_samples(walk, samples, ticket * walk->e->train.slot_samples);
}

static enum err run_slots(struct executor *e, const struct ticket *ticket,
                          const struct executor_samples *samples,
                          const struct executor_hooks *hooks)
{
    if (!node_valid(ticket->node, e->train.slots))
        return ERR_MALFORMED;
    uint32_t slots = node_slots(ticket->node, e->train.slots);
    if (slots > e->node_slots_max)
        return ERR_MALFORMED;
    uint64_t first = ticket->step * e->train.slots + node_first(ticket->node);
    for (uint32_t slot = 0; slot < slots; slot++) {
        struct walk walk = walk_slot(e, hooks, slot, slots);
        TRY(train_slot(&walk, samples, first + slot));
    }
    return ERR_OK;
}

/* Also what was cancelled has left the device before weights may be overwritten. */
enum err executor_run(struct executor *e, const struct ticket *ticket,
                      const struct executor_samples *samples, const struct executor_hooks *hooks,
                      struct executor_loss *ret_loss)
{
    enum err err = run_slots(e, ticket, samples, hooks);
    TRY(settled(e));
    TRY(err);
    float loss[MODEL_LOSS_WEIGHTS];
    e->k->copy_out(e->k, loss, executor_gradient(e, e->model->loss_parameter, 0), sizeof loss);
    *ret_loss = (struct executor_loss){
        .loss_sum = (double)loss[MODEL_LOSS_SUM],
        .samples = (uint64_t)loss[MODEL_LOSS_COUNT],
        .correct = (uint64_t)loss[MODEL_LOSS_CORRECT],
    };
    return ERR_OK;
}

static enum err validate_slots(struct executor *e, const struct ticket *ticket,
                               const struct executor_samples *samples,
                               const struct executor_hooks *hooks, struct executor_loss *loss)
{
    uint64_t slot_samples = e->train.slot_samples;
    uint64_t slots_all = (samples->held_out + slot_samples - 1) / slot_samples;
    if (slots_all > UINT32_MAX || !node_valid(ticket->node, (uint32_t)slots_all))
        return ERR_MALFORMED;
    uint32_t slots = node_slots(ticket->node, (uint32_t)slots_all);
    for (uint32_t slot = 0; slot < slots; slot++) {
        struct walk walk = walk_slot(e, hooks, slot, slots);
        uint64_t first = (node_first(ticket->node) + slot) * slot_samples;
        uint64_t left = samples->held_out - first;
        walk.samples = left < slot_samples ? (uint32_t)left : (uint32_t)slot_samples;
        TRY(load(&walk, samples, TICKET_VALIDATE, first));
        TRY(walk_rows(&walk));
        TRY(sum_losses(&walk));
        loss->loss_sum += walk.loss.loss_sum;
        loss->samples += walk.loss.samples;
        loss->correct += walk.loss.correct;
    }
    return ERR_OK;
}

enum err executor_validate(struct executor *e, const struct ticket *ticket,
                           const struct executor_samples *samples,
                           const struct executor_hooks *hooks, struct executor_loss *ret_loss)
{
    struct executor_loss loss = {0};
    enum err err = validate_slots(e, ticket, samples, hooks, &loss);
    TRY(settled(e));
    TRY(err);
    *ret_loss = loss;
    return ERR_OK;
}

/* ---- chunks ---- */

element *executor_weights(struct executor *e, uint32_t parameter)
{
    check(parameter < e->model->parameters_count);
    return e->parameters[parameter];
}

const float *executor_gradient(const struct executor *e, uint32_t parameter, uint32_t part)
{
    check(parameter < e->model->parameters_count);
    check(part < e->model->parameters[parameter].parts);
    check(e->node_slots_max > 0);
    return e->gradients[e->part_uses[(size_t)parameter * MODEL_PARTS_MAX + part]];
}

void executor_decode(struct executor *e, uint32_t chunk, enum codec codec, struct cursor *cursor)
{
    check(chunk < e->model->chunks_count);
    element *parameter = e->parameters[e->model->chunks[chunk].parameter];
    blocks_decode(e->k->in, e->model, chunk, codec, cursor, parameter);
}

uint64_t executor_encode(const struct executor *e, uint32_t chunk, uint32_t part, enum codec codec,
                         void *ret_bytes)
{
    check(chunk < e->model->chunks_count);
    uint32_t parameter = e->model->chunks[chunk].parameter;
    const float *gradient = executor_gradient(e, parameter, part);
    const struct kernels *out = e->k->out;
    out->after(out, e->k, e->model->parameters[parameter].part_units[part]);
    blocks_encode(out, e->model, chunk, codec, gradient, ret_bytes);
    return digest_fast64((struct slice){ret_bytes, blocks_bytes(e->model, chunk, codec)});
}

enum err executor_encoded(const struct executor *e)
{
    return e->k->out->synchronize(e->k->out) == NULL ? ERR_OK : ERR_IO;
}

const char *executor_failure(const struct executor *e)
{
    return e->failure;
}

bool executor_refused_graphs(const struct executor *e)
{
    return e->graphs.refused;
}

const struct program *executor_program(const struct executor *e)
{
    return &e->program;
}

struct executor_memory executor_memory(const struct executor *e)
{
    return e->memory;
}
