/* The worker's loop.
 *
 * Threads:
 *   main     owns the agent, the links to servers and the executor's chunk copies in and out; waits
 *            for events in its inbox. Everything the protocol decides happens here.
 *   compute  runs the executor, one ticket at a time; waits for a ticket, then for units' weights
 *            (`units`), and says when a unit's gradients are final.
 *   rpc …    gRPC's polling threads; they only post events.
 *   signals  waits for SIGTERM and SIGINT; posts an event.
 *   notice   asks a cloud's metadata service whether the machine goes; posts an event.
 *
 * Events carry the number of the stream they come from: what arrives from an earlier one than the
 * link's present one is dropped. */
#include "worker/worker.h"

#include "common/arena.h"
#include "common/inbox.h"
#include "common/rand.h"
#include "common/scoped.h"
#include "common/signals.h"
#include "common/time.h"
#include "worker/agent.h"
#include "worker/notice_watch.h"
#include "worker/pull.h"
#include "worker/push.h"
#include "worker/run.h"

#include <stdatomic.h>
#include <string.h>

enum {
    CALL_MS = 10000, /* deadline of Describe, Join, Complete */
    LEAVE_MS = 1000, /* of the good-bye, and of the end behind the budget */
    EVENTS_BATCH = 64,
    EVENTS_MAX = 16384, /* credits of all servers, and more */
};

enum event_kind {
    EVENT_ACQUIRED,
    EVENT_MESSAGE,       /* of a server's stream */
    EVENT_STREAM_CLOSED, /* of a server */
    EVENT_NOTICE,        /* message of the member stream */
    EVENT_MEMBER_CLOSED,
    EVENT_GRADIENT,
    EVENT_COMPUTED,
    EVENT_SIGNAL,
    EVENT_CLOUD /* what its metadata service says */
};

struct event {
    enum event_kind kind;
    enum err err;
    uint64_t origin; /* number of the stream, or of the membership that asked */
    uint32_t server;
    union {
        struct {
            uint64_t sequence;
            struct acquire_reply reply;
        } acquired;
        struct rpc_message *message; /* a reference */
        uint32_t unit;
        struct agent_result result;
        int signal;
        struct {
            enum notice_verdict verdict;
            char text[NOTICE_TEXT_BYTES];
        } cloud;
    };
};

struct worker;

/* What a stream's events are told with; lives from its opening to its `closed`. */
struct origin {
    struct worker *worker;
    uint64_t number;
    uint32_t server;
};

/* This end of a stream. */
struct link {
    struct rpc_channel *channel;
    struct rpc_stream *stream; /* NULL: none, or given up */
    uint64_t number;           /* of the stream; events of other numbers are late */
};

/* Which units' weights are in place: between main and compute. */
struct units {
    struct thread_mutex mutex; /* guards the rest */
    struct thread_cond changed;
    bool *ready;
    bool cancelled;
};

struct worker {
    const struct worker_config *config;
    struct rpc_loop *loop;
    struct rpc_channel *channel; /* to the coordinator */
    struct inbox *inbox;
    struct inbox *tickets; /* into the compute thread */
    struct thread compute;
    struct units units;
    struct run run;
    bool has_run;
    struct agent *agent;
    uint64_t membership;   /* rises with each join */
    uint64_t stream_count; /* opened so far */
    uint64_t member;       /* the newest; 0: none yet */
    uint32_t heartbeat_ms;
    uint64_t heartbeat_at_ms;
    struct link member_link;
    uint32_t link_count;
    struct link *links; /* one a server */
    uint64_t ticket_ms; /* when the newest ticket's compute began */
    char leave_reason[NOTICE_TEXT_BYTES + 32];
    struct rand_state jitter;
    bool stopped;
    enum err stop;
    struct reason failure; /* the newest sentence that came with an error */
};

static uint64_t now_ms(void)
{
    return time_now_ns() / 1000000;
}

static void post(struct worker *worker, const struct event *event)
{
    /* The inbox holds more than credits allow to be under way; a message beyond is a broken peer's
     * and is dropped, which its stream's end makes good. */
    if (inbox_post(worker->inbox, event) != ERR_OK && event->kind == EVENT_MESSAGE)
        rpc_message_unref(event->message);
}

/* ---- compute ---- */

