/* The worker's loop.
 *
 * Threads:
 *   main     owns the agent, the links to servers and the executor's chunk copies in; waits for
 *            events in its inbox. Everything the protocol decides happens here.
 *   encode   encodes and sends gradients (encoder.h).
 *   compute  runs the executor, one ticket at a time; waits for a ticket, then for units' weights
 *            (`units`) and for other places' values (peers.h); posts an event when a unit's
 *            gradients are final. In a mesh it makes the executor of the place, and posts that.
 *   device … of a worker with several: the others' parts of the ticket (crew.h); the last one that
 *            is through with a unit posts the event of its gradients.
 *   rpc …    gRPC's polling threads; they only post events.
 *   lines …  the same for servers and workers of this machine, over shared memory.
 *   signals  waits for SIGTERM and SIGINT; posts an event.
 *   notice   asks a cloud's metadata service whether the machine goes; posts an event.
 *
 * Events carry the number of their stream: an event of an earlier stream than the link's present
 * one is dropped. */
#include "worker/worker.h"

#include "common/scene.h"
#include "common/scoped.h"
#include "common/signals.h"
#include "worker/agent_backoff.h"
#include "worker/pull.h"
#include "worker/push.h"
#include "worker/worker_calls.h"
#include "worker/worker_compute.h"
#include "worker/worker_join.h"
#include "worker/worker_link.h"
#include "worker/worker_meter.h"
#include "worker/worker_places.h"
#include "worker/worker_stop.h"

enum {
    EVENTS_BATCH = 64,
    PEER_CALLS_MAX = 32,        /* streams of a worker that asks: one for each of its lanes */
    PEER_CONNECTIONS_MAX = 1024 /* of workers with one certificate, as `roost up` starts them */
};

/* ---- effects ---- */

/* A message could not be sent: its stream is given up, and everything is sent again over the
 * next. */
static void sent_or_lost(struct worker *worker, uint32_t server, enum err err)
{
    if (err == ERR_OK)
        return;
    worker_link_close(&worker->links[server]);
    agent_stream_lost(worker->agent, worker_now_ms(), server, ERR_UNREACHABLE);
}

static void note_push_cost(struct worker *worker, const struct complete_request *complete)
{
    struct push_cost_sums sums;
    if (complete->outcome != ERR_OK || complete->ticket.kind != TICKET_TRAIN ||
        !push_cost_completed(&worker->push_cost, worker_now_ms(), &sums))
        return;
    log_warning(worker->config->logger, "pushes take longer than computing",
                log_uint("tickets", sums.tickets), log_uint("slots", sums.slots),
                log_uint("compute_ms", sums.compute_ms), log_uint("push_ms", sums.push_ms),
                log_uint("pushed_bytes", sums.bytes),
                log_text("next", push_cost_advice(&worker->run.spec)));
}

static void carry_out_push(struct worker *worker, const struct agent_effect *effect)
{
    const struct worker_run *run = &worker->run;
    check(effect->server < worker->link_count);
    const struct worker_link *link = &worker->links[effect->server];
    const struct encoder_job job = {.server = effect->server,
                                    .number = link->number,
                                    .lane = effect->lane,
                                    .source = {.executor = run->executors[effect->lane],
                                               .crew = run->crew,
                                               .whole = run->async ? &run->pushing : NULL,
                                               .model = &run->model},
                                    .to = {link->stream, link->sparse},
                                    .push = effect->push,
                                    .given_ms = worker_now_ms()};
    sent_or_lost(worker, effect->server, encoder_push(worker->encoder, &job));
}

