#include "tests/sim/rpc.h"

#include "common/scoped.h"
#include "common/thread.h"
#include "common/time.h"
#include "tests/sim/sim.h"
#include "worker/peers_core.h"

#include <string.h>

enum { QUEUE_MAX = 256 /* as rpc_settings_default() */ };

struct rpc_stream {
    unsigned references;
    struct life *life;
    uint64_t number;             /* the network's */
    enum end end;                /* that this is */
    struct rpc_channel *channel; /* of an opener */
    const struct rpc_stream_events *events;
    void *owner;
    bool closed; /* `closed` was called */
    bool ended;  /* nothing more can be sent */
    uint32_t queued;
    struct rpc_stream *next; /* the process' */
};

struct rpc_channel {
    struct life *life;
    struct machine to; /* of a coordinator: where it was found last */
    char address[64];
    struct rpc_channel *next; /* the process' */
};

struct rpc_server {
    struct life *life;
};

struct rpc_loop {
    struct life *life;
};

struct rpc_request {
    struct life *life;
    uint64_t number;
    enum rpc_caller caller;
    uint64_t call; /* its name for the caller */
    struct message *message;
    struct rpc_request *next; /* the process' */
};

/* ---- messages ---- */

struct received {
    struct rpc_message base;
    struct message *message;
    struct slice slices[];
};

static void received_free(struct rpc_message *message)
{
    struct received *received = (struct received *)(void *)message;
    message_unref(received->message);
    free(received);
}

/* What is received lies in pieces, cut anywhere. */
static struct rpc_message *receive(struct sim *sim, struct message *message)
{
    struct slice whole[MESSAGE_SLICES_MAX];
    uint32_t count = message_slices(message, whole);
    struct received *received = malloc(sizeof *received + 2 * count * sizeof *received->slices);
    check(received != NULL);
    message->references++;
    received->message = message;
    for (uint32_t i = 0; i < count; i++) {
        size_t cut = sim_below(sim, whole[i].bytes + 1);
        received->slices[2 * i] = (struct slice){whole[i].data, cut};
        received->slices[2 * i + 1] = (struct slice){whole[i].data + cut, whole[i].bytes - cut};
    }
    received->base = (struct rpc_message){.slice_count = 2 * count,
                                          .bytes = message_bytes(message),
                                          .released = received_free,
                                          .slices = received->slices};
    atomic_init(&received->base.references, 1);
    return &received->base;
}

struct rpc_message *rpc_message_ref(struct rpc_message *message)
{
    atomic_fetch_add(&message->references, 1);
    return message;
}

void rpc_message_unref(struct rpc_message *message)
{
    if (message != NULL && atomic_fetch_sub(&message->references, 1) == 1)
        message->released(message);
}

static void copy_free(struct rpc_message *message)
{
    free(message);
}

struct rpc_message *rpc_message_new(struct slice bytes)
{
    struct copy {
        struct rpc_message base;
        struct slice slice;
        uint8_t data[];
    } *copy = malloc(sizeof *copy + bytes.bytes);
    check(copy != NULL);
    memcpy(copy->data, bytes.data, bytes.bytes);
    copy->slice = (struct slice){copy->data, bytes.bytes};
    copy->base.slice_count = 1;
    copy->base.bytes = bytes.bytes;
    copy->base.released = copy_free;
    copy->base.slices = &copy->slice;
    atomic_init(&copy->base.references, 1);
    return &copy->base;
}

void rpc_message_copy(const struct rpc_message *message, size_t offset, size_t bytes,
                      void *ret_data)
{
    uint8_t *to = ret_data;
    for (uint32_t i = 0; i < message->slice_count && bytes > 0; i++) {
        const struct slice *slice = &message->slices[i];
        size_t from = offset < slice->bytes ? offset : slice->bytes;
        size_t count = slice->bytes - from < bytes ? slice->bytes - from : bytes;
        memcpy(to, slice->data + from, count);
        offset -= from;
        bytes -= count;
        to += count;
    }
}

/* ---- streams ---- */

struct stream *rpc_network_stream(struct sim *sim, const struct rpc_stream *rpc)
{
    return network_stream(sim, rpc->number);
}

struct rpc_stream *rpc_stream_ref(struct rpc_stream *stream)
{
    stream->references++;
    return stream;
}

void rpc_stream_unref(struct rpc_stream *stream)
{
    if (stream != NULL && --stream->references == 0)
        free(stream);
}