static enum err hook_pull(void *context, uint32_t unit)
{
    struct units *units = &((struct worker *)context)->units;
    thread_lock(&units->mutex);
    while (!units->ready[unit] && !units->cancelled)
        ignore(thread_wait_locked(&units->changed, &units->mutex, TIME_NEVER)); /* looks again */
    bool ready = units->ready[unit];
    thread_unlock(&units->mutex);
    return ready ? ERR_OK : ERR_CANCELLED;
}

static enum err hook_push(void *context, uint32_t unit)
{
    post(context, &(struct event){.kind = EVENT_GRADIENT, .unit = unit});
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

static void compute_ticket(struct worker *worker, const struct ticket *ticket)
{
    struct executor_hooks hooks = {worker, hook_pull, hook_push, hook_cancelled};
    struct executor_samples samples = samples_source(&worker->run.samples);
    struct executor_loss loss = {0};
    struct event event = {.kind = EVENT_COMPUTED};
    if (ticket->kind == TICKET_VALIDATE)
        event.result.err = executor_validate(worker->run.executor, ticket, &samples, &hooks, &loss);
    else
        event.result.err = executor_run(worker->run.executor, ticket, &samples, &hooks, &loss);
    if (worker->run.async && ticket->kind == TICKET_TRAIN && event.result.err == ERR_OK)
        event.result.scale =
            whole_scale(&worker->run.scaling, worker->run.spec.optimizer.clip_norm, loss.samples);
    event.result.loss_sum = loss.loss_sum;
    event.result.sample_count = loss.samples;
    event.result.correct_count = loss.correct;
    post(worker, &event);
}

static void compute_main(void *argument)
{
    struct worker *worker = argument;
    struct ticket ticket;
    size_t count;
    while (inbox_take(worker->tickets, TIME_NEVER, 1, &ticket, &count) == ERR_OK)
        compute_ticket(worker, &ticket);
}

static void units_reset(struct worker *worker)
{
    thread_lock(&worker->units.mutex);
    memset(worker->units.ready, 0, worker->run.model.units_count * sizeof *worker->units.ready);
    worker->units.cancelled = false;
    thread_unlock(&worker->units.mutex);
}

static void units_change(struct worker *worker, uint32_t ready_unit, bool cancel)
{
    thread_lock(&worker->units.mutex);
    if (cancel)
        worker->units.cancelled = true;
    else
        worker->units.ready[ready_unit] = true;
    thread_wake_all(&worker->units.changed);
    thread_unlock(&worker->units.mutex);
}

/* ---- streams: callbacks on polling threads ---- */

static void post_message(const struct origin *origin, enum event_kind kind,
                         struct rpc_message *take_message)
{
    post(origin->worker, &(struct event){.kind = kind,
                                         .origin = origin->number,
                                         .server = origin->server,
                                         .message = take_message});
}

static void post_closed(struct origin *take_origin, enum event_kind kind, enum err err)
{
    post(take_origin->worker, &(struct event){.kind = kind,
                                              .err = err == ERR_OK ? ERR_UNREACHABLE : err,
                                              .origin = take_origin->number,
                                              .server = take_origin->server});
    free(take_origin);
}

static void exchange_message(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    (void)stream;
    post_message(owner, EVENT_MESSAGE, message);
}

static void exchange_closed(void *owner, struct rpc_stream *stream, enum err err,
                            const struct reason *reason)
{
    (void)stream;
    (void)reason;
    post_closed(owner, EVENT_STREAM_CLOSED, err);
}

static void member_message(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    (void)stream;
    post_message(owner, EVENT_NOTICE, message);
}

static void member_closed(void *owner, struct rpc_stream *stream, enum err err,
                          const struct reason *reason)
{
    (void)stream;
    (void)reason;
    post_closed(owner, EVENT_MEMBER_CLOSED, err);
}

static const struct rpc_stream_events exchange_events = {
    .message = exchange_message,
    .closed = exchange_closed,
};

static const struct rpc_stream_events member_events = {
    .message = member_message,
    .closed = member_closed,
};

static void link_close(struct link *link)
{
    if (link->stream == NULL)
        return;
    rpc_stream_cancel(link->stream);
    rpc_stream_unref(link->stream);
    link->stream = NULL;
}

/* Opens the link's next stream and gives it `take_first`, the message that names the member. */
static enum err link_open(struct worker *worker, struct link *link, uint32_t server,
                          const char *path, const struct rpc_stream_events *events,
                          struct buf *take_first)
{
    link_close(link);
    struct origin *origin = malloc(sizeof *origin);
    if (origin == NULL)
        return ERR_NOMEM;
    link->number = ++worker->stream_count;
    *origin = (struct origin){worker, link->number, server};
    enum err err = rpc_stream_open(link->channel, path, events, origin, &link->stream);
    if (err != ERR_OK) {
        free(origin);
        return err;
    }
    return rpc_stream_send(link->stream, RPC_URGENT, take_first, NULL, 0);
}

/* ---- calls to the coordinator ---- */

/* One that has ended: how long it was waited for, and how long it might have been. */
static void log_call(const struct worker *worker, const char *path, uint64_t begun_ms,
                     uint32_t deadline_ms, enum err err)
{
    log_debug(worker->config->logger, "call ended", log_text("path", path),
              log_uint("waited_ms", now_ms() - begun_ms), log_uint("deadline_ms", deadline_ms),
              log_text("err", err_name(err)));
}

/* A method, and how long its answer may take. */
struct path {
    const char *name;
    uint32_t deadline_ms;
};

static enum err call(struct worker *worker, struct path path, struct slice request,
                     struct buf *ret_response, struct reason *reason)
{
    uint64_t begun_ms = now_ms();
    enum err err =
        rpc_call(worker->channel, path.name, request, path.deadline_ms, ret_response, reason);
    log_call(worker, path.name, begun_ms, path.deadline_ms, err);
    return err;
}

/* ---- joining ---- */

/* Ends all streams of the membership; waits until their last events are posted. */
static void links_free(struct worker *worker)
{
    link_close(&worker->member_link);
    for (uint32_t i = 0; i < worker->link_count; i++) {
        link_close(&worker->links[i]);
        rpc_channel_free(worker->links[i].channel);
    }
    free(worker->links);
    worker->links = NULL;
    worker->link_count = 0;
}

static bool is_over(const struct describe_reply *description)
{
    return description->state != RUN_STARTING && description->state != RUN_TRAINING;
}

static enum err call_describe(struct worker *worker, struct arena *arena, struct buf *response,
                              struct describe_reply *ret_reply)
{
    scoped(buf_release) struct buf request = {0};
    struct describe_request wanted = {.with_chunks = false};
    TRY(wire_encode_describe_request(&wanted, &request));
    TRY(call(worker, (struct path){"/roost.v1.Cluster/Describe", CALL_MS}, buf_slice(&request),
             response, &worker->failure));
    TRY(wire_decode_describe_reply(buf_slice(response), arena, ret_reply, &worker->failure));
    if (ret_reply->wire_version != WIRE_VERSION)
        return reason_set(&worker->failure, ERR_WIRE_VERSION,
                          "coordinator %s speaks wire version %u, this worker %d",
                          worker->config->coordinator, ret_reply->wire_version, WIRE_VERSION);
    bool ours = worker->has_run && ret_reply->run == worker->run.number;
    if (!ret_reply->has_run || (is_over(ret_reply) && !ours))
        return reason_set(&worker->failure, ERR_NO_RUN, "no run is active at %s",
                          worker->config->coordinator);
    return ERR_OK;
}

static void log_memory(const struct worker *worker)
{
    struct executor_memory memory = executor_memory(worker->run.executor);
    log_info(worker->config->logger, "memory taken", log_uint("weights_bytes", memory.weights),
             log_uint("gradients_bytes", memory.gradients),
             log_uint("activations_bytes", memory.activations),
             log_uint("local_bytes", memory.local), log_uint("scratch_bytes", memory.scratch),
             log_uint("logits_bytes", memory.logits), log_uint("workspace_bytes", memory.workspace),
             log_uint("total_bytes", memory.total));
}

static enum err open_run(struct worker *worker, const struct describe_reply *description)
{
    if (worker->has_run)
        return description->run == worker->run.number
                   ? ERR_OK
                   : reason_set(&worker->failure, ERR_SPEC_DIFFERS, "another run was started");
    struct run_options options = {
        .backend = worker->config->backend,
        .data_path = worker->config->data_path,
        .channel = worker->channel,
        .logger = worker->config->logger,
    };
    TRY(run_open(description, &options, &worker->run, &worker->failure));
    worker->has_run = true;
    log_memory(worker);
    worker->units.ready = calloc(worker->run.model.units_count, sizeof *worker->units.ready);
    struct agent_config agent = {
        .model = &worker->run.model,
        .push_codec = worker->run.push_codec,
        .weights_codec = worker->run.weights_codec,
        .async = worker->run.async,
        .seed = rand_next(&worker->jitter),
    };
    return worker->units.ready == NULL ? ERR_NOMEM : agent_new(&agent, &worker->agent);
}

static enum err call_join(struct worker *worker, struct join_reply *ret_reply)
{
    scoped(buf_release) struct buf request = {0};
    scoped(buf_release) struct buf response = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct join_request wanted = {.wire_version = WIRE_VERSION, .previous_member = worker->member};
    snprintf(wanted.name, sizeof wanted.name, "%s", worker->config->name);
    snprintf(wanted.device, sizeof wanted.device, "%s", worker->run.kernels->name);
    memcpy(wanted.fingerprint, worker->run.fingerprint.bytes, WIRE_DIGEST_BYTES);
    memcpy(wanted.data_digest, worker->run.data_digest.bytes, WIRE_DIGEST_BYTES);
    TRY(wire_encode_join_request(&wanted, &request));
    TRY(call(worker, (struct path){"/roost.v1.Cluster/Join", CALL_MS}, buf_slice(&request),
             &response, &worker->failure));
    return wire_decode_join_reply(buf_slice(&response), &arena, ret_reply, &worker->failure);
}

static enum err encode_heartbeat(const struct worker *worker, struct buf *ret_report)
{
    struct member_report message = {.member = worker->member};
    return wire_encode_member_report(&message, ret_report);
}

static enum err open_member_stream(struct worker *worker)
{
    struct buf report = {0};
    TRY(encode_heartbeat(worker, &report));
    worker->member_link.channel = worker->channel;
    worker->heartbeat_at_ms = now_ms() + worker->heartbeat_ms;
    return link_open(worker, &worker->member_link, 0, "/roost.v1.Cluster/Member", &member_events,
                     &report);
}

static void send_heartbeat(struct worker *worker)
{
    struct buf report = {0};
    worker->heartbeat_at_ms = now_ms() + worker->heartbeat_ms;
    /* one that cannot be sent is missed; the stream's end is an event of its own */
    if (encode_heartbeat(worker, &report) == ERR_OK)
        ignore(rpc_stream_send(worker->member_link.stream, RPC_URGENT, &report, NULL, 0));
}

/* The link's server, if the place has one. */
static enum err link_connect(struct worker *worker, struct link *link, const char *address)
{
    if (address[0] == 0)
        return ERR_OK;
    return rpc_channel_new(worker->loop, address, worker->config->identity, &link->channel,
                           &worker->failure);
}

static enum err open_links(struct worker *worker, const struct describe_reply *description)
{
    worker->links = calloc(description->server_count, sizeof *worker->links);
    if (worker->links == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < description->server_count; i++) {
        TRY(link_connect(worker, &worker->links[i], description->servers[i].address));
        worker->link_count = i + 1;
    }
    return ERR_OK;
}

/* The servers as they are now: links to those that stay are kept. */
static enum err change_links(struct worker *worker, const struct describe_reply *description)
{
    uint32_t count = description->server_count;
    if (count > worker->link_count) {
        struct link *links = realloc(worker->links, count * sizeof *links);
        if (links == NULL)
            return ERR_NOMEM;
        memset(links + worker->link_count, 0, (count - worker->link_count) * sizeof *links);
        worker->links = links;
        worker->link_count = count;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct link *link = &worker->links[i];
        const char *address = description->servers[i].address;
        if (link->channel != NULL && strcmp(rpc_channel_address(link->channel), address) == 0)
            continue;
        if (link->channel != NULL) {
            link_close(link);
            rpc_channel_free(link->channel);
            *link = (struct link){0};
            agent_stream_lost(worker->agent, now_ms(), i, ERR_UNREACHABLE);
        }
        TRY(link_connect(worker, link, address));
    }
    return ERR_OK;
}

static enum err chunk_servers(const struct model *model, const struct describe_reply *description,
                              uint32_t **ret_servers, struct reason *reason)
{
    uint32_t *servers = malloc(model->chunks_count * sizeof *servers);
    if (servers == NULL)
        return ERR_NOMEM;
    memset(servers, 0xff, model->chunks_count * sizeof *servers);
    for (uint32_t i = 0; i < description->range_count; i++) {
        const struct chunk_range *range = &description->ranges[i];
        bool known = range->server < description->server_count &&
                     description->servers[range->server].address[0] != 0;
        for (uint32_t c = 0; c < range->count && range->first + c < model->chunks_count; c++)
            servers[range->first + c] = known ? range->server : UINT32_MAX;
    }
    for (uint32_t c = 0; c < model->chunks_count; c++)
        if (servers[c] == UINT32_MAX) {
            free(servers);
            return reason_set(reason, ERR_NO_RUN, "chunk %u has no server yet", c);
        }
    *ret_servers = servers;
    return ERR_OK;
}

static enum err join(struct worker *worker)
{
    scoped(buf_release) struct buf response = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = 8 * WIRE_CONTROL_BYTES_MAX};
    scoped(free_scoped) uint32_t *servers = NULL;
    struct describe_reply description;
    struct join_reply reply;
    TRY(call_describe(worker, &arena, &response, &description));
    TRY(open_run(worker, &description));
    if (is_over(&description)) {
        agent_run_over(worker->agent, now_ms());
        return ERR_OK;
    }
    TRY(chunk_servers(&worker->run.model, &description, &servers, &worker->failure));
    TRY(call_join(worker, &reply));
    links_free(worker);
    worker->membership++;
    worker->member = reply.member;
    worker->heartbeat_ms = reply.heartbeat_ms;
    TRY(open_member_stream(worker));
    TRY(open_links(worker, &description));
    struct agent_map map = {description.map_number, description.server_count, servers};
    agent_joined(worker->agent, now_ms(), &reply, &map);
    log_info(worker->config->logger, "joined", log_uint("member", reply.member),
             log_uint("run", reply.run), log_uint("generation", reply.generation),
             log_uint("servers", description.server_count),
             log_text("device", worker->run.kernels->name));
    return ERR_OK;
}

