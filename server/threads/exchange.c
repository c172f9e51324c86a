/* The stream's events: hello first, then pushes and pulls. */
#include "server/threads/exchange.h"

#include "server/threads/pull.h"
#include "server/threads/push.h"
#include "server/threads/shard_thread.h"

enum { MESSAGE_SLACK_BYTES = 64 };

/* Ends the stream; the peer gets the sentence. */
static void end_stream(struct exchange_stream *stream, enum err err, const char *text)
{
    stream->ended = true;
    rpc_stream_finish(stream->rpc, err, text);
}

/* ---- to the shard threads ---- */

static void route_push(struct exchange_message *take_message)
{
    struct exchange *exchange = take_message->stream->exchange;
    uint32_t count = take_message->content.push.entry_count;
    check(count <= WIRE_ENTRIES_MAX); /* the decoder's limit */
    /* The last share is this function's: until it is done, nobody else frees the message. */
    push_begin(take_message, exchange->thread_count + 1);
    for (uint32_t i = 0; i < exchange->thread_count; i++) {
        uint32_t first = push_first(take_message, i);
        enum err err = ERR_OK;
        if (first < count)
            err = shard_thread_message(exchange->threads[i], take_message);
        if (first == count || err != ERR_OK)
            push_share_done(take_message, &(struct push_share){first, err, 0});
    }
    push_share_done(take_message, &(struct push_share){count, ERR_OK, 0});
}

static void route_pull(struct exchange_message *take_message)
{
    struct exchange *exchange = take_message->stream->exchange;
    bool empty = take_message->content.pull.chunk_count == 0;
    pull_begin(take_message, exchange->thread_count + 1); /* one is ours, as with a push */
    for (uint32_t i = 0; i < exchange->thread_count; i++) {
        bool wanted = pull_wants(take_message, i);
        enum err err = ERR_OK;
        if (wanted)
            err = shard_thread_message(exchange->threads[i], take_message);
        if (!wanted || err != ERR_OK)
            pull_share_done(take_message, err);
    }
    pull_share_done(take_message, empty ? ERR_MALFORMED : ERR_OK);
}

/* Answers the whole message with that error. */
static void refuse(struct exchange_message *take_message, enum err err)
{
    if (take_message->content.kind == TO_SHARD_PUSH) {
        push_begin(take_message, 1);
        push_share_done(take_message, &(struct push_share){0, err, 0});
    } else {
        pull_begin(take_message, 1);
        pull_share_done(take_message, err);
    }
}

/* Whether the stream's member may send that. */
static enum err admit(const struct exchange_stream *stream, struct to_shard *message)
{
    struct exchange *exchange = stream->exchange;
    thread_lock(&exchange->mutex);
    enum err err = admission_member(&exchange->admission, stream->member, &stream->secret);
    if (err == ERR_OK && message->kind == TO_SHARD_PUSH)
        err = admission_push(&exchange->admission, stream->member, &message->push);
    thread_unlock(&exchange->mutex);
    return err;
}

/* A push or pull; takes the message. */
static void route(struct exchange_stream *stream, struct exchange_message *take_message)
{
    bool push = take_message->content.kind == TO_SHARD_PUSH;
    atomic_uint *unanswered = push ? &stream->pushes : &stream->pulls;
    check(take_message->stream == stream);
    check(push || take_message->content.kind == TO_SHARD_PULL);
    enum err err = admit(stream, &take_message->content);
    if (atomic_fetch_add(unanswered, 1) >= WIRE_CREDITS) {
        atomic_fetch_sub(unanswered, 1);
        end_stream(stream, ERR_MALFORMED,
                   push ? "more pushes under way than there are credits"
                        : "more pulls under way than there are credits");
        exchange_message_free(take_message);
    } else if (err != ERR_OK) {
        refuse(take_message, err);
    } else if (push) {
        route_push(take_message);
    } else {
        route_pull(take_message);
    }
}

/* ---- events ---- */

