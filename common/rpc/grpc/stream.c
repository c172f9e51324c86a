/* Streams, the same at both ends.
 *
 * Up to five operations are under way: the first metadata, one read (always, until the peer ends),
 * one write, the end as it will be received and, at a server, the end as it is sent. Their tags run
 * on the connection's polling thread, so events come one after another. The outbound queues are
 * filled by any thread; the one that finds no write under way starts one. When the end has been
 * received and the last tag is back, the stream calls `closed` and releases the call.
 *
 * Between two processes of one machine messages go through shared memory instead (stream_line.c). The
 * connection begins and ends the stream as ever, and says who is at its other end.
 *
 * (1) A write is started only under `sending`, which is set under the lock.
 * (2) No operation is started once `over` is set; the tags that are out all come back. */
#include "common/rpc/grpc/stream.h"
#include "common/time.h"

#include <stddef.h>
#include <string.h>

/* ---- References ---- */

struct rpc_stream *rpc_stream_ref(struct rpc_stream *stream)
{
    atomic_fetch_add_explicit(&stream->references, 1, memory_order_release);
    return stream;
}

void rpc_stream_unref(struct rpc_stream *stream)
{
    if (stream == NULL)
        return;
    unsigned before = atomic_fetch_sub_explicit(&stream->references, 1, memory_order_acq_rel);
    check(before != 0);
    if (before != 1)
        return;
    check(stream->call == NULL && stream->pending == 0);
    check(stream->arriving == NULL && stream->writing == NULL && stream->brought == NULL);
    if (stream->says)
        grpc_slice_unref(stream->said.value);
    rpc_ending_release(&stream->ending);
    rpc_status_release(&stream->status);
    grpc_metadata_array_destroy(&stream->initial);
    thread_mutex_release(&stream->lock);
    atomic_fetch_sub(&stream->loop->objects, 1);
    free(stream);
}

/* ---- Queues ---- */

static void queue_init(struct queue *queue)
{
    *queue = (struct queue){.last = &queue->first};
}

static void queue_push(struct queue *queue, struct outbound *outbound)
{
    *queue->last = outbound;
    queue->last = &outbound->next;
    queue->count++;
}

static struct outbound *queue_pop(struct queue *queue)
{
    struct outbound *outbound = queue->first;
    if (outbound == NULL)
        return NULL;
    queue->first = outbound->next;
    if (queue->first == NULL)
        queue->last = &queue->first;
    queue->count--;
    return outbound;
}

void outbound_free(struct outbound *outbound)
{
    if (outbound == NULL)
        return;
    grpc_byte_buffer_destroy(outbound->bytes);
    free(outbound);
}

struct outbound *stream_next_locked(struct rpc_stream *stream)
{
    struct outbound *outbound = NULL;
    for (unsigned i = 0; i < RPC_PRIORITY_COUNT && outbound == NULL; i++)
        outbound = queue_pop(&stream->queues[i]);
    return outbound;
}

size_t stream_queued_locked(const struct rpc_stream *stream)
{
    return (size_t)stream->queues[RPC_URGENT].count + stream->queues[RPC_NORMAL].count;
}

/* ---- Operations ---- */

/* Counts `count` operations that are about to start; NULL: none may. The call is kept for the
 * caller, who starts them without the lock. */
static grpc_call *begin_locked(struct rpc_stream *stream, unsigned count)
{
    if (stream->over || stream->call == NULL)
        return NULL;
    stream->pending += count;
    grpc_call_ref(stream->call);
    return stream->call;
}

/* An operation's tag is back. Polling thread. */
static void stream_done(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    check(stream->pending > 0);
    stream->pending--;
    bool last = stream->over && stream->pending == 0;
    thread_unlock(&stream->lock);
    if (last && stream->lined)
        stream_line_over(stream);
    else if (last)
        stream_close(stream);
}

/* What goes over the connection; `stream->lock` is held. */
static struct outbound *next_given_locked(struct rpc_stream *stream)
{
    struct outbound *outbound = stream->switched ? NULL : stream_next_locked(stream);
    stream->sending = outbound != NULL;
    stream->given += outbound != NULL ? 1 : 0;
    return outbound;
}

static bool all_is_written_locked(const struct rpc_stream *stream)
{
    return stream->writing == NULL && stream_queued_locked(stream) == 0;
}