static const struct rpc_method *find_method(const struct life *life, const char *path)
{
    uint32_t i = 0;
    while (i < life->method_count && strcmp(life->methods[i].path, path) != 0)
        i++;
    return i < life->method_count ? &life->methods[i] : NULL;
}

static struct rpc_stream *add_stream(struct life *life, struct stream *stream, enum end end,
                                     const struct rpc_stream_events *events)
{
    struct rpc_stream *rpc = calloc(1, sizeof *rpc);
    check(rpc != NULL);
    *rpc = (struct rpc_stream){.references = 1,
                               .life = life,
                               .number = stream->number,
                               .end = end,
                               .events = events,
                               .next = life->streams};
    life->streams = rpc;
    stream->rpc[end] = rpc;
    return rpc;
}

static const char *const stream_paths[] = {[STREAM_EXCHANGE] = "/roost.v1.Shard/Exchange",
                                           [STREAM_MEMBER] = "/roost.v1.Cluster/Member",
                                           [STREAM_LINK] = "/roost.v1.Cluster/Serve",
                                           [STREAM_PEER] = "/roost.v1.Peer/Exchange"};

static enum stream_kind stream_kind_of(const char *path)
{
    enum stream_kind kind = STREAM_EXCHANGE;
    while (strcmp(stream_paths[kind], path) != 0)
        kind++; /* the product opens no other */
    return kind;
}

/* The first message of a stream has come: it begins there. */
static struct rpc_stream *accept(struct sim *sim, struct life *life, struct stream *stream)
{
    const struct rpc_method *method = find_method(life, stream_paths[stream->kind]);
    const struct rpc_peer peer = {.address = ""};
    struct reason reason = {.text = ""};
    check(method != NULL);
    struct rpc_stream *rpc = add_stream(life, stream, ACCEPTOR, method->events);
    if (method->events->open(method->owner, rpc, &peer, &rpc->owner, &reason) != ERR_OK)
        sim_violated(sim, 7, "a stream is refused: %s", reason.text);
    return rpc;
}

/* Whom a stream or call comes to. Where the coordinator is, is looked for by who asks for the
 * cluster or serves it, and when the one that was found is gone. */
static struct machine find_peer(struct rpc_channel *channel, const char *path)
{
    struct sim *sim = channel->life->sim;
    bool anew =
        strcmp(path, stream_paths[STREAM_LINK]) == 0 || strcmp(path, SIM_DESCRIBE_PATH) == 0;
    if (channel->to.kind == MACHINE_COORDINATOR && (anew || process_life(sim, channel->to) == NULL))
        channel->to.index = sim_coordinator_find(sim);
    return channel->to;
}

enum err rpc_stream_open(struct rpc_channel *channel, const char *path,
                         const struct rpc_stream_events *events, void *owner,
                         struct rpc_stream **ret_stream)
{
    struct life *life = channel->life;
    if (!life_acts())
        return ERR_UNREACHABLE;
    struct machine to = find_peer(channel, path);
    struct stream what = {.kind = stream_kind_of(path)};
    *(life->place.kind == MACHINE_WORKER ? &what.worker : &what.server) = life->place.index;
    *(to.kind == MACHINE_SERVER   ? &what.server
      : to.kind == MACHINE_WORKER ? &what.peer
                                  : &what.office) = to.index;
    if (to.kind == MACHINE_WORKER)
        what.peer_member = watch_peer_member(life->sim, life->place.index, to.index);
    struct rpc_stream *rpc = add_stream(life, network_open(life->sim, what), OPENER, events);
    rpc->owner = owner;
    rpc->channel = channel;
    *ret_stream = rpc_stream_ref(rpc);
    return ERR_OK;
}

struct stream *rpc_opened(const struct life *life, enum stream_kind kind, uint32_t nth)
{
    for (const struct rpc_stream *rpc = life->streams; rpc != NULL; rpc = rpc->next) {
        struct stream *stream = network_stream(life->sim, rpc->number);
        if (rpc->end == OPENER && !rpc->ended && stream->kind == kind && nth-- == 0)
            return stream;
    }
    return NULL;
}

enum { BROKEN = 50 /* one message of so many that values go on behind */ };

/* A stream breaks in the middle of a value. */
static void break_value(struct sim *sim, struct stream *stream)
{
    if (stream->rest == 0 || sim->calm || sim_below(sim, BROKEN) != 0)
        return;
    sim_fault(sim, FAULT_BREAK_PEER);
    network_close(sim, stream, ACCEPTOR, true); /* what is under way is lost */
}

