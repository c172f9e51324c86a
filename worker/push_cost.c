#include "worker/push_cost.h"

void push_cost_begin(struct push_cost *cost, uint32_t slots)
{
    cost->ticket = (struct push_cost_sums){.tickets = 1, .slots = slots};
    cost->begun_ms = UINT64_MAX;
}

void push_cost_push(struct push_cost *cost, uint64_t now_ms, uint64_t bytes)
{
    if (now_ms < cost->begun_ms)
        cost->begun_ms = now_ms;
    cost->ticket.bytes += bytes;
}

void push_cost_computed(struct push_cost *cost, uint64_t compute_ms)
{
    cost->ticket.compute_ms = compute_ms;
}

static void add(struct push_cost_sums *sums, const struct push_cost_sums *ticket)
{
    sums->tickets += ticket->tickets;
    sums->slots += ticket->slots;
    sums->compute_ms += ticket->compute_ms;
    sums->push_ms += ticket->push_ms;
    sums->bytes += ticket->bytes;
}

static bool is_enough(const struct push_cost_sums *sums)
{
    return sums->tickets >= PUSH_COST_TICKETS && sums->compute_ms + sums->push_ms >= PUSH_COST_MS;
}

static bool is_high(const struct push_cost_sums *sums)
{
    return sums->push_ms > sums->compute_ms && sums->bytes / sums->tickets >= PUSH_COST_BYTES;
}

bool push_cost_completed(struct push_cost *cost, uint64_t now_ms, struct push_cost_sums *ret_sums)
{
    if (now_ms > cost->begun_ms)
        cost->ticket.push_ms = now_ms - cost->begun_ms;
    add(&cost->sums, &cost->ticket);
    cost->ticket = (struct push_cost_sums){0};
    if (!is_enough(&cost->sums))
        return false;
    const struct push_cost_sums sums = cost->sums;
    bool says = cost->warm && !cost->said && is_high(&sums);
    cost->sums = (struct push_cost_sums){0};
    cost->warm = true;
    cost->said = cost->said || says;
    if (says)
        *ret_sums = sums;
    return says;
}

const char *push_cost_advice(const struct spec *spec)
{
    const struct spec_train *train = &spec->train;
    if (spec->consistency.kind == SPEC_LOCAL)
        return "go on; more consistency.local_steps compute more for each push";
    if (spec->consistency.kind == SPEC_ASYNC || train->node_slots == train->slots)
        return "go on; more train.slot_samples, or consistency.kind local, compute more for each "
               "push";
    return "go on; a larger train.node_slots, or consistency.kind local, computes more for each "
           "push";
}