static void log_retry(const struct worker *worker, const char *what, enum err err)
{
    log_warning(worker->config->logger, what, log_text("with", worker->config->coordinator),
                log_text("err", err_name(err)), log_text("why", worker->failure.text),
                log_text("next", reaction_name(err_reaction(err))));
}

static void do_join(struct worker *worker)
{
    enum err err = join(worker);
    if (err == ERR_OK)
        return;
    log_retry(worker, "join failed", err);
    agent_join_failed(worker->agent, now_ms(), err);
}

/* ---- chunks that move ---- */

static enum err map_again(struct worker *worker)
{
    scoped(buf_release) struct buf response = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = 8 * WIRE_CONTROL_BYTES_MAX};
    scoped(free_scoped) uint32_t *servers = NULL;
    struct describe_reply description;
    TRY(call_describe(worker, &arena, &response, &description));
    if (is_over(&description)) {
        agent_run_over(worker->agent, now_ms());
        return ERR_OK;
    }
    TRY(chunk_servers(&worker->run.model, &description, &servers, &worker->failure));
    TRY(change_links(worker, &description));
    struct agent_map map = {description.map_number, description.server_count, servers};
    agent_mapped(worker->agent, now_ms(), &map);
    return ERR_OK;
}

static void do_describe(struct worker *worker)
{
    enum err err = map_again(worker);
    if (err == ERR_OK)
        return;
    log_retry(worker, "map not renewed", err);
    agent_map_failed(worker->agent, now_ms(), err);
}

