/* The hooks of the executor, and main's calls to them. */
#include "worker/worker_compute.h"

#include "common/scoped.h"
#include "worker/worker_meter.h"

/* ---- on the lane's thread ---- */

/* The lane is about to wait: others may compute meanwhile. */
static void begin_wait(struct worker_lane *lane)
{
    if (lane->waits)
        return;
    lane->waits = true;
    turn_give(&lane->worker->turn, lane->number);
}

static void end_wait(struct worker_lane *lane)
{
    if (!lane->waits)
        return;
    lane->waits = false;
    turn_take(&lane->worker->turn, lane->number);
}

void worker_compute_waits(void *worker, uint32_t lane)
{
    begin_wait(&((struct worker *)worker)->lanes[lane]);
}

static void add_waited(struct worker_lane *lane, uint64_t begin_ns)
{
    thread_lock(&lane->units.mutex);
    lane->units.waited_ns += time_now_ns() - begin_ns;
    thread_unlock(&lane->units.mutex);
}

static bool is_true(struct units *units, const bool *said)
{
    thread_lock(&units->mutex);
    bool is = *said;
    thread_unlock(&units->mutex);
    return is;
}

/* Until main has said so of the unit. */
static enum err wait_for(struct worker_lane *lane, const bool *said)
{
    struct units *units = &lane->units;
    if (is_true(units, said))
        return ERR_OK;
    uint64_t begin_ns = time_now_ns();
    begin_wait(lane);
    thread_lock(&units->mutex);
    while (!*said && !units->cancelled)
        ignore(thread_wait_locked(&units->changed, &units->mutex, TIME_NEVER)); /* looks again */
    enum err err = *said ? ERR_OK : ERR_CANCELLED;
    thread_unlock(&units->mutex);
    end_wait(lane);
    add_waited(lane, begin_ns);
    return err;
}

static enum err hook_pull(void *context, uint32_t unit)
{
    struct worker_lane *lane = context;
    return wait_for(lane, &lane->units.ready[unit]);
}

static enum err hook_acknowledged(void *context, uint32_t unit)
{
    struct worker_lane *lane = context;
    return wait_for(lane, &lane->units.acked[unit]);
}

static enum err hook_ask(void *context, uint32_t unit)
{
    struct worker_lane *lane = context;
    thread_lock(&lane->units.mutex);
    lane->units.ready[unit] = false;
    thread_unlock(&lane->units.mutex);
    worker_post(lane->worker,
                &(struct worker_event){.kind = EVENT_ASKED, .lane = lane->number, .unit = unit});
    return ERR_OK;
}

static enum err hook_push(void *context, uint32_t unit, struct node node)
{
    struct worker_lane *lane = context;
    worker_post(lane->worker,
                &(struct worker_event){
                    .kind = EVENT_GRADIENT, .lane = lane->number, .unit = unit, .node = node});
    return ERR_OK;
}

static struct peers_lane *peers_of(const struct worker_lane *lane)
{
    return peers_lane(lane->worker->peers, lane->number);
}

static enum err hook_send(void *context, const struct executor_value *value, const void *memory)
{
    struct worker_lane *lane = context;
    const struct worker_run *run = &lane->worker->run;
    if (worker_run_is_host(run))
        return peers_give(peers_of(lane), value, memory);
    scoped(free_scoped) void *bytes = malloc(value->bytes);
    if (bytes == NULL)
        return ERR_NOMEM;
    run->kernels->copy_out(run->kernels, bytes, memory, value->bytes);
    if (run->kernels->synchronize(run->kernels) != NULL)
        return ERR_IO; /* the bytes are none that the device has computed */
    return peers_give(peers_of(lane), value, bytes);
}

/* What a neighbour gave has come, or will not. */
static enum err taken(struct worker_lane *lane, uint64_t begin_ns, enum err err)
{
    end_wait(lane);
    add_waited(lane, begin_ns);
    lane->blamed = err == ERR_OK || err == ERR_CANCELLED ? 0 : peers_blamed(peers_of(lane));
    return err;
}

static enum err hook_give_part(void *context, uint32_t sequence, uint32_t round, const void *bytes,
                               size_t count)
{
    return peers_give_part(peers_of(context), sequence, round, bytes, count);
}

static enum err hook_take_part(void *context, const struct executor_part *part, void *ret_bytes,
                               size_t count)
{
    struct worker_lane *lane = context;
    uint64_t begin_ns = time_now_ns();
    return taken(lane, begin_ns, peers_take_part(peers_of(lane), part, ret_bytes, count));
}

static enum err hook_lend_part(void *context, const struct executor_part *part, void *scratch,
                               size_t count, const void **ret_bytes)
{
    struct worker_lane *lane = context;
    uint64_t begin_ns = time_now_ns();
    return taken(lane, begin_ns, peers_lend_part(peers_of(lane), part, scratch, count, ret_bytes));
}

static void hook_expect_part(void *context, const struct executor_part *part, size_t count)
{
    peers_expect_part(peers_of(context), part, count);
}

