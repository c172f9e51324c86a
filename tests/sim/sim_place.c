/* A worker's device at a place of a mesh: it walks the rows of the place's program, as the executor
 * does (worker/executor_acts.c), with the made-up numbers of compute.h. */
#include "tests/sim/sim.h"
#include "tests/sim/sim_device.h"
#include "worker/agent_core.h"
#include "worker/boundaries.h"
#include "worker/program/mesh.h"

enum { PAUSES = 4 /* in a slot, beside those where others are waited for */ };

struct walk {
    struct device *device;
    const struct ticket *ticket;
    const struct executor_hooks *hooks;
    struct program program;
    uint32_t slot_microbatches;
    uint64_t act_us, due_us; /* what an act takes; what is not spent yet */
    /* By unit and microbatch: its input, and the gradient of its result. The model's result is the
     * input of the unit behind the last one. */
    uint64_t *inputs, *doutputs;
    uint64_t *bits; /* (slots, units) gradients */
    uint64_t losses;
    uint32_t pushes[SIM_UNITS_MAX], pushed[SIM_UNITS_MAX]; /* slots */
    bool asked[SIM_UNITS_MAX];
    uint32_t sequence; /* of the newest collective */
};

static uint64_t *at(const struct walk *walk, uint64_t *cells, uint32_t unit, uint32_t microbatch)
{
    return &cells[(size_t)unit * walk->program.microbatches + microbatch];
}

static uint64_t *bits_of(const struct walk *walk, struct program_row row)
{
    return &walk->bits[program_slot(&walk->program, row) * walk->program.units + row.unit];
}

static bool is_last(const struct walk *walk, uint32_t unit)
{
    return unit + 1 == walk->program.units;
}

/* ---- time ---- */

static enum err spend_due(struct walk *walk)
{
    uint64_t us = walk->due_us;
    walk->due_us = 0;
    return device_spend(walk->hooks, us);
}

static enum err compute(struct walk *walk)
{
    walk->due_us += walk->act_us;
    return walk->due_us * PAUSES > walk->act_us * walk->program.units * walk->slot_microbatches
               ? spend_due(walk)
               : ERR_OK;
}

/* ---- weights ---- */

/* What a member of a place gives the others: its share, and what tells whether it computes at the
 * same place, under the same try. */
struct given_part {
    uint64_t share, unit, try_number;
};

/* Of the place that the lane computes at. */
static uint64_t try_of(const struct walk *walk)
{
    const struct agent *agent = world.sim->workers[walk->device->worker].agent;
    for (uint32_t i = 0; agent != NULL && i < agent->tickets.count; i++) {
        const struct agent_ticket *ticket = &agent->tickets.all[i];
        if (ticket->state == AGENT_TICKET_HELD && ticket->ticket.attempt == walk->ticket->attempt)
            return ticket->place.try_number;
    }
    return 0;
}

/* S6: partial sums pass inside one try only. */
static enum err take_part(struct walk *walk, const struct given_part *own, uint32_t rank,
                          struct given_part *ret_part)
{
    const struct executor_part name = {walk->sequence, 1, rank};
    TRY(walk->hooks->take_part(walk->hooks->context, &name, ret_part, sizeof *ret_part));
    if (!life_acts())
        return ERR_CANCELLED;
    if (own->try_number != 0 && ret_part->try_number != own->try_number)
        sim_violated(world.sim, 23, "w%u takes a part of try %llu under try %llu",
                     walk->device->worker, (unsigned long long)ret_part->try_number,
                     (unsigned long long)own->try_number);
    if (ret_part->unit != own->unit)
        sim_violated(world.sim, 23, "w%u takes a part of unit %llu for one of unit %llu",
                     walk->device->worker, (unsigned long long)ret_part->unit,
                     (unsigned long long)own->unit);
    return ERR_OK;
}

