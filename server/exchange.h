/* Shard.Exchange at the server: one stream per worker, from hello to the end (DESIGN section 6).
 *
 * A message comes in on the stream's polling thread, is judged by proto/wire.c there, and goes to
 * its shard thread with the received slices uncopied; the answer is sent from the shard thread.
 *
 *     polling thread                     shard thread
 *     exchange.c -> push.c ---inbox----> push.c -> shard.c -> kernels
 *                                        push.c -> acknowledgement, urgent
 *     exchange.c -> pull.c ---inbox----> pull.c -> shard.c
 *                                        pull.c -> weights, or a refusal
 *
 * Credits: WIRE_CREDITS pushes and as many pulls may be unanswered; a peer with more is not ours:
 * its stream ends. A pull that has to wait is answered with TOO_EARLY and holds no credit any more;
 * when its weights are published they are sent as long as few messages wait to be sent, otherwise
 * the pull's names wait here and the shard is asked again, so a slow peer never holds old weights.
 *
 * A stream lives as long as somebody holds a reference: its rpc stream until `closed`, each message
 * under way, and each shard thread until it has forgotten the stream's parked pulls. Until then the
 * stream's address is its name in the shard core. */
#ifndef ROOST_SERVER_EXCHANGE_H
#define ROOST_SERVER_EXCHANGE_H

#include "common/arena.h"
#include "common/rpc.h"
#include "common/thread.h"
#include "proto/wire.h"
#include "server/prepared.h"

struct shard_thread;

/* What all streams of a server share. Set up before the first stream. */
struct exchange {
    uint64_t boot;
    _Atomic uint64_t generation; /* for Welcome */
    uint32_t thread_count;
    struct shard_thread **threads;
};

/* The thread that owns a chunk. */
static inline uint32_t exchange_thread(const struct exchange *exchange, uint32_t chunk)
{
    return prepared_thread(chunk, exchange->thread_count);
}

struct exchange_stream {
    atomic_uint references;
    struct exchange *exchange;
    struct rpc_stream *rpc;
    uint64_t member;     /* set by hello, before any other message is taken */
    bool greeted, ended; /* polling thread only */
    atomic_bool closed;
    atomic_uint pushes;        /* not acknowledged */
    atomic_uint pulls;         /* not answered, nor parked */
    atomic_uint outgoing;      /* messages that the connection has not taken yet */
    struct thread_mutex mutex; /* guards the four below */
    struct pull_waiting *waiting, *waiting_last; /* published, to be asked for again; pull.c */
    uint32_t waiting_count;
    uint32_t again; /* asked for again and not answered yet */
    /* In the shard threads' lists of streams that are gone; each guarded by its thread's mutex. */
    struct exchange_stream *gone_next[];
};

/* A push or pull on its way through the shard threads. */
struct exchange_message {
    struct exchange_stream *stream; /* a reference */
    struct rpc_message *received;   /* a reference; NULL: a pull that is asked again */
    struct to_shard content;        /* in the arena */
    atomic_uint left;               /* shard threads that have not answered their share */
    _Atomic uint64_t outcome;       /* push.c, pull.c: of those that have */
    struct arena arena;
};

/* The row of the method table; workers only. `exchange` outlives the rpc server. */
struct rpc_method exchange_method(struct exchange *exchange);

struct exchange_stream *exchange_stream_ref(struct exchange_stream *stream);
void exchange_stream_unref(struct exchange_stream *stream);

/* NULL: out of memory. Takes a reference to the stream. */
struct exchange_message *exchange_message_new(struct exchange_stream *stream) MUST_USE;
void exchange_message_free(struct exchange_message *message);

/* Sends a message with its payload. ERR_CANCELLED: the stream is over, which is fine. Any other
 * error ends it. Any thread. */
enum err exchange_send(struct exchange_stream *stream, enum rpc_priority priority,
                       const struct from_shard *message, const struct rpc_part *parts,
                       size_t part_count);
/* Ends the stream; the peer gets the sentence. Polling thread. */
void exchange_end(struct exchange_stream *stream, enum err err, const char *text);

#endif
