/* The executor. From the top: the acts, a slot's rows, a ticket's slots, chunks. executor_memory.c
 * makes what the executor owns.
 *
 * Gradient sets. A node's slots are summed like a binary counter counts: slot i of the node is
 * computed into set popcount(i); when it is done, every trailing 1 of i means that a sum of the
 * same size lies one set below, and the two are added there. Slots that a step does not have (no
 * power of two) are simply missing at the end: the last slot adds all sets downwards. Set 0 then
 * holds the node's sum, and no more than log2(slots) + 1 sets were ever alive. All of this happens
 * unit by unit in the PUSH rows, so the first push of a node can leave while its last backward is
 * still running. */
#include "worker/executor.h"

#include "worker/executor_memory.h"

#include <stdlib.h>

/* ---- life ---- */

void executor_free(struct executor *e)
{
    if (e == NULL)
        return;
    executor_memory_release(e);
    free(e);
}

enum err executor_new(const struct executor_options *options, struct executor **ret_executor,
                      struct reason *reason)
{
    struct executor *e = calloc(1, sizeof *e);
    if (e == NULL)
        return ERR_NOMEM;
    enum err err = executor_memory_take(e, options, reason);
    if (err != ERR_OK) {
        executor_free(e);
        return err;
    }
    *ret_executor = e;
    return ERR_OK;
}

/* ---- a run ---- */

/* One walk over the rows: a slot of a ticket. */
struct walk {
    struct executor *e;
    const struct executor_program *program;
    const struct executor_samples *samples;
    const struct executor_hooks *hooks;
    enum ticket_kind kind;
    bool first, last;       /* slot of the ticket's node */
    uint32_t slot;          /* in the node */
    uint32_t set;           /* of gradients */
    uint64_t step;          /* of the ticket */
    uint64_t samples_first; /* where the slot's begin */
    uint32_t samples_count; /* that are loaded at once */
    uint32_t local_step;    /* how often the body was walked before */
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
    uint32_t first = microbatch * walk->e->train.microbatch, all = walk->samples_count;
    return first >= all ? 0 : smaller(all - first, walk->e->train.microbatch);
}

static void *at(const struct executor *e, uint64_t offset)
{
    return offset == PROGRAM_NOWHERE ? NULL : e->arena + offset;
}

static struct program_row row_of(const struct walk *walk, uint32_t i)
{
    return walk->program->program.places->rows[i];
}

/* (uses) the gradients of the walk's set. */
static float *const *gradients_of(const struct walk *walk)
{
    return walk->e->gradients + (uint64_t)walk->set * walk->e->model->uses_count;
}

/* (uses) the weights that are computed on. */
static element *const *weights_of(const struct walk *walk)
{
    bool own = walk->program->program.local_steps > 0;
    return own ? walk->e->local.use_weights : walk->e->use_weights;
}

static struct unit_call unit_call(const struct walk *walk, uint32_t i, bool training)
{
    struct executor *e = walk->e;
    const struct program_offsets *offsets = &walk->program->memory.rows[i];
    struct program_row row = row_of(walk, i);
    check(row.unit < e->model->units_count);
    check(!training || walk->set < e->memory.gradient_sets);
    uint64_t sample = (uint64_t)row.microbatch * e->train.microbatch;
    uint64_t prediction = sample * e->model->sample_tokens;
    uint32_t use = e->model->units[row.unit].use_first;
    size_t input_bytes = e->sample.tokens ? sizeof(int32_t) : e->k->element_bytes;
    return (struct unit_call){
        .k = e->k,
        .model = e->model,
        .unit = row.unit,
        .samples = microbatch_samples(walk, row.microbatch),
        .logits_bytes_max = e->train.logits_bytes_max,
        .training = training,
        .weights = weights_of(walk) + use,
        .gradients = gradients_of(walk) + use,
        .input = row.unit > 0
                     ? at(e, offsets->input)
                     : (uint8_t *)e->device.inputs + sample * e->sample.inputs * input_bytes,
        .targets = e->device.targets + prediction,
        .output = at(e, offsets->output),
        .saved = at(e, offsets->saved),
        .scratch = e->scratch,
        .doutput = at(e, offsets->doutput),
        .dinput = at(e, offsets->dinput),
        .losses = e->device.losses + prediction,
        .correct = e->device.correct + prediction,
    };
}

/* Row and set decide which arrays a whole microbatch's act has. */
static void operate(struct walk *walk, uint32_t i, void (*operation)(const struct unit_call *call),
                    bool training)
{
    struct executor *e = walk->e;
    const struct program_place *place = walk->program->program.places;
    struct unit_call call = unit_call(walk, i, training);
    uint64_t entry = walk->program->entries_first + (uint64_t)walk->set * place->rows_count + i;
    if (call.samples == e->train.microbatch)
        graphs_run(&e->graphs, entry, operation, &call);
    else if (call.samples > 0)
        operation(&call);
}