void rpc_stream_arrived(struct sim *sim, struct stream *stream, enum end to,
                        struct message *message)
{
    struct life *life = process_life(sim, network_end(stream, to));
    struct rpc_stream *rpc = stream->rpc[to];
    if (life == NULL || (rpc == NULL && life->methods == NULL)) {
        network_close(sim, stream, to, false);
        return;
    }
    life_enter(life);
    rpc = rpc != NULL ? rpc : accept(sim, life, stream);
    if (stream->kind == STREAM_EXCHANGE && to == ACCEPTOR)
        watch_received(sim, stream, message);
    else if (stream->kind == STREAM_EXCHANGE)
        watch_answered(sim, stream, message);
    else if (stream->kind == STREAM_PEER && to == OPENER)
        watch_peer_answered(sim, stream, message);
    rpc->events->message(rpc->owner, rpc, receive(sim, message));
    life_leave();
    break_value(sim, stream);
}

/* The last event of a stream; its process runs. */
static void close_stream(struct rpc_stream *rpc)
{
    struct rpc_stream **at = &rpc->life->streams;
    const struct reason reason = {.text = "cancelled"};
    enum err err = rpc->end == OPENER && !rpc->ended ? ERR_UNREACHABLE : ERR_CANCELLED;
    while (*at != rpc)
        at = &(*at)->next;
    *at = rpc->next;
    rpc->closed = rpc->ended = true;
    network_stream(rpc->life->sim, rpc->number)->rpc[rpc->end] = NULL;
    rpc->events->closed(rpc->owner, rpc, err, &reason);
    rpc_stream_unref(rpc);
}

void rpc_stream_lost(struct sim *sim, struct stream *stream, enum end to)
{
    struct life *life = process_life(sim, network_end(stream, to));
    if (life == NULL || stream->rpc[to] == NULL)
        return;
    life_enter(life);
    close_stream(stream->rpc[to]);
    life_leave();
}

/* Those of a channel, or those that others opened (NULL). */
static void close_streams(struct life *life, const struct rpc_channel *channel)
{
    struct rpc_stream *next;
    for (struct rpc_stream *rpc = life->streams; rpc != NULL; rpc = next) {
        next = rpc->next;
        if (rpc->channel != channel)
            continue;
        if (!life->dead)
            network_close(life->sim, rpc_network_stream(life->sim, rpc), rpc->end, false);
        close_stream(rpc);
    }
}

/* A reference, or a copy where not all of it is sent. */
static struct counted *copy_of_part(const struct rpc_part *part)
{
    check(part->offset <= part->counted->bytes);
    check(part->bytes <= part->counted->bytes - part->offset);
    if (part->bytes == part->counted->bytes)
        return counted_ref(part->counted);
    struct counted *copy = counted_new(part->bytes);
    check(copy != NULL);
    memcpy(copy->data, part->counted->data + part->offset, part->bytes);
    return copy;
}

static struct message *message_of(const struct buf *header, const struct rpc_part *parts,
                                  size_t part_count)
{
    struct message *message = message_new(header->data, header->bytes);
    check(part_count <= MESSAGE_COPIES_MAX);
    for (size_t i = 0; i < part_count; i++)
        message->copies[message->copy_count++] = copy_of_part(&parts[i]);
    return message;
}

enum { DAMAGED = 100 /* one value of so many */ };

/* A value between workers changes on its way. In a fourth of the seeds none does: what is refused there
 * was put together wrongly (watch_places.c). */
static void damage_value(struct sim *sim, const struct stream *stream, struct message *message)
{
    if (stream->kind != STREAM_PEER || message->copy_count == 0 || sim->calm ||
        sim->scenario.seed % 4 == 2 || sim_below(sim, DAMAGED) != 0)
        return;
    const struct counted *whole = message->copies[0];
    struct counted *damaged = counted_new(whole->bytes);
    check(damaged != NULL);
    memcpy(damaged->data, whole->data, whole->bytes);
    damaged->data[sim_below(sim, whole->bytes)] ^= (uint8_t)(1 << sim_below(sim, 8));
    counted_unref(message->copies[0]);
    message->copies[0] = damaged;
    sim->damaged = true;
    sim_fault(sim, FAULT_DAMAGE_VALUE);
}

