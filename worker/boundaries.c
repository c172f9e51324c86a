#include "worker/boundaries.h"

#include "common/program/rows.h"

enum err boundaries_init(struct boundaries *boundaries, const struct spec *spec,
                         const struct model *model)
{
    const struct schedule_shape shape = pipeline_shape(spec, model->units_count, 1);
    *boundaries = (struct boundaries){.schedule = shape.schedule,
                                      .places = shape.places,
                                      .units = shape.units,
                                      .slots = spec->train.slots,
                                      .microbatches = shape.microbatches};
    return rows_runs(&shape, model, &boundaries->runs);
}

void boundaries_release(struct boundaries *boundaries)
{
    pipeline_runs_release(&boundaries->runs);
    *boundaries = (struct boundaries){0};
}

struct value_name boundaries_name(const struct ticket *ticket, uint32_t rank,
                                  const struct executor_value *value)
{
    return (struct value_name){
        .generation = ticket->generation,
        .kind = ticket->kind,
        .step = ticket->step,
        .version = ticket->version,
        .slot = node_first(ticket->node) + value->slot,
        .microbatch = value->microbatch,
        .boundary = value->boundary,
        .way = value->way == EXECUTOR_FORWARD ? VALUE_FORWARD : VALUE_BACKWARD,
        .rank = rank,
    };
}

bool boundaries_same(const struct value_name *a, const struct value_name *b)
{
    return a->generation == b->generation && a->kind == b->kind && a->step == b->step &&
           a->version == b->version && a->slot == b->slot && a->microbatch == b->microbatch &&
           a->boundary == b->boundary && a->way == b->way && a->try_number == b->try_number &&
           a->sequence == b->sequence && a->round == b->round && a->rank == b->rank;
}

struct value_name boundaries_sum_name(const struct ticket *ticket, const struct place *place,
                                      const struct executor_part *part)
{
    return (struct value_name){
        .generation = ticket->generation,
        .kind = ticket->kind,
        .step = ticket->step,
        .version = ticket->version,
        .slot = node_first(ticket->node),
        .try_number = place->try_number,
        .sequence = part->sequence,
        .round = part->round,
        .rank = part->rank,
    };
}

bool boundaries_is_sum(const struct value_name *name)
{
    return name->sequence != 0;
}

/* Slots of the node: a validation's is a piece, which no step counts. */
static uint32_t slots_of(const struct boundaries *boundaries, const struct ticket *ticket)
{
    return ticket->kind == TICKET_TRAIN ? node_slots(ticket->node, boundaries->slots)
                                        : node_end(ticket->node) - node_first(ticket->node);
}

uint32_t boundaries_last_slot(const struct boundaries *boundaries, const struct ticket *ticket)
{
    return node_first(ticket->node) + slots_of(boundaries, ticket) - 1;
}

bool boundaries_cover(const struct boundaries *boundaries, const struct ticket *ticket,
                      const struct value_name *name)
{
    uint32_t first = node_first(ticket->node);
    return name->generation == ticket->generation && name->kind == ticket->kind &&
           name->step == ticket->step && name->version == ticket->version && name->slot >= first &&
           name->slot - first < slots_of(boundaries, ticket);
}

/* The place that computes the unit for that slot. */
static uint32_t place_of(const struct boundaries *boundaries, const struct ticket *ticket,
                         uint32_t slot, uint32_t unit)
{
    uint32_t down = pipeline_place(&boundaries->runs, unit);
    uint32_t half = slots_of(boundaries, ticket) / 2;
    bool up = boundaries->schedule == SCHEDULE_CHIMERA && ticket->kind == TICKET_TRAIN &&
              slot - node_first(ticket->node) >= half;
    return up ? boundaries->places - 1 - down : down;
}

bool boundaries_pass(const struct boundaries *boundaries, const struct ticket *ticket,
                     const struct value_name *name, struct passage *ret_passage)
{
    if (!boundaries_cover(boundaries, ticket, name) || boundaries_is_sum(name) ||
        name->boundary == 0 || name->boundary >= boundaries->units ||
        name->microbatch >= boundaries->microbatches)
        return false;
    uint32_t below = place_of(boundaries, ticket, name->slot, name->boundary - 1);
    uint32_t above = place_of(boundaries, ticket, name->slot, name->boundary);
    bool forward = name->way == VALUE_FORWARD;
    if (below == above || (!forward && ticket->kind == TICKET_VALIDATE))
        return false;
    *ret_passage = forward ? (struct passage){below, above} : (struct passage){above, below};
    return true;
}

bool boundaries_next(const struct boundaries *boundaries, const struct ticket *ticket,
                     struct value_name *name)
{
    struct value_name next = *name;
    struct passage here, there;
    if (++next.microbatch == boundaries->microbatches) {
        next.microbatch = 0;
        next.slot++;
    }
    if (!boundaries_pass(boundaries, ticket, name, &here) ||
        !boundaries_pass(boundaries, ticket, &next, &there) || here.from != there.from)
        return false;
    *name = next;
    return true;
}

size_t boundaries_values(const struct boundaries *boundaries, const struct ticket *ticket)
{
    return (size_t)VALUE_WAY_COUNT * boundaries->units * slots_of(boundaries, ticket) *
           boundaries->microbatches;
}

size_t boundaries_index(const struct boundaries *boundaries, const struct ticket *ticket,
                        const struct value_name *name)
{
    size_t at = (size_t)name->way * boundaries->units + name->boundary;
    at = at * slots_of(boundaries, ticket) + (name->slot - node_first(ticket->node));
    return at * boundaries->microbatches + name->microbatch;
}
