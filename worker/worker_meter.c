#include "worker/worker_meter.h"

#include "worker/program/simulate.h"
#include "worker/trace.h"

void worker_meter_begin(struct worker *worker, const struct ticket *ticket)
{
    uint64_t taken = worker->peers != NULL ? peers_bytes(worker->peers) : 0;
    worker->meter = (struct worker_meter){.ticket = ticket, .peer_bytes_before = taken};
}

void worker_meter_end(struct worker *worker)
{
    struct reason reason = {0};
    if (worker->config->trace == NULL || trace_flush(worker->config->trace, &reason) == ERR_OK)
        return;
    log_warning(worker->config->logger, "the trace ends here", log_text("why", reason.text));
}

static void row_begins(void *context, const struct program_row *row)
{
    (void)row;
    struct worker *worker = context;
    worker->meter.row_ns = time_now_ns();
}

/* The act takes at least so long since it began. A cancelled ticket does not wait. */
static void pad(struct worker *worker, uint64_t ns)
{
    struct units *units = &worker->units;
    uint64_t until_ns = worker->meter.row_ns + ns;
    thread_lock(&units->mutex);
    while (!units->cancelled && time_now_ns() < until_ns)
        ignore(thread_wait_locked(&units->changed, &units->mutex, until_ns)); /* looks again */
    thread_unlock(&units->mutex);
}

static void row_ends(void *context, const struct program_row *row)
{
    static const struct simulate_cost any = {1, 1, 1};
    struct worker *worker = context;
    struct worker_meter *meter = &worker->meter;
    bool computes = simulate_act(&any, row->act) > 0;
    if (computes && worker->run.act_costs != NULL)
        pad(worker, simulate_act(&worker->run.act_costs[row->unit], row->act));
    const struct trace_span span = {meter->row_ns, time_now_ns()};
    if (worker->config->trace != NULL)
        trace_row(worker->config->trace, meter->ticket, row, span);
    if (!computes)
        return;
    meter->last_ns = span.end_ns;
    meter->busy_ns += span.end_ns - span.begin_ns;
    if (meter->first_ns == 0)
        meter->first_ns = span.begin_ns;
}

void worker_meter_hooks(struct executor_hooks *hooks)
{
    hooks->row_begins = row_begins;
    hooks->row_ends = row_ends;
}

struct place_cost worker_meter_cost(const struct worker *worker)
{
    const struct worker_meter *meter = &worker->meter;
    const struct executor_memory memory = executor_memory(worker->run.executor);
    struct place_cost cost = {
        .device_bytes = memory.total, .weights_bytes = memory.weights, .host_bytes = memory.hosted};
    if (worker_run_is_host(&worker->run)) {
        cost.busy_ns = meter->busy_ns;
        cost.span_ns = meter->last_ns - meter->first_ns;
    }
    if (worker->peers != NULL) {
        cost.peer_bytes = peers_bytes(worker->peers) - meter->peer_bytes_before;
        cost.host_bytes += peers_kept_bytes(worker->peers);
    }
    return cost;
}

/* ---- main ---- */

void worker_meter_add(struct worker *worker, const struct place *place,
                      const struct place_cost *cost)
{
    struct place_cost *sum = &worker->cost;
    if (place->stage != worker->computed.stage)
        *sum = (struct place_cost){0}; /* nobody will ask */
    worker->computed = *place;
    const struct place_cost before = *sum;
    *sum = *cost;
    sum->busy_ns += before.busy_ns;
    sum->span_ns += before.span_ns;
    sum->peer_bytes += before.peer_bytes;
}

struct place_cost worker_meter_take(struct worker *worker, const struct place *place)
{
    struct place_cost cost = {0};
    if (place->stage != worker->computed.stage)
        return cost;
    cost = worker->cost;
    worker->cost = (struct place_cost){0};
    return cost;
}