/* ---- effects ---- */

/* A call that is not waited for: what its answer needs to find its way back. */
struct open_call {
    struct worker *worker;
    const char *path;
    uint64_t begun_ms;
    uint32_t deadline_ms;
    uint64_t membership;
    uint64_t sequence; /* of an acquire */
};

/* `answered` frees what it owns, a struct open_call. */
static enum err start_call(const struct open_call *call, rpc_answered_fn *answered,
                           struct buf *take_request)
{
    struct open_call *owner = malloc(sizeof *owner);
    if (owner == NULL) {
        buf_release(take_request);
        return ERR_NOMEM;
    }
    *owner = *call;
    owner->begun_ms = now_ms();
    struct rpc_call_config config = {
        .path = call->path, .timeout_ms = call->deadline_ms, .answered = answered, .owner = owner};
    enum err err = rpc_call_start(call->worker->channel, &config, take_request, NULL);
    if (err != ERR_OK)
        free(owner);
    return err;
}

static void end_call(struct open_call *take_call, enum err err)
{
    log_call(take_call->worker, take_call->path, take_call->begun_ms, take_call->deadline_ms, err);
    free(take_call);
}

static void acquire_answered(void *owner, enum err err, struct slice response,
                             const struct reason *reason)
{
    (void)reason;
    struct open_call *call = owner;
    struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct event event = {.kind = EVENT_ACQUIRED, .err = err, .origin = call->membership};
    event.acquired.sequence = call->sequence;
    if (err == ERR_OK)
        event.err = wire_decode_acquire_reply(response, &arena, &event.acquired.reply, NULL);
    arena_release(&arena);
    post(call->worker, &event);
    end_call(call, err);
}