/* Another thread of the peer finds answers to send while one sends. */
static void answer_beside(struct rpc_stream *rpc, const struct stream *stream)
{
    static bool answers; /* the other one does */
    if (stream->kind != STREAM_PEER || rpc->end != ACCEPTOR || answers ||
        rpc->life->methods == NULL)
        return;
    answers = true;
    peers_serve_answers(find_method(rpc->life, stream_paths[STREAM_PEER])->owner);
    answers = false;
}

enum err rpc_stream_send(struct rpc_stream *rpc, enum rpc_priority priority,
                         struct buf *take_header, const struct rpc_part *parts, size_t part_count)
{
    (void)priority; /* nothing overtakes */
    scoped(buf_release) struct buf header = *take_header;
    *take_header = (struct buf){0};
    if (!life_acts() || rpc->ended)
        return ERR_CANCELLED;
    if (rpc->queued == QUEUE_MAX)
        return ERR_BUSY;
    struct sim *sim = rpc->life->sim;
    struct stream *stream = rpc_network_stream(sim, rpc);
    enum end to = rpc->end == ACCEPTOR ? OPENER : ACCEPTOR;
    struct message *message = message_of(&header, parts, part_count);
    damage_value(sim, stream, message);
    if (stream->kind == STREAM_MEMBER && to == ACCEPTOR)
        watch_heartbeat(sim, stream);
    if (stream->kind != STREAM_EXCHANGE)
        network_send(sim, stream, to, message);
    else if (to == ACCEPTOR)
        watch_send(sim, stream, message);
    else if (watch_answer(sim, stream, message))
        network_send(sim, stream, to, message);
    else
        message_unref(message);
    uint64_t arrives_us = stream->last_us[to] > sim->now_us ? stream->last_us[to] : sim->now_us;
    rpc->queued++;
    queue_put(&sim->queue,
              (struct event){.at_us = sim->now_us + sim_below(sim, arrives_us - sim->now_us + 1),
                             .kind = EVENT_STREAM_SENT,
                             .index = rpc->end,
                             .number = rpc->number});
    answer_beside(rpc, stream);
    return ERR_OK;
}

void rpc_stream_cancel(struct rpc_stream *rpc)
{
    if (!life_acts() || rpc->ended)
        return;
    struct sim *sim = rpc->life->sim;
    rpc->ended = true;
    network_close(sim, rpc_network_stream(sim, rpc), rpc->end, false);
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us,
                                          .kind = EVENT_STREAM_CANCELLED,
                                          .index = rpc->end,
                                          .number = rpc->number});
}

/* What was sent arrives before the end. */
void rpc_stream_finish(struct rpc_stream *rpc, enum err err, const char *text)
{
    char name[16];
    enum stream_kind kind =
        life_acts() ? rpc_network_stream(rpc->life->sim, rpc)->kind : STREAM_MEMBER;
    process_print(rpc->life->place, name, sizeof name);
    if (kind == STREAM_EXCHANGE || kind == STREAM_PEER)
        sim_violated(rpc->life->sim, 6, "%s ends a stream: %s: %s", name, err_name(err), text);
    rpc_stream_cancel(rpc);
}

static void stream_sent(struct rpc_stream *rpc)
{
    rpc->queued--;
    if (rpc->ended || rpc->events->sent == NULL)
        return;
    life_enter(rpc->life);
    rpc->events->sent(rpc->owner, rpc, rpc->queued);
    life_leave();
}

/* ---- calls: the caller ---- */

void rpc_calls_release(struct rpc_calls *calls)
{
    for (size_t i = 0; i < calls->count; i++)
        free(calls->list[i]);
    free(calls->list);
}

static struct rpc_call *find_call(struct sim *sim, uint64_t number)
{
    check(number > 0 && number <= sim->calls.count);
    return sim->calls.list[number - 1];
}

struct machine rpc_event_place(struct sim *sim, const struct event *event)
{
    const struct rpc_call *call = find_call(sim, event->number);
    return event->kind == EVENT_RPC_REQUEST ? call->to : call->from;
}