static void carry_out(struct worker *worker, const struct agent_effect *effect)
{
    struct worker_run *run = &worker->run;
    enum err err;
    switch (effect->kind) {
    case AGENT_JOIN:
        worker_join(worker);
        break;
    case AGENT_DESCRIBE:
        err = worker_call_map(worker);
        if (err != ERR_OK)
            worker_join_mapped(worker, err, (struct slice){0});
        break;
    case AGENT_OPEN:
        sent_or_lost(worker, effect->server, worker_link_exchange(worker, effect->server));
        break;
    case AGENT_ACQUIRE:
        err = worker_call_acquire(worker, &effect->acquire);
        if (err != ERR_OK)
            agent_acquired(worker->agent, worker_now_ms(), effect->acquire.sequence, err, NULL);
        break;
    case AGENT_GENERATION:
    case AGENT_KEEP:
    case AGENT_LEASE:
    case AGENT_PLACES:
        worker_places_carry_out(worker, effect);
        break;
    case AGENT_COMPUTE:
        worker_compute_begin(worker, effect->lane, &effect->ticket, &effect->place);
        break;
    case AGENT_CANCEL:
        worker_compute_cancel(worker, effect->lane);
        break;
    case AGENT_GIVE_BACK:
        lent_weights_give_back(&run->lent);
        break;
    case AGENT_COPY:
        executor_copy(run->executors[effect->lane], run->executors[effect->from], effect->chunk);
        break;
    case AGENT_PULL:
        check(effect->server < worker->link_count);
        err = pull_send(worker->links[effect->server].stream, &effect->pull);
        sent_or_lost(worker, effect->server, err);
        break;
    case AGENT_UNIT_READY:
        worker_compute_ready(worker, effect->lane, effect->unit);
        break;
    case AGENT_UNIT_ACKED:
        worker_compute_acked(worker, effect->lane, effect->unit);
        break;
    case AGENT_PUSH:
        carry_out_push(worker, effect);
        break;
    case AGENT_COMPLETE:
        if (effect->lane == 0)
            note_push_cost(worker, &effect->complete);
        worker_call_complete(worker, &effect->complete);
        break;
    case AGENT_LEAVE:
        worker_call_leave(worker);
        break;
    case AGENT_STOP:
        worker_stop(worker, effect->stop);
        break;
    }
}

/* ---- events ---- */

/* Devices of a memory of their own get the same weights as the first one. */
static void receive_for_others(struct worker_run *run, const struct from_shard *message,
                               struct rpc_message *bytes)
{
    for (uint32_t i = 1; i < run->devices; i++) {
        struct lent_weights none = {0};
        if (!executor_may_point(run->others[i]))
            pull_receive(run->others[i], &none, &run->model, message, bytes);
    }
}

static void on_weights(struct worker *worker, uint32_t lane, const struct from_shard *message,
                       struct rpc_message *bytes)
{
    struct worker_run *run = &worker->run;
    pull_receive(run->executors[lane], &run->lent, &run->model, message, bytes);
    receive_for_others(run, message, bytes);
    for (uint32_t i = 0; i < message->weights.chunk_count; i++)
        if (lent_weights_has(&run->lent, message->weights.chunks[i]))
            agent_lent(worker->agent, lane, message->weights.chunks[i]);
}

static void on_from_shard(struct worker *worker, uint32_t server, const struct from_shard *message,
                          struct rpc_message *bytes)
{
    struct agent *agent = worker->agent;
    uint32_t lane;
    switch (message->kind) {
    case FROM_SHARD_WELCOME:
        worker->links[server].sparse = message->welcome.wire_version >= WIRE_VERSION_SPARSE;
        agent_stream_up(agent, worker_now_ms(), server, message->welcome.boot);
        break;
    case FROM_SHARD_ACK:
        agent_acked(agent, worker_now_ms(), server, &message->ack);
        break;
    case FROM_SHARD_WEIGHTS:
        if (agent_weights(agent, worker_now_ms(), server, &message->weights, &lane))
            on_weights(worker, lane, message, bytes);
        break;
    case FROM_SHARD_REFUSAL:
        agent_refused(agent, worker_now_ms(), server, &message->refusal);
        break;
    }
}

