/* Answers of several shards to one pull, and pulls whose weights came when the stream was full. */
#include "server/threads/pull.h"

#include <string.h>

enum {
    /* Parked pulls are answered while fewer messages than this wait to be sent: enough that the
     * connection is never idle, few enough that a slow peer holds little. */
    OUTGOING_MAX = 4,
    WAITING_MAX = 8192,
};

static void send_refusal(struct exchange_stream *stream, uint64_t id, enum err err)
{
    struct from_shard message = {.kind = FROM_SHARD_REFUSAL, .refusal = {id, err}};
    exchange_stream_send(stream, RPC_URGENT, &message, NULL, 0);
}

/* Sends the copies of a WEIGHTS effect and drops its references. */
static void send_weights(struct exchange_stream *stream, const struct shard_effect *effect)
{
    const struct weights *header = &effect->weights.header;
    struct rpc_part parts[WIRE_ENTRIES_MAX];
    check(header->chunk_count <= WIRE_ENTRIES_MAX);
    struct from_shard message = {.kind = FROM_SHARD_WEIGHTS, .weights = *header};
    for (uint32_t i = 0; i < header->chunk_count; i++) {
        struct counted *copy = effect->weights.copies[i];
        parts[i] = (struct rpc_part){copy, 0, copy->bytes};
        message.payload_bytes += copy->bytes;
    }
    exchange_stream_send(stream, RPC_NORMAL, &message, parts, header->chunk_count);
    for (uint32_t i = 0; i < header->chunk_count; i++)
        counted_unref(effect->weights.copies[i]);
}

/* ---- a pull that comes ---- */

/* Several threads answer the shares of a pull. The peer gets one notice for all of them, the
 * gravest. */
enum severity {
    SEVERITY_NONE,   /* the weights are sent */
    SEVERITY_WAITS,  /* the weights will be sent */
    SEVERITY_REFUSED /* the pull has ended */
};

static enum severity severity(enum err err)
{
    if (err == ERR_OK)
        return SEVERITY_NONE;
    return err == ERR_TOO_EARLY ? SEVERITY_WAITS : SEVERITY_REFUSED;
}

/* Of two refusals the higher error counts, whichever thread answered first. */
static bool graver(enum err a, enum err b)
{
    return severity(a) != severity(b) ? severity(a) > severity(b) : a > b;
}

static void keep_gravest(struct exchange_message *message, enum err err)
{
    struct exchange_outcome mine = {0, err}, seen = atomic_load(&message->outcome);
    while (graver(err, seen.err) && !atomic_compare_exchange_weak(&message->outcome, &seen, mine))
        ;
}

/* A thread has answered its share: with weights to send (NULL: none), and with `err` for the other
 * chunks. */
static void share_done(struct exchange_message *take_message, enum err err,
                       const struct shard_effect *weights)
{
    keep_gravest(take_message, err);
    struct exchange_stream *stream = exchange_stream_ref(take_message->stream);
    uint64_t id = take_message->content.pull.id;
    bool asked_again = take_message->received == NULL;
    struct exchange_outcome outcome = {0, ERR_OK};
    unsigned left = atomic_fetch_sub(&take_message->left, 1);
    check(left > 0);
    bool last = left == 1; /* else another thread may free it now */
    if (last) {
        outcome = atomic_load(&take_message->outcome);
        exchange_message_free(take_message);
    }
    bool again = last && asked_again;
    if (last && !again) {
        unsigned unanswered = atomic_fetch_sub(&stream->pulls, 1);
        check(unanswered > 0); /* given back before the peer can get the answer */
    }
    if (weights != NULL)
        send_weights(stream, weights);
    if (outcome.err != ERR_OK)
        send_refusal(stream, id, outcome.err);
    if (again) {
        thread_lock(&stream->mutex);
        check(stream->again > 0);
        stream->again--;
        thread_unlock(&stream->mutex);
        pull_ask_again(stream);
    }
    exchange_stream_unref(stream);
}

/* How many chunks of the pull belong to `thread`; they are put in `ret_chunks` when it is there. */
static uint32_t share_of(const struct exchange_message *message, uint32_t thread,
                         uint32_t *ret_chunks)
{
    const struct pull *pull = &message->content.pull;
    uint32_t count = 0;
    for (uint32_t i = 0; i < pull->chunk_count; i++) {
        if (exchange_thread(message->stream->exchange, pull->chunks[i]) != thread)
            continue;
        if (ret_chunks != NULL)
            ret_chunks[count] = pull->chunks[i];
        count++;
    }
    return count;
}

void pull_begin(struct exchange_message *message, uint32_t shares)
{
    check(shares > 0);
    check(atomic_load(&message->left) == 0); /* it is on no way yet */
    atomic_store(&message->left, shares);
}

bool pull_wants(const struct exchange_message *message, uint32_t thread)
{
    return share_of(message, thread, NULL) > 0;
}

void pull_share_done(struct exchange_message *take_message, enum err err)
{
    share_done(take_message, err, NULL);
}

bool pull_ask(struct exchange_message *take_message, uint32_t index, struct shard *shard,
              uint32_t chunks[static WIRE_ENTRIES_MAX], struct shard_effects *effects)
{
    struct exchange_stream *stream = take_message->stream;
    struct pull share = take_message->content.pull;
    share.chunk_count = share_of(take_message, index, chunks);
    share.chunks = chunks;
    check(share.chunk_count > 0);       /* only owners of its chunks are asked */
    if (atomic_load(&stream->closed)) { /* the shard has forgotten the stream's parked pulls */
        share_done(take_message, ERR_OK, NULL);
        return false;
    }
    if (shard == NULL) {
        share_done(take_message, ERR_NO_RUN, NULL);
        return false;
    }
    shard_pull(shard, (struct pull_sender){(uintptr_t)stream, stream->member}, &share, effects);
    return true;
}

