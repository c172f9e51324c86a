/* Calls that are waited for, and those that are not. */
#include "worker/worker_calls.h"

#include "common/scoped.h"
#include "worker/worker_link.h"
#include "worker/worker_meter.h"

enum {
    CALL_MS = 10000, /* deadline of Describe, Join, Complete */
    AGAIN_MAX = 8    /* times that a Complete is sent again: in some 20 s */
};

const char *worker_call_next(const struct worker *worker, enum err err)
{
    enum reaction reaction = err_reaction(err);
    bool again = err == ERR_UNTRUSTED && worker->agent != NULL && agent_was_served(worker->agent);
    if (again || reaction == REACT_DONE) /* whoever ended is asked again when it is back */
        return reaction_name(REACT_RETRY);
    if (reaction == REACT_REJECT) /* its own question: it has no message to drop */
        return reaction_name(REACT_STOP);
    return reaction_name(reaction);
}

void worker_call_failed(struct worker *worker, const char *what, enum err err)
{
    if (!worker_link_warning_is_due(&worker->member_link, err))
        return;
    log_warning(worker->config->logger, what, log_text("with", worker->config->coordinator),
                log_text("err", err_name(err)), log_text("why", worker->failure.text),
                log_text("next", worker_call_next(worker, err)));
}

/* A call that has ended: how long the worker waited for it, and how long it could have. */
static void log_call(const struct worker *worker, const char *path, uint64_t begun_ms,
                     uint32_t deadline_ms, enum err err)
{
    log_debug(worker->config->logger, "call ended", log_text("path", path),
              log_uint("waited_ms", worker_now_ms() - begun_ms),
              log_uint("deadline_ms", deadline_ms), log_text("err", err_name(err)));
}

/* ---- waited for ---- */

/* A method, and how long its answer may take. */
struct call_path {
    const char *name;
    uint32_t deadline_ms;
};

static enum err call(struct worker *worker, struct call_path path, struct slice request,
                     struct buf *ret_response, struct reason *reason)
{
    uint64_t begun_ms = worker_now_ms();
    enum err err =
        rpc_call(worker->channel, path.name, request, path.deadline_ms, ret_response, reason);
    log_call(worker, path.name, begun_ms, path.deadline_ms, err);
    return err;
}

bool worker_call_is_over(const struct describe_reply *description)
{
    return description->state != RUN_STARTING && description->state != RUN_TRAINING;
}

/* The newest version that both sides speak. A coordinator of version 1 names no oldest one. */
static enum err choose_wire_version(struct worker *worker, const struct describe_reply *reply)
{
    uint32_t newest = reply->wire_version < WIRE_VERSION ? reply->wire_version : WIRE_VERSION;
    worker->wire_version = newest;
    if (newest >= WIRE_VERSION_MIN && newest >= reply->wire_version_min)
        return ERR_OK;
    return reason_set(&worker->failure, ERR_WIRE_VERSION,
                      "coordinator %s speaks wire version %u to %u, this worker %d to %d",
                      worker->config->coordinator, reply->wire_version_min, reply->wire_version,
                      WIRE_VERSION_MIN, WIRE_VERSION);
}

static const struct call_path describe_path = {"/roost.v1.Cluster/Describe", CALL_MS};

static enum err encode_describe(struct buf *ret_request)
{
    struct describe_request wanted = {.with_chunks = false};
    return wire_encode_describe_request(&wanted, ret_request);
}

enum err worker_call_described(struct worker *worker, struct arena *arena, struct slice response,
                               struct describe_reply *ret_reply)
{
    TRY(wire_decode_describe_reply(response, arena, ret_reply, &worker->failure));
    TRY(choose_wire_version(worker, ret_reply));
    bool ours = worker->has_run && ret_reply->run == worker->run.number;
    if (!ret_reply->has_run || (worker_call_is_over(ret_reply) && !ours))
        return reason_set(&worker->failure, ERR_NO_RUN, "no run is active at %s",
                          worker->config->coordinator);
    return ERR_OK;
}

enum err worker_call_describe(struct worker *worker, struct arena *arena, struct buf *response,
                              struct describe_reply *ret_reply)
{
    scoped(buf_release) struct buf request = {0};
    TRY(encode_describe(&request));
    TRY(call(worker, describe_path, buf_slice(&request), response, &worker->failure));
    return worker_call_described(worker, arena, buf_slice(response), ret_reply);
}