static void on_message(struct worker *worker, const struct worker_event *event)
{
    struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct reason reason = {0};
    struct from_shard message;
    enum err err = wire_decode_from_shard(event->message->slices, event->message->slice_count,
                                          &arena, &message, &reason);
    if (err == ERR_OK && message.kind == FROM_SHARD_WEIGHTS)
        err = pull_check(&worker->run.model, &message, &reason);
    if (err == ERR_OK) {
        on_from_shard(worker, event->server, &message, event->message);
    } else {
        log_warning(worker->config->logger, "server's message refused",
                    log_uint("server", event->server), log_text("err", err_name(err)),
                    log_text("why", reason.text), log_text("next", "reconnect"));
        sent_or_lost(worker, event->server, err);
    }
    arena_release(&arena);
}

static void on_notice(struct worker *worker, const struct worker_event *event)
{
    scoped(free_scoped) uint8_t *bytes = malloc(event->message->bytes + 1);
    struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct member_notice notice;
    if (bytes == NULL)
        return;
    rpc_message_copy(event->message, 0, event->message->bytes, bytes);
    struct slice slice = {bytes, event->message->bytes};
    if (wire_decode_member_notice(slice, &arena, &notice, NULL) == ERR_OK) {
        if (notice.kind == NOTICE_CHANGED)
            agent_member_lost(worker->agent, worker_now_ms());
        else if (notice.kind == NOTICE_RUN_OVER)
            agent_run_over(worker->agent, worker_now_ms());
        else if (notice.kind == NOTICE_PLACES)
            agent_places(worker->agent, worker_now_ms(), &notice.places);
    }
    arena_release(&arena);
}

/* The second signal: leaves at once. */
static void leave(struct worker *worker)
{
    log_info(worker->config->logger, "leaving", log_text("reason", worker->leave_reason),
             log_uint("budget_ms", worker->config->leave_ms));
    if (worker->agent != NULL)
        agent_leave(worker->agent, worker_now_ms(), worker_now_ms() + worker->config->leave_ms);
    else
        worker->stopped = true;
}

static void on_signal(struct worker *worker, int number)
{
    snprintf(worker->leave_reason, sizeof worker->leave_reason, "told to leave by SIG%s",
             sigabbrev_np(number));
    leave(worker);
}

static void on_cloud(struct worker *worker, enum notice_verdict verdict, const char *text)
{
    if (verdict == NOTICE_NOTHING) {
        log_info(worker->config->logger, "notices are watched", log_text("cloud", text));
    } else if (verdict == NOTICE_WARNING) {
        log_warning(worker->config->logger, "the machine may go", log_text("notice", text),
                    log_text("next", "go on"));
    } else {
        snprintf(worker->leave_reason, sizeof worker->leave_reason, "preempted: %s", text);
        leave(worker);
    }
}

/* The sentence of the compute thread's error. */
static void note_failure(struct worker *worker, const struct agent_result *result, const char *why)
{
    const struct worker_run *run = &worker->run;
    const struct executor *executor = run->executors[result->lane];
    enum err err = result->err;
    if (err == ERR_OK || err == ERR_CANCELLED)
        return;
    if (executor == NULL)
        reason_set(&worker->failure, err, "place %u: %s", run->stage, run->refused.text);
    else if (result->blamed != 0)
        reason_set(&worker->failure, err, "member %llu has no value for this place",
                   (unsigned long long)result->blamed);
    else
        reason_set(&worker->failure, err, "%s", why != NULL ? why : "");
}

static void note_graphs(struct worker *worker, uint32_t lane)
{
    const struct executor *executor = worker->run.executors[lane];
    if (worker->graphs_reported || executor == NULL || !executor_refused_graphs(executor))
        return;
    worker->graphs_reported = true;
    log_warning(worker->config->logger, "device makes no graph",
                log_text("next", "units are given to it act by act"));
}

static void on_acquired(struct worker *worker, const struct worker_event *event)
{
    struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct acquire_reply reply;
    enum err err = event->err;
    if (err == ERR_OK)
        err = wire_decode_acquire_reply(buf_slice(&event->answer.response), &arena, &reply, NULL);
    agent_acquired(worker->agent, worker_now_ms(), event->answer.sequence, err, &reply);
    arena_release(&arena);
}