void pull_answer(struct exchange_message *take_message, const struct shard_effect *effect)
{
    const struct pull *pull = &take_message->content.pull;
    check(effect->sender == (uintptr_t)take_message->stream);
    check(pull->id ==
          (effect->kind == SHARD_WEIGHTS ? effect->weights.header.id : effect->refusal.id));
    check(effect->kind != SHARD_WEIGHTS || effect->weights.header.chunk_count <= pull->chunk_count);
    if (effect->kind == SHARD_WEIGHTS)
        share_done(take_message, ERR_OK, effect);
    else
        share_done(take_message, effect->refusal.code, NULL);
}

/* ---- a pull that waited ---- */

static struct pull_waiting *waiting_new(const struct weights *header, uint32_t thread,
                                        uint64_t generation)
{
    size_t bytes = header->chunk_count * sizeof *header->chunks;
    struct pull_waiting *waiting = malloc(sizeof *waiting + bytes);
    if (waiting == NULL)
        return NULL;
    *waiting = (struct pull_waiting){.thread = thread,
                                     .pull = {.id = header->id,
                                              .generation = generation,
                                              .version = header->version,
                                              .chunk_count = header->chunk_count,
                                              .chunks = waiting->chunks}};
    memcpy(waiting->chunks, header->chunks, bytes);
    return waiting;
}

/* Puts the pull behind those that wait. False: there is no room. */
static bool wait_locked(struct exchange_stream *stream, const struct weights *header,
                        uint32_t thread, uint64_t generation)
{
    check((stream->waiting == NULL) == (stream->waiting_count == 0));
    if (stream->waiting_count == WAITING_MAX)
        return false;
    struct pull_waiting *waiting = waiting_new(header, thread, generation);
    if (waiting == NULL)
        return false;
    if (stream->waiting == NULL)
        stream->waiting = waiting;
    else
        stream->waiting_last->next = waiting;
    stream->waiting_last = waiting;
    stream->waiting_count++;
    return true;
}

/* Whether the weights may be sent now; otherwise the pull waits, by its names. */
static bool may_send(struct exchange_stream *stream, const struct weights *header, uint32_t thread,
                     uint64_t generation)
{
    thread_lock(&stream->mutex);
    bool now = stream->waiting == NULL && atomic_load(&stream->outgoing) < OUTGOING_MAX;
    bool kept = now || wait_locked(stream, header, thread, generation);
    thread_unlock(&stream->mutex);
    if (!kept) /* the pull is lost: the stream ends, so that the worker connects and asks again */
        rpc_stream_cancel(stream->rpc);
    return now;
}

uint64_t pull_published(const struct shard_effect *weights, uint32_t index, uint64_t generation)
{
    struct exchange_stream *stream = (struct exchange_stream *)(uintptr_t)weights->sender;
    if (may_send(stream, &weights->weights.header, index, generation)) {
        send_weights(stream, weights);
        return 0;
    }
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < weights->weights.header.chunk_count; i++) {
        bytes += weights->weights.copies[i]->bytes;
        counted_unref(weights->weights.copies[i]);
    }
    return bytes;
}

void pull_refused(const struct shard_effect *refusal)
{
    struct exchange_stream *stream = (struct exchange_stream *)(uintptr_t)refusal->sender;
    send_refusal(stream, refusal->refusal.id, refusal->refusal.code);
}

static struct pull_waiting *waiting_take(struct exchange_stream *stream)
{
    thread_lock(&stream->mutex);
    struct pull_waiting *waiting = NULL;
    if (atomic_load(&stream->outgoing) + stream->again < OUTGOING_MAX)
        waiting = stream->waiting;
    if (waiting != NULL) {
        check(stream->waiting_count > 0);
        stream->waiting = waiting->next;
        stream->waiting_count--;
        stream->again++;
    }
    thread_unlock(&stream->mutex);
    return waiting;
}

static enum err ask_threads(struct exchange_stream *stream, const struct pull_waiting *waiting)
{
    struct exchange_message *message = exchange_message_new(stream);
    if (message == NULL)
        return ERR_NOMEM;
    uint32_t count = waiting->pull.chunk_count;
    uint32_t *chunks = arena_array(&message->arena, count, sizeof *chunks);
    if (chunks == NULL) {
        exchange_message_free(message);
        return ERR_NOMEM;
    }
    memcpy(chunks, waiting->chunks, count * sizeof *chunks);
    message->content = (struct to_shard){.kind = TO_SHARD_PULL, .pull = waiting->pull};
    message->content.pull.chunks = chunks;
    pull_begin(message, 1);
    const struct exchange *exchange = stream->exchange;
    enum err err = exchange->post(exchange->threads[waiting->thread], message);
    if (err != ERR_OK)
        exchange_message_free(message);
    return err;
}

void pull_ask_again(struct exchange_stream *stream)
{
    struct pull_waiting *waiting;
    while (!atomic_load(&stream->closed) && (waiting = waiting_take(stream)) != NULL) {
        if (ask_threads(stream, waiting) != ERR_OK)
            rpc_stream_cancel(stream->rpc); /* as in may_send() */
        free(waiting);
    }
}