static enum err start_acquire(struct worker *worker, const struct acquire_request *request)
{
    struct buf bytes = {0};
    struct open_call call = {.worker = worker,
                             .path = "/roost.v1.Cluster/Acquire",
                             .deadline_ms = request->wait_ms + CALL_MS,
                             .membership = worker->membership,
                             .sequence = request->sequence};
    enum err err = wire_encode_acquire_request(request, &bytes);
    if (err != ERR_OK) {
        buf_release(&bytes);
        return err;
    }
    return start_call(&call, acquire_answered, &bytes);
}

static void nothing_answered(void *owner, enum err err, struct slice response,
                             const struct reason *reason)
{
    (void)response;
    (void)reason;
    end_call(owner, err);
}

static void say(struct worker *worker, const char *path, struct buf *take_request)
{
    struct open_call call = {.worker = worker, .path = path, .deadline_ms = CALL_MS};
    ignore(start_call(&call, nothing_answered, take_request)); /* the lease's end makes it good */
}

static void do_complete(struct worker *worker, const struct complete_request *complete)
{
    struct buf request = {0};
    if (wire_encode_complete_request(complete, &request) == ERR_OK)
        say(worker, "/roost.v1.Cluster/Complete", &request);
    else
        buf_release(&request);
    log_debug(worker->config->logger, "ticket done", log_uint("step", complete->ticket.step),
              log_uint("slot", node_first(complete->ticket.node)),
              log_uint("held_ms", now_ms() - worker->ticket_ms),
              log_text("outcome", err_name(complete->outcome)));
}