static enum err run_forward(struct walk *walk, uint32_t i)
{
    operate(walk, i, unit_forward, true);
    return ERR_OK;
}

static enum err run_evaluate(struct walk *walk, uint32_t i)
{
    operate(walk, i, unit_forward, false);
    return ERR_OK;
}

static enum err run_recompute(struct walk *walk, uint32_t i)
{
    return run_forward(walk, i);
}

static enum err run_backward(struct walk *walk, uint32_t i)
{
    operate(walk, i, unit_backward, true);
    return ERR_OK;
}

/* Nothing to do: the planner has given the places of dropped activations to other arrays. */
static enum err run_drop(struct walk *walk, uint32_t i)
{
    (void)walk;
    (void)i;
    return ERR_OK;
}

static enum err run_load(struct walk *walk, uint32_t i)
{
    (void)i;
    struct executor *e = walk->e;
    const struct executor_samples *samples = walk->samples;
    uint32_t count = walk->samples_count;
    uint64_t first = walk->samples_first + (uint64_t)walk->local_step * e->train.slot_samples;
    check(count <= e->train.slot_samples); /* what the memory was taken for */
    TRY(samples->read(samples->context, walk->kind, first, count, e->host.inputs, e->host.targets));
    uint64_t inputs = (uint64_t)count * e->sample.inputs;
    uint64_t predictions = (uint64_t)count * e->model->sample_tokens;
    if (e->sample.tokens)
        e->k->copy_in(e->k, e->device.inputs, e->host.inputs, inputs * sizeof(int32_t));
    else
        e->k->cast_from_f32(e->k, e->device.inputs, e->host.inputs, (int64_t)inputs);
    e->k->copy_in(e->k, e->device.targets, e->host.targets, predictions * sizeof(int32_t));
    return ERR_OK;
}

static enum err run_zero(struct walk *walk, uint32_t i)
{
    (void)i;
    struct executor *e = walk->e;
    e->k->zero(e->k, e->gradient_sets + walk->set * e->set_floats, e->set_floats * sizeof(float));
    return ERR_OK;
}

/* The device computes nothing that follows before the copies of the unit's weights are done. The
 * caller does not wait. All slots of a node have the same weights. */
static enum err run_pull(struct walk *walk, uint32_t i)
{
    const struct kernels *k = walk->e->k;
    uint32_t unit = row_of(walk, i).unit;
    if (!walk->first)
        return ERR_OK;
    if (walk->hooks->pull != NULL)
        TRY(walk->hooks->pull(walk->hooks->context, unit));
    k->in->mark(k->in, unit);
    k->after(k, k->in, unit);
    return ERR_OK;
}

static enum err run_own(struct walk *walk, uint32_t i)
{
    local_own(&walk->e->local, row_of(walk, i).unit);
    return ERR_OK;
}

static enum err run_step(struct walk *walk, uint32_t i)
{
    (void)i;
    check(walk->local_step < walk->e->local.settings.steps);
    local_step(&walk->e->local, gradients_of(walk), walk->step, walk->local_step);
    return ERR_OK;
}

static enum err run_diff(struct walk *walk, uint32_t i)
{
    local_diff(&walk->e->local, gradients_of(walk), row_of(walk, i).unit);
    return ERR_OK;
}

static enum err settled(struct executor *e)
{
    const char *failure = e->k->synchronize(e->k);
    if (failure == NULL)
        return ERR_OK;
    snprintf(e->failure, sizeof e->failure, "%s", failure);
    return ERR_IO;
}

/* In sample order. */
static enum err run_sum(struct walk *walk, uint32_t i)
{
    (void)i;
    struct executor *e = walk->e;
    uint32_t tokens = e->model->sample_tokens;
    uint64_t predictions = (uint64_t)walk->samples_count * tokens;
    TRY(settled(e));
    e->k->copy_out(e->k, e->host.losses, e->device.losses, predictions * sizeof(float));
    e->k->copy_out(e->k, e->host.correct, e->device.correct, predictions * sizeof(int32_t));
    double sum = 0;
    for (uint64_t at = 0; at < predictions;) {
        double sample = 0;
        for (uint64_t end = at + tokens; at < end; at++) {
            sample += (double)e->host.losses[at];
            walk->loss.correct += (uint64_t)e->host.correct[at];
        }
        sum += sample / tokens;
    }
    walk->loss.loss_sum += sum;
    walk->loss.samples += walk->samples_count;
    return ERR_OK;
}

static enum err run_loss(struct walk *walk, uint32_t i)
{
    (void)i;
    struct executor *e = walk->e;
    const float loss[MODEL_LOSS_WEIGHTS] = {
        [MODEL_LOSS_SUM] = (float)walk->loss.loss_sum,
        [MODEL_LOSS_COUNT] = (float)walk->loss.samples,
        [MODEL_LOSS_CORRECT] = (float)walk->loss.correct,
    };
    uint32_t use = e->part_uses[(size_t)e->model->loss_parameter * MODEL_PARTS_MAX];
    e->k->copy_in(e->k, gradients_of(walk)[use], loss, sizeof loss);
    return ERR_OK;
}

