/* Shard.Transfer at both ends. */
#include "server/threads/transfer.h"

#include "common/thread.h"

#include <string.h>

/* ---- peers ---- */

struct transfer_peers {
    struct transfer_config config;
    struct thread_mutex mutex; /* guards the rest; a channel stays until the end */
    uint32_t count;
    struct rpc_channel *channels[TRANSFER_PEERS_MAX];
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
        rpc_channel_free(peers->channels[i]);
    thread_mutex_release(&peers->mutex);
    free(peers);
}

static uint32_t find_peer(const struct transfer_peers *peers, const char *address)
{
    uint32_t i = 0;
    while (i < peers->count && strcmp(rpc_channel_address(peers->channels[i]), address) != 0)
        i++;
    return i;
}

enum err transfer_peer(struct transfer_peers *peers, const char *address, uint32_t *ret_peer,
                       struct reason *reason)
{
    struct rpc_channel *channel;
    uint32_t peer = find_peer(peers, address); /* only this thread adds */
    *ret_peer = peer;
    if (peer < peers->count)
        return ERR_OK;
    if (peers->config.loop == NULL || peer == TRANSFER_PEERS_MAX)
        return reason_set(reason, ERR_BUSY, "no more servers can be reached than %d",
                          TRANSFER_PEERS_MAX);
    TRY(rpc_channel_new(peers->config.loop, address, peers->config.identity, &channel, reason));
    thread_lock(&peers->mutex);
    peers->channels[peers->count++] = channel;
    thread_unlock(&peers->mutex);
    return ERR_OK;
}

/* ---- sending ---- */

static void answered(void *owner, enum err err, struct slice response, const struct reason *reason)
{
    (void)response, (void)reason;
    struct transfer_sent *sent = owner;
    sent->err = err;
    sent->peers->config.sent(sent->peers->config.owner, sent);
}

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
    struct buf request = {0};
    struct transfer_sent *sent = malloc(sizeof *sent);
    enum err err = sent == NULL ? ERR_NOMEM : encode(shard, &effect->transfer.header, &request);
    if (err != ERR_OK) {
        buf_release(&request);
        free(sent);
        return err;
    }
    *sent =
        (struct transfer_sent){.peers = peers, .thread = thread, .header = effect->transfer.header};
    thread_lock(&peers->mutex);
    check(effect->transfer.to < peers->count); /* transfer_peer() named it */
    struct rpc_channel *channel = peers->channels[effect->transfer.to];
    thread_unlock(&peers->mutex);
    const struct rpc_call_config config = {
        .path = "/roost.v1.Shard/Transfer",
        .timeout_ms = TRANSFER_MS,
        .wait_for_server = true,
        .answered = answered,
        .owner = sent,
    };
    err = rpc_call_start(channel, &config, &request);
    if (err != ERR_OK)
        free(sent);
    return err;
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
