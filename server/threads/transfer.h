/* Chunks on their way from server to server (P11): Shard.Transfer at both ends.
 *
 *     shard thread of the old owner              shard thread of the new owner
 *     shard_move.c -> transfer_send ---call--->  transfer_method ---inbox---> shard_arrive
 *     shard_transferred <---inbox--- answered    transfer_answer <----------- shard_thread.c
 *
 * A call carries one chunk, written straight from the shard into the message. A shard has a few at a
 * time (SHARD_TRANSFERS_MAX). Of all shards' calls to one server so many are under way as have
 * TRANSFER_BYTES_MAX together, and the others wait for their turn: a server closes a connection that
 * brings more unfinished bytes (rpc_settings.role_bytes_max). A chunk whose call fails is sent again,
 * after a longer pause each time. */
#ifndef ROOST_SERVER_THREADS_TRANSFER_H
#define ROOST_SERVER_THREADS_TRANSFER_H

#include "common/arena.h"
#include "common/rpc/rpc.h"
#include "server/shard/shard.h"

enum {
    TRANSFER_PEERS_MAX = WIRE_SERVERS_MAX,
    TRANSFER_MS = 10000,                         /* deadline of a call under way */
    TRANSFER_BYTES_MAX = WIRE_TRANSFER_BYTES_MAX /* under way to a peer at a time */
};

struct transfer_peers;

/* A chunk that is sent, and what became of it. */
struct transfer_sent {
    struct transfer_peers *peers;
    uint32_t thread;    /* whose shard sends it */
    struct buf request; /* until its turn comes */
    size_t bytes;       /* of it */
    uint32_t to;        /* the peer … */
    char address[WIRE_ADDRESS_BYTES];
    struct transfer header;
    enum err err;
    struct reason reason;       /* of the error */
    struct transfer_sent *next; /* the peer's, in its turn; then the thread's */
};

/* A chunk that arrives, until its call is answered. */
struct transfer_arrival {
    struct rpc_request *request;
    struct transfer header;
    struct slice payload; /* the request's */
};

struct transfer_config {
    struct rpc_loop *loop; /* NULL: no server can be reached (tests) */
    const struct tls_identity *identity;
    /* Both are called on polling threads; `sent` on the shard thread as well, when a call cannot
     * begin. When `arrived` returns an error, the call is answered with it. */
    void (*sent)(void *owner, struct transfer_sent *take_sent);
    enum err (*arrived)(void *owner, struct transfer_arrival *arrival);
    void *owner;
};

/* Other servers, by address. The config is copied; what it points to outlives the peers. */
enum err transfer_peers_new(const struct transfer_config *config,
                            struct transfer_peers **ret_peers) MUST_USE;
/* Waits until calls under way are answered, with CANCELLED. NULL is fine. */
void transfer_peers_free(struct transfer_peers *peers);
/* The peer's number, for shard_leave.to. Until TRANSFER_PEERS_MAX others have been named since, or a
 * call is under way, it names this peer; later nobody. One thread at a time. */
enum err transfer_peer(struct transfer_peers *peers, const char *address, uint32_t *ret_peer,
                       struct reason *reason) MUST_USE;

/* Sends the chunk of a SHARD_TRANSFER effect of the thread's shard, when its turn comes. The config's
 * `sent` is called with the result. ERR_NOMEM, ERR_UNREACHABLE: nothing is sent. Shard thread. */
enum err transfer_send(struct transfer_peers *peers, uint32_t thread, const struct shard *shard,
                       const struct shard_effect *effect) MUST_USE;

/* Any thread. */
void transfer_answer(struct transfer_arrival *take_arrival, enum err err);

/* The row of the method table; servers only. */
struct rpc_method transfer_method(struct transfer_peers *peers);

#endif
