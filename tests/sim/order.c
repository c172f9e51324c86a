#include "tests/sim/order.h"

#include "tests/sim/sim.h"

struct order_line {
    struct expected expected;
    struct {
        bool given;
        uint64_t version;
    } slots[SIM_STEPS_MAX][SIM_SLOTS_MAX];
};

static bool is_ssp(const struct sim *sim)
{
    return sim->scenario.spec.consistency.kind == SPEC_SSP;
}

static struct order_line *line_of(const struct sim *sim, uint64_t generation)
{
    check(generation < ORDER_GENERATIONS_MAX);
    return sim->order.lines[generation];
}

void order_release(struct order *order)
{
    for (uint32_t i = 0; i < ORDER_GENERATIONS_MAX; i++) {
        if (order->lines[i] != NULL)
            expected_release(&order->lines[i]->expected);
        free(order->lines[i]);
    }
}

/* Without staleness it is the sync run's, whatever the log has. */
const struct expected *order_expected(const struct sim *sim, uint64_t generation)
{
    return is_ssp(sim) && spec_staleness(&sim->scenario.spec) > 0
               ? &line_of(sim, generation)->expected
               : &sim->expected;
}

void order_generation(struct sim *sim, uint64_t generation, struct cut_name cut)
{
    if (!is_ssp(sim))
        return;
    struct order_line *line = calloc(1, sizeof *line);
    check(line != NULL && generation < ORDER_GENERATIONS_MAX);
    if (cut.generation == 0)
        expected_begin(&line->expected, &sim->compute);
    else
        expected_branch(&line->expected, &line_of(sim, cut.generation)->expected, cut.version,
                        &sim->compute);
    sim->order.lines[generation] = line;
}

void order_granted(struct sim *sim, const struct ticket *ticket)
{
    if (!is_ssp(sim) || ticket->kind != TICKET_TRAIN)
        return;
    struct order_line *line = line_of(sim, ticket->generation);
    uint64_t newest = sim->ledger.versions[ticket->generation], version = ticket->version;
    if (version > newest || version > ticket->step ||
        ticket->step - version > spec_staleness(&sim->scenario.spec))
        sim_violated(sim, 14, "step %llu is granted on version %llu at version %llu",
                     (unsigned long long)ticket->step, (unsigned long long)version,
                     (unsigned long long)newest);
    for (uint32_t slot = node_first(ticket->node);
         slot < node_end(ticket->node) && slot < sim->scenario.spec.train.slots; slot++) {
        bool given = line->slots[ticket->step][slot].given;
        uint64_t wanted = given ? line->slots[ticket->step][slot].version : newest;
        if (version != wanted)
            sim_violated(sim, 14, "step %llu slot %u is granted on version %llu, %s %llu",
                         (unsigned long long)ticket->step, slot, (unsigned long long)version,
                         given ? "before on" : "the newest is", (unsigned long long)wanted);
        line->slots[ticket->step][slot].given = true;
        line->slots[ticket->step][slot].version = version;
    }
}

void order_pushed(struct sim *sim, const struct truth *truth)
{
    if (!is_ssp(sim))
        return;
    const struct order_line *line = line_of(sim, truth->generation);
    for (uint32_t slot = node_first(truth->node);
         slot < node_end(truth->node) && slot < sim->scenario.spec.train.slots; slot++)
        if (!line->slots[truth->step][slot].given ||
            line->slots[truth->step][slot].version != truth->version)
            sim_violated(sim, 14, "step %llu slot %u is pushed computed on version %llu",
                         (unsigned long long)truth->step, slot, (unsigned long long)truth->version);
}

void order_logged(struct sim *sim, const struct order_step *step)
{
    struct order_line *line = line_of(sim, step->generation);
    if (!is_ssp(sim) || line == NULL || step->step != line->expected.version ||
        step->slots != sim->scenario.spec.train.slots)
        sim_violated(sim, 14, "step %llu of generation %llu is logged",
                     (unsigned long long)step->step, (unsigned long long)step->generation);
    for (uint32_t slot = 0; slot < step->slots; slot++) {
        uint64_t version = line->slots[step->step][slot].version;
        if (step->behind[slot] > step->step || step->step - step->behind[slot] != version)
            sim_violated(sim, 14, "step %llu slot %u is logged as %u behind, it had version %llu",
                         (unsigned long long)step->step, slot, step->behind[slot],
                         (unsigned long long)version);
    }
    expected_step(&line->expected, step->behind);
}