enum err rpc_channel_new(struct rpc_loop *loop, const char *address,
                         const struct tls_identity *identity, struct rpc_channel **ret_channel,
                         struct reason *reason)
{
    (void)loop, (void)identity, (void)reason;
    unsigned index = 0;
    bool coordinator = strcmp(address, SIM_COORDINATOR_ADDRESS) == 0;
    enum machine_kind kind = address[0] == 's' ? MACHINE_SERVER : MACHINE_WORKER;
    struct rpc_channel *channel = calloc(1, sizeof *channel);
    check(channel != NULL && (coordinator || sscanf(address + 1, "%u", &index) == 1));
    channel->life = world.life;
    channel->to = coordinator ? (struct machine){MACHINE_COORDINATOR, world.sim->office}
                              : (struct machine){kind, index};
    snprintf(channel->address, sizeof channel->address, "%s", address);
    channel->next = world.life->channels;
    world.life->channels = channel;
    *ret_channel = channel;
    return ERR_OK;
}

enum err rpc_channel_new_worker(struct rpc_loop *loop, const char *address,
                                const struct tls_identity *identity, const struct digest *shown,
                                struct rpc_channel **ret_channel, struct reason *reason)
{
    (void)shown;
    return rpc_channel_new(loop, address, identity, ret_channel, reason);
}

const char *rpc_channel_address(const struct rpc_channel *channel)
{
    return channel->address;
}

/* There are no certificates. */
bool rpc_channel_renew(struct rpc_channel *channel)
{
    (void)channel;
    return false;
}

static void answer(struct rpc_call *call, enum err err, struct slice response)
{
    const struct reason reason = {.text = "the answer of a call"};
    call->channel = NULL;
    call->answered(call->owner, err, response, &reason);
}

void rpc_channel_free(struct rpc_channel *channel)
{
    if (channel == NULL)
        return;
    close_streams(channel->life, channel);
    const struct rpc_calls *calls = &channel->life->sim->calls;
    for (size_t i = 0; i < calls->count; i++)
        if (calls->list[i]->channel == channel)
            answer(calls->list[i], ERR_CANCELLED, (struct slice){0});
    struct rpc_channel **at = &channel->life->channels;
    while (*at != channel)
        at = &(*at)->next;
    *at = channel->next;
    free(channel);
}

static void put_answer(struct sim *sim, const struct rpc_call *call, uint64_t at_us, enum err err,
                       struct message *take_response)
{
    queue_put(&sim->queue, (struct event){.at_us = at_us,
                                          .kind = EVENT_RPC_ANSWER,
                                          .number = call->number,
                                          .detail = err,
                                          .message = take_response});
}

static void put_request(struct sim *sim, const struct rpc_call *call, uint64_t at_us,
                        struct message *take_request)
{
    queue_put(&sim->queue, (struct event){.at_us = at_us,
                                          .kind = EVENT_RPC_REQUEST,
                                          .number = call->number,
                                          .message = take_request});
}

/* A member learns late that chunks have moved. */
static bool is_late_map(struct sim *sim, const struct rpc_call *call)
{
    if (sim->calm || strcmp(call->path, SIM_DESCRIBE_PATH) != 0 ||
        rpc_opened(call->channel->life, STREAM_MEMBER, 0) == NULL || sim_below(sim, 3) != 0)
        return false;
    sim_fault(sim, FAULT_LOSE_CALL);
    return true;
}

/* Late, lost or twice, and answered by its deadline at the latest. */
static void send_request(struct sim *sim, const struct rpc_call *call, struct message *take_request)
{
    put_answer(sim, call, call->deadline_us, ERR_DEADLINE, NULL);
    if (is_late_map(sim, call) || network_lost(sim, call->from, call->to)) {
        message_unref(take_request);
        if (sim_below(sim, 2) == 0)
            put_answer(sim, call, sim->now_us + sim_restart_us(sim), ERR_UNREACHABLE, NULL);
        return;
    }
    if (!sim->calm && sim_below(sim, 1000) < sim->scenario.repeat_permille) {
        sim_fault(sim, FAULT_REPEAT_CALL);
        take_request->references++;
        put_request(sim, call, sim->now_us + network_delay_us(sim, call->from, call->to),
                    take_request);
    }
    put_request(sim, call, sim->now_us + network_delay_us(sim, call->from, call->to), take_request);
}