enum err worker_call_join(struct worker *worker, struct join_reply *ret_reply)
{
    scoped(buf_release) struct buf request = {0};
    scoped(buf_release) struct buf response = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct join_request wanted = {.wire_version = worker->wire_version,
                                  .previous_member = worker->member,
                                  .previous_secret = worker->secret};
    snprintf(wanted.name, sizeof wanted.name, "%s", worker->config->name);
    worker_run_device(&worker->run, wanted.device, sizeof wanted.device);
    wanted.devices = worker->run.devices;
    memcpy(wanted.fingerprint, worker->run.fingerprint.bytes, WIRE_DIGEST_BYTES);
    memcpy(wanted.data_digest, worker->run.data_digest.bytes, WIRE_DIGEST_BYTES);
    if (worker->peers != NULL)
        snprintf(wanted.address, sizeof wanted.address, "%s", peers_address(worker->peers));
    TRY(wire_encode_join_request(&wanted, &request));
    TRY(call(worker, (struct call_path){"/roost.v1.Cluster/Join", CALL_MS}, buf_slice(&request),
             &response, &worker->failure));
    return wire_decode_join_reply(buf_slice(&response), &arena, ret_reply, &worker->failure);
}

void worker_call_leave(struct worker *worker)
{
    scoped(buf_release) struct buf request = {0};
    scoped(buf_release) struct buf response = {0};
    struct leave_request leave = {.member = worker->member,
                                  .secret = worker->secret,
                                  .reason = worker->leave_reason,
                                  .place = worker->computed,
                                  .cost =
                                      worker_meter_take(worker, TICKET_TRAIN, &worker->computed)};
    if (wire_encode_leave_request(&leave, &request) != ERR_OK)
        return;
    /* otherwise the coordinator learns it when the lease ends */
    ignore(call(worker, (struct call_path){"/roost.v1.Cluster/Leave", WORKER_LEAVE_MS},
                buf_slice(&request), &response, NULL));
}

/* ---- not waited for ---- */

/* A call that is not waited for, with what its answer needs to become an event. */
struct open_call {
    struct worker *worker;
    const char *path;
    uint64_t begun_ms;
    uint32_t deadline_ms;
    uint64_t membership;
    uint64_t sequence; /* of an acquire */
    struct buf again;  /* of a complete: what is sent when this call is lost; owned */
    unsigned failures; /* so often it was */
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
    owner->begun_ms = worker_now_ms();
    struct rpc_call_config config = {
        .path = call->path, .timeout_ms = call->deadline_ms, .answered = answered, .owner = owner};
    enum err err = rpc_call_start(call->worker->channel, &config, take_request);
    if (err != ERR_OK)
        free(owner);
    return err;
}

static void end_call(struct open_call *take_call, enum err err)
{
    log_call(take_call->worker, take_call->path, take_call->begun_ms, take_call->deadline_ms, err);
    free(take_call);
}

static void post_answer(struct open_call *take_call, enum worker_event_kind kind, enum err err,
                        struct slice response, const struct reason *reason)
{
    struct worker_event event = {.kind = kind, .err = err, .origin = take_call->membership};
    event.answer.sequence = take_call->sequence;
    event.answer.response = (struct buf){.bytes_max = WIRE_CONTROL_BYTES_MAX};
    if (err == ERR_OK)
        event.err = buf_append(&event.answer.response, response.data, response.bytes);
    else
        event.answer.why = strdup(reason->text);
    worker_post(take_call->worker, &event);
    end_call(take_call, err);
}

static void acquire_answered(void *owner, enum err err, struct slice response,
                             const struct reason *reason)
{
    post_answer(owner, EVENT_ACQUIRED, err, response, reason);
}

