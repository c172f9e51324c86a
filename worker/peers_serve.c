/* Peer.Exchange at the member that is asked: a stream for each who asks, from hello to the end.
 *
 * A want comes in on the stream's polling thread, and the outbox knows at once what is answered.
 * What a stream has not sent yet waits in the outbox: a peer that does not read gets no more, and
 * one that asks on nevertheless runs out of credits. */
#include "worker/peers_core.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "worker/fragments.h"

#include <stdlib.h>

enum { WANT_BYTES_MAX = 4096 };

struct serving {
    struct ring link;           /* the lock's, as are the next two */
    uint32_t unsent;            /* messages that the connection has not taken yet */
    bool fragments;             /* a value may go in several messages */
    bool sending;               /* a thread sends an answer: its messages follow each other */
    struct outbox_asker *asker; /* NULL: it has not said who it is */
    struct peers *peers;
    struct rpc_stream *rpc; /* until `closed` */
    struct digest shown;
    bool ended; /* it gets no answer any more: the lock's, written by the polling thread alone */
};

/* ---- answers ---- */

struct outgoing {
    struct rpc_stream *stream; /* a reference */
    struct outbox_answer answer;
    size_t fragment_bytes; /* of the value in each message, but for the last */
};

static uint32_t message_count(const struct outgoing *outgoing)
{
    size_t bytes = outgoing->answer.message.payload_bytes, each = outgoing->fragment_bytes;
    return bytes > each ? (uint32_t)((bytes + each - 1) / each) : 1;
}

/* A value in shared memory stays where it lies. */
static size_t fragment_bytes(const struct serving *serving, const struct outbox_answer *answer)
{
    return serving->fragments && !rpc_stream_is_shared(serving->rpc)
               ? fragments_bytes(answer->message.payload_bytes)
               : SIZE_MAX;
}

static bool take_answer(struct serving *serving, struct outgoing *ret_outgoing)
{
    if (serving->ended || serving->asker == NULL || serving->sending ||
        serving->unsent >= WIRE_CREDITS || !outbox_next(serving->asker, &ret_outgoing->answer))
        return false;
    ret_outgoing->stream = rpc_stream_ref(serving->rpc);
    ret_outgoing->fragment_bytes = fragment_bytes(serving, &ret_outgoing->answer);
    serving->unsent += message_count(ret_outgoing);
    serving->sending = true;
    return true;
}

/* Its messages were given to the stream, which may have ended meanwhile. */
static void note_sent(struct peers *peers, const struct outgoing *outgoing)
{
    thread_lock(&peers->mutex);
    for (struct ring *link = peers->serving.behind; link != &peers->serving; link = link->behind) {
        struct serving *serving = RING_ITEM(link, struct serving, link);
        if (serving->rpc == outgoing->stream)
            serving->sending = false;
    }
    thread_unlock(&peers->mutex);
}

static bool next_outgoing(struct peers *peers, struct outgoing *ret_outgoing)
{
    bool found = false;
    thread_lock(&peers->mutex);
    for (struct ring *link = peers->serving.behind; link != &peers->serving && !found;
         link = link->behind)
        found = take_answer(RING_ITEM(link, struct serving, link), ret_outgoing);
    thread_unlock(&peers->mutex);
    return found;
}

/* So many bytes of the answer's value, from `offset` on. */
static enum err send_bytes(const struct outgoing *outgoing, size_t offset, size_t bytes)
{
    const struct rpc_part part = {outgoing->answer.value, offset, bytes};
    struct from_peer message = outgoing->answer.message;
    uint64_t rest = message.payload_bytes - offset - bytes;
    struct buf header = {0};
    if (offset > 0)
        message = (struct from_peer){.kind = FROM_PEER_FRAGMENT, .fragment = {rest}};
    else if (rest > 0)
        message.have.rest = rest;
    message.payload_bytes = bytes;
    TRY(wire_encode_from_peer(&message, &header));
    /* one priority: the asker hears that a want is parked before its value */
    return rpc_stream_send(outgoing->stream, RPC_NORMAL, &header, &part, bytes > 0);
}

static enum err send_answer(const struct outgoing *outgoing)
{
    size_t bytes = outgoing->answer.message.payload_bytes, offset = 0;
    do {
        size_t left = bytes - offset;
        size_t here = left < outgoing->fragment_bytes ? left : outgoing->fragment_bytes;
        TRY(send_bytes(outgoing, offset, here));
        offset += here;
    } while (offset < bytes);
    return ERR_OK;
}

void peers_serve_answers(struct peers *peers)
{
    struct outgoing outgoing;
    while (next_outgoing(peers, &outgoing)) {
        if (send_answer(&outgoing) != ERR_OK)
            rpc_stream_cancel(outgoing.stream); /* it asks again over the next one */
        note_sent(peers, &outgoing);
        counted_unref(outgoing.answer.value);
        rpc_stream_unref(outgoing.stream);
    }
}

