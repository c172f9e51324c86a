/* Shard.Transfer at both ends. */
#include "server/threads/transfer.h"

#include "common/thread.h"

#include <string.h>

/* ---- peers ---- */

struct new_owner {
    uint32_t number; /* no other peer's, ever */
    uint32_t calls;  /* under way, or waiting for their turn: it stays */
    size_t bytes;    /* under way */
    struct rpc_channel *channel;
    struct transfer_sent *first, *last; /* that wait; first NULL: none */
};

struct transfer_peers {
    struct transfer_config config;
    struct thread_mutex mutex; /* guards the rest */
    uint32_t numbers;          /* given so far */
    uint32_t count;
    struct new_owner list[TRANSFER_PEERS_MAX]; /* who was named last is the last */
};

enum err transfer_peers_new(const struct transfer_config *config, struct transfer_peers **ret_peers)
{
    struct transfer_peers *peers = calloc(1, sizeof *peers);
    if (peers == NULL)
        return ERR_NOMEM;
    peers->config = *config;
    thread_mutex_init(&peers->mutex);
    *ret_peers = peers;
    return ERR_OK;
}

void transfer_peers_free(struct transfer_peers *peers)
{
    if (peers == NULL)
        return;
    for (uint32_t i = 0; i < peers->count; i++)
        rpc_channel_free(peers->list[i].channel);
    thread_mutex_release(&peers->mutex);
    free(peers);
}

static struct new_owner take_locked(struct transfer_peers *peers, uint32_t index)
{
    struct new_owner taken = peers->list[index];
    peers->count--;
    memmove(&peers->list[index], &peers->list[index + 1],
            (peers->count - index) * sizeof *peers->list);
    return taken;
}

/* The peer of that address, if there is one, which is the last one then. */
static bool name_again(struct transfer_peers *peers, const char *address, uint32_t *ret_peer)
{
    uint32_t i = 0;
    thread_lock(&peers->mutex);
    while (i < peers->count && strcmp(rpc_channel_address(peers->list[i].channel), address) != 0)
        i++;
    bool found = i < peers->count;
    if (found) {
        struct new_owner named = take_locked(peers, i);
        peers->list[peers->count++] = named;
        *ret_peer = named.number;
    }
    thread_unlock(&peers->mutex);
    return found;
}

/* Drops the peer that was named longest ago and has no call under way. Its chunks are there by now
 * (P6: the next commit waits for their new owners' acknowledgements), and those of one commit have no
 * more new owners than there is room for. */
static bool make_room(struct transfer_peers *peers)
{
    uint32_t i = 0;
    struct rpc_channel *dropped = NULL;
    thread_lock(&peers->mutex);
    while (i < peers->count && peers->list[i].calls > 0)
        i++;
    if (peers->count == TRANSFER_PEERS_MAX && i < peers->count)
        dropped = take_locked(peers, i).channel;
    bool room = peers->count < TRANSFER_PEERS_MAX;
    thread_unlock(&peers->mutex);
    rpc_channel_free(dropped);
    return room;
}

enum err transfer_peer(struct transfer_peers *peers, const char *address, uint32_t *ret_peer,
                       struct reason *reason)
{
    struct rpc_channel *channel;
    if (name_again(peers, address, ret_peer))
        return ERR_OK;
    if (peers->config.loop == NULL || !make_room(peers))
        return reason_set(reason, ERR_BUSY, "no more servers can be reached than %d",
                          TRANSFER_PEERS_MAX);
    TRY(rpc_channel_new(peers->config.loop, address, peers->config.identity, &channel, reason));
    thread_lock(&peers->mutex);
    *ret_peer = peers->numbers++;
    peers->list[peers->count++] = (struct new_owner){.number = *ret_peer, .channel = channel};
    thread_unlock(&peers->mutex);
    return ERR_OK;
}

static struct new_owner *find_locked(struct transfer_peers *peers, uint32_t number)
{
    for (uint32_t i = 0; i < peers->count; i++)
        if (peers->list[i].number == number)
            return &peers->list[i];
    return NULL;
}

/* ---- turns ---- */

/* False: the peer was dropped. */
static bool wait_for_turn(struct transfer_sent *sent)
{
    struct transfer_peers *peers = sent->peers;
    thread_lock(&peers->mutex);
    struct new_owner *peer = find_locked(peers, sent->to);
    if (peer != NULL) {
        *(peer->first == NULL ? &peer->first : &peer->last->next) = sent;
        peer->last = sent;
        peer->calls++;
        snprintf(sent->address, sizeof sent->address, "%s", rpc_channel_address(peer->channel));
    }
    thread_unlock(&peers->mutex);
    return peer != NULL;
}

/* The call whose turn it is, which counts as under way, and its channel. NULL: none. */
static struct transfer_sent *take_turn(struct transfer_peers *peers, uint32_t number,
                                       struct rpc_channel **ret_channel)
{
    struct transfer_sent *taken = NULL;
    thread_lock(&peers->mutex);
    struct new_owner *peer = find_locked(peers, number);
    if (peer != NULL && peer->first != NULL &&
        (peer->bytes == 0 || peer->bytes + peer->first->bytes <= TRANSFER_BYTES_MAX)) {
        taken = peer->first;
        peer->first = taken->next;
        taken->next = NULL;
        peer->bytes += taken->bytes;
        *ret_channel = peer->channel;
    }
    thread_unlock(&peers->mutex);
    return taken;
}