static void do_leave(struct worker *worker)
{
    scoped(buf_release) struct buf request = {0};
    scoped(buf_release) struct buf response = {0};
    struct leave_request leave = {.member = worker->member, .reason = worker->leave_reason};
    if (wire_encode_leave_request(&leave, &request) != ERR_OK)
        return;
    /* the lease's end says it otherwise */
    ignore(call(worker, (struct path){"/roost.v1.Cluster/Leave", LEAVE_MS}, buf_slice(&request),
                &response, NULL));
}

static enum err open_exchange(struct worker *worker, uint32_t server)
{
    struct buf header = {0};
    struct to_shard hello = {.kind = TO_SHARD_HELLO, .hello = {worker->member}};
    TRY(wire_encode_to_shard(&hello, &header));
    return link_open(worker, &worker->links[server], server, "/roost.v1.Shard/Exchange",
                     &exchange_events, &header);
}

/* A message that could not be sent: its stream is given up, and everything is said again. */
static void sent_or_lost(struct worker *worker, uint32_t server, enum err err)
{
    if (err == ERR_OK)
        return;
    link_close(&worker->links[server]);
    agent_stream_lost(worker->agent, now_ms(), server, ERR_UNREACHABLE);
}

static void do_compute(struct worker *worker, const struct ticket *ticket)
{
    units_reset(worker);
    worker->ticket_ms = now_ms();
    log_debug(worker->config->logger, "ticket begun", log_uint("step", ticket->step),
              log_uint("slot", node_first(ticket->node)),
              log_uint("slots", UINT64_C(1) << ticket->node.level), log_uint("kind", ticket->kind));
    check(inbox_post(worker->tickets, ticket) == ERR_OK); /* one at a time */
}

static void carry_out(struct worker *worker, const struct agent_effect *effect)
{
    struct run *run = &worker->run;
    enum err err;
    switch (effect->kind) {
    case AGENT_JOIN:
        do_join(worker);
        break;
    case AGENT_DESCRIBE:
        do_describe(worker);
        break;
    case AGENT_OPEN:
        sent_or_lost(worker, effect->server, open_exchange(worker, effect->server));
        break;
    case AGENT_ACQUIRE:
        err = start_acquire(worker, &effect->acquire);
        if (err != ERR_OK)
            agent_acquired(worker->agent, now_ms(), effect->acquire.sequence, err, NULL);
        break;
    case AGENT_COMPUTE:
        do_compute(worker, &effect->ticket);
        break;
    case AGENT_CANCEL:
        units_change(worker, 0, true);
        break;
    case AGENT_PULL:
        err = pull_send(worker->links[effect->server].stream, &effect->pull);
        sent_or_lost(worker, effect->server, err);
        break;
    case AGENT_UNIT_READY:
        units_change(worker, effect->unit, false);
        break;
    case AGENT_PUSH:
        err = push_send(run->executor, run->async ? &run->pushing : NULL, &run->model,
                        worker->links[effect->server].stream, &effect->push.push,
                        effect->push.entries);
        sent_or_lost(worker, effect->server, err);
        break;
    case AGENT_COMPLETE:
        do_complete(worker, &effect->complete);
        break;
    case AGENT_LEAVE:
        do_leave(worker);
        break;
    case AGENT_STOP:
        worker->stopped = true;
        worker->stop = effect->stop;
        break;
    }
}