void stream_pump_connection(struct rpc_stream *stream)
{
    grpc_op op = {0};
    struct rpc_tag *tag = &stream->sent;
    thread_lock(&stream->lock);
    struct outbound *outbound = NULL;
    grpc_call *call = NULL;
    if (!stream->sending && !stream->over) {
        outbound = next_given_locked(stream);
        if (outbound != NULL) {
            op.op = GRPC_OP_SEND_MESSAGE;
            op.data.send_message.send_message = outbound->bytes;
            call = begin_locked(stream, 1);
        } else if (stream->ended && !stream->ending_sent && all_is_written_locked(stream)) {
            op.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
            if (stream->server)
                op = rpc_status_op(&stream->status);
            tag = &stream->finished;
            stream->ending_sent = true;
            call = begin_locked(stream, 1);
        }
    }
    thread_unlock(&stream->lock);
    if (call != NULL) {
        rpc_batch(stream->loop, call, &op, 1, tag);
        grpc_call_unref(call);
    }
    if (outbound != NULL)
        outbound_free(outbound); /* the library holds the slices */
}

void stream_pump(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    bool switched = stream->switched;
    thread_unlock(&stream->lock);
    if (switched)
        stream_line_pump(stream);
    stream_pump_connection(stream);
}

static void start_read(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    grpc_call *call = begin_locked(stream, 1);
    thread_unlock(&stream->lock);
    if (call == NULL)
        return;
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &stream->receiving;
    rpc_batch(stream->loop, call, &op, 1, &stream->received);
    grpc_call_unref(call);
}

/* ---- Events ---- */

void stream_give_up(struct rpc_stream *stream, enum err err, const struct reason *reason)
{
    thread_lock(&stream->lock);
    stream->broken_err = err;
    stream->broken = *reason;
    thread_unlock(&stream->lock);
    if (stream->server)
        rpc_stream_finish(stream, err, reason->text);
    else
        rpc_stream_cancel(stream);
}

static void end_of_reads(struct rpc_stream *stream)
{
    if (!stream->server || stream->refused)
        return;
    if (stream->lined)
        stream_line_ended(stream);
    else if (stream->events->ended != NULL)
        stream->events->ended(stream->owner, stream);
    else
        rpc_stream_finish(stream, ERR_OK, NULL);
}

void stream_bring(struct rpc_stream *stream, struct rpc_message *take_message)
{
    if (stream->refused || stream->events->message == NULL)
        rpc_message_unref(take_message);
    else
        stream->events->message(stream->owner, stream, take_message);
}

/* A client's first message may come before its line. */
static void bring_unlined(struct rpc_stream *stream, struct rpc_message *take_message)
{
    stream->brought_count++;
    stream_bring(stream, take_message);
}

static void on_received(struct rpc_tag *tag, bool ok)
{
    struct rpc_stream *stream = CONTAINER_OF(tag, struct rpc_stream, received);
    grpc_byte_buffer *bytes = stream->receiving;
    stream->receiving = NULL;
    struct rpc_message *message = NULL;
    struct reason reason = {0};
    if (bytes == NULL || !ok) {
        end_of_reads(stream);
    } else {
        accepted_delivered(stream->accepted, grpc_byte_buffer_length(bytes));
        enum err err =
            rpc_message_of(stream->loop, bytes, stream->message_bytes_max, &message, &reason);
        if (err != ERR_OK)
            stream_give_up(stream, err, &reason);
        else if (stream->lined)
            stream_line_brought(stream, message);
        else
            bring_unlined(stream, message);
        if (err == ERR_OK)
            start_read(stream);
    }
    stream_done(stream);
}

static void on_sent(struct rpc_tag *tag, bool ok)
{
    struct rpc_stream *stream = CONTAINER_OF(tag, struct rpc_stream, sent);
    thread_lock(&stream->lock);
    stream->sending = false;
    size_t queued = stream_queued_locked(stream);
    thread_unlock(&stream->lock);
    stream_pump(stream);
    if (ok && stream->lined)
        stream_line_sent(stream);
    else if (ok && stream->events->sent != NULL && !stream->refused) /* else its end follows */
        stream->events->sent(stream->owner, stream, queued);
    stream_done(stream);
}

static void on_ignored(struct rpc_stream *stream)
{
    stream_done(stream);
}

