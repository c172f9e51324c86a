/* The stream's events: hello first, then pushes and pulls. */
#include "server/exchange.h"

#include "server/pull.h"
#include "server/push.h"
#include "server/shard_thread.h"

enum { ARENA_BYTES_MAX = 2 * WIRE_HEADER_BYTES_MAX, MESSAGE_SLACK_BYTES = 64 };

struct exchange_stream *exchange_stream_ref(struct exchange_stream *stream)
{
    atomic_fetch_add_explicit(&stream->references, 1, memory_order_relaxed);
    return stream;
}

void exchange_stream_unref(struct exchange_stream *stream)
{
    if (atomic_fetch_sub_explicit(&stream->references, 1, memory_order_acq_rel) != 1)
        return;
    pull_forget(stream);
    thread_mutex_release(&stream->mutex);
    rpc_stream_unref(stream->rpc);
    free(stream);
}

struct exchange_message *exchange_message_new(struct exchange_stream *stream)
{
    struct exchange_message *message = malloc(sizeof *message);
    if (message == NULL)
        return NULL;
    message->stream = exchange_stream_ref(stream);
    message->received = NULL;
    atomic_init(&message->left, 0);
    atomic_init(&message->outcome, 0);
    message->arena.bytes_max = ARENA_BYTES_MAX; /* not all of it: `first` is large */
    message->arena.bytes = 0;
    message->arena.blocks = NULL;
    message->arena.first_used = 0;
    return message;
}

void exchange_message_free(struct exchange_message *message)
{
    arena_release(&message->arena);
    rpc_message_unref(message->received);
    exchange_stream_unref(message->stream);
    free(message);
}

void exchange_end(struct exchange_stream *stream, enum err err, const char *text)
{
    stream->ended = true;
    rpc_stream_finish(stream->rpc, err, text);
}

enum err exchange_send(struct exchange_stream *stream, enum rpc_priority priority,
                       const struct from_shard *message, const struct rpc_part *parts,
                       size_t part_count)
{
    struct buf header = {0};
    atomic_fetch_add(&stream->outgoing, 1);
    enum err err = wire_encode_from_shard(message, &header);
    if (err == ERR_OK)
        err = rpc_stream_send(stream->rpc, priority, &header, parts, part_count);
    else
        buf_release(&header);
    if (err == ERR_OK)
        return ERR_OK;
    atomic_fetch_sub(&stream->outgoing, 1);
    if (err != ERR_CANCELLED) /* what cannot be answered must be asked again on a new stream */
        rpc_stream_cancel(stream->rpc);
    return err;
}

/* ---- events ---- */

static enum err stream_open(void *method_owner, struct rpc_stream *rpc, const struct rpc_peer *peer,
                            void **ret_owner, struct reason *reason)
{
    (void)peer;
    struct exchange *exchange = method_owner;
    size_t links = exchange->thread_count * sizeof(struct exchange_stream *);
    struct exchange_stream *stream = calloc(1, sizeof *stream + links);
    if (stream == NULL)
        return reason_set(reason, ERR_BUSY, "no memory for another stream");
    atomic_init(&stream->references, 1);
    stream->exchange = exchange;
    stream->rpc = rpc_stream_ref(rpc);
    thread_mutex_init(&stream->mutex);
    *ret_owner = stream;
    return ERR_OK;
}

static void greet(struct exchange_stream *stream, uint64_t member)
{
    stream->member = member;
    stream->greeted = true;
    struct from_shard welcome = {
        .kind = FROM_SHARD_WELCOME,
        .welcome = {.boot = stream->exchange->boot,
                    .generation = atomic_load(&stream->exchange->generation)}};
    exchange_send(stream, RPC_URGENT, &welcome, NULL, 0);
}

/* Takes the message, which decodes. */
static void dispatch(struct exchange_stream *stream, struct exchange_message *take_message)
{
    enum to_shard_kind kind = take_message->content.kind;
    if (kind == TO_SHARD_HELLO && !stream->greeted) {
        greet(stream, take_message->content.hello.member);
        exchange_message_free(take_message);
    } else if (kind == TO_SHARD_HELLO || !stream->greeted) {
        exchange_end(stream, ERR_MALFORMED,
                     "hello is the first message of a stream, and only that");
        exchange_message_free(take_message);
    } else if (kind == TO_SHARD_PUSH) {
        push_arrived(take_message);
    } else {
        pull_arrived(take_message);
    }
}

static void stream_message(void *owner, struct rpc_stream *rpc, struct rpc_message *take_received)
{
    (void)rpc;
    struct exchange_stream *stream = owner;
    struct exchange_message *message = stream->ended ? NULL : exchange_message_new(stream);
    if (message == NULL) {
        rpc_message_unref(take_received);
        if (!stream->ended)
            exchange_end(stream, ERR_BUSY, "no memory for another message");
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
    exchange_end(stream, err, reason.text);
    exchange_message_free(message);
}

static void stream_sent(void *owner, struct rpc_stream *rpc, size_t queued)
{
    (void)rpc, (void)queued;
    struct exchange_stream *stream = owner;
    atomic_fetch_sub(&stream->outgoing, 1);
    pull_ask_again(stream);
}

static void stream_closed(void *owner, struct rpc_stream *rpc, enum err err,
                          const struct reason *reason)
{
    (void)rpc, (void)err, (void)reason;
    struct exchange_stream *stream = owner;
    atomic_store(&stream->closed, true);
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
        .roles = TLS_ROLE_BIT(TLS_ROLE_WORKER),
        .request_bytes_max = WIRE_PAYLOAD_BYTES_MAX + WIRE_HEADER_BYTES_MAX + MESSAGE_SLACK_BYTES,
        .owner = exchange,
        .events = &events,
    };
}