/* ---- events ---- */

static void end_stream(struct serving *serving, enum err err, const char *text)
{
    thread_lock(&serving->peers->mutex);
    serving->ended = true;
    thread_unlock(&serving->peers->mutex);
    rpc_stream_finish(serving->rpc, err, text);
}

static enum err on_open(void *owner, struct rpc_stream *rpc, const struct rpc_peer *peer,
                        void **ret_owner, struct reason *reason)
{
    struct peers *peers = owner;
    struct serving *serving = calloc(1, sizeof *serving);
    if (serving == NULL)
        return reason_set(reason, ERR_BUSY, "no memory for another stream");
    serving->peers = peers;
    serving->rpc = rpc_stream_ref(rpc);
    serving->shown = peer->shown;
    thread_lock(&peers->mutex);
    ring_add(&peers->serving, &serving->link);
    thread_unlock(&peers->mutex);
    *ret_owner = serving;
    return ERR_OK;
}

static enum err greet_locked(struct serving *serving, const struct to_peer *hello)
{
    if (serving->asker != NULL)
        return ERR_MALFORMED;
    serving->fragments = hello->hello.fragments;
    serving->asker = outbox_asker_new(serving->peers->outbox, hello->hello.member, &serving->shown);
    return serving->asker != NULL ? ERR_OK : ERR_BUSY;
}

/* A message that decodes: hello first, then wants. */
static void dispatch(struct serving *serving, const struct to_peer *message)
{
    struct peers *peers = serving->peers;
    bool hello = message->kind == TO_PEER_HELLO, greeted;
    enum err err = ERR_MALFORMED;
    thread_lock(&peers->mutex);
    greeted = serving->asker != NULL;
    if (hello)
        err = greet_locked(serving, message);
    else if (greeted)
        err = outbox_want(serving->asker, &message->want);
    thread_unlock(&peers->mutex);
    if (err == ERR_OK)
        peers_serve_answers(peers);
    else if (hello == greeted)
        end_stream(serving, err, "hello is the first message of a stream, and only that");
    else
        end_stream(serving, err,
                   hello ? "no memory for another stream"
                         : "more wants without an answer than credits allow");
}

/* The bytes of a message in one piece. */
static enum err decode(const struct rpc_message *received, struct arena *arena,
                       struct to_peer *ret_message, struct reason *reason)
{
    uint8_t bytes[WANT_BYTES_MAX];
    if (received->bytes > sizeof bytes)
        return reason_set(reason, ERR_MALFORMED, "message is larger than %d bytes", WANT_BYTES_MAX);
    rpc_message_copy(received, 0, received->bytes, bytes);
    return wire_decode_to_peer((struct slice){bytes, received->bytes}, arena, ret_message, reason);
}

static void on_message(void *owner, struct rpc_stream *rpc, struct rpc_message *take_message)
{
    (void)rpc;
    struct serving *serving = owner;
    scoped(arena_release) struct arena arena;
    struct to_peer message;
    struct reason reason = {0};
    arena_init(&arena, WIRE_HEADER_BYTES_MAX);
    enum err err = serving->ended ? ERR_CANCELLED : decode(take_message, &arena, &message, &reason);
    rpc_message_unref(take_message);
    if (err == ERR_OK)
        dispatch(serving, &message);
    else if (!serving->ended)
        end_stream(serving, err, reason_text(err, &reason));
}

static void on_sent(void *owner, struct rpc_stream *rpc, size_t queued)
{
    (void)rpc, (void)queued;
    struct serving *serving = owner;
    thread_lock(&serving->peers->mutex);
    check(serving->unsent > 0); /* as often as it was sent */
    serving->unsent--;
    thread_unlock(&serving->peers->mutex);
    peers_serve_answers(serving->peers);
}

static void on_closed(void *owner, struct rpc_stream *rpc, enum err err,
                      const struct reason *reason)
{
    (void)rpc;
    struct serving *serving = owner;
    struct peers *peers = serving->peers;
    log_debug(peers->options.logger, "peer's stream ended", log_text("err", err_name(err)),
              log_text("why", reason->text));
    thread_lock(&peers->mutex);
    outbox_asker_free(serving->asker);
    ring_take(&serving->link);
    thread_unlock(&peers->mutex);
    rpc_stream_unref(serving->rpc);
    free(serving);
}

static const struct rpc_stream_events events = {
    .open = on_open,
    .message = on_message,
    .sent = on_sent,
    .closed = on_closed,
};

struct rpc_method peers_serve_method(struct peers *peers)
{
    return (struct rpc_method){
        .path = "/roost.v1.Peer/Exchange",
        .kind = RPC_STREAM,
        .shared = true,
        .roles = TLS_ROLE_BIT(TLS_ROLE_WORKER),
        .request_bytes_max = WANT_BYTES_MAX,
        .owner = peers,
        .events = &events,
    };
}