/* To a call of this membership. */
static void on_answer(struct worker *worker, const struct worker_event *event)
{
    if (event->origin != worker->membership)
        return;
    if (event->err != ERR_OK && event->answer.why != NULL)
        reason_set(&worker->failure, event->err, "%s", event->answer.why);
    if (event->kind == EVENT_ACQUIRED)
        on_acquired(worker, event);
    else
        worker_join_mapped(worker, event->err, buf_slice(&event->answer.response));
}

/* Events of the present stream of a link. */
static bool from_server(const struct worker *worker, const struct worker_event *event)
{
    return event->server < worker->link_count &&
           worker->links[event->server].stream != NULL && /* not given up just now */
           worker->links[event->server].number == event->origin;
}

/* The stream's error ends the worker, unless it is one that passes. */
static void on_stream_closed(struct worker *worker, const struct worker_event *event)
{
    const char *why = event->why != NULL ? event->why : "";
    reason_set(&worker->failure, event->err, "server %u: %s", event->server, why);
    if (worker_link_warning_is_due(&worker->links[event->server], event->err))
        log_warning(worker->config->logger, "stream lost", log_uint("server", event->server),
                    log_text("err", err_name(event->err)), log_text("why", why),
                    log_text("next", worker_call_next(worker, event->err)));
    agent_stream_lost(worker->agent, worker_now_ms(), event->server, event->err);
}

/* What a failed check of the main thread prints. */
static void describe(const void *object, char *text, size_t bytes)
{
    const struct worker *worker = object;
    if (worker->agent != NULL)
        agent_describe(worker->agent, text, bytes);
}

/* What our threads and callbacks post, against what was opened and begun. */
static void check_event(const struct worker *worker, const struct worker_event *event)
{
    switch (event->kind) {
    case EVENT_ACQUIRED:
    case EVENT_MAPPED:
    case EVENT_UNHEARD:
        check(event->origin > 0 && event->origin <= worker->membership);
        break;
    case EVENT_MESSAGE:
    case EVENT_STREAM_CLOSED:
    case EVENT_PUSHED:
    case EVENT_NOTICE:
    case EVENT_MEMBER_CLOSED:
        check(event->origin > 0 && event->origin <= worker->stream_count);
        break;
    case EVENT_ASKED:
    case EVENT_GRADIENT:
        check(event->unit < worker->run.model.units_count);
        break;
    case EVENT_PLACED:
    case EVENT_UNREACHABLE:
    case EVENT_COMPUTED:
        check(worker->has_run);
        break;
    case EVENT_SIGNAL:
    case EVENT_CLOUD:
        break;
    }
}

static void on_computed(struct worker *worker, const struct worker_event *event)
{
    struct agent_result result = event->computed.result;
    result.replicated = worker->lanes[event->lane].replicated;
    note_failure(worker, &result, event->computed.why);
    if (result.err == ERR_OK)
        worker_meter_add(worker, event->computed.kind, &event->computed.place,
                         &event->computed.cost);
    if (event->lane == 0)
        push_cost_computed(&worker->push_cost, event->computed.compute_ms);
    note_graphs(worker, event->lane);
    agent_computed(worker->agent, worker_now_ms(), &result);
}

static void on_pushed(struct worker *worker, const struct worker_event *event)
{
    if (event->err == ERR_OK && event->lane == 0)
        push_cost_push(&worker->push_cost, event->pushed.given_ms, event->pushed.bytes);
    if (!from_server(worker, event))
        return;
    sent_or_lost(worker, event->server, event->err);
    /* A device that failed once gives no gradient over the next stream either. */
    if (event->err == ERR_IO) {
        reason_set(&worker->failure, event->err, "%s",
                   event->pushed.why != NULL ? event->pushed.why : "");
        agent_stream_lost(worker->agent, worker_now_ms(), event->server, event->err);
    }
}

