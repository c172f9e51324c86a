/* A unary call at the server: read its message, hand it over, send one answer.
 *
 * Tags run on the connection's polling thread; the answer may come from any. When the call is over
 * and the last tag is back, the call and its place on the connection are let go; the request itself
 * lives until it is answered. */
#include "common/rpc/grpc/core.h"
#include "common/time.h"

#include <stddef.h>
#include <string.h>

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/time.h>

struct rpc_request {
    struct rpc_loop *loop;
    struct rpc_group *group;
    struct rpc_member member;
    const struct rpc_method *method;
    struct rpc_peer peer;
    struct accepted_call *accepted; /* until the last tag is back; NULL: no TLS */
    size_t bytes_max;
    uint64_t number;

    struct rpc_tag received, over_tag, replied;
    grpc_byte_buffer *receiving;
    grpc_slice joined; /* the request's bytes when they came in several slices */
    struct rpc_message *message;
    int client_gone;
    struct rpc_status status;

    struct thread_mutex lock; /* guards what follows */
    grpc_call *call;          /* NULL: over */
    unsigned pending;         /* operations under way */
    unsigned holders;         /* the transport, the handler until it answers, a callback */
    bool handed_over;
    bool answered;
    bool over;
};

static void request_drop(struct rpc_request *request)
{
    thread_lock(&request->lock);
    check(request->holders > 0);
    bool last = --request->holders == 0;
    thread_unlock(&request->lock);
    if (!last)
        return;
    check(request->call == NULL && request->pending == 0);
    rpc_message_unref(request->message);
    grpc_slice_unref(request->joined);
    rpc_status_release(&request->status);
    thread_mutex_release(&request->lock);
    atomic_fetch_sub(&request->loop->objects, 1);
    free(request);
}

/* An operation's tag is back. */
static void request_done(struct rpc_request *request)
{
    thread_lock(&request->lock);
    check(request->pending > 0);
    bool last = --request->pending == 0 && request->over;
    grpc_call *call = request->call;
    if (last)
        request->call = NULL;
    thread_unlock(&request->lock);
    if (!last)
        return;
    rpc_group_leave(request->group, &request->member);
    grpc_call_unref(call);
    /* Not when it is answered: the peer may have given up the call long ago, and begun others. */
    accepted_call_end(request->accepted);
    request_drop(request);
}

/* Sends `take_bytes` (may be NULL) and the status. Once per request. */
static void send_reply(struct rpc_request *request, grpc_byte_buffer *take_bytes, enum err err,
                       const char *text)
{
    thread_lock(&request->lock);
    check(!request->answered);
    request->answered = true;
    grpc_call *call = request->over ? NULL : request->call;
    if (call != NULL) {
        request->pending++;
        grpc_call_ref(call);
    }
    thread_unlock(&request->lock);
    if (call != NULL) {
        rpc_status_init(&request->status, err, text);
        grpc_op ops[3] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};
        ops[1] = rpc_status_op(&request->status);
        ops[2].op = GRPC_OP_SEND_MESSAGE;
        ops[2].data.send_message.send_message = take_bytes;
        rpc_batch(request->loop, call, ops, take_bytes != NULL ? 3 : 2, &request->replied);
        grpc_call_unref(call);
    }
    if (take_bytes != NULL)
        grpc_byte_buffer_destroy(take_bytes);
}

/* The bytes of the message in one piece. */
static struct slice message_bytes(struct rpc_request *request)
{
    const struct rpc_message *message = request->message;
    if (message->slice_count == 0)
        return (struct slice){0};
    if (message->slice_count == 1)
        return message->slices[0];
    request->joined = grpc_slice_malloc(message->bytes);
    rpc_message_copy(message, 0, message->bytes, GRPC_SLICE_START_PTR(request->joined));
    return (struct slice){GRPC_SLICE_START_PTR(request->joined), message->bytes};
}

static void hand_over(struct rpc_request *request)
{
    thread_lock(&request->lock);
    bool over = request->over;
    if (!over) {
        request->handed_over = true;
        request->holders++; /* until it is answered */
    }
    thread_unlock(&request->lock);
    if (!over)
        request->method->requested(request->method->owner, request, message_bytes(request));
}