static void on_started(struct rpc_tag *tag, bool ok)
{
    struct rpc_stream *stream = CONTAINER_OF(tag, struct rpc_stream, started);
    if (ok && !stream->server)
        stream_line_answered(stream);
    on_ignored(stream);
}

static void on_finished(struct rpc_tag *tag, bool ok)
{
    (void)ok;
    on_ignored(CONTAINER_OF(tag, struct rpc_stream, finished));
}

void stream_drop_queued(struct rpc_stream *stream)
{
    struct outbound *outbound;
    do {
        thread_lock(&stream->lock);
        outbound = stream_next_locked(stream);
        thread_unlock(&stream->lock);
        if (outbound != NULL)
            outbound_free(outbound);
    } while (outbound != NULL);
}

static void on_over(struct rpc_tag *tag, bool ok)
{
    (void)ok;
    struct rpc_stream *stream = CONTAINER_OF(tag, struct rpc_stream, over_tag);
    thread_lock(&stream->lock);
    stream->over = true;
    stream->ended = true;
    thread_unlock(&stream->lock);
    stream_drop_queued(stream); /* `over` lets no one push any more */
    stream_done(stream);
}

static enum err server_end(struct rpc_stream *stream, enum err finish_err, struct reason *reason)
{
    if (stream->client_gone)
        return reason_set(reason, ERR_CANCELLED, "the stream was cancelled or its client is gone");
    return reason_set(reason, finish_err, "%s", err_text(finish_err));
}

void stream_close(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    grpc_call *call = stream->call;
    stream->call = NULL;
    enum err finish_err = stream->finish_err;
    bool cancelled = stream->cancelled;
    struct reason reason = stream->broken;
    enum err err = stream->broken_err;
    thread_unlock(&stream->lock);
    if (stream->client_gone)
        accepted_reset(stream->accepted, time_now_ns());
    accepted_call_end(stream->accepted);

    if (err == ERR_OK)
        err = stream->server
                  ? server_end(stream, finish_err, &reason)
                  : rpc_channel_ending(stream->channel, &stream->ending, cancelled, &reason);
    if (stream->events->closed != NULL && !stream->refused)
        stream->events->closed(stream->owner, stream, err, &reason);
    rpc_group_leave(stream->group, &stream->member);
    grpc_call_unref(call);
    rpc_stream_unref(stream);
}

/* ---- Starting ---- */

static struct rpc_stream *stream_new(const struct rpc_stream_config *config)
{
    struct rpc_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    atomic_init(&stream->references, 1); /* the transport's, until `closed` */
    stream->loop = config->loop;
    stream->group = config->group;
    stream->member.call = stream->call = config->take_call;
    stream->events = config->events;
    stream->owner = config->owner;
    stream->channel = config->channel;
    stream->message_bytes_max = config->message_bytes_max;
    stream->accepted = config->take_accepted;
    stream->server = config->peer != NULL;
    atomic_init(&stream->opened, !stream->server);
    stream->started.done = on_started;
    stream->received.done = on_received;
    stream->sent.done = on_sent;
    stream->over_tag.done = on_over;
    stream->finished.done = on_finished;
    thread_mutex_init(&stream->lock);
    for (unsigned i = 0; i < RPC_PRIORITY_COUNT; i++)
        queue_init(&stream->queues[i]);
    stream->brought_end = &stream->brought;
    grpc_metadata_array_init(&stream->initial);
    rpc_ending_init(&stream->ending);
    rpc_status_init(&stream->status, ERR_OK, NULL);
    atomic_fetch_add(&stream->loop->objects, 1);
    return stream;
}