static void on_event(struct worker *worker, const struct worker_event *event)
{
    check_event(worker, event);
    switch (event->kind) {
    case EVENT_ACQUIRED:
    case EVENT_MAPPED:
        on_answer(worker, event);
        break;
    case EVENT_UNHEARD:
        if (event->origin == worker->membership)
            worker_call_unheard(worker, event);
        break;
    case EVENT_MESSAGE:
        if (from_server(worker, event))
            on_message(worker, event);
        break;
    case EVENT_STREAM_CLOSED:
        if (from_server(worker, event))
            on_stream_closed(worker, event);
        break;
    case EVENT_PUSHED:
        on_pushed(worker, event);
        break;
    case EVENT_NOTICE:
        if (event->origin == worker->member_link.number)
            on_notice(worker, event);
        break;
    case EVENT_MEMBER_CLOSED:
        if (event->origin == worker->member_link.number)
            agent_member_lost(worker->agent, worker_now_ms());
        break;
    case EVENT_PLACED:
        if (event->made)
            worker_join_log_memory(worker);
        agent_placed(worker->agent, worker_now_ms(), event->lane);
        break;
    case EVENT_UNREACHABLE:
        if (agent_waits_for(worker->agent, event->unreachable.attempt, event->unreachable.member))
            worker_link_unreachable(worker, event->unreachable.attempt, event->unreachable.member);
        break;
    case EVENT_ASKED:
        agent_asked(worker->agent, worker_now_ms(), event->lane, event->unit);
        break;
    case EVENT_GRADIENT:
        ignore(worker_compute_replicated(worker, event->lane, event->unit, event->node));
        agent_gradient(worker->agent, worker_now_ms(), event->lane, event->unit, event->node);
        break;
    case EVENT_COMPUTED:
        on_computed(worker, event);
        break;
    case EVENT_SIGNAL:
        on_signal(worker, event->signal);
        break;
    case EVENT_CLOUD:
        on_cloud(worker, event->cloud.verdict, event->cloud.text);
        break;
    }
}

static void work(struct worker *worker)
{
    struct agent_effect effect;
    scoped(scene_leave) struct scene scene = {"work", 0, describe, worker};
    scene_enter(&scene);
    while (!worker->stopped && agent_next(worker->agent, worker_now_ms(), &effect)) {
        carry_out(worker, &effect);
        worker_stop_note(worker);
    }
    worker_call_again(worker, worker_now_ms());
    if (worker_now_ms() >= worker->heartbeat_at_ms && worker->member_link.stream != NULL)
        worker_link_heartbeat(worker);
    if (worker_now_ms() >= worker->renew_at_ms)
        worker_link_renew(worker);
}

static uint64_t wake_ns(const struct worker *worker)
{
    uint64_t wake = agent_wake_ms(worker->agent);
    if (worker->renew_at_ms < wake)
        wake = worker->renew_at_ms;
    if (worker->member_link.stream != NULL && worker->heartbeat_at_ms < wake)
        wake = worker->heartbeat_at_ms;
    if (worker_call_again_ms(worker) < wake)
        wake = worker_call_again_ms(worker);
    return wake > UINT64_MAX / 1000000 ? TIME_NEVER : wake * 1000000;
}

static void wait_for_events(struct worker *worker, uint64_t deadline_ns)
{
    struct worker_event events[EVENTS_BATCH];
    size_t count = 0;
    enum err err = inbox_take(worker->inbox, deadline_ns, EVENTS_BATCH, events, &count);
    for (size_t i = 0; err == ERR_OK && i < count; i++) {
        scoped(scene_leave) struct scene scene = {"event", events[i].kind, describe, worker};
        scene_enter(&scene);
        on_event(worker, &events[i]);
        worker_stop_note(worker);
        if (worker->agent != NULL)
            agent_check_event(worker->agent);
        worker_event_release(&events[i]);
    }
}

