/* The executor: its life, tickets, chunks. executor_memory.c makes what it owns, executor_acts.c
 * carries out rows, executor_sums.c decides which slots are added when. */
#include "worker/executor.h"

#include "common/model/pieces.h"
#include "worker/executor_acts.h"

#include <stdlib.h>
#include <string.h>

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

void executor_use(const struct executor *e)
{
    kernels_use(e->k);
}

/* ---- tickets ---- */

/* Slots of held-out samples; 0: too many. */
static uint32_t held_out_slots(const struct executor *e, const struct executor_samples *samples)
{
    uint64_t slots = (samples->held_out + e->train.slot_samples - 1) / e->train.slot_samples;
    return slots > UINT32_MAX ? 0 : (uint32_t)slots;
}

/* NULL: there is none for so many slots. */
static const struct executor_program *training_of(const struct executor *e, uint32_t slots)
{
    for (uint32_t i = 0; i < e->trainings_count; i++)
        if (e->trainings[i].program.slots == slots)
            return &e->trainings[i];
    return e->alone && e->trainings[0].program.slots == 1 ? &e->trainings[0] : NULL;
}

enum err executor_begin(struct executor *e, const struct ticket *ticket,
                        const struct executor_samples *samples, const struct executor_hooks *hooks)
{
    bool trains = ticket->kind == TICKET_TRAIN;
    uint32_t all = trains ? e->train.slots : held_out_slots(e, samples);
    executor_use(e);
    e->walk = (struct executor_walk){.ticket = *ticket, .samples = *samples, .hooks = *hooks};
    if (all == 0 || !node_valid(ticket->node, all))
        return ERR_MALFORMED;
    uint32_t slots = node_slots(ticket->node, all);
    if (trains && slots > e->node_slots_max)
        return ERR_MALFORMED;
    e->walk.program = trains ? training_of(e, slots) : &e->validation;
    if (e->walk.program == NULL)
        return ERR_MALFORMED;
    if (trains)
        TRY(executor_memory_renew(e));
    e->walk.slots = slots;
    e->walk.first = node_first(ticket->node) + (trains ? ticket->step * e->train.slots : 0);
    exchange_begin(&e->exchange, &e->walk.hooks);
    executor_sums_restart(&e->sums);
    memset(e->slot_losses, 0, e->slots_max * sizeof *e->slot_losses);
    return ERR_OK;
}

/* The next slots of the node: the program again from its first row. */
static void begin_again(struct executor *e)
{
    struct executor_walk *walk = &e->walk;
    for (uint32_t slot = 0; slot < walk->program->program.slots; slot++) {
        walk->loss.loss_sum += e->slot_losses[slot].loss_sum;
        walk->loss.samples += e->slot_losses[slot].samples;
        walk->loss.correct += e->slot_losses[slot].correct;
        e->slot_losses[slot] = (struct executor_loss){0};
    }
    walk->slot += walk->program->program.slots;
    walk->row = 0;
    walk->local_step = 0;
}

/* Behind the row: the body's end leads back to its first row, the last row to the next slots. */
static void go_on(struct executor *e)
{
    struct executor_walk *walk = &e->walk;
    const struct program *program = &walk->program->program;
    const struct program_place *place = &program->places[e->place];
    walk->row++;
    if (program->local_steps > 0 && walk->row == place->body_end &&
        ++walk->local_step < program->local_steps)
        walk->row = place->body_first;
    if (walk->row == place->rows_count)
        begin_again(e);
}

static enum err carry_out_row(struct executor *e)
{
    const struct executor_walk *walk = &e->walk;
    const struct executor_hooks *hooks = &walk->hooks;
    const struct program_row *row = &walk->program->program.places[e->place].rows[walk->row];
    if (hooks->row_begins != NULL)
        hooks->row_begins(hooks->context, row);
    TRY(executor_act(e, walk->row));
    if (hooks->row_ends != NULL)
        hooks->row_ends(hooks->context, row);
    return ERR_OK;
}