static enum err stream_open(void *method_owner, struct rpc_stream *rpc, const struct rpc_peer *peer,
                            void **ret_owner, struct reason *reason)
{
    (void)peer;
    struct exchange_stream *stream = exchange_stream_new(method_owner, rpc);
    if (stream == NULL)
        return reason_set(reason, ERR_BUSY, "no memory for another stream");
    *ret_owner = stream;
    return ERR_OK;
}

static void greet(struct exchange_stream *stream, const struct to_shard *message)
{
    check(atomic_load(&stream->pushes) == 0); /* none before hello */
    stream->member = message->hello.member;
    stream->secret = message->hello.secret;
    stream->greeted = true;
    struct from_shard welcome = {
        .kind = FROM_SHARD_WELCOME,
        .welcome = {.boot = stream->exchange->boot,
                    .generation = atomic_load(&stream->exchange->generation),
                    .wire_version = WIRE_VERSION}};
    exchange_stream_send(stream, RPC_URGENT, &welcome, NULL, 0);
}

/* Takes the message, which decodes. */
static void dispatch(struct exchange_stream *stream, struct exchange_message *take_message)
{
    enum to_shard_kind kind = take_message->content.kind;
    if (kind == TO_SHARD_HELLO && !stream->greeted) {
        greet(stream, &take_message->content);
        exchange_message_free(take_message);
    } else if (kind == TO_SHARD_HELLO || !stream->greeted) {
        end_stream(stream, ERR_MALFORMED, "hello is the first message of a stream, and only that");
        exchange_message_free(take_message);
    } else {
        route(stream, take_message);
    }
}

static void stream_message(void *owner, struct rpc_stream *rpc, struct rpc_message *take_received)
{
    (void)rpc;
    struct exchange_stream *stream = owner;
    check(!atomic_load(&stream->closed)); /* `closed` is the last event */
    struct exchange_message *message = stream->ended ? NULL : exchange_message_new(stream);
    if (message == NULL) {
        rpc_message_unref(take_received);
        if (!stream->ended)
            end_stream(stream, ERR_BUSY, "no memory for another message");
        return;
    }
    message->received = take_received;
    struct reason reason;
    enum err err = wire_decode_to_shard(take_received->slices, take_received->slice_count,
                                        &message->arena, &message->content, &reason);
    if (err == ERR_OK) {
        dispatch(stream, message);
        return;
    }
    end_stream(stream, err, reason.text);
    exchange_message_free(message);
}

static void stream_sent(void *owner, struct rpc_stream *rpc, size_t queued)
{
    (void)rpc, (void)queued;
    struct exchange_stream *stream = owner;
    check(!atomic_load(&stream->closed));
    unsigned outgoing = atomic_fetch_sub(&stream->outgoing, 1);
    check(outgoing > 0); /* as often as it was sent */
    pull_ask_again(stream);
}

static void stream_closed(void *owner, struct rpc_stream *rpc, enum err err,
                          const struct reason *reason)
{
    (void)rpc, (void)err, (void)reason;
    struct exchange_stream *stream = owner;
    bool before = atomic_exchange(&stream->closed, true);
    check(!before); /* once */
    for (uint32_t i = 0; i < stream->exchange->thread_count; i++)
        shard_thread_gone(stream->exchange->threads[i], stream);
    exchange_stream_unref(stream);
}

static const struct rpc_stream_events events = {
    .open = stream_open,
    .message = stream_message,
    .sent = stream_sent,
    .closed = stream_closed,
};

struct rpc_method exchange_method(struct exchange *exchange)
{
    return (struct rpc_method){
        .path = "/roost.v1.Shard/Exchange",
        .kind = RPC_STREAM,
        .shared = true,
        .roles = TLS_ROLE_BIT(TLS_ROLE_WORKER),
        .request_bytes_max = WIRE_PAYLOAD_BYTES_MAX + WIRE_HEADER_BYTES_MAX + MESSAGE_SLACK_BYTES,
        .owner = exchange,
        .events = &events,
    };
}
