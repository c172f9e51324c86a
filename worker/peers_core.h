/* The carrier's state, which its files share. For peers*.c only. */
#ifndef ROOST_WORKER_PEERS_CORE_H
#define ROOST_WORKER_PEERS_CORE_H

#include "common/ring.h"
#include "common/thread.h"
#include "common/time.h"
#include "worker/boundary_sums.h"
#include "worker/fragments.h"
#include "worker/outbox.h"
#include "worker/peers_options.h"
#include "worker/wants.h"

enum { PEERS_ADDRESS_BYTES = WIRE_ADDRESS_BYTES };

/* A stream to a member that is asked. */
struct connection {
    struct connection *next;
    uint64_t number; /* of the lane's streams */
    uint64_t member; /* as which this process asks there */
    struct rpc_channel *channel;
    struct rpc_stream *stream; /* a reference; NULL: it was not opened */
};

/* The owner that a stream's events carry, to its `closed`. */
struct origin {
    struct peers_lane *lane;
    uint64_t member; /* who is asked */
    uint64_t number;
    struct origin *next;         /* of the lane; this and the next one are the lock's */
    struct fragments *fragments; /* of the value that is coming */
};

struct peers_lane {
    struct peers *peers;
    uint32_t number;

    /* guarded by the mutex of the peers */
    struct origin *origins;
    struct wants *wants;
    struct ticket ticket; /* what the lane's thread works for; attempt 0: nothing */
    struct place place;   /* its place of that lease */
    uint64_t member;
    bool cancelled;

    _Atomic uint64_t taken_bytes, kept_bytes, blamed;

    struct digest_fast digest; /* this and the rest: the thread's */
    bool digests;              /* of a value whose end has not come */
    struct boundary_sums sums;
    struct rpc_message *lent; /* of peers_lend_part() */
    struct connection *connections;
};

struct peers {
    struct peers_options options;
    struct boundaries boundaries;
    char address[PEERS_ADDRESS_BYTES];
    struct rpc_method method;
    struct rpc_server *server;

    struct thread_mutex mutex; /* guards the following, and what lanes say */
    struct thread_cond changed;
    struct outbox *outbox;
    struct ring serving; /* struct serving */

    _Atomic uint64_t kept_bytes;

    struct peers_lane lanes[PEERS_LANES_MAX];
};

static inline uint64_t peers_now_ms(void)
{
    return time_now_ns() / 1000000;
}

/* ---- peers_serve.c ---- */

/* The method by which others ask. */
struct rpc_method peers_serve_method(struct peers *peers);
/* Sends what is to be answered. Any thread, without the lock. */
void peers_serve_answers(struct peers *peers);

/* ---- peers_ask.c; the lane's thread ---- */

/* What has come: the value, or some of its messages. */
struct arrival {
    struct wants_value value;
    uint32_t count;                                /* 0: the value is there */
    struct fragment fragments[WIRE_FRAGMENTS_MAX]; /* references */
};

/* Waits for the value, of `bytes`, or for more of it than was copied. *copied is nothing of it, when
 * it comes anew. */
enum err peers_ask_wait(struct peers_lane *lane, const struct value_name *name, size_t bytes,
                        struct fragments_had *copied, struct arrival *ret_arrival) MUST_USE;
/* Ends all streams, and waits for that. */
void peers_ask_end(struct peers_lane *lane);

#endif
