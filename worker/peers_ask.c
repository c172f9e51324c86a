/* Peer.Exchange at the member that asks. A lane's thread opens streams, sends wants and looks at
 * the clock while it waits for a value; polling threads bring the answers to the lane's core. */
#include "worker/peers.h"
#include "worker/peers_core.h"

#include "common/arena.h"
#include "common/scoped.h"

#include <stdlib.h>
#include <string.h>

/* ---- polling threads ---- */

/* S7: who answers in one lane is silent in none. */
static void note_heard(const struct origin *origin, uint64_t now_ms)
{
    struct peers *peers = origin->lane->peers;
    for (uint32_t i = 0; i < peers->options.lanes; i++)
        if (&peers->lanes[i] != origin->lane)
            wants_heard(peers->lanes[i].wants, now_ms, origin->member);
}

/* True: the message is kept. */
static bool take_answer_locked(const struct origin *origin, const struct from_peer *answer,
                               struct rpc_message *message)
{
    struct wants *wants = origin->lane->wants;
    uint64_t now_ms = peers_now_ms();
    bool kept = false;
    if (answer->kind != FROM_PEER_GONE)
        note_heard(origin, now_ms);
    switch (answer->kind) {
    case FROM_PEER_HAVE:
        kept = wants_have(wants, now_ms, origin->number, answer, message);
        break;
    case FROM_PEER_PARKED:
        wants_parked(wants, now_ms, origin->number, answer->parked.id);
        break;
    case FROM_PEER_GONE:
        wants_gone(wants, now_ms, origin->number, answer->gone.id, answer->gone.code);
        break;
    case FROM_PEER_FRAGMENT: /* a value's, which fragments_gather() keeps */
        break;
    }
    return kept;
}

static void note_part_locked(const struct origin *origin)
{
    uint64_t now_ms = peers_now_ms();
    wants_part(origin->lane->wants, now_ms, origin->number);
    note_heard(origin, now_ms);
}

static enum err take_message_locked(struct origin *origin, const struct from_peer *came,
                                    struct rpc_message *message, struct reason *reason)
{
    struct rpc_message *whole = NULL;
    struct from_peer answer;
    TRY(fragments_gather(&origin->fragments, came, message, &answer, &whole, reason));
    if (whole == NULL)
        note_part_locked(origin);
    else if (!take_answer_locked(origin, &answer, whole))
        rpc_message_unref(whole);
    return ERR_OK;
}

static enum err read_message(struct origin *origin, struct rpc_message *message,
                             struct reason *reason)
{
    struct peers *peers = origin->lane->peers;
    scoped(arena_release) struct arena arena;
    struct from_peer came;
    arena_init(&arena, WIRE_HEADER_BYTES_MAX);
    TRY(wire_decode_from_peer(message->slices, message->slice_count, &arena, &came, reason));
    thread_lock(&peers->mutex);
    enum err err = take_message_locked(origin, &came, message, reason);
    thread_wake_all(&peers->changed);
    thread_unlock(&peers->mutex);
    return err;
}

static void on_message(void *owner, struct rpc_stream *rpc, struct rpc_message *take_message)
{
    struct origin *origin = owner;
    struct reason reason = {0};
    enum err err = read_message(origin, take_message, &reason);
    rpc_message_unref(take_message);
    if (err == ERR_OK)
        return;
    log_warning(origin->lane->peers->options.logger, "peer's message refused",
                log_text("err", err_name(err)), log_text("why", reason.text),
                log_text("next", "reconnect"));
    rpc_stream_cancel(rpc);
}

static void add_origin(struct origin *origin)
{
    struct peers_lane *lane = origin->lane;
    thread_lock(&lane->peers->mutex);
    origin->next = lane->origins;
    lane->origins = origin;
    thread_unlock(&lane->peers->mutex);
}

static void free_origin(struct origin *origin)
{
    struct peers_lane *lane = origin->lane;
    thread_lock(&lane->peers->mutex);
    struct origin **at = &lane->origins;
    while (*at != origin)
        at = &(*at)->next;
    *at = origin->next;
    thread_unlock(&lane->peers->mutex);
    fragments_free(origin->fragments);
    free(origin);
}

