/* The hooks of the executor, and main's calls to them. */
#include "worker/worker_compute.h"

#include "common/scoped.h"
#include "worker/worker_meter.h"

/* ---- on the compute thread ---- */

/* Until main has said so of the unit. */
static enum err wait_for(struct units *units, const bool *said)
{
    uint64_t begin_ns = time_now_ns();
    thread_lock(&units->mutex);
    while (!*said && !units->cancelled)
        ignore(thread_wait_locked(&units->changed, &units->mutex, TIME_NEVER)); /* looks again */
    enum err err = *said ? ERR_OK : ERR_CANCELLED;
    units->waited_ns += time_now_ns() - begin_ns;
    thread_unlock(&units->mutex);
    return err;
}

static enum err hook_pull(void *context, uint32_t unit)
{
    struct units *units = &((struct worker *)context)->units;
    return wait_for(units, &units->ready[unit]);
}

static enum err hook_acknowledged(void *context, uint32_t unit)
{
    struct units *units = &((struct worker *)context)->units;
    return wait_for(units, &units->acked[unit]);
}

static enum err hook_ask(void *context, uint32_t unit)
{
    struct units *units = &((struct worker *)context)->units;
    thread_lock(&units->mutex);
    units->ready[unit] = false;
    thread_unlock(&units->mutex);
    worker_post(context, &(struct worker_event){.kind = EVENT_ASKED, .unit = unit});
    return ERR_OK;
}

static enum err hook_push(void *context, uint32_t unit, struct node node)
{
    worker_post(context,
                &(struct worker_event){.kind = EVENT_GRADIENT, .unit = unit, .node = node});
    return ERR_OK;
}

static enum err hook_send(void *context, const struct executor_value *value, const void *memory)
{
    struct worker *worker = context;
    const struct kernels *kernels = worker->run.kernels;
    if (worker_run_is_host(&worker->run))
        return peers_give(worker->peers, value, memory);
    scoped(free_scoped) void *bytes = malloc(value->bytes);
    if (bytes == NULL)
        return ERR_NOMEM;
    kernels->copy_out(kernels, bytes, memory, value->bytes);
    return peers_give(worker->peers, value, bytes);
}

static enum err take_value(struct worker *worker, const struct executor_value *value,
                           void *ret_bytes)
{
    struct units *units = &worker->units;
    uint64_t begin_ns = time_now_ns();
    enum err err = peers_take(worker->peers, value, ret_bytes);
    thread_lock(&units->mutex);
    units->waited_ns += time_now_ns() - begin_ns;
    thread_unlock(&units->mutex);
    worker->blamed = err == ERR_OK || err == ERR_CANCELLED ? 0 : peers_blamed(worker->peers);
    return err;
}

static enum err hook_receive(void *context, const struct executor_value *value, void *memory)
{
    struct worker *worker = context;
    const struct kernels *kernels = worker->run.kernels;
    if (worker_run_is_host(&worker->run))
        return take_value(worker, value, memory);
    scoped(free_scoped) void *bytes = malloc(value->bytes);
    if (bytes == NULL)
        return ERR_NOMEM;
    TRY(take_value(worker, value, bytes));
    kernels->copy_in(kernels, memory, bytes, value->bytes);
    return ERR_OK;
}

static bool hook_cancelled(void *context)
{
    struct units *units = &((struct worker *)context)->units;
    thread_lock(&units->mutex);
    bool cancelled = units->cancelled;
    thread_unlock(&units->mutex);
    return cancelled;
}

static uint64_t computed_ms(struct worker *worker, uint64_t begin_ns)
{
    uint64_t all_ns = time_now_ns() - begin_ns;
    thread_lock(&worker->units.mutex);
    uint64_t waited_ns = worker->units.waited_ns;
    thread_unlock(&worker->units.mutex);
    return all_ns > waited_ns ? (all_ns - waited_ns) / 1000000 : 0;
}

/* In a mesh of several places, the executor may be another place's. */
static enum err take_place(struct worker *worker, const struct place *place)
{
    if (place->stages <= 1)
        return ERR_OK;
    struct worker_event event = {.kind = EVENT_PLACED};
    TRY(worker_run_place(&worker->run, place->stage, &event.made));
    worker_post(worker, &event);
    return ERR_OK;
}