/* The members of a place add what each has of the unit. */
static enum err weights_of(struct walk *walk, uint32_t unit, uint64_t *ret_weights)
{
    const struct model *model = walk->device->model;
    struct given_part own = {.unit = unit, .try_number = try_of(walk)}, other;
    own.share = compute_unit_share(&world.sim->compute, unit, model, walk->device->weights);
    uint64_t sum = own.share;
    if (model->ranks > 1) {
        TRY(spend_due(walk));
        walk->sequence++;
        TRY(walk->hooks->give_part(walk->hooks->context, walk->sequence, 1, &own, sizeof own));
        faults_spring(world.sim, TRAP_PART, walk->device->worker);
    }
    for (uint32_t rank = 0; rank < model->ranks; rank++) {
        if (rank == model->rank)
            continue;
        TRY(take_part(walk, &own, rank, &other));
        sum += other.share;
    }
    *ret_weights = compute_unit_of_shares(unit, sum);
    return life_acts() ? ERR_OK : ERR_CANCELLED;
}

static enum err ask(struct walk *walk, struct program_row row)
{
    walk->asked[row.unit] = true;
    return walk->hooks->ask(walk->hooks->context, row.unit);
}

static enum err pull(struct walk *walk, struct program_row row)
{
    struct device *device = walk->device;
    if (device->streamed && !walk->asked[row.unit])
        TRY(ask(walk, row));
    TRY(walk->hooks->pull(walk->hooks->context, row.unit));
    walk->asked[row.unit] = false;
    device->used[row.unit] = true;
    return device_check_weights(device, walk->ticket, row.unit);
}

/* ---- values ---- */

/* Which microbatches of the slot there are. */
static bool is_there(const struct walk *walk, struct program_row row)
{
    uint32_t i = row.microbatch % walk->slot_microbatches;
    return walk->ticket->kind == TICKET_TRAIN ||
           i < compute_piece_samples(&world.sim->compute, walk->ticket->node.index);
}

static struct executor_value value_of(const struct walk *walk, struct program_row row,
                                      enum executor_way way)
{
    bool of_result = row.act == ACT_SEND_F || row.act == ACT_SEND_E || row.act == ACT_RECV_B;
    return (struct executor_value){.way = way,
                                   .boundary = row.unit + of_result,
                                   .slot = program_slot(&walk->program, row),
                                   .microbatch = row.microbatch % walk->slot_microbatches,
                                   .bytes = sizeof(uint64_t)};
}

static const char *what(enum executor_way way)
{
    return way == EXECUTOR_FORWARD ? "activations" : "activations' gradients";
}

static enum err send(struct walk *walk, struct program_row row, enum executor_way way,
                     const uint64_t *bits)
{
    struct executor_value value = value_of(walk, row, way);
    const struct value_name name = boundaries_name(walk->ticket, walk->device->model->rank, &value);
    TRY(spend_due(walk));
    handed_given(world.sim, walk->device->worker, &name, *bits);
    TRY(walk->hooks->send(walk->hooks->context, &value, bits));
    story_tell_once(world.sim, "w%u gives the %s of slot %u", walk->device->worker, what(way),
                    name.slot);
    faults_spring(world.sim, TRAP_VALUE, walk->device->worker);
    return life_acts() ? ERR_OK : ERR_CANCELLED;
}

static enum err receive(struct walk *walk, struct program_row row, enum executor_way way,
                        uint64_t *ret_bits)
{
    struct executor_value value = value_of(walk, row, way);
    const struct value_name name = boundaries_name(walk->ticket, walk->device->model->rank, &value);
    TRY(spend_due(walk));
    TRY(walk->hooks->receive(walk->hooks->context, &value, ret_bits));
    if (!life_acts())
        return ERR_CANCELLED;
    handed_taken(world.sim, walk->device->worker, &name, *ret_bits);
    story_tell_once(world.sim, "w%u has the %s of slot %u", walk->device->worker, what(way),
                    name.slot);
    return ERR_OK;
}

/* ---- acts ---- */