static void lose(struct peers_lane *lane, uint64_t number)
{
    struct peers *peers = lane->peers;
    thread_lock(&peers->mutex);
    wants_lost(lane->wants, peers_now_ms(), number);
    thread_wake_all(&peers->changed);
    thread_unlock(&peers->mutex);
}

static void on_closed(void *owner, struct rpc_stream *rpc, enum err err,
                      const struct reason *reason)
{
    (void)rpc;
    struct origin *origin = owner;
    log_debug(origin->lane->peers->options.logger, "stream to a peer ended",
              log_text("err", err_name(err)), log_text("why", reason->text));
    lose(origin->lane, origin->number);
    free_origin(origin);
}

static const struct rpc_stream_events events = {.message = on_message, .closed = on_closed};

/* ---- the lane's thread ---- */

static void connection_free(struct connection *connection)
{
    if (connection->stream != NULL)
        rpc_stream_cancel(connection->stream);
    rpc_stream_unref(connection->stream);
    rpc_channel_free(connection->channel);
    free(connection);
}

void peers_ask_end(struct peers_lane *lane)
{
    while (lane->connections != NULL) {
        struct connection *connection = lane->connections;
        lane->connections = connection->next;
        connection_free(connection);
    }
}

/* Whether the stream is to stay: it may be lost, of a member that is no peer, or of an earlier
 * membership of this process. */
static bool is_used(struct peers_lane *lane, const struct connection *connection)
{
    thread_lock(&lane->peers->mutex);
    bool used = wants_uses(lane->wants, connection->number);
    thread_unlock(&lane->peers->mutex);
    return used;
}

static void close_unused(struct peers_lane *lane)
{
    struct connection **at = &lane->connections;
    while (*at != NULL) {
        struct connection *connection = *at;
        if (is_used(lane, connection)) {
            at = &connection->next;
            continue;
        }
        *at = connection->next;
        connection_free(connection);
    }
}

static enum err send_to(struct connection *connection, const struct to_peer *message)
{
    struct buf bytes = {0};
    TRY(wire_encode_to_peer(message, &bytes));
    return rpc_stream_send(connection->stream, RPC_NORMAL, &bytes, NULL, 0);
}

static enum err open_stream(struct peers_lane *lane, struct connection *connection, uint64_t member)
{
    struct origin *origin = malloc(sizeof *origin);
    if (origin == NULL)
        return ERR_NOMEM;
    *origin = (struct origin){.lane = lane, .member = member, .number = connection->number};
    add_origin(origin);
    enum err err = rpc_stream_open(connection->channel, "/roost.v1.Peer/Exchange", &events, origin,
                                   &connection->stream);
    if (err != ERR_OK) {
        free_origin(origin);
        return err;
    }
    const struct to_peer hello = {.kind = TO_PEER_HELLO, .hello = {connection->member, true}};
    return send_to(connection, &hello);
}

static enum err connect_to(struct peers_lane *lane, const struct wants_effect *effect,
                           const struct peer *peer, struct reason *reason)
{
    struct peers *peers = lane->peers;
    struct connection *connection = calloc(1, sizeof *connection);
    struct digest shown;
    if (connection == NULL)
        return ERR_NOMEM;
    memcpy(shown.bytes, peer->certificate, sizeof shown.bytes);
    connection->number = effect->number;
    thread_lock(&peers->mutex);
    connection->member = lane->member;
    thread_unlock(&peers->mutex);
    connection->next = lane->connections;
    lane->connections = connection;
    TRY(rpc_channel_new_worker(peers->options.loop, peer->address, peers->options.identity, &shown,
                               &connection->channel, reason));
    return open_stream(lane, connection, peer->member);
}

static void carry_open(struct peers_lane *lane, const struct wants_effect *effect,
                       const struct peer *peer)
{
    struct reason reason = {0};
    close_unused(lane);
    enum err err = connect_to(lane, effect, peer, &reason);
    if (err == ERR_OK)
        return;
    log_debug(lane->peers->options.logger, "no stream to a peer", log_uint("member", peer->member),
              log_text("err", err_name(err)), log_text("why", reason.text));
    lose(lane, effect->number);
}

