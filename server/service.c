/* The daemon's methods. */
#include "server/service.h"

#include "common/data/sampler.h"
#include "common/model/model.h"
#include "common/scoped.h"
#include "proto/standard.h"
#include "server/connection.h"
#include "server/member/proof.h"

#include <string.h>

#define WORKER TLS_ROLE_BIT(TLS_ROLE_WORKER)
#define OPERATOR TLS_ROLE_BIT(TLS_ROLE_OPERATOR)
#define SERVER TLS_ROLE_BIT(TLS_ROLE_SERVER)

/* ---- unary calls for the main thread ---- */

static enum err decode(struct call *call, struct slice bytes, struct reason *reason)
{
    struct arena *arena = &call->arena;
    switch (call->kind) {
    case CALL_DESCRIBE:
        return wire_decode_describe_request(bytes, arena, &call->describe, reason);
    case CALL_JOIN:
        return wire_decode_join_request(bytes, arena, &call->join, reason);
    case CALL_ACQUIRE:
        return wire_decode_acquire_request(bytes, arena, &call->acquire, reason);
    case CALL_COMPLETE:
        return wire_decode_complete_request(bytes, arena, &call->complete, reason);
    case CALL_LEAVE:
        return wire_decode_leave_request(bytes, arena, &call->leave, reason);
    case CALL_PRODUCTS:
        return wire_decode_products_request(bytes, arena, &call->products, reason);
    case CALL_START_RUN:
        return wire_decode_start_run_request(bytes, arena, &call->start_run, reason);
    case CALL_STOP_RUN:
        return wire_decode_stop_run_request(bytes, arena, &call->stop_run, reason);
    case CALL_DRAIN:
        return wire_decode_drain_request(bytes, arena, &call->drain, reason);
    case CALL_CHECKPOINT:
    case CALL_STATUS:
        return ERR_OK;
    }
    return reason_set(reason, ERR_UNSUPPORTED, "no such call");
}

/* The address is "HOST:PORT". */
static void note_peer(struct join_request *join, const struct rpc_peer *peer)
{
    const char *port = strrchr(peer->address, ':');
    int bytes = port != NULL ? (int)(port - peer->address) : 0;
    join->certificate = peer->certificate;
    memcpy(join->shown, peer->shown.bytes, sizeof join->shown);
    snprintf(join->host, sizeof join->host, "%.*s", bytes, peer->address);
}

/* A worker that listens at all of its addresses and names none is reached where it calls from. */
static void default_address(struct join_request *join)
{
    char port[16];
    if (!rpc_is_everywhere(join->address))
        return;
    snprintf(port, sizeof port, "%s", strrchr(join->address, ':'));
    snprintf(join->address, sizeof join->address, "%s%s", join->host, port);
}

static void take_call(struct service *service, enum call_kind kind, struct rpc_request *request,
                      struct slice bytes)
{
    struct reason reason = {0};
    if (!service->coordinator) {
        rpc_fail(request, ERR_NOT_COORDINATOR, "this server is not the coordinator");
        return;
    }
    struct call *call = malloc(sizeof *call);
    if (call == NULL) {
        rpc_fail(request, ERR_NOMEM, "out of memory");
        return;
    }
    call->kind = kind;
    call->number = rpc_request_number(request);
    call->request = request;
    call->arena = (struct arena){.bytes_max = WIRE_CONTROL_BYTES_MAX};
    enum err err = decode(call, bytes, &reason);
    if (kind == CALL_JOIN && err == ERR_OK) {
        note_peer(&call->join, rpc_request_peer(request));
        default_address(&call->join);
    }
    if (err == ERR_OK)
        err = inbox_post(service->inbox, &(struct event){.kind = EVENT_CALL, .call = call});
    if (err != ERR_OK)
        call_fail(call, err, reason_text(err, &reason));
}

#define CALL_HANDLER(name, kind)                                                                   \
    static void name(void *owner, struct rpc_request *request, struct slice bytes)                 \
    {                                                                                              \
        take_call(owner, kind, request, bytes);                                                    \
    }
CALL_HANDLER(describe, CALL_DESCRIBE)
CALL_HANDLER(join, CALL_JOIN)
CALL_HANDLER(acquire, CALL_ACQUIRE)
CALL_HANDLER(complete, CALL_COMPLETE)
CALL_HANDLER(leave, CALL_LEAVE)
CALL_HANDLER(products, CALL_PRODUCTS)
CALL_HANDLER(start_run, CALL_START_RUN)
CALL_HANDLER(stop_run, CALL_STOP_RUN)
CALL_HANDLER(checkpoint, CALL_CHECKPOINT)
CALL_HANDLER(drain, CALL_DRAIN)
CALL_HANDLER(status, CALL_STATUS)
#undef CALL_HANDLER