static enum err forward(struct walk *walk, struct program_row row)
{
    const struct ticket *ticket = walk->ticket;
    uint64_t *input = at(walk, walk->inputs, row.unit, row.microbatch);
    uint64_t *output = at(walk, walk->inputs, row.unit + 1, row.microbatch);
    uint64_t slot = node_first(ticket->node) + program_slot(&walk->program, row), weights;
    TRY(weights_of(walk, row.unit, &weights));
    if (ticket->kind == TICKET_TRAIN)
        slot += ticket->step * world.sim->scenario.spec.train.slots;
    if (row.unit == 0)
        *input = compute_sample(ticket->kind, slot, row.microbatch % walk->slot_microbatches);
    *output = compute_forward(weights, *input);
    if (is_last(walk, row.unit))
        *at(walk, walk->doutputs, row.unit, row.microbatch) = *output;
    if (row.act == ACT_E && is_last(walk, row.unit))
        walk->losses = compute_add(walk->losses, *output, 0);
    return compute(walk);
}

static enum err backward(struct walk *walk, struct program_row row)
{
    uint64_t input = *at(walk, walk->inputs, row.unit, row.microbatch);
    uint64_t doutput = *at(walk, walk->doutputs, row.unit, row.microbatch);
    uint64_t weights;
    if (row.act != ACT_W && row.unit > 0) {
        TRY(weights_of(walk, row.unit, &weights));
        *at(walk, walk->doutputs, row.unit - 1, row.microbatch) =
            compute_backward(weights, input, doutput);
    }
    if (row.act != ACT_I)
        *bits_of(walk, row) = compute_add(*bits_of(walk, row), input, doutput);
    return compute(walk);
}

/* The ticket's node, or the half of it that the place has of the unit. */
static struct node node_of(const struct walk *walk, uint32_t unit, uint32_t slot)
{
    struct node node = walk->ticket->node;
    uint32_t level = tree_level(walk->pushes[unit]);
    return walk->pushes[unit] == walk->program.slots
               ? node
               : (struct node){level, (node_first(node) + slot) >> level};
}

static enum err push(struct walk *walk, struct program_row row)
{
    struct device *device = walk->device;
    uint32_t slot = program_slot(&walk->program, row);
    if (++walk->pushed[row.unit] < walk->pushes[row.unit])
        return ERR_OK;
    struct node node = node_of(walk, row.unit, slot);
    uint32_t before = node_first(node) - node_first(walk->ticket->node);
    const struct compute_slots slots = {node_first(node),
                                        walk->bits + (size_t)before * walk->program.units};
    TRY(spend_due(walk));
    world.watching = true;
    compute_unit(&world.sim->compute, row.unit, walk->ticket->step, node, &slots,
                 device->gradients);
    world.watching = false;
    device->final[row.unit] = true;
    return walk->hooks->push(walk->hooks->context, row.unit, node);
}

static enum err between(struct walk *walk, struct program_row row)
{
    uint64_t *input = at(walk, walk->inputs, row.unit, row.microbatch);
    uint64_t *output = at(walk, walk->inputs, row.unit + 1, row.microbatch);
    uint64_t *doutput = at(walk, walk->doutputs, row.unit, row.microbatch);
    if (!is_there(walk, row))
        return ERR_OK;
    if (row.act == ACT_RECV_F)
        return receive(walk, row, EXECUTOR_FORWARD, input);
    if (row.act == ACT_RECV_B)
        return receive(walk, row, EXECUTOR_BACKWARD, doutput);
    if (row.act == ACT_SEND_B)
        return send(walk, row, EXECUTOR_BACKWARD,
                    at(walk, walk->doutputs, row.unit - 1, row.microbatch));
    return send(walk, row, EXECUTOR_FORWARD, output);
}