static void on_received(struct rpc_tag *tag, bool ok)
{
    struct rpc_request *request = CONTAINER_OF(tag, struct rpc_request, received);
    struct reason reason = {0};
    enum err err = ERR_MALFORMED;
    if (request->receiving == NULL || !ok) {
        reason_set(&reason, err, "call without a message");
    } else {
        accepted_delivered(request->accepted, grpc_byte_buffer_length(request->receiving));
        err = rpc_message_of(request->loop, request->receiving, request->bytes_max,
                             &request->message, &reason);
    }
    request->receiving = NULL;
    if (err == ERR_OK)
        hand_over(request);
    else
        send_reply(request, NULL, err, reason.text);
    request_done(request);
}

static void on_replied(struct rpc_tag *tag, bool ok)
{
    (void)ok; /* false: the caller is gone */
    request_done(CONTAINER_OF(tag, struct rpc_request, replied));
}

static void on_over(struct rpc_tag *tag, bool ok)
{
    (void)ok;
    struct rpc_request *request = CONTAINER_OF(tag, struct rpc_request, over_tag);
    thread_lock(&request->lock);
    request->over = true;
    bool tell = request->handed_over && !request->answered && request->method->cancelled != NULL;
    thread_unlock(&request->lock);
    if (request->client_gone)
        accepted_reset(request->accepted, time_now_ns());
    if (tell) /* the transport's hold keeps the request until request_done() */
        request->method->cancelled(request->method->owner, request);
    request_done(request);
}

static struct rpc_request *request_new(const struct rpc_request_config *config)
{
    struct rpc_request *request = calloc(1, sizeof *request);
    if (request == NULL)
        return NULL;
    request->loop = config->loop;
    request->group = config->group;
    request->member.call = request->call = config->take_call;
    request->method = config->method;
    request->peer = *config->peer;
    request->accepted = config->take_accepted;
    request->bytes_max = config->bytes_max;
    request->number = atomic_fetch_add(&config->loop->next_request, 1) + 1;
    request->received.done = on_received;
    request->over_tag.done = on_over;
    request->replied.done = on_replied;
    request->joined = grpc_empty_slice();
    rpc_status_init(&request->status, ERR_OK, NULL);
    request->holders = 1;
    thread_mutex_init(&request->lock);
    atomic_fetch_add(&config->loop->objects, 1);
    return request;
}

void rpc_request_start(const struct rpc_request_config *config)
{
    struct rpc_request *request = request_new(config);
    if (request == NULL || !rpc_group_join(config->group, &request->member)) {
        grpc_call_cancel_with_status(config->take_call, GRPC_STATUS_UNAVAILABLE, "shutting down",
                                     NULL);
        grpc_call_unref(config->take_call);
        accepted_call_end(config->take_accepted);
        if (request != NULL) {
            request->call = NULL;
            request_drop(request);
        }
        return;
    }
    grpc_op receive = {.op = GRPC_OP_RECV_MESSAGE};
    receive.data.recv_message.recv_message = &request->receiving;
    grpc_op over = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    over.data.recv_close_on_server.cancelled = &request->client_gone;
    request->pending = 2; /* this is the polling thread: no tag comes before it returns */
    rpc_batch(request->loop, request->call, &receive, 1, &request->received);
    rpc_batch(request->loop, request->call, &over, 1, &request->over_tag);
}

/* ---- What the handler does ---- */

const struct rpc_peer *rpc_request_peer(const struct rpc_request *request)
{
    return &request->peer;
}

uint64_t rpc_request_number(const struct rpc_request *request)
{
    return request->number;
}

void rpc_reply(struct rpc_request *take_request, struct buf *take_response)
{
    grpc_byte_buffer *bytes = NULL;
    size_t bytes_max = take_request->loop->settings.message_bytes_max;
    enum err err = rpc_bytes_of(take_response, NULL, 0, bytes_max, &bytes);
    if (err == ERR_OK)
        send_reply(take_request, bytes, ERR_OK, NULL);
    else
        send_reply(take_request, NULL, err, "the answer is longer than a message may be");
    request_drop(take_request);
}

void rpc_fail(struct rpc_request *take_request, enum err err, const char *text)
{
    check(err != ERR_OK);
    send_reply(take_request, NULL, err, text != NULL ? text : err_text(err));
    request_drop(take_request);
}