/* Its shard hears what became of it. */
static void end_call(struct transfer_sent *take_sent)
{
    struct transfer_peers *peers = take_sent->peers;
    thread_lock(&peers->mutex);
    struct new_owner *peer = find_locked(peers, take_sent->to);
    check(peer != NULL && peer->calls > 0 && peer->bytes >= take_sent->bytes);
    peer->calls--;
    peer->bytes -= take_sent->bytes;
    thread_unlock(&peers->mutex);
    peers->config.sent(peers->config.owner, take_sent);
}

static void answered(void *owner, enum err err, struct slice response, const struct reason *reason);

static void begin_calls(struct transfer_peers *peers, uint32_t to)
{
    struct transfer_sent *sent;
    struct rpc_channel *channel;
    while ((sent = take_turn(peers, to, &channel)) != NULL) {
        const struct rpc_call_config config = {
            .path = "/roost.v1.Shard/Transfer",
            .timeout_ms = TRANSFER_MS,
            .answered = answered,
            .owner = sent,
        };
        enum err err = rpc_call_start(channel, &config, &sent->request);
        if (err == ERR_OK)
            continue;
        sent->err = err;
        end_call(sent);
    }
}

static void answered(void *owner, enum err err, struct slice response, const struct reason *reason)
{
    (void)response;
    struct transfer_sent *sent = owner;
    struct transfer_peers *peers = sent->peers;
    uint32_t to = sent->to;
    sent->err = err;
    sent->reason = *reason;
    end_call(sent);
    begin_calls(peers, to);
}

/* ---- sending ---- */

static enum err encode(const struct shard *shard, const struct transfer *header,
                       struct buf *ret_request)
{
    size_t bytes = (size_t)header->weights * header->arrays * sizeof(float);
    check(header->arrays > 0 && header->arrays <= WIRE_TRANSFER_ARRAYS_MAX);
    TRY(buf_reserve(ret_request, bytes + 64));
    struct transfer said = *header;
    said.wire_version = WIRE_VERSION;
    said.wire_version_min = WIRE_VERSION_MIN;
    TRY(wire_encode_transfer(&said, ret_request));
    TRY(buf_reserve(ret_request, bytes));
    shard_transfer_copy(shard, header, ret_request->data + ret_request->bytes);
    ret_request->bytes += bytes;
    check(ret_request->bytes <= WIRE_TRANSFER_BYTES_MAX); /* the peer refuses more */
    return ERR_OK;
}

enum err transfer_send(struct transfer_peers *peers, uint32_t thread, const struct shard *shard,
                       const struct shard_effect *effect)
{
    struct transfer_sent *sent = malloc(sizeof *sent);
    if (sent == NULL)
        return ERR_NOMEM;
    *sent = (struct transfer_sent){.peers = peers,
                                   .thread = thread,
                                   .to = effect->transfer.to,
                                   .header = effect->transfer.header};
    enum err err = encode(shard, &sent->header, &sent->request);
    sent->bytes = sent->request.bytes;
    if (err == ERR_OK && !wait_for_turn(sent))
        err = ERR_UNREACHABLE;
    if (err != ERR_OK) {
        buf_release(&sent->request);
        free(sent);
        return err;
    }
    begin_calls(peers, effect->transfer.to);
    return ERR_OK;
}

/* ---- arriving ---- */

void transfer_answer(struct transfer_arrival *take_arrival, enum err err)
{
    struct buf empty = {0};
    if (err == ERR_OK)
        rpc_reply(take_arrival->request, &empty);
    else
        rpc_fail(take_arrival->request, err, err_text(err));
    free(take_arrival);
}

static enum err decode(struct slice bytes, struct transfer_arrival *arrival, struct reason *reason)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_HEADER_BYTES_MAX};
    const struct transfer *header = &arrival->header;
    TRY(wire_decode_transfer(bytes, &arena, &arrival->header, &arrival->payload, reason));
    if (wire_speaks(header->wire_version_min, header->wire_version))
        return ERR_OK;
    return reason_set(reason, ERR_WIRE_VERSION,
                      "the chunk's server speaks the wire versions %u to %u, its new one %u to %u: "
                      "install the same roost on both",
                      header->wire_version_min, header->wire_version, (unsigned)WIRE_VERSION_MIN,
                      (unsigned)WIRE_VERSION);
}

static void arrived(void *owner, struct rpc_request *request, struct slice bytes)
{
    const struct transfer_peers *peers = owner;
    struct reason reason = {.text = "no memory for a chunk that arrives"};
    struct transfer_arrival *arrival = malloc(sizeof *arrival);
    enum err err = arrival == NULL ? ERR_BUSY : decode(bytes, arrival, &reason);
    if (err != ERR_OK) {
        free(arrival);
        rpc_fail(request, err, reason.text);
        return;
    }
    arrival->request = request;
    check(arrival->payload.bytes ==
          (size_t)arrival->header.weights * arrival->header.arrays * sizeof(float));
    err = peers->config.arrived(peers->config.owner, arrival);
    if (err != ERR_OK)
        transfer_answer(arrival, err);
}

struct rpc_method transfer_method(struct transfer_peers *peers)
{
    return (struct rpc_method){
        .path = "/roost.v1.Shard/Transfer",
        .kind = RPC_UNARY,
        .roles = TLS_ROLE_BIT(TLS_ROLE_SERVER),
        .request_bytes_max = WIRE_TRANSFER_BYTES_MAX,
        .owner = peers,
        .requested = arrived,
    };
}
