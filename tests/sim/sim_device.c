/* A worker's device: the numbers are there at once, what follows takes its time. */
#include "tests/sim/sim.h"

#include <string.h>

static void compute_event(struct sim *sim, const struct sim_worker *worker, enum event_kind kind,
                          uint64_t after_us, uint64_t detail)
{
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + after_us,
                                          .kind = kind,
                                          .index = worker->index,
                                          .number = worker->compute,
                                          .detail = detail});
}

void sim_device_begin(struct sim *sim, struct sim_worker *worker, const struct ticket *ticket)
{
    if (worker->computing)
        sim_violated(sim, 3, "w%u computes two tickets at a time", worker->index);
    worker->computing = true;
    worker->cancelled = worker->started = false;
    worker->compute++;
    worker->ticket = *ticket;
    memset(worker->ready, 0, sizeof worker->ready);
}

/* All weights are in place: the numbers are there at once, what follows takes its time. */
static void run_compute(struct sim *sim, struct sim_worker *worker)
{
    const struct ticket *ticket = &worker->ticket;
    uint32_t units = sim->compute.model.units_count;
    uint64_t usual_us = story_compute_us(sim, worker->index) * worker->slowness;
    uint64_t after_us = 1 + sim_below(sim, 2 * usual_us);
    ledger_computing(sim, worker);
    worker->started = true;
    worker->result = (struct agent_result){0};
    if (ticket->kind == TICKET_VALIDATE) {
        struct compute_loss loss =
            compute_validate(&sim->compute, ticket->node.index, worker->weights);
        worker->result =
            (struct agent_result){ERR_OK, loss.loss_sum, loss.sample_count, loss.correct_count};
    } else {
        compute_train(&sim->compute, ticket->step, ticket->node, worker->weights,
                      worker->gradients);
        if (sim->run.async)
            worker->result.scale = compute_whole(&sim->compute, worker->gradients);
        after_us *= node_slots(ticket->node, sim->scenario.spec.train.slots);
        for (uint32_t unit = units; unit-- > 0;)
            compute_event(sim, worker, EVENT_WORKER_UNIT,
                          after_us * (2 * units - 1 - unit) / (2 * units), unit);
    }
    compute_event(sim, worker, EVENT_WORKER_RESULT, after_us, ERR_OK);
}

void sim_device_unit_ready(struct sim *sim, struct sim_worker *worker, uint32_t unit)
{
    worker->ready[unit] = true;
    for (uint32_t u = 0; u < sim->compute.model.units_count; u++)
        if (!worker->ready[u])
            return;
    if (!worker->cancelled && !worker->started)
        run_compute(sim, worker);
}

/* It ends soon, or ends as if nothing had been said. */
void sim_device_cancel(struct sim *sim, struct sim_worker *worker)
{
    if (!worker->computing || worker->cancelled)
        sim_violated(sim, 8, "w%u cancels what does not run, or twice", worker->index);
    worker->cancelled = true;
    if (worker->started && sim_below(sim, 2) == 0)
        return;
    worker->compute++;
    compute_event(sim, worker, EVENT_WORKER_RESULT, sim_below(sim, sim->scenario.compute_us),
                  ERR_CANCELLED);
}