static enum err take_value(struct worker_lane *lane, const struct executor_value *value,
                           void *ret_bytes)
{
    uint64_t begin_ns = time_now_ns();
    return taken(lane, begin_ns, peers_take(peers_of(lane), value, ret_bytes));
}

static enum err hook_receive(void *context, const struct executor_value *value, void *memory)
{
    struct worker_lane *lane = context;
    const struct worker_run *run = &lane->worker->run;
    if (worker_run_is_host(run))
        return take_value(lane, value, memory);
    scoped(free_scoped) void *bytes = malloc(value->bytes);
    if (bytes == NULL)
        return ERR_NOMEM;
    TRY(take_value(lane, value, bytes));
    run->kernels->copy_in(run->kernels, memory, bytes, value->bytes);
    return ERR_OK;
}

static bool hook_cancelled(void *context)
{
    struct worker_lane *lane = context;
    thread_lock(&lane->units.mutex);
    bool cancelled = lane->units.cancelled;
    thread_unlock(&lane->units.mutex);
    return cancelled;
}

static uint64_t computed_ms(struct worker_lane *lane, uint64_t begin_ns)
{
    uint64_t all_ns = time_now_ns() - begin_ns;
    thread_lock(&lane->units.mutex);
    uint64_t waited_ns = lane->units.waited_ns;
    thread_unlock(&lane->units.mutex);
    return all_ns > waited_ns ? (all_ns - waited_ns) / 1000000 : 0;
}

/* In a mesh of several places, the executor may be another place's. */
static enum err take_place(struct worker_lane *lane, const struct place *place)
{
    struct worker_event event = {.kind = EVENT_PLACED, .lane = lane->number};
    if (!place_is_shared(place))
        return ERR_OK;
    TRY(worker_run_place(&lane->worker->run, place, &event.made));
    worker_post(lane->worker, &event);
    return ERR_OK;
}

static enum err run_executor(struct worker_lane *lane, struct executor_loss *ret_loss)
{
    struct worker_run *run = &lane->worker->run;
    struct executor_hooks hooks = {
        .context = lane,
        .ask = hook_ask,
        .pull = hook_pull,
        .push = hook_push,
        .acknowledged = hook_acknowledged,
        .cancelled = hook_cancelled,
        .send = hook_send,
        .receive = hook_receive,
        .give_part = hook_give_part,
        .take_part = hook_take_part,
        .lend_part = hook_lend_part,
        .expect_part = hook_expect_part,
    };
    const struct executor_samples samples = samples_source(&run->samples);
    worker_meter_hooks(&hooks);
    if (run->crew != NULL && lane->ticket->kind == TICKET_TRAIN)
        return crew_run(run->crew, lane->ticket, &hooks, ret_loss);
    return executor_run(run->executors[lane->number], lane->ticket, &samples, &hooks, ret_loss);
}

/* While the lane has the turn. */
static void compute_ticket(struct worker_lane *lane, const struct worker_task *task,
                           struct agent_result *ret_result)
{
    struct worker *worker = lane->worker;
    struct worker_run *run = &worker->run;
    struct executor_loss loss = {0};
    samples_begin(&run->samples, task->member, &task->secret);
    for (uint32_t i = 1; i < run->devices; i++)
        samples_begin(&run->others_samples[i], task->member, &task->secret);
    worker_meter_begin(lane);
    lane->blamed = 0;
    ret_result->err = take_place(lane, &task->place);
    if (ret_result->err == ERR_OK)
        ret_result->err = run_executor(lane, &loss);
    worker_meter_end(lane);
    ret_result->blamed = lane->blamed;
    if (worker->peers != NULL)
        peers_sums(peers_of(lane), &ret_result->sums);
    if (run->async && task->ticket.kind == TICKET_TRAIN && ret_result->err == ERR_OK)
        ret_result->err = whole_scale(&run->scaling, run->spec.optimizer.clip_norm, loss.samples,
                                      &ret_result->scale);
    ret_result->loss_sum = loss.loss_sum;
    ret_result->sample_count = loss.samples;
    ret_result->correct_count = loss.correct;
}

static void take_turn(struct worker_lane *lane, const struct worker_task *task)
{
    struct worker *worker = lane->worker;
    struct worker_event event = {
        .kind = EVENT_COMPUTED,
        .lane = lane->number,
        .computed = {.result.lane = lane->number, .kind = task->ticket.kind, .place = task->place}};
    lane->ticket = &task->ticket;
    if (worker->peers != NULL)
        peers_reach(peers_of(lane));
    turn_begin(&worker->turn, lane->number, lane->ticket);
    uint64_t begin_ns = time_now_ns();
    compute_ticket(lane, task, &event.computed.result);
    enum err err = event.computed.result.err;
    if (err == ERR_OK)
        event.computed.cost = worker_meter_cost(lane);
    else if (worker->run.executors[lane->number] != NULL) /* before the next lane reads samples */
        event.computed.why = strdup(worker_run_failure(&worker->run, lane->number, err));
    turn_end(&worker->turn, lane->number);
    event.computed.compute_ms = computed_ms(lane, begin_ns);
    worker_post(worker, &event);
}