enum err executor_advance(struct executor *e)
{
    struct executor_walk *walk = &e->walk;
    const struct executor_hooks *hooks = &walk->hooks;
    check(walk->program != NULL);
    while (walk->slot < walk->slots) {
        if (hooks->cancelled != NULL && hooks->cancelled(hooks->context))
            return ERR_CANCELLED;
        TRY(carry_out_row(e));
        go_on(e);
    }
    return ERR_OK;
}

enum err executor_node_loss(struct executor *e, struct executor_loss *ret_loss)
{
    float sums[MODEL_LOSS_WEIGHTS];
    e->k->copy_out(e->k, sums, executor_gradient(e, e->model->loss_parameter, 0), sizeof sums);
    TRY(executor_settled(e)); /* a device that failed has copied nothing */
    *ret_loss = (struct executor_loss){.loss_sum = (double)sums[MODEL_LOSS_SUM],
                                       .samples = (uint64_t)sums[MODEL_LOSS_COUNT],
                                       .correct = (uint64_t)sums[MODEL_LOSS_CORRECT]};
    return ERR_OK;
}

/* Waits until the device has done everything, cancelled work too, because weights may be
 * overwritten next. A node's losses are those that its gradient carries. */
enum err executor_end(struct executor *e, enum err err, struct executor_loss *ret_loss)
{
    bool trains = e->walk.ticket.kind == TICKET_TRAIN;
    struct executor_loss loss = e->walk.loss;
    e->walk.program = NULL;
    TRY(executor_settled(e));
    TRY(err);
    if (ret_loss == NULL)
        return ERR_OK;
    if (trains && e->freed > 0)
        loss.loss_sum = (double)(float)loss.loss_sum; /* of one slot: as run_loss() rounds it */
    else if (trains && e->used[e->model->loss_parameter])
        TRY(executor_node_loss(e, &loss));
    *ret_loss = loss;
    return ERR_OK;
}

enum err executor_run(struct executor *e, const struct ticket *ticket,
                      const struct executor_samples *samples, const struct executor_hooks *hooks,
                      struct executor_loss *ret_loss)
{
    enum err err = executor_begin(e, ticket, samples, hooks);
    if (err == ERR_OK)
        err = executor_advance(e);
    return executor_end(e, err, ret_loss);
}

/* ---- chunks ---- */

element *executor_weights(struct executor *e, uint32_t parameter)
{
    check(parameter < e->model->parameters_count && e->used[parameter]);
    return e->parameters[parameter];
}

/* The node's sum of a part: one of the two. */
struct gradient {
    float *whole;
    struct few_rows *few;
};

static struct gradient gradient_of(const struct executor *e, uint32_t parameter, uint32_t part)
{
    check(parameter < e->model->parameters_count);
    check(part < e->model->parameters[parameter].parts);
    uint32_t set = executor_sums_node(&e->sums, e->model->parameters[parameter].part_units[part]);
    uint32_t use = e->part_uses[(size_t)parameter * MODEL_PARTS_MAX + part];
    const struct gradient gradient = {e->gradients[(size_t)set * e->model->uses_count + use],
                                      executor_few(e, use, set)};
    check(gradient.whole != NULL || gradient.few != NULL); /* it trains, and has the unit */
    return gradient;
}

const float *executor_gradient(const struct executor *e, uint32_t parameter, uint32_t part)
{
    struct gradient gradient = gradient_of(e, parameter, part);
    return gradient.few != NULL ? few_rows_whole(gradient.few) : gradient.whole;
}

void executor_decode(struct executor *e, uint32_t chunk, enum codec codec, struct cursor *cursor)
{
    check(chunk < e->model->chunks_count);
    uint32_t parameter = e->model->chunks[chunk].parameter;
    executor_use(e);
    element *own = e->own[parameter] != NULL ? e->own[parameter] : executor_weights(e, parameter);
    blocks_decode(e->k->in, e->model, chunk, codec, cursor, own);
}

bool executor_may_point(const struct executor *e)
{
    return e->k->decode_block == NULL && e->k->element_bytes == sizeof(float) && e->streamed == 0 &&
           e->memory.local == 0;
}