static void carry_ask(struct peers_lane *lane, const struct wants_effect *effect)
{
    const struct to_peer message = {.kind = TO_PEER_WANT, .want = effect->want};
    struct connection *connection = lane->connections;
    while (connection != NULL && connection->number != effect->number)
        connection = connection->next;
    if (connection == NULL || send_to(connection, &message) != ERR_OK)
        lose(lane, effect->number);
}

static void carry_out(struct peers_lane *lane, const struct wants_effect *effect,
                      const struct peer *peer)
{
    const struct peers_options *options = &lane->peers->options;
    switch (effect->kind) {
    case WANTS_OPEN:
        carry_open(lane, effect, peer);
        break;
    case WANTS_ASK:
        carry_ask(lane, effect);
        break;
    case WANTS_UNREACHABLE:
        log_warning(options->logger, "peer does not answer", log_uint("member", peer->member),
                    log_text("address", peer->address), log_text("next", "report it, and ask on"));
        options->unreachable(options->context, effect->attempt, peer->member);
        break;
    }
}

void peers_reach(struct peers_lane *lane)
{
    struct peers *peers = lane->peers;
    for (bool more = true; more;) {
        struct wants_effect effect;
        struct peer peer;
        thread_lock(&peers->mutex);
        more = !lane->cancelled && wants_next_stream(lane->wants, peers_now_ms(), &effect);
        if (more)
            peer = *effect.peer; /* lent until the lock is free */
        thread_unlock(&peers->mutex);
        if (more)
            carry_out(lane, &effect, &peer);
    }
}

/* What has come of the value behind what was copied. */
static uint32_t find_more_locked(const struct peers_lane *lane, size_t bytes,
                                 struct fragments_had *copied, struct arrival *arrival)
{
    const struct wants_value *value = &arrival->value;
    for (struct origin *origin = lane->origins; origin != NULL; origin = origin->next)
        if (origin->number == value->stream)
            return fragments_behind(origin->fragments, value->id, bytes, copied,
                                    arrival->fragments);
    return 0;
}

/* What there is to do, or the value. BEHIND: `ret_effect` is to be carried out; TOO_EARLY: nothing,
 * and the value is not there. */
static enum err look_locked(struct peers_lane *lane, const struct value_name *name, size_t bytes,
                            struct fragments_had *copied, struct arrival *ret_arrival,
                            struct wants_effect *ret_effect)
{
    uint64_t member = 0;
    if (lane->cancelled)
        return ERR_CANCELLED;
    if (wants_next(lane->wants, peers_now_ms(), ret_effect))
        return ERR_BEHIND;
    enum err err = wants_look(lane->wants, name, &ret_arrival->value, &member);
    ret_arrival->count = err == ERR_BEHIND ? find_more_locked(lane, bytes, copied, ret_arrival) : 0;
    if (err == ERR_BEHIND)
        return ret_arrival->count > 0 ? ERR_OK : ERR_TOO_EARLY;
    atomic_store(&lane->blamed, member);
    return err;
}

static void wait_locked(struct peers_lane *lane)
{
    struct peers *peers = lane->peers;
    uint64_t wake_ms = wants_wake_ms(lane->wants);
    uint64_t wake_ns = wake_ms > UINT64_MAX / 1000000 ? TIME_NEVER : wake_ms * 1000000;
    ignore(thread_wait_locked(&peers->changed, &peers->mutex, wake_ns)); /* looks again */
}

enum err peers_ask_wait(struct peers_lane *lane, const struct value_name *name, size_t bytes,
                        struct fragments_had *copied, struct arrival *ret_arrival)
{
    const struct peers_options *options = &lane->peers->options;
    for (bool may_wait = options->waits == NULL;;) {
        struct wants_effect effect;
        struct peer peer;
        thread_lock(&lane->peers->mutex);
        enum err err = look_locked(lane, name, bytes, copied, ret_arrival, &effect);
        if (err == ERR_BEHIND)
            peer = *effect.peer; /* lent until the lock is free */
        if (err == ERR_TOO_EARLY && may_wait)
            wait_locked(lane);
        thread_unlock(&lane->peers->mutex);
        if (err == ERR_BEHIND) {
            carry_out(lane, &effect, &peer);
        } else if (err != ERR_TOO_EARLY) {
            return err;
        } else if (!may_wait) { /* without the lock; the value may come meanwhile */
            options->waits(options->context, lane->number);
            may_wait = true;
        }
    }
}