static void run_lane(void *argument)
{
    struct worker_lane *lane = argument;
    struct worker_task task;
    size_t count;
    check(thread_is_current(&lane->compute));
    while (inbox_take(lane->tickets, TIME_NEVER, 1, &task, &count) == ERR_OK)
        take_turn(lane, &task);
}

/* ---- on main ---- */

static void units_reset(struct worker_lane *lane)
{
    thread_lock(&lane->units.mutex);
    memset(lane->units.ready, 0, lane->worker->run.model.units_count * sizeof *lane->units.ready);
    memset(lane->units.acked, 0, lane->worker->run.model.units_count * sizeof *lane->units.acked);
    lane->units.cancelled = false;
    lane->units.waited_ns = 0;
    thread_unlock(&lane->units.mutex);
}

void worker_compute_begin(struct worker *worker, uint32_t number, const struct ticket *ticket,
                          const struct place *place)
{
    struct worker_lane *lane = &worker->lanes[number];
    const struct worker_task task = {*ticket, *place, worker->member, worker->secret};
    encoder_drain(worker->encoder); /* what was pushed of earlier tickets is read no more */
    units_reset(lane);
    turn_cancel(&worker->turn, number, false);
    lane->replicated = 0;
    worker->ticket_ms = worker_now_ms();
    if (number == 0)
        push_cost_begin(&worker->push_cost, UINT32_C(1) << ticket->node.level);
    log_debug(worker->config->logger, "ticket begun", log_uint("step", ticket->step),
              log_uint("slot", node_first(ticket->node)),
              log_uint("slots", UINT64_C(1) << ticket->node.level), log_uint("kind", ticket->kind),
              log_uint("lane", number));
    check(inbox_post(lane->tickets, &task) == ERR_OK); /* one at a time */
}

/* Once in a compute, or each time it is asked for. */
static void say(struct units *units, bool *ret_said)
{
    thread_lock(&units->mutex);
    check(!*ret_said);
    *ret_said = true;
    thread_wake_all(&units->changed);
    thread_unlock(&units->mutex);
}

void worker_compute_ready(struct worker *worker, uint32_t number, uint32_t unit)
{
    struct units *units = &worker->lanes[number].units;
    check(unit < worker->run.model.units_count);
    lent_weights_settle(&worker->run.lent, unit);
    say(units, &units->ready[unit]);
}

enum err worker_compute_replicated(struct worker *worker, uint32_t number, uint32_t unit,
                                   struct node node)
{
    struct worker_run *run = &worker->run;
    if (run->share.ranks <= 1)
        return ERR_OK;
    encoder_lock(worker->encoder);
    enum err err = replicated_add(&run->replicated, run->executors[number], unit, node,
                                  &worker->lanes[number].replicated);
    encoder_unlock(worker->encoder);
    return err;
}

void worker_compute_acked(struct worker *worker, uint32_t number, uint32_t unit)
{
    struct units *units = &worker->lanes[number].units;
    check(unit < worker->run.model.units_count);
    say(units, &units->acked[unit]);
}

void worker_compute_cancel(struct worker *worker, uint32_t number)
{
    struct units *units = &worker->lanes[number].units;
    thread_lock(&units->mutex);
    units->cancelled = true;
    thread_wake_all(&units->changed);
    thread_unlock(&units->mutex);
    turn_cancel(&worker->turn, number, true);
    if (worker->peers != NULL)
        peers_cancel(peers_lane(worker->peers, number));
}

/* ---- life ---- */

enum err worker_lane_open(struct worker_lane *lane)
{
    const struct inbox_limits tickets = {sizeof(struct worker_task), 2};
    lane->units.ready = calloc(lane->worker->run.model.units_count, sizeof *lane->units.ready);
    lane->units.acked = calloc(lane->worker->run.model.units_count, sizeof *lane->units.acked);
    TRY(inbox_new(tickets, &lane->tickets));
    return lane->units.ready != NULL && lane->units.acked != NULL ? ERR_OK : ERR_NOMEM;
}

enum err worker_lane_start(struct worker_lane *lane)
{
    char name[16];
    snprintf(name, sizeof name, lane->number == 0 ? "compute" : "compute %u", lane->number);
    return thread_start(&lane->compute, name, run_lane, lane);
}

void worker_lane_stop(struct worker_lane *lane)
{
    inbox_close(lane->tickets);
    thread_join(&lane->compute);
}

void worker_lane_init(struct worker_lane *lane, struct worker *worker, uint32_t number)
{
    *lane = (struct worker_lane){.worker = worker, .number = number};
    thread_mutex_init(&lane->units.mutex);
    thread_cond_init(&lane->units.changed);
}

void worker_lane_release(struct worker_lane *lane)
{
    inbox_free(lane->tickets);
    free(lane->units.ready);
    free(lane->units.acked);
    thread_cond_release(&lane->units.changed);
    thread_mutex_release(&lane->units.mutex);
}