void executor_point(struct executor *e, uint32_t parameter, const float *weights)
{
    const struct model_parameter *about = &e->model->parameters[parameter];
    element *lie = weights != NULL ? (element *)(uintptr_t)weights : e->own[parameter];
    check(executor_may_point(e) && e->used[parameter]);
    if (e->parameters[parameter] == lie)
        return; /* another unit may be computed with them already */
    e->parameters[parameter] = lie;
    for (uint32_t part = 0; part < about->parts; part++)
        e->use_weights[e->part_uses[(size_t)parameter * MODEL_PARTS_MAX + part]] = lie;
}

void executor_copy(struct executor *e, struct executor *from, uint32_t chunk)
{
    check(chunk < e->model->chunks_count);
    uint32_t parameter = e->model->chunks[chunk].parameter;
    blocks_copy(e->k->in, e->model, chunk, executor_weights(from, parameter),
                executor_weights(e, parameter));
}

static void add_use(struct executor *e, const struct executor *from, const struct model_use *use)
{
    const struct kernels *out = e->k->out;
    struct gradient sum = gradient_of(e, use->parameter, use->part);
    struct gradient more = gradient_of(from, use->parameter, use->part);
    int64_t count = (int64_t)e->model->parameters[use->parameter].weights;
    if (sum.few != NULL)
        few_rows_add(sum.few, more.few, out);
    else if (out->add_other != NULL)
        out->add_other(out, sum.whole, from->k, more.whole, count);
    else
        out->add(out, sum.whole, sum.whole, more.whole, count);
}

void executor_add(struct executor *e, const struct executor *from, uint32_t unit)
{
    const struct model_unit *about = &e->model->units[unit];
    const struct kernels *out = e->k->out;
    executor_use(e);
    out->after(out, e->k, unit);
    out->after(out, from->k, unit);
    out->after(out, from->k->out, unit); /* what was added to it */
    for (uint32_t use = about->use_first; use < about->use_first + about->uses_count; use++)
        add_use(e, from, &e->model->uses[use]);
    out->mark(out, unit);
}

void executor_encode(const struct executor *e, uint32_t chunk, uint32_t part, enum codec codec,
                     void *ret_bytes)
{
    check(chunk < e->model->chunks_count);
    uint32_t parameter = e->model->chunks[chunk].parameter;
    struct gradient gradient = gradient_of(e, parameter, part);
    executor_use(e);
    const struct kernels *out = e->k->out;
    out->after(out, e->k, e->model->parameters[parameter].part_units[part]);
    if (gradient.few != NULL)
        few_rows_encode(gradient.few, out, e->model, chunk, codec, ret_bytes);
    else
        blocks_encode(out, e->model, chunk, codec, gradient.whole, ret_bytes);
}

bool executor_lend(const struct executor *e, uint32_t chunk, uint32_t part,
                   struct executor_rows *ret_rows)
{
    check(chunk < e->model->chunks_count);
    uint32_t number = e->model->chunks[chunk].parameter;
    const struct model_parameter *parameter = &e->model->parameters[number];
    if (!e->lends)
        return false;
    const struct gradient gradient = gradient_of(e, number, part);
    if (gradient.few != NULL)
        return false;
    const float *first = gradient.whole + pieces_row_offset(e->model, chunk, 0);
    *ret_rows = (struct executor_rows){.block = e->lent,
                                       .offset = (size_t)((const uint8_t *)first - e->lent->data),
                                       .stride = pieces_cols(parameter) * sizeof *first};
    return true;
}

enum err executor_encoded(const struct executor *e)
{
    executor_use(e);
    return e->k->out->synchronize(e->k->out) == NULL ? ERR_OK : ERR_IO;
}

const char *executor_encode_failure(const struct executor *e)
{
    executor_use(e);
    const char *failure = e->k->out->synchronize(e->k->out);
    return failure != NULL ? failure : "";
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
    return &e->trainings[0].program;
}

const struct program *executor_ticket_program(const struct executor *e)
{
    check(e->walk.program != NULL);
    return &e->walk.program->program;
}

struct executor_memory executor_memory(const struct executor *e)
{
    return e->memory;
}