/* Adds the unit's gradients of set `right` to those one set below. */
static void add_sets(struct executor *e, uint32_t unit, uint32_t right)
{
    const struct model_unit *u = &e->model->units[unit];
    check(right < e->memory.gradient_sets);
    for (uint32_t use = u->use_first; use < u->use_first + u->uses_count; use++) {
        float *left = e->gradients[(uint64_t)(right - 1) * e->model->uses_count + use];
        const float *add = e->gradients[(uint64_t)right * e->model->uses_count + use];
        uint32_t parameter = e->model->uses[use].parameter;
        e->k->add(e->k, left, left, add, (int64_t)e->model->parameters[parameter].weights);
    }
}

/* The unit's gradients of the slot are complete: adds them to the node's sum, and lets them be
 * pushed when the sum is whole. */
static enum err run_push(struct walk *walk, uint32_t i)
{
    struct executor *e = walk->e;
    uint32_t unit = row_of(walk, i).unit, set = walk->set;
    for (uint32_t bits = walk->slot; set > 0 && (walk->last || bits & 1); bits >>= 1)
        add_sets(e, unit, set--);
    if (!walk->last)
        return ERR_OK;
    e->k->mark(e->k, unit); /* for executor_encode(): the device may come to it much later */
    return walk->hooks->push != NULL ? walk->hooks->push(walk->hooks->context, unit) : ERR_OK;
}

/* The column that the executor adds to the table of acts. */
#define RUN(NAME, name) [ACT_##NAME] = run_##name,
static enum err (*const runs[ACT_COUNT])(struct walk *walk, uint32_t i) = {ACT_LIST_ALONE(RUN)};
#undef RUN

/* ---- slots ---- */

static enum err walk_rows(struct walk *walk, uint32_t first, uint32_t end)
{
    const struct executor_hooks *hooks = walk->hooks;
    for (uint32_t i = first; i < end; i++) {
        if (hooks->cancelled != NULL && hooks->cancelled(hooks->context))
            return ERR_CANCELLED;
        TRY(runs[row_of(walk, i).act](walk, i));
    }
    return ERR_OK;
}

static enum err walk_place(struct walk *walk)
{
    const struct program *program = &walk->program->program;
    const struct program_place *place = program->places;
    TRY(walk_rows(walk, 0, place->body_first));
    for (; walk->local_step < program->local_steps; walk->local_step++)
        TRY(walk_rows(walk, place->body_first, place->body_end));
    return walk_rows(walk, place->body_end, place->rows_count);
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
    uint32_t local_steps = e->training.program.local_steps;
    uint64_t slot_samples = (uint64_t)e->train.slot_samples * (local_steps > 0 ? local_steps : 1);
    uint64_t first = ticket->step * e->train.slots + node_first(ticket->node);
    for (uint32_t slot = 0; slot < slots; slot++) {
        struct walk walk = {
            .e = e,
            .program = &e->training,
            .samples = samples,
            .hooks = hooks,
            .kind = TICKET_TRAIN,
            .first = slot == 0,
            .last = slot + 1 == slots,
            .slot = slot,
            .set = (uint32_t)__builtin_popcount(slot),
            .step = ticket->step,
            .samples_first = (first + slot) * slot_samples,
            .samples_count = e->train.slot_samples,
        };
        TRY(walk_place(&walk));
    }
    return ERR_OK;
}

/* Waits until the device has done everything, cancelled work too, because weights may be
 * overwritten next. */
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
        uint64_t first = (node_first(ticket->node) + slot) * slot_samples;
        uint64_t rest = samples->held_out - first;
        struct walk walk = {
            .e = e,
            .program = &e->validation,
            .samples = samples,
            .hooks = hooks,
            .kind = TICKET_VALIDATE,
            .first = slot == 0,
            .samples_first = first,
            .samples_count = rest < slot_samples ? (uint32_t)rest : (uint32_t)slot_samples,
        };
        TRY(walk_place(&walk));
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

void executor_encode(const struct executor *e, uint32_t chunk, uint32_t part, enum codec codec,
                     void *ret_bytes)
{
    check(chunk < e->model->chunks_count);
    uint32_t parameter = e->model->chunks[chunk].parameter;
    const float *gradient = executor_gradient(e, parameter, part);
    const struct kernels *out = e->k->out;
    out->after(out, e->k, e->model->parameters[parameter].part_units[part]);
    blocks_encode(out, e->model, chunk, codec, gradient, ret_bytes);
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
    return &e->training.program;
}

struct executor_memory executor_memory(const struct executor *e)
{
    return e->memory;
}
