/* Lives, messages, sending. */
#include "server/threads/exchange_stream.h"

/* As many entries as a push may have, and rows as a worker names in them. */
enum { ARENA_BYTES_MAX = 4 * WIRE_HEADER_BYTES_MAX };

bool exchange_has_ended(struct exchange *exchange, uint64_t member)
{
    thread_lock(&exchange->mutex);
    bool ended = admission_has_ended(&exchange->admission, member);
    thread_unlock(&exchange->mutex);
    return ended;
}

struct exchange_stream *exchange_stream_new(struct exchange *exchange, struct rpc_stream *rpc)
{
    size_t links = exchange->thread_count * sizeof(struct exchange_stream *);
    struct exchange_stream *stream = calloc(1, sizeof *stream + links);
    if (stream == NULL)
        return NULL;
    atomic_init(&stream->references, 1);
    stream->exchange = exchange;
    stream->rpc = rpc_stream_ref(rpc);
    thread_mutex_init(&stream->mutex);
    return stream;
}

struct exchange_stream *exchange_stream_ref(struct exchange_stream *stream)
{
    unsigned before = atomic_fetch_add_explicit(&stream->references, 1, memory_order_relaxed);
    check(before > 0); /* who hands it out has one */
    return stream;
}

void exchange_stream_unref(struct exchange_stream *stream)
{
    unsigned before = atomic_fetch_sub_explicit(&stream->references, 1, memory_order_acq_rel);
    check(before > 0);
    if (before != 1)
        return;
    check(atomic_load(&stream->pushes) == 0); /* 1 */
    check(atomic_load(&stream->pulls) == 0);
    while (stream->waiting != NULL) {
        struct pull_waiting *waiting = stream->waiting;
        stream->waiting = waiting->next;
        stream->waiting_count--;
        free(waiting);
    }
    check(stream->waiting_count == 0); /* 2 */
    thread_mutex_release(&stream->mutex);
    rpc_stream_unref(stream->rpc);
    free(stream);
}

static void check_payload(const struct from_shard *message, const struct rpc_part *parts,
                          size_t part_count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < part_count; i++)
        bytes += parts[i].bytes;
    check(bytes == message->payload_bytes);
}

/* What leaves, before it is encoded. */
static void check_sent(const struct exchange_stream *stream, const struct from_shard *message)
{
    check(stream->greeted); /* 3 */
    switch (message->kind) {
    case FROM_SHARD_WELCOME:
        check(message->welcome.boot == stream->exchange->boot); /* P3 */
        break;
    case FROM_SHARD_ACK:
        check(message->ack.first_refused <= WIRE_ENTRIES_MAX);
        break;
    case FROM_SHARD_WEIGHTS:
        check(message->weights.chunk_count > 0);
        check(message->weights.chunk_count <= WIRE_ENTRIES_MAX);
        break;
    case FROM_SHARD_REFUSAL:
        check(message->refusal.code != ERR_OK);
        break;
    }
}

enum err exchange_stream_send(struct exchange_stream *stream, enum rpc_priority priority,
                              const struct from_shard *message, const struct rpc_part *parts,
                              size_t part_count)
{
    struct buf header = {0};
    check_sent(stream, message);
    check_payload(message, parts, part_count);
    atomic_fetch_add(&stream->outgoing, 1);
    enum err err = wire_encode_from_shard(message, &header);
    if (err == ERR_OK)
        err = rpc_stream_send(stream->rpc, priority, &header, parts, part_count);
    else
        buf_release(&header);
    if (err == ERR_OK)
        return ERR_OK;
    atomic_fetch_sub(&stream->outgoing, 1);
    if (err != ERR_CANCELLED) /* the peer must ask again on a new stream */
        rpc_stream_cancel(stream->rpc);
    return err;
}

struct exchange_message *exchange_message_new(struct exchange_stream *stream)
{
    struct exchange_message *message = malloc(sizeof *message);
    if (message == NULL)
        return NULL;
    message->stream = exchange_stream_ref(stream);
    message->received = NULL;
    atomic_init(&message->left, 0);
    atomic_init(&message->outcome, ((struct exchange_outcome){0, ERR_OK}));
    message->arena.bytes_max = ARENA_BYTES_MAX; /* usually less is used: `first` is large */
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