/* Until the first join succeeds there is no agent: the model is not known. */
static enum err attach(struct worker *worker)
{
    uint64_t started_ms = worker_now_ms();
    for (unsigned failures = 0; !worker->stopped; failures++) {
        scoped(buf_release) struct buf response = {0};
        scoped(arena_release) struct arena arena = {.bytes_max = 8 * WIRE_CONTROL_BYTES_MAX};
        struct describe_reply description;
        enum err err = worker_call_describe(worker, &arena, &response, &description);
        if (err == ERR_OK)
            err = worker_join_run(worker, &description); /* it may ask the coordinator, too */
        if (err == ERR_OK || worker->has_run || !agent_backoff_helps(err))
            return err;
        if (worker->config->connect_s != 0 &&
            worker_now_ms() - started_ms > (uint64_t)worker->config->connect_s * 1000)
            return err;
        if (failures % 10 == 0)
            worker_call_failed(worker, "not attached", err);
        unsigned counted = err_reaction(err) == REACT_WAIT && failures > AGENT_WAIT_FAILURES_MAX
                               ? AGENT_WAIT_FAILURES_MAX
                               : failures;
        uint64_t backoff_ms = agent_backoff_ms(&worker->jitter, counted);
        wait_for_events(worker, time_after_ms(time_now_ns(), backoff_ms));
    }
    return ERR_OK;
}

/* NULL: no memory. */
static char *why_not_encoded(struct worker *worker, const struct push_source *source)
{
    encoder_lock(worker->encoder);
    char *why = strdup(push_failure(source));
    encoder_unlock(worker->encoder);
    return why;
}

/* The encoder's thread. */
static void pushed(void *context, const struct encoder_job *job, enum err err, size_t bytes)
{
    char *why = err == ERR_IO ? why_not_encoded(context, &job->source) : NULL;
    worker_post(context, &(struct worker_event){.kind = EVENT_PUSHED,
                                                .err = err,
                                                .origin = job->number,
                                                .server = job->server,
                                                .lane = job->lane,
                                                .pushed = {bytes, job->given_ms, why}});
}

static enum err start_encoder(struct worker *worker)
{
    const struct encoder_options options = {.send = push_send, .done = pushed, .context = worker};
    return encoder_new(&options, &worker->encoder);
}

static enum err serve_run(struct worker *worker)
{
    uint32_t started = 0;
    enum err err = start_encoder(worker);
    while (started < worker->run.lanes && err == ERR_OK) {
        err = worker_lane_start(&worker->lanes[started]);
        started += err == ERR_OK ? 1 : 0;
    }
    while (err == ERR_OK && !worker->stopped) {
        work(worker);
        if (!worker->stopped)
            wait_for_events(worker, wake_ns(worker));
    }
    while (started > 0)
        worker_lane_stop(&worker->lanes[--started]);
    encoder_free(worker->encoder);
    return err == ERR_OK ? worker->stop : err;
}

/* ---- life ---- */

/* A machine that is to go waits for nothing: not for a long kernel, and not for a call. Who is told so
 * again goes no later than the first time. */
static void leave_in_time(struct worker *worker, uint32_t leave_ms)
{
    uint64_t end_ms = worker_now_ms() + leave_ms + WORKER_LEAVE_MS;
    uint64_t before_ms = atomic_load(&worker->ends_ms);
    while (before_ms == 0 || end_ms < before_ms)
        if (atomic_compare_exchange_weak(&worker->ends_ms, &before_ms, end_ms)) {
            signals_exit_after(leave_ms + WORKER_LEAVE_MS);
            return;
        }
}

/* The second signal waits for no ticket. */
static void on_signal_thread(void *owner, int number)
{
    struct worker *worker = owner;
    bool first = atomic_fetch_add(&worker->signals, 1) == 0;
    leave_in_time(worker, first ? worker->config->leave_ms : 0);
    worker_post(owner, &(struct worker_event){.kind = EVENT_SIGNAL, .signal = number});
}

static void on_notice_thread(void *owner, enum notice_verdict verdict, const char *text)
{
    struct worker_event event = {.kind = EVENT_CLOUD, .cloud = {.verdict = verdict}};
    snprintf(event.cloud.text, sizeof event.cloud.text, "%s", text);
    struct worker *worker = owner;
    if (verdict == NOTICE_LEAVE)
        leave_in_time(worker, worker->config->leave_ms);
    worker_post(worker, &event);
}