/* The main thread may have parked the call, and finds it by the number. When the inbox is full, the
 * event is lost, and the parked call ends with its parking time. */
static void cancelled(void *owner, struct rpc_request *request)
{
    struct service *service = owner;
    ignore(inbox_post(service->inbox, &(struct event){.kind = EVENT_CALL_CANCELLED,
                                                      .number = rpc_request_number(request)}));
}

/* ---- streams of members and servers ---- */

static enum err open_connection(struct service *service, struct rpc_stream *stream,
                                const struct rpc_peer *peer, bool is_server, void **ret_owner,
                                struct reason *reason)
{
    if (!service->coordinator)
        return reason_set(reason, ERR_NOT_COORDINATOR, "this server is not the coordinator");
    struct connection *connection = connection_new(service->inbox, stream, peer, is_server);
    if (connection == NULL)
        return reason_set(reason, ERR_NOMEM, "out of memory");
    *ret_owner = connection;
    return ERR_OK;
}

static enum err member_open(void *owner, struct rpc_stream *stream, const struct rpc_peer *peer,
                            void **ret_owner, struct reason *reason)
{
    return open_connection(owner, stream, peer, false, ret_owner, reason);
}

static enum err server_open(void *owner, struct rpc_stream *stream, const struct rpc_peer *peer,
                            void **ret_owner, struct reason *reason)
{
    return open_connection(owner, stream, peer, true, ret_owner, reason);
}

/* The inbox is full. A member's heartbeat may be lost: the next one is enough. A server's report
 * must not be lost: its stream ends, and the server sends all reports again over a new one. */
static void connection_message(void *owner, struct rpc_stream *stream,
                               struct rpc_message *take_message)
{
    struct connection *connection = owner;
    struct event event = {.kind = EVENT_CONNECTION_MESSAGE,
                          .connection = connection_ref(connection),
                          .message = take_message};
    if (inbox_post(connection->inbox, &event) == ERR_OK)
        return;
    event_release(&event);
    if (connection->is_server)
        rpc_stream_cancel(stream);
}

static void connection_closed(void *owner, struct rpc_stream *stream, enum err err,
                              const struct reason *reason)
{
    (void)stream, (void)err, (void)reason;
    struct connection *connection = owner;
    struct event event = {.kind = EVENT_CONNECTION_CLOSED, .connection = connection};
    if (inbox_post(connection->inbox, &event) == ERR_OK)
        return;
    /* Of a server control_tick() sees it; a member lapses. */
    atomic_store(&connection->closed, true);
    event_release(&event);
}

static const struct rpc_stream_events member_events = {
    .open = member_open, .message = connection_message, .closed = connection_closed};
static const struct rpc_stream_events server_events = {
    .open = server_open, .message = connection_message, .closed = connection_closed};

/* ---- samples ---- */

static void served_unref(struct served *served)
{
    if (served == NULL)
        return;
    unsigned before = atomic_fetch_sub(&served->references, 1);
    check(before > 0);
    if (before != 1)
        return;
    data_free(served->data);
    free(served);
}

static struct served *served_now(struct service *service)
{
    thread_lock(&service->mutex);
    struct served *served = service->served;
    if (served != NULL)
        atomic_fetch_add(&served->references, 1);
    thread_unlock(&service->mutex);
    return served;
}

enum err service_serve(struct service *service, uint64_t run,
                       const uint8_t key[static DIGEST_KEY_BYTES], const struct spec *spec,
                       struct data *take_data)
{
    struct served *served = NULL;
    if (take_data != NULL) {
        served = malloc(sizeof *served);
        if (served == NULL) {
            data_free(take_data);
            return ERR_NOMEM;
        }
        *served = (struct served){.run = run, .spec = *spec, .data = take_data};
        atomic_init(&served->references, 1);
    }
    thread_lock(&service->mutex);
    struct served *before = service->served;
    service->served = served;
    digest_mac_set_key(&service->key, key);
    thread_unlock(&service->mutex);
    served_unref(before);
    return ERR_OK;
}

/* The samples of one slot of the ticket's step, or of a validation's piece. */
struct sample_range {
    enum data_split split;
    uint64_t first; /* position in the stream; of a validation the sample */
    uint32_t count;
};