static void compute_ticket(struct worker *worker, const struct worker_task *task)
{
    const struct ticket *ticket = &task->ticket;
    struct executor_hooks hooks = {
        .context = worker,
        .ask = hook_ask,
        .pull = hook_pull,
        .push = hook_push,
        .acknowledged = hook_acknowledged,
        .cancelled = hook_cancelled,
        .send = hook_send,
        .receive = hook_receive,
    };
    struct executor_samples samples = samples_source(&worker->run.samples);
    struct executor_loss loss = {0};
    struct worker_event event = {.kind = EVENT_COMPUTED};
    struct agent_result *result = &event.computed.result;
    uint64_t begin_ns = time_now_ns();
    worker_meter_hooks(&hooks);
    worker_meter_begin(worker, ticket);
    worker->blamed = 0;
    result->err = take_place(worker, &task->place);
    if (result->err == ERR_OK && worker->peers != NULL)
        peers_reach(worker->peers);
    if (result->err == ERR_OK)
        result->err = executor_run(worker->run.executor, ticket, &samples, &hooks, &loss);
    worker_meter_end(worker);
    if (result->err == ERR_OK)
        event.computed.cost = worker_meter_cost(worker);
    event.computed.place = task->place;
    result->blamed = worker->blamed;
    if (worker->peers != NULL)
        peers_sums(worker->peers, &result->sums);
    if (worker->run.async && ticket->kind == TICKET_TRAIN && result->err == ERR_OK)
        result->scale =
            whole_scale(&worker->run.scaling, worker->run.spec.optimizer.clip_norm, loss.samples);
    result->loss_sum = loss.loss_sum;
    result->sample_count = loss.samples;
    result->correct_count = loss.correct;
    event.computed.compute_ms = computed_ms(worker, begin_ns);
    worker_post(worker, &event);
}

void worker_compute_main(void *argument)
{
    struct worker *worker = argument;
    struct worker_task task;
    size_t count;
    check(thread_is_current(&worker->compute));
    while (inbox_take(worker->tickets, TIME_NEVER, 1, &task, &count) == ERR_OK)
        compute_ticket(worker, &task);
}

/* ---- on main ---- */

static void units_reset(struct worker *worker)
{
    thread_lock(&worker->units.mutex);
    memset(worker->units.ready, 0, worker->run.model.units_count * sizeof *worker->units.ready);
    memset(worker->units.acked, 0, worker->run.model.units_count * sizeof *worker->units.acked);
    worker->units.cancelled = false;
    worker->units.waited_ns = 0;
    thread_unlock(&worker->units.mutex);
}

void worker_compute_begin(struct worker *worker, const struct worker_task *task)
{
    const struct ticket *ticket = &task->ticket;
    units_reset(worker);
    worker->run.samples.member = worker->member; /* the compute thread waits for its ticket */
    worker->run.samples.secret = worker->secret;
    worker->ticket_ms = worker_now_ms();
    push_cost_begin(&worker->push_cost, UINT32_C(1) << ticket->node.level);
    log_debug(worker->config->logger, "ticket begun", log_uint("step", ticket->step),
              log_uint("slot", node_first(ticket->node)),
              log_uint("slots", UINT64_C(1) << ticket->node.level), log_uint("kind", ticket->kind));
    check(inbox_post(worker->tickets, task) == ERR_OK); /* one at a time */
}

void worker_compute_ready(struct worker *worker, uint32_t unit)
{
    thread_lock(&worker->units.mutex);
    check(unit < worker->run.model.units_count);
    check(!worker->units.ready[unit]); /* once in a compute, or each time it is asked for */
    worker->units.ready[unit] = true;
    thread_wake_all(&worker->units.changed);
    thread_unlock(&worker->units.mutex);
}

void worker_compute_acked(struct worker *worker, uint32_t unit)
{
    thread_lock(&worker->units.mutex);
    check(unit < worker->run.model.units_count);
    check(!worker->units.acked[unit]); /* once in a compute */
    worker->units.acked[unit] = true;
    thread_wake_all(&worker->units.changed);
    thread_unlock(&worker->units.mutex);
}

void worker_compute_cancel(struct worker *worker)
{
    thread_lock(&worker->units.mutex);
    worker->units.cancelled = true;
    thread_wake_all(&worker->units.changed);
    thread_unlock(&worker->units.mutex);
    if (worker->peers != NULL)
        peers_cancel(worker->peers);
}