/* Acts that are not named here make no made-up number. */
static enum err act(struct walk *walk, struct program_row row)
{
    switch (row.act) {
    case ACT_ASK:
        return ask(walk, row);
    case ACT_PULL:
        return pull(walk, row);
    case ACT_FORGET:
        walk->device->used[row.unit] = false;
        return ERR_OK;
    case ACT_F:
    case ACT_E:
        return is_there(walk, row) ? forward(walk, row) : ERR_OK;
    case ACT_B:
    case ACT_I:
    case ACT_W:
        return backward(walk, row);
    case ACT_SEND_F:
    case ACT_SEND_E:
    case ACT_RECV_F:
    case ACT_SEND_B:
    case ACT_RECV_B:
        return between(walk, row);
    case ACT_PUSH:
        return push(walk, row);
    case ACT_FREE:
        return device_free(walk->device, walk->hooks, row.unit);
    default:
        return ERR_OK;
    }
}

/* ---- a run ---- */

static void open_walk(struct walk *walk)
{
    const struct sim *sim = world.sim;
    const struct spec_train *train = &sim->scenario.spec.train;
    const struct mesh mesh = mesh_of(&sim->scenario.spec);
    const struct model *model = walk->device->model;
    bool trains = walk->ticket->kind == TICKET_TRAIN;
    struct mesh_node node = {trains ? node_slots(walk->ticket->node, train->slots) : 1,
                             train->slot_samples};
    struct reason reason = {.text = ""};
    check((trains ? mesh_training(&mesh, model, node, &walk->program, &reason)
                  : mesh_validation(&mesh, model, node, &walk->program)) == ERR_OK);
    const struct program *program = &walk->program;
    const struct program_place *place = &program->places[walk->device->place];
    size_t cells = (size_t)(program->units + 1) * program->microbatches;
    walk->slot_microbatches = train->slot_samples;
    walk->inputs = calloc(cells, sizeof *walk->inputs);
    walk->doutputs = calloc(cells, sizeof *walk->doutputs);
    walk->bits = calloc((size_t)program->slots * program->units, sizeof *walk->bits);
    check(walk->inputs != NULL && walk->doutputs != NULL && walk->bits != NULL);
    for (uint32_t i = 0; i < place->rows_count; i++)
        walk->pushes[place->rows[i].unit] += place->rows[i].act == ACT_PUSH;
}

static void close_walk(struct walk *walk)
{
    program_release(&walk->program);
    free(walk->inputs);
    free(walk->doutputs);
    free(walk->bits);
}

/* The losses of a place that has the model's last unit. */
static struct executor_loss loss_of(const struct walk *walk)
{
    const struct compute *numbers = &world.sim->compute;
    uint32_t last = walk->program.units - 1;
    if (walk->ticket->kind == TICKET_VALIDATE && walk->losses != 0) {
        struct compute_loss loss =
            compute_loss_of_piece(numbers, walk->ticket->node.index, walk->losses);
        return (struct executor_loss){loss.loss_sum, loss.sample_count, loss.correct_count};
    }
    if (walk->ticket->kind == TICKET_VALIDATE || walk->pushed[last] == 0)
        return (struct executor_loss){0};
    const float *loss = compute_loss_of(numbers, walk->device->gradients);
    return (struct executor_loss){.loss_sum = (double)loss[MODEL_LOSS_SUM],
                                  .samples = (uint64_t)loss[MODEL_LOSS_COUNT],
                                  .correct = (uint64_t)loss[MODEL_LOSS_CORRECT]};
}

enum err place_run(struct device *device, const struct ticket *ticket,
                   const struct executor_hooks *hooks, struct executor_loss *ret_loss)
{
    struct walk walk = {.device = device, .ticket = ticket, .hooks = hooks};
    open_walk(&walk);
    walk.act_us =
        1 + device_slot_us(device) / (2 * (uint64_t)walk.program.units * walk.slot_microbatches);
    const struct program_place *place = &walk.program.places[device->place];
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < place->rows_count && err == ERR_OK; i++)
        err = life_acts() ? act(&walk, place->rows[i]) : ERR_CANCELLED;
    if (err == ERR_OK)
        *ret_loss = loss_of(&walk);
    close_walk(&walk);
    return err;
}