static enum err call_begin(struct rpc_channel *channel, const struct rpc_call_config *config,
                           struct buf *take_request, struct rpc_call **ret_call)
{
    scoped(buf_release) struct buf request = *take_request;
    *take_request = (struct buf){0};
    if (!life_acts())
        return ERR_UNREACHABLE;
    struct sim *sim = channel->life->sim;
    struct rpc_calls *calls = &sim->calls;
    struct rpc_call *call =
        network_add((void ***)&calls->list, &calls->count, &calls->capacity, sizeof *call);
    *call = (struct rpc_call){.number = calls->count,
                              .channel = channel,
                              .from = channel->life->place,
                              .to = find_peer(channel, config->path),
                              .path = config->path,
                              .deadline_us = sim->now_us + (uint64_t)config->timeout_ms * 1000,
                              .answered = config->answered,
                              .owner = config->owner};
    *ret_call = call;
    if (strcmp(config->path, SIM_LEAVE_PATH) == 0)
        watch_leave(sim, call->from.index, buf_slice(&request));
    send_request(sim, call, message_new(request.data, request.bytes));
    return ERR_OK;
}

enum err rpc_call_start(struct rpc_channel *channel, const struct rpc_call_config *config,
                        struct buf *take_request)
{
    struct rpc_call *call;
    return call_begin(channel, config, take_request, &call);
}

/* A call that a thread waits for. */
struct waited {
    struct thread_cond over;
    bool is_over;
    enum err err;
    struct buf *response;
    struct reason *reason;
};

static void waited_answered(void *owner, enum err err, struct slice response,
                            const struct reason *reason)
{
    struct waited *waited = owner;
    waited->err = err == ERR_OK ? buf_append(waited->response, response.data, response.bytes) : err;
    if (err != ERR_OK && waited->reason != NULL)
        *waited->reason = *reason;
    waited->is_over = true;
    thread_wake_all(&waited->over);
}

enum err rpc_call(struct rpc_channel *channel, const char *path, struct slice request,
                  uint32_t timeout_ms, struct buf *ret_response, struct reason *reason)
{
    struct thread_mutex mutex = {0};
    struct rpc_call *call;
    struct waited waited = {.response = ret_response, .reason = reason};
    const struct rpc_call_config config = {
        .path = path, .timeout_ms = timeout_ms, .answered = waited_answered, .owner = &waited};
    struct buf copy = {0};
    TRY(buf_append(&copy, request.data, request.bytes));
    TRY(call_begin(channel, &config, &copy, &call));
    thread_lock(&mutex);
    while (!waited.is_over && life_acts())
        ignore(thread_wait_locked(&waited.over, &mutex, TIME_NEVER)); /* looks again */
    thread_unlock(&mutex);
    watch_waited();
    if (call->channel != NULL) /* the caller is dead; who was called carries it out all the same */
        answer(call, ERR_CANCELLED, (struct slice){0});
    return waited.err;
}

static void answered(struct sim *sim, const struct event *event)
{
    struct rpc_call *call = find_call(sim, event->number);
    const struct message *response = event->message;
    if (call->channel == NULL)
        return; /* another answer came first, or its process is no more */
    life_enter(call->channel->life);
    answer(call, (enum err)event->detail,
           response != NULL ? (struct slice){response->data, response->bytes} : (struct slice){0});
    life_leave();
}

/* ---- calls: who is called ---- */

void rpc_request_deliver(struct life *life, const char *path, enum rpc_caller caller, uint64_t call,
                         struct message *message)
{
    struct sim *sim = life->sim;
    const struct rpc_method *method = find_method(life, path);
    struct rpc_request *request = calloc(1, sizeof *request);
    check(request != NULL && method != NULL);
    *request = (struct rpc_request){life, ++sim->requests, caller, call, message, life->requests};
    life->requests = request;
    message->references++;
    life_enter(life);
    method->requested(method->owner, request, (struct slice){message->data, message->bytes});
    life_leave();
}

static void requested(struct sim *sim, struct event *event)
{
    const struct rpc_call *call = find_call(sim, event->number);
    struct life *life = process_life(sim, call->to);
    if (life == NULL || life->methods == NULL) {
        put_answer(sim, call, sim->now_us + sim_restart_us(sim), ERR_UNREACHABLE, NULL);
        return;
    }
    rpc_request_deliver(life, call->path, RPC_PROCESS, call->number, event->message);
    if (call->to.kind == MACHINE_SERVER)
        faults_spring(sim, TRAP_TRANSFER,
                      call->number % 2 == 0 ? call->from.index : call->to.index);
}

const struct rpc_peer *rpc_request_peer(const struct rpc_request *request)
{
    static const struct rpc_peer peer; /* without TLS */
    (void)request;
    return &peer;
}