static enum err sample_range(const struct served *served, const struct samples_request *request,
                             struct sample_range *ret_range, struct reason *reason)
{
    const struct spec_train *train = &served->spec.train;
    uint64_t k = train->slot_samples;
    bool validate = request->ticket.kind == TICKET_VALIDATE;
    uint64_t held_out = data_count(served->data, DATA_VALIDATION);
    if (train->validation_samples > 0 && train->validation_samples < held_out)
        held_out = train->validation_samples;
    if (request->run != served->run)
        return reason_set(reason, ERR_NO_RUN, "samples of run %llu are not served",
                          (unsigned long long)request->run);
    if (validate && request->ticket.node.index * k < held_out) {
        uint64_t first = request->ticket.node.index * k;
        uint64_t left = held_out - first;
        *ret_range = (struct sample_range){DATA_VALIDATION, first, (uint32_t)(left < k ? left : k)};
        return ERR_OK;
    }
    uint64_t step_slots = (uint64_t)train->slots * spec_local_steps(&served->spec);
    if (validate || request->slot >= step_slots || request->ticket.step >= train->steps)
        return reason_set(reason, ERR_MALFORMED, "the run has no such samples");
    uint64_t ticket = request->ticket.step * step_slots + request->slot;
    *ret_range = (struct sample_range){DATA_TRAIN, ticket * k, (uint32_t)k};
    return ERR_OK;
}

static uint64_t sample_at(const struct served *served, const struct sample_range *range, uint32_t i)
{
    if (range->split == DATA_VALIDATION)
        return range->first + i;
    const struct sampler sampler = {.seed = served->spec.train.seed,
                                    .sample_count = data_count(served->data, DATA_TRAIN),
                                    .slot_samples = served->spec.train.slot_samples};
    return sampler_sample(&sampler, range->first + i);
}

/* Both kinds of samples have 4-byte inputs and targets. */
static enum err read_samples(const struct served *served, const struct sample_range *range,
                             struct arena *arena, struct samples_reply *ret_reply,
                             struct reason *reason)
{
    _Static_assert(SPEC_SERVED_BYTES_MAX < WIRE_CONTROL_BYTES_MAX, "they come in one message");
    const struct model_sample about = model_sample(&served->spec.model);
    size_t inputs = about.inputs, targets = about.predictions;
    uint32_t *input = arena_array(arena, range->count * inputs, sizeof *input);
    int32_t *target = arena_array(arena, range->count * targets, sizeof *target);
    if (input == NULL || target == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory for %u samples", range->count);
    for (uint32_t i = 0; i < range->count; i++) {
        uint64_t sample = sample_at(served, range, i);
        if (about.tokens)
            TRY(data_sample_tokens(served->data, range->split, sample,
                                   (int32_t *)(input + i * inputs), target + i * targets, reason));
        else
            data_sample_point(served->data, range->split, sample, (float *)(input + i * inputs),
                              target + i * targets);
    }
    *ret_reply = (struct samples_reply){
        .sample_count = range->count,
        .inputs = {(const uint8_t *)input, range->count * inputs * sizeof *input},
        .targets = {(const uint8_t *)target, range->count * targets * sizeof *target},
    };
    return ERR_OK;
}

static bool is_member(struct service *service, const struct samples_request *request)
{
    thread_lock(&service->mutex);
    struct proof right = proof_member(&service->key, request->run, request->member);
    thread_unlock(&service->mutex);
    return proof_same(&right, &request->secret);
}

static enum err answer_samples(struct service *service, const struct served *served,
                               struct slice bytes, struct buf *response, struct reason *reason)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct samples_request request;
    struct samples_reply reply;
    struct sample_range range = {0};
    TRY(wire_decode_samples_request(bytes, &arena, &request, reason));
    if (!is_member(service, &request))
        return reason_set(reason, ERR_UNKNOWN_MEMBER, "%s", err_text(ERR_UNKNOWN_MEMBER));
    TRY(sample_range(served, &request, &range, reason));
    check(range.count > 0 && range.count <= served->spec.train.slot_samples);
    TRY(read_samples(served, &range, &arena, &reply, reason));
    return wire_encode_samples_reply(&reply, response);
}

static void samples(void *owner, struct rpc_request *request, struct slice bytes)
{
    struct reason reason = {.text = "this daemon serves no samples (data.serve)"};
    struct buf response = {0};
    struct served *served = served_now(owner);
    enum err err = ERR_NO_RUN;
    if (served != NULL)
        err = answer_samples(owner, served, bytes, &response, &reason);
    served_unref(served);
    if (err == ERR_OK) {
        rpc_reply(request, &response);
        return;
    }
    buf_release(&response);
    rpc_fail(request, err, reason.text);
}

/* ---- reflection ---- */

static enum err stream_open(void *owner, struct rpc_stream *stream, const struct rpc_peer *peer,
                            void **ret_owner, struct reason *reason)
{
    (void)stream, (void)peer, (void)reason;
    *ret_owner = owner;
    return ERR_OK;
}