/* ---- events ---- */

static void on_from_shard(struct worker *worker, uint32_t server, const struct from_shard *message,
                          const struct rpc_message *bytes)
{
    struct agent *agent = worker->agent;
    switch (message->kind) {
    case FROM_SHARD_WELCOME:
        agent_stream_up(agent, now_ms(), server, message->welcome.boot);
        break;
    case FROM_SHARD_ACK:
        agent_acked(agent, now_ms(), server, &message->ack);
        break;
    case FROM_SHARD_WEIGHTS:
        if (agent_weights(agent, now_ms(), server, &message->weights))
            pull_receive(worker->run.executor, &worker->run.model, message, bytes->slices,
                         bytes->slice_count);
        break;
    case FROM_SHARD_REFUSAL:
        agent_refused(agent, now_ms(), server, &message->refusal);
        break;
    }
}

static void on_message(struct worker *worker, const struct event *event)
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

static void on_notice(struct worker *worker, const struct event *event)
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
            agent_member_lost(worker->agent, now_ms());
        else if (notice.kind == NOTICE_RUN_OVER)
            agent_run_over(worker->agent, now_ms());
    }
    arena_release(&arena);
}

/* Said twice: at once. */
static void leave(struct worker *worker)
{
    log_info(worker->config->logger, "leaving", log_text("reason", worker->leave_reason),
             log_uint("budget_ms", worker->config->leave_ms));
    if (worker->agent != NULL)
        agent_leave(worker->agent, now_ms(), now_ms() + worker->config->leave_ms);
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

/* What the compute thread's error was about. */
static void note_failure(struct worker *worker, enum err err)
{
    const char *device = executor_failure(worker->run.executor);
    if (err != ERR_OK && err != ERR_CANCELLED)
        reason_set(&worker->failure, err, "%s",
                   err == ERR_IO ? device : worker->run.samples.failure.text);
}

/* Events of the present stream of a link. */
static bool from_server(const struct worker *worker, const struct event *event)
{
    return event->server < worker->link_count &&
           worker->links[event->server].number == event->origin;
}

static void on_event(struct worker *worker, const struct event *event)
{
    switch (event->kind) {
    case EVENT_ACQUIRED:
        if (event->origin == worker->membership)
            agent_acquired(worker->agent, now_ms(), event->acquired.sequence, event->err,
                           &event->acquired.reply);
        break;
    case EVENT_MESSAGE:
        if (from_server(worker, event))
            on_message(worker, event);
        rpc_message_unref(event->message);
        break;
    case EVENT_STREAM_CLOSED:
        if (from_server(worker, event))
            agent_stream_lost(worker->agent, now_ms(), event->server, event->err);
        break;
    case EVENT_NOTICE:
        if (event->origin == worker->member_link.number)
            on_notice(worker, event);
        rpc_message_unref(event->message);
        break;
    case EVENT_MEMBER_CLOSED:
        if (event->origin == worker->member_link.number)
            agent_member_lost(worker->agent, now_ms());
        break;
    case EVENT_GRADIENT:
        agent_gradient(worker->agent, now_ms(), event->unit);
        break;
    case EVENT_COMPUTED:
        note_failure(worker, event->result.err);
        agent_computed(worker->agent, now_ms(), &event->result);
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
    while (!worker->stopped && agent_next(worker->agent, now_ms(), &effect))
        carry_out(worker, &effect);
    if (now_ms() >= worker->heartbeat_at_ms && worker->member_link.stream != NULL)
        send_heartbeat(worker);
}

static uint64_t wake_ns(const struct worker *worker)
{
    uint64_t wake = agent_wake_ms(worker->agent);
    if (worker->heartbeat_at_ms < wake)
        wake = worker->heartbeat_at_ms;
    return wake > UINT64_MAX / 1000000 ? TIME_NEVER : wake * 1000000;
}

static void wait_for_events(struct worker *worker, uint64_t deadline_ns)
{
    struct event events[EVENTS_BATCH];
    size_t count = 0;
    enum err err = inbox_take(worker->inbox, deadline_ns, EVENTS_BATCH, events, &count);
    for (size_t i = 0; err == ERR_OK && i < count; i++)
        on_event(worker, &events[i]);
}

/* Until the first join succeeds there is no agent: the model is not known. */
static enum err attach(struct worker *worker)
{
    uint64_t started_ms = now_ms();
    for (unsigned failures = 0; !worker->stopped; failures++) {
        scoped(buf_release) struct buf response = {0};
        scoped(arena_release) struct arena arena = {.bytes_max = 8 * WIRE_CONTROL_BYTES_MAX};
        struct describe_reply description;
        enum err err = call_describe(worker, &arena, &response, &description);
        if (err == ERR_OK)
            return open_run(worker, &description);
        enum reaction reaction = err_reaction(err);
        if (reaction != REACT_RETRY && reaction != REACT_WAIT)
            return err;
        if (worker->config->connect_s != 0 &&
            now_ms() - started_ms > (uint64_t)worker->config->connect_s * 1000)
            return err;
        if (failures % 10 == 0)
            log_retry(worker, "not attached", err);
        unsigned counted = reaction == REACT_WAIT && failures > AGENT_WAIT_FAILURES_MAX
                               ? AGENT_WAIT_FAILURES_MAX
                               : failures;
        uint64_t backoff_ms = agent_backoff_ms(&worker->jitter, counted);
        wait_for_events(worker, time_after_ms(time_now_ns(), backoff_ms));
    }
    return ERR_OK;
}

static enum err serve_run(struct worker *worker)
{
    TRY(thread_start(&worker->compute, "compute", compute_main, worker));
    while (!worker->stopped) {
        work(worker);
        if (!worker->stopped)
            wait_for_events(worker, wake_ns(worker));
    }
    inbox_close(worker->tickets);
    thread_join(&worker->compute);
    return worker->stop;
}

/* ---- life ---- */

/* Nothing may keep a machine that is to go: neither a long kernel nor a call that waits. */
static void leave_in_time(const struct worker *worker)
{
    signals_exit_after(worker->config->leave_ms + LEAVE_MS);
}

static void on_signal_thread(void *owner, int number)
{
    leave_in_time(owner);
    post(owner, &(struct event){.kind = EVENT_SIGNAL, .signal = number});
}

static void on_notice_thread(void *owner, enum notice_verdict verdict, const char *text)
{
    struct event event = {.kind = EVENT_CLOUD, .cloud = {.verdict = verdict}};
    snprintf(event.cloud.text, sizeof event.cloud.text, "%s", text);
    if (verdict == NOTICE_LEAVE)
        leave_in_time(owner);
    post(owner, &event);
}

/* Without it the worker is only lost later. */
static void watch_notices(struct worker *worker, struct notice_watch **ret_watch)
{
    const struct worker_config *config = worker->config;
    const struct notice_watch_config watch = {.cloud = config->notice_cloud,
                                              .endpoint = config->notice_endpoint,
                                              .every_ms = config->notice_ms,
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
    struct event event;
    size_t count;
    while (inbox_take(worker->inbox, 0, 1, &event, &count) == ERR_OK)
        if (event.kind == EVENT_MESSAGE || event.kind == EVENT_NOTICE)
            rpc_message_unref(event.message);
}

static void worker_release(struct worker *worker)
{
    links_free(worker);
    rpc_channel_free(worker->channel);
    drain_inbox(worker);
    rpc_loop_free(worker->loop);
    agent_free(worker->agent);
    run_release(&worker->run);
    inbox_free(worker->inbox);
    inbox_free(worker->tickets);
    free(worker->units.ready);
    thread_cond_release(&worker->units.changed);
    thread_mutex_release(&worker->units.mutex);
}

static enum err worker_init(struct worker *worker)
{
    struct inbox_limits events = {sizeof(struct event), EVENTS_MAX};
    struct inbox_limits tickets = {sizeof(struct ticket), 2};
    snprintf(worker->leave_reason, sizeof worker->leave_reason, "the run is over");
    thread_mutex_init(&worker->units.mutex);
    thread_cond_init(&worker->units.changed);
    TRY(rand_system(&worker->jitter, sizeof worker->jitter));
    TRY(inbox_new(events, &worker->inbox));
    return inbox_new(tickets, &worker->tickets);
}

static enum err open_channel(struct worker *worker)
{
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = 1; /* one connection a server: a second thread would only disturb it */
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