uint64_t rpc_request_number(const struct rpc_request *request)
{
    return request->number;
}

static void send_response(struct sim *sim, const struct rpc_request *request, enum err err,
                          struct slice response)
{
    struct message *message = err == ERR_OK ? message_new(response.data, response.bytes) : NULL;
    if (request->caller == RPC_OPERATOR) {
        sim_operator_answered(sim, request->call, err, response);
        message_unref(message);
    } else {
        const struct rpc_call *call = find_call(sim, request->call);
        if (network_lost(sim, call->to, call->from))
            message_unref(message);
        else
            put_answer(sim, call, sim->now_us + network_delay_us(sim, call->to, call->from), err,
                       message);
    }
}

static void respond(struct rpc_request *take_request, enum err err, struct slice response)
{
    struct rpc_request **at = &take_request->life->requests;
    while (*at != take_request)
        at = &(*at)->next;
    *at = take_request->next;
    if (life_acts())
        send_response(take_request->life->sim, take_request, err, response);
    message_unref(take_request->message);
    free(take_request);
}

/* Its calls end with its connections, or nobody tells their callers. */
void rpc_killed(struct life *life)
{
    struct sim *sim = life->sim;
    for (const struct rpc_request *request = life->requests; request != NULL;
         request = request->next)
        if (request->caller == RPC_PROCESS && sim_below(sim, 2) == 0)
            put_answer(sim, find_call(sim, request->call), sim->now_us + sim_restart_us(sim),
                       sim_below(sim, 2) == 0 ? ERR_UNREACHABLE : ERR_CANCELLED, NULL);
}

void rpc_reply(struct rpc_request *take_request, struct buf *take_response)
{
    respond(take_request, ERR_OK, buf_slice(take_response));
    buf_release(take_response);
}

void rpc_fail(struct rpc_request *take_request, enum err err, const char *text)
{
    (void)text;
    respond(take_request, err, (struct slice){0});
}

/* ---- loops and servers ---- */

void rpc_process_init(bool say)
{
    (void)say;
}

struct rpc_settings rpc_settings_default(void)
{
    return (struct rpc_settings){0};
}

enum err rpc_loop_new(const struct rpc_settings *settings, struct rpc_loop **ret_loop)
{
    (void)settings;
    *ret_loop = calloc(1, sizeof **ret_loop);
    return *ret_loop != NULL ? ERR_OK : ERR_NOMEM;
}

void rpc_loop_free(struct rpc_loop *loop)
{
    free(loop);
}

/* Messages of the simulator are copied by nobody. */
struct shared_pool *rpc_loop_pool(const struct rpc_loop *loop)
{
    (void)loop;
    return NULL;
}

struct shared_pool *rpc_stream_pool(const struct rpc_stream *stream)
{
    (void)stream;
    return NULL;
}

bool rpc_stream_is_shared(struct rpc_stream *stream)
{
    (void)stream;
    return false;
}

enum err rpc_server_new(const struct rpc_server_config *config, struct rpc_server **ret_server,
                        struct reason *reason)
{
    (void)reason;
    struct rpc_server *server = calloc(1, sizeof *server);
    check(server != NULL);
    server->life = world.life;
    server->life->methods = config->methods;
    server->life->method_count = config->method_count;
    *ret_server = server;
    return ERR_OK;
}

unsigned rpc_server_port(const struct rpc_server *server)
{
    (void)server;
    return 1;
}

/* New calls are refused. */
void rpc_server_drain(struct rpc_server *server)
{
    server->life->methods = NULL;
}

void rpc_server_free(struct rpc_server *server)
{
    if (server == NULL)
        return;
    server->life->methods = NULL;
    close_streams(server->life, NULL);
    free(server);
}

/* ---- events ---- */

void rpc_event(struct sim *sim, struct event *event)
{
    struct stream *stream;
    switch (event->kind) {
    case EVENT_STREAM_SENT:
        stream = network_stream(sim, event->number);
        if (stream->rpc[event->index] != NULL)
            stream_sent(stream->rpc[event->index]);
        break;
    case EVENT_STREAM_CANCELLED:
        stream = network_stream(sim, event->number);
        rpc_stream_lost(sim, stream, (enum end)event->index);
        break;
    case EVENT_RPC_REQUEST:
        requested(sim, event);
        break;
    case EVENT_RPC_ANSWER:
        answered(sim, event);
        break;
    default:
        check_unreachable("an event of a stream or call");
    }
}