enum err worker_call_acquire(struct worker *worker, const struct acquire_request *request)
{
    struct buf bytes = {0};
    check(request->member == worker->member); /* of the membership that the call names */
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

static void map_answered(void *owner, enum err err, struct slice response,
                         const struct reason *reason)
{
    post_answer(owner, EVENT_MAPPED, err, response, reason);
}

enum err worker_call_map(struct worker *worker)
{
    struct buf bytes = {0};
    struct open_call call = {.worker = worker,
                             .path = describe_path.name,
                             .deadline_ms = describe_path.deadline_ms,
                             .membership = worker->membership};
    enum err err = encode_describe(&bytes);
    if (err != ERR_OK) {
        buf_release(&bytes);
        return err;
    }
    return start_call(&call, map_answered, &bytes);
}

/* ---- Complete ---- */

static void complete_answered(void *owner, enum err err, struct slice response,
                              const struct reason *reason)
{
    struct open_call *call = owner;
    const struct worker_event event = {.kind = EVENT_UNHEARD,
                                       .err = err,
                                       .origin = call->membership,
                                       .unheard = {call->again, call->failures + 1}};
    (void)response;
    (void)reason;
    if (err != ERR_OK && agent_backoff_helps_member(err) && call->failures < AGAIN_MAX)
        worker_post(call->worker, &event);
    else
        buf_release(&call->again);
    end_call(call, err);
}

/* `take_again`: what is sent when the call is lost. */
static void say_complete(struct worker *worker, struct buf *take_request, struct buf *take_again,
                         unsigned failures)
{
    struct open_call call = {.worker = worker,
                             .path = "/roost.v1.Cluster/Complete",
                             .deadline_ms = CALL_MS,
                             .membership = worker->membership,
                             .again = *take_again,
                             .failures = failures};
    *take_again = (struct buf){0};
    if (start_call(&call, complete_answered, take_request) != ERR_OK)
        buf_release(&call.again); /* the lease ends later */
}

void worker_call_unheard(struct worker *worker, const struct worker_event *event)
{
    uint64_t pause_ms = agent_backoff_ms(&worker->jitter, event->unheard.failures - 1);
    struct slice request = buf_slice(&event->unheard.request);
    uint32_t i = 0;
    while (i < WORKER_UNHEARD_MAX && worker->unheard[i].request.data != NULL)
        i++;
    if (i == WORKER_UNHEARD_MAX)
        return;
    struct unheard *unheard = &worker->unheard[i];
    unheard->at_ms = worker_now_ms() + pause_ms;
    unheard->failures = event->unheard.failures;
    if (buf_append(&unheard->request, request.data, request.bytes) != ERR_OK)
        buf_clear(&unheard->request);
}

void worker_call_again(struct worker *worker, uint64_t now_ms)
{
    for (uint32_t i = 0; i < WORKER_UNHEARD_MAX; i++) {
        struct unheard *unheard = &worker->unheard[i];
        scoped(buf_release) struct buf request = {0};
        if (unheard->request.data == NULL || unheard->at_ms > now_ms)
            continue;
        if (buf_append(&request, unheard->request.data, unheard->request.bytes) == ERR_OK)
            say_complete(worker, &request, &unheard->request, unheard->failures);
        buf_clear(&unheard->request);
    }
}

uint64_t worker_call_again_ms(const struct worker *worker)
{
    uint64_t at_ms = UINT64_MAX;
    for (uint32_t i = 0; i < WORKER_UNHEARD_MAX; i++)
        if (worker->unheard[i].request.data != NULL && worker->unheard[i].at_ms < at_ms)
            at_ms = worker->unheard[i].at_ms;
    return at_ms;
}

void worker_call_forget(struct worker *worker)
{
    for (uint32_t i = 0; i < WORKER_UNHEARD_MAX; i++)
        buf_clear(&worker->unheard[i].request);
}

/* What the place cost is said once: a call that seems lost may have come. Sent again, it says so:
 * else the coordinator would take the time until then for the ticket's, and wait 16 times as long
 * for others. */
void worker_call_complete(struct worker *worker, const struct complete_request *complete)
{
    scoped(buf_release) struct buf request = {0};
    scoped(buf_release) struct buf again = {0};
    struct complete_request whole = *complete, late = *complete;
    check(complete->member == worker->member); /* an earlier member's is forgotten */
    late.again = true;
    whole.cost = worker_meter_take(worker, complete->ticket.kind, &complete->place);
    if (wire_encode_complete_request(&whole, &request) == ERR_OK &&
        wire_encode_complete_request(&late, &again) == ERR_OK)
        say_complete(worker, &request, &again, 0);
    log_debug(worker->config->logger, "ticket done", log_uint("step", complete->ticket.step),
              log_uint("slot", node_first(complete->ticket.node)),
              log_uint("held_ms", worker_now_ms() - worker->ticket_ms),
              log_text("outcome", err_name(complete->outcome)));
}
