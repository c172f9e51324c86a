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

/* As common/settings/spec_rules.c has it. */
static bool admits_local(const struct spec *spec)
{
    const struct spec_train *train = &spec->train;
    return train->residency.weights == SPEC_RESIDENT && !train->offload &&
           train->compute != SPEC_COMPUTE_BF16 && spec->mesh.stages <= 1 && spec->mesh.ranks <= 1;
}

/* Twice as many slots, into which a step divides: some meshes take no others. With streamed weights
 * sums of slots take the memory that streaming saves. */
static bool admits_larger_nodes(const struct spec *spec)
{
    const struct spec_train *train = &spec->train;
    uint32_t slots = train->node_slots > 0 ? train->node_slots : 1;
    return spec->consistency.kind != SPEC_ASYNC && train->residency.weights == SPEC_RESIDENT &&
           train->slots % (2 * slots) == 0;
}

const char *push_cost_advice(const struct spec *spec)
{
    enum { SAMPLES, LARGER_NODES, FIXED_NODES, COUNT };
    static const char *const advice[COUNT][2] = {
        [SAMPLES] = {"go on; more train.slot_samples compute more for each push",
                     "go on; more train.slot_samples, or consistency.kind local, compute more for "
                     "each push"},
        [LARGER_NODES] = {"go on; a larger train.node_slots computes more for each push",
                          "go on; a larger train.node_slots, or consistency.kind local, computes "
                          "more for each push"},
        [FIXED_NODES] = {"go on; more train.slot_samples, or a train.node_slots above slots / "
                         "tickets (train.slots at most), compute more for each push",
                         "go on; more train.slot_samples, a train.node_slots above slots / tickets "
                         "(train.slots at most), or consistency.kind local, compute more for each "
                         "push"}};
    if (spec->consistency.kind == SPEC_LOCAL)
        return "go on; more consistency.local_steps compute more for each push";
    bool chosen = spec->train.node_slots == 0; /* 1 is larger than that, and fewer than chosen */
    unsigned which = !admits_larger_nodes(spec) ? SAMPLES : chosen ? FIXED_NODES : LARGER_NODES;
    return advice[which][admits_local(spec)];
}
