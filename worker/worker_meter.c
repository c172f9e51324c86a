#include "worker/worker_meter.h"

#include "worker/program/simulate.h"
#include "worker/trace.h"

void worker_meter_begin(struct worker_lane *lane)
{
    struct peers *peers = lane->worker->peers;
    lane->meter = (struct worker_meter){0};
    if (peers != NULL)
        lane->meter.peer_bytes_before = peers_bytes(peers_lane(peers, lane->number));
}

void worker_meter_end(struct worker_lane *lane)
{
    const struct worker *worker = lane->worker;
    struct reason reason = {0};
    if (worker->config->trace == NULL || trace_flush(worker->config->trace, &reason) == ERR_OK)
        return;
    log_warning(worker->config->logger, "the trace ends here", log_text("why", reason.text));
}

/* Nodes of other sizes have other programs. */
static void count_room(struct worker_lane *lane)
{
    const struct worker_run *run = &lane->worker->run;
    const struct program *program = executor_ticket_program(run->executors[lane->number]);
    lane->meter.room = turn_room(&run->mesh, program, run->stage);
    lane->meter.counted = true;
}

static void row_begins(void *context, const struct program_row *row)
{
    struct worker_lane *lane = context;
    struct worker_meter *meter = &lane->meter;
    if (!meter->counted)
        count_room(lane);
    turn_begin_row(&lane->worker->turn, lane->number, row, meter->room);
    meter->row_ns = time_now_ns();
}

/* The act takes at least so long since it began. A cancelled ticket does not wait. */
static void pad(struct worker_lane *lane, uint64_t ns)
{
    struct units *units = &lane->units;
    uint64_t until_ns = lane->meter.row_ns + ns;
    thread_lock(&units->mutex);
    while (!units->cancelled && time_now_ns() < until_ns)
        ignore(thread_wait_locked(&units->changed, &units->mutex, until_ns)); /* looks again */
    thread_unlock(&units->mutex);
}

static void row_ends(void *context, const struct program_row *row)
{
    static const struct simulate_cost any = {1, 1, 1};
    struct worker_lane *lane = context;
    struct worker_meter *meter = &lane->meter;
    struct trace *trace = lane->worker->config->trace;
    const struct simulate_cost *costs = lane->worker->run.act_costs;
    bool computes = simulate_act(&any, row->act) > 0;
    if (computes && costs != NULL)
        pad(lane, simulate_act(&costs[row->unit], row->act));
    turn_end_row(&lane->worker->turn, lane->number, row);
    const struct trace_span span = {meter->row_ns, time_now_ns()};
    if (trace != NULL)
        trace_row(trace, lane->ticket, row, span);
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

/* What the executors of the place have taken. */
static void add_memory(const struct worker_run *run, struct place_cost *cost)
{
    for (uint32_t i = 0; i < WIRE_LEASES_MAX && run->executors[i] != NULL; i++) {
        const struct executor_memory memory = executor_memory(run->executors[i]);
        cost->device_bytes += memory.total;
        cost->weights_bytes += memory.weights;
        cost->host_bytes += memory.hosted;
    }
}

struct place_cost worker_meter_cost(struct worker_lane *lane)
{
    struct worker *worker = lane->worker;
    const struct worker_meter *meter = &lane->meter;
    struct place_cost cost = {0};
    add_memory(&worker->run, &cost);
    if (worker_run_is_host(&worker->run)) {
        uint64_t first_ns =
            meter->first_ns > worker->metered_ns ? meter->first_ns : worker->metered_ns;
        cost.busy_ns = meter->busy_ns;
        cost.span_ns = meter->last_ns > first_ns ? meter->last_ns - first_ns : 0;
        worker->metered_ns = meter->last_ns;
    }
    if (worker->peers != NULL) {
        const struct peers_lane *peers = peers_lane(worker->peers, lane->number);
        cost.peer_bytes = peers_bytes(peers) - meter->peer_bytes_before;
        cost.host_bytes += peers_lane_kept_bytes(peers);
    }
    return cost;
}

/* ---- main ---- */

void worker_meter_add(struct worker *worker, enum ticket_kind kind, const struct place *place,
                      const struct place_cost *cost)
{
    struct place_cost *sum = &worker->costs[kind];
    if (place->stage != worker->computed.stage)
        memset(worker->costs, 0, sizeof worker->costs); /* nobody will ask */
    worker->computed = *place;
    const struct place_cost before = *sum;
    *sum = *cost;
    sum->busy_ns += before.busy_ns;
    sum->span_ns += before.span_ns;
    sum->peer_bytes += before.peer_bytes;
}

struct place_cost worker_meter_take(struct worker *worker, enum ticket_kind kind,
                                    const struct place *place)
{
    struct place_cost cost = {0};
    if (place->stage != worker->computed.stage)
        return cost;
    cost = worker->costs[kind];
    worker->costs[kind] = (struct place_cost){0};
    return cost;
}