/* Without this heartbeat the worker is only noticed as lost later. */
static void watch_notices(struct worker *worker, struct notice_watch **ret_watch)
{
    const struct worker_config *config = worker->config;
    const struct notice_watch_config watch = {.cloud = config->notice_cloud,
                                              .endpoint = config->notice_endpoint,
                                              .every_ms = config->notice_ms,
                                              .leave_ms = config->leave_ms,
                                              .logger = config->logger,
                                              .said = on_notice_thread,
                                              .owner = worker};
    struct reason reason = {{0}};
    enum err err =
        config->notice_cloud < -1 ? ERR_OK : notice_watch_new(&watch, ret_watch, &reason);
    if (err != ERR_OK)
        log_warning(config->logger, "notices are not watched", log_text("err", err_name(err)),
                    log_text("why", reason.text), log_text("next", "go on"));
}

static void drain_inbox(struct worker *worker)
{
    struct worker_event event;
    size_t count;
    while (worker->inbox != NULL && inbox_take(worker->inbox, 0, 1, &event, &count) == ERR_OK)
        worker_event_release(&event);
}

static void worker_release(struct worker *worker)
{
    worker_links_free(worker);
    peers_free(worker->peers);
    rpc_channel_free(worker->channel);
    drain_inbox(worker);
    worker_call_forget(worker);
    agent_free(worker->agent);
    worker_run_release(&worker->run); /* its device may have the loop's pool */
    rpc_loop_free(worker->loop);
    inbox_free(worker->inbox);
    for (uint32_t i = 0; i < AGENT_LANES_MAX; i++)
        worker_lane_release(&worker->lanes[i]);
    turn_release(&worker->turn);
}

static enum err worker_init(struct worker *worker)
{
    struct inbox_limits events = {sizeof(struct worker_event), WORKER_EVENTS_MAX};
    snprintf(worker->leave_reason, sizeof worker->leave_reason, "the run is over");
    turn_init(&worker->turn);
    for (uint32_t i = 0; i < AGENT_LANES_MAX; i++)
        worker_lane_init(&worker->lanes[i], worker, i);
    TRY(rand_system(&worker->jitter, sizeof worker->jitter));
    return inbox_new(events, &worker->inbox);
}

static enum err open_channel(struct worker *worker)
{
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = 1; /* one connection a server: a second thread would only disturb it */
    settings.message_bytes_max = WIRE_CONTROL_BYTES_MAX; /* a slot's samples */
    settings.calls_max = PEER_CALLS_MAX;
    settings.connections_max = PEER_CONNECTIONS_MAX;
    if (worker->config->address != NULL)
        peers_settings(&settings);
    if (worker->config->network_only)
        settings.shared_ring_bytes = 0;
    settings.logger = worker->config->logger;
    TRY(rpc_loop_new(&settings, &worker->loop));
    return rpc_channel_new(worker->loop, worker->config->coordinator, worker->config->identity,
                           &worker->channel, &worker->failure);
}

enum err worker_run(const struct worker_config *config, struct reason *reason)
{
    struct worker worker = {.config = config};
    struct signals signals;
    struct notice_watch *watch = NULL;
    enum err err = worker_init(&worker);
    if (err == ERR_OK)
        err = signals_start(&signals, on_signal_thread, &worker); /* before gRPC has any thread */
    if (err != ERR_OK) {
        worker_release(&worker);
        return err;
    }
    watch_notices(&worker, &watch);
    if (config->identity != NULL)
        worker.shown = tls_identity_names(config->identity);
    worker_link_warn(&worker);
    err = open_channel(&worker);
    if (err == ERR_OK)
        err = attach(&worker);
    if (err == ERR_OK && !worker.stopped)
        err = serve_run(&worker);
    notice_watch_free(watch);
    signals_stop(&signals);
    if (err != ERR_OK)
        reason_set(reason, err, "%s", worker.failure.text);
    worker_release(&worker);
    return err;
}