/* Starts the operations that send the stream's beginning and wait for its end. */
static void start_ends(struct rpc_stream *stream)
{
    grpc_op begin[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                        {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    if (stream->says) {
        begin[0].data.send_initial_metadata.count = 1;
        begin[0].data.send_initial_metadata.metadata = &stream->said;
    }
    begin[1].data.recv_initial_metadata.recv_initial_metadata = &stream->initial;
    grpc_op end = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    end.data.recv_close_on_server.cancelled = &stream->client_gone;
    if (!stream->server)
        end = rpc_ending_op(&stream->ending);
    stream->pending = 2; /* nobody else knows the stream yet */
    rpc_batch(stream->loop, stream->call, begin, stream->server ? 1 : 2, &stream->started);
    rpc_batch(stream->loop, stream->call, &end, 1, &stream->over_tag);
}

static void open_at_server(struct rpc_stream *stream, const struct rpc_stream_config *config)
{
    struct reason reason = {0};
    enum err err = ERR_OK;
    if (stream->events->open != NULL) {
        void *owner = NULL;
        err = stream->events->open(config->owner, stream, config->peer, &owner, &reason);
        stream->owner = owner;
    }
    if (err == ERR_OK)
        return;
    stream->refused = true;
    rpc_stream_finish(stream, err, reason_text(err, &reason));
}

enum err rpc_stream_start(const struct rpc_stream_config *config, struct rpc_stream **ret_stream)
{
    struct rpc_stream *stream = stream_new(config);
    if (stream == NULL || !rpc_group_join(config->group, &stream->member)) {
        grpc_call_cancel_with_status(config->take_call, GRPC_STATUS_UNAVAILABLE, "shutting down",
                                     NULL);
        grpc_call_unref(config->take_call);
        accepted_call_end(config->take_accepted);
        if (stream == NULL)
            return ERR_NOMEM;
        stream->call = NULL;
        rpc_stream_unref(stream);
        return ERR_CANCELLED;
    }
    /* A server's stream starts on its polling thread, where its tags also run: nothing of it can
     * end before this function does. A client's may, so that it is held meanwhile. */
    rpc_stream_ref(stream);
    if (!stream->server)
        stream_line_ask(stream);
    else if (config->near)
        stream_line_offer(stream);
    start_ends(stream);
    if (stream->server) {
        open_at_server(stream, config);
        stream_line_opened(stream);
    }
    start_read(stream);
    if (ret_stream != NULL)
        *ret_stream = stream;
    else
        rpc_stream_unref(stream);
    return ERR_OK;
}

/* ---- What the owner does ---- */

static enum err push(struct rpc_stream *stream, enum rpc_priority priority,
                     struct outbound *outbound)
{
    thread_lock(&stream->lock);
    struct queue *queue = &stream->queues[priority];
    enum err err = ERR_OK;
    if (stream->ended || stream->cancelled)
        err = ERR_CANCELLED;
    else if (queue->count >= stream->loop->settings.queue_messages_max)
        err = ERR_BUSY;
    else
        queue_push(queue, outbound);
    thread_unlock(&stream->lock);
    return err;
}

enum err rpc_stream_send(struct rpc_stream *stream, enum rpc_priority priority,
                         struct buf *take_header, const struct rpc_part *parts, size_t part_count)
{
    struct outbound *outbound = malloc(sizeof *outbound);
    if (outbound == NULL) {
        buf_clear(take_header);
        return ERR_NOMEM;
    }
    *outbound = (struct outbound){0};
    enum err err = rpc_bytes_of(take_header, parts, part_count,
                                stream->loop->settings.message_bytes_max, &outbound->bytes);
    if (err != ERR_OK) {
        free(outbound);
        return err;
    }
    err = push(stream, priority, outbound);
    if (err != ERR_OK) {
        outbound_free(outbound);
        return err;
    }
    stream_pump(stream);
    return ERR_OK;
}

void rpc_stream_finish(struct rpc_stream *stream, enum err err, const char *text)
{
    check(stream->server);
    struct rpc_status status;
    rpc_status_init(&status, err, text);
    thread_lock(&stream->lock);
    bool first = !stream->ended;
    if (first) {
        struct rpc_status before = stream->status;
        stream->status = status;
        stream->finish_err = err;
        stream->ended = true;
        status = before;
    }
    thread_unlock(&stream->lock);
    rpc_status_release(&status);
    stream_pump(stream);
}

void rpc_stream_end(struct rpc_stream *stream)
{
    check(!stream->server);
    thread_lock(&stream->lock);
    stream->ended = true;
    thread_unlock(&stream->lock);
    stream_pump(stream);
}

void rpc_stream_cancel(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    grpc_call *call = stream->over ? NULL : stream->call;
    stream->cancelled = true;
    if (call != NULL)
        grpc_call_ref(call);
    thread_unlock(&stream->lock);
    if (call == NULL)
        return;
    grpc_call_cancel_with_status(
        call, stream->server ? GRPC_STATUS_UNAVAILABLE : GRPC_STATUS_CANCELLED,
        stream->server ? "the server cancelled the stream" : "cancelled", NULL);
    grpc_call_unref(call);
}