static void reflection(void *owner, struct rpc_stream *stream, struct rpc_message *take_message)
{
    (void)owner;
    scoped(buf_release) struct buf request = {0};
    struct buf response = {0};
    struct reason reason = {0};
    enum err err = buf_reserve(&request, take_message->bytes);
    if (err == ERR_OK) {
        rpc_message_copy(take_message, 0, take_message->bytes, request.data);
        request.bytes = take_message->bytes;
        err = standard_reflection(buf_slice(&request), &response, &reason);
    }
    if (err == ERR_OK)
        err = rpc_stream_send(stream, RPC_NORMAL, &response, NULL, 0);
    else
        buf_release(&response);
    rpc_message_unref(take_message);
    if (err != ERR_OK)
        rpc_stream_finish(stream, err, reason.text);
}

static const struct rpc_stream_events reflection_events = {.open = stream_open,
                                                           .message = reflection};

/* ---- the table ---- */

#define CLUSTER "/roost.v1.Cluster/"

/* Bytes of a request, or of a message of a stream. A short one has a few texts
 * (WIRE_TEXT_BYTES_MAX) or a ticket and the boots of WIRE_SERVERS_MAX servers. */
enum {
    SHORT = 16 * 1024,
    PRODUCTS = 2 * WIRE_PRODUCTS_BYTES_MAX,
    SPEC = 2 * WIRE_SPEC_BYTES_MAX,
    REPORT = WIRE_CONTROL_BYTES_MAX
};

static const struct rpc_method table[] = {
    {CLUSTER "Describe", RPC_UNARY, TLS_ROLES_ALL, SHORT, .requested = describe},
    {CLUSTER "Join", RPC_UNARY, WORKER, SHORT, .requested = join},
    {CLUSTER "Member", RPC_STREAM, WORKER, SHORT, .events = &member_events},
    {CLUSTER "Acquire", RPC_UNARY, WORKER, SHORT, .requested = acquire, .cancelled = cancelled},
    {CLUSTER "Complete", RPC_UNARY, WORKER, SHORT, .requested = complete},
    {CLUSTER "Leave", RPC_UNARY, WORKER, SHORT, .requested = leave},
    {CLUSTER "Samples", RPC_UNARY, WORKER, SHORT, .requested = samples},
    {CLUSTER "Products", RPC_UNARY, WORKER, PRODUCTS, .requested = products},
    {CLUSTER "StartRun", RPC_UNARY, OPERATOR, SPEC, .requested = start_run},
    {CLUSTER "StopRun", RPC_UNARY, OPERATOR, SHORT, .requested = stop_run},
    {CLUSTER "Checkpoint", RPC_UNARY, OPERATOR, SHORT, .requested = checkpoint,
     .cancelled = cancelled},
    {CLUSTER "Drain", RPC_UNARY, OPERATOR, SHORT, .requested = drain},
    {CLUSTER "Status", RPC_UNARY, OPERATOR, SHORT, .requested = status},
    {CLUSTER "Serve", RPC_STREAM, SERVER, REPORT, .events = &server_events},
    {"/grpc.health.v1.Health/Check", RPC_UNARY, TLS_ROLES_ALL, SHORT, .requested = health_check},
    {"/grpc.health.v1.Health/Watch", RPC_STREAM, TLS_ROLES_ALL, SHORT,
     .events = &health_watch_events},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", RPC_STREAM, TLS_ROLES_ALL, SHORT,
     .events = &reflection_events},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", RPC_STREAM, TLS_ROLES_ALL,
     SHORT, .events = &reflection_events},
};

enum err service_init(struct service *service, struct inbox *inbox, bool coordinator,
                      struct rpc_method exchange, struct rpc_method transfer)
{
    _Static_assert(sizeof table / sizeof table[0] < SERVICE_METHODS_MAX - 1,
                   "room for the shards'");
    *service = (struct service){.inbox = inbox, .coordinator = coordinator};
    health_init(&service->health);
    thread_mutex_init(&service->mutex);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        service->methods[i] = table[i];
        bool health = table[i].requested == health_check || table[i].events == &health_watch_events;
        service->methods[i].owner = health ? (void *)&service->health : service;
    }
    service->method_count = sizeof table / sizeof table[0];
    service->methods[service->method_count++] = exchange;
    service->methods[service->method_count++] = transfer;
    return digest_mac_init(&service->key);
}

void service_release(struct service *service)
{
    served_unref(service->served);
    digest_mac_release(&service->key);
    health_release(&service->health);
    thread_mutex_release(&service->mutex);
}
