/* A worker's stream and the messages on it, as push.c, pull.c and the shard threads see them.
 *
 * A stream lives as long as somebody holds a reference: its rpc stream until `closed`, each message
 * under way, and each shard thread until the thread has forgotten the stream's parked pulls. The
 * shard core knows the stream by its address as long as it lives.
 *
 * Invariants, checked where they change:
 *  1 a push holds a credit until it is acknowledged, a pull until every share of it is answered,
 * and each gives it back once: no credit is out when the last reference goes; 2 waiting_count pulls
 * are in the list of those that wait to be asked again; 3 what is sent has a greeted receiver, and
 * a payload as long as its parts. */
#ifndef ROOST_SERVER_THREADS_EXCHANGE_STREAM_H
#define ROOST_SERVER_THREADS_EXCHANGE_STREAM_H

#include "common/arena.h"
#include "common/rpc/rpc.h"
#include "common/thread.h"
#include "proto/wire.h"
#include "server/disk/prepared.h"
#include "server/member/admission.h"

struct shard_thread;
struct exchange_message;

/* What all streams of a server share. Set up before the first stream. */
struct exchange {
    uint64_t boot;
    struct thread_mutex mutex; /* guards the next */
    struct admission admission;
    _Atomic uint64_t generation; /* for Welcome */
    uint32_t thread_count;
    struct shard_thread **threads;
    /* shard_thread_message(), by which pull.c asks the threads again: pull.c must not include
     * them. */
    enum err (*post)(struct shard_thread *thread, struct exchange_message *message);
};

/* The thread that owns the chunk. */
static inline uint32_t exchange_thread(const struct exchange *exchange, uint32_t chunk)
{
    return prepared_thread(chunk, exchange->thread_count);
}

/* A pull whose weights are published, but not sent: only its names. */
struct pull_waiting {
    struct pull_waiting *next;
    uint32_t thread;
    struct pull pull; /* chunks point to what follows */
    uint32_t chunks[];
};

struct exchange_stream {
    atomic_uint references;
    struct exchange *exchange;
    struct rpc_stream *rpc;
    uint64_t member;     /* set by hello, before any other message is taken */
    struct proof secret; /* the same; judged with each message, as terms come and go */
    bool greeted, ended; /* polling thread only */
    atomic_bool closed;
    atomic_uint pushes;        /* not acknowledged */
    atomic_uint pulls;         /* not answered, nor parked */
    atomic_uint outgoing;      /* messages that the connection has not taken yet */
    struct thread_mutex mutex; /* guards the four below */
    struct pull_waiting *waiting, *waiting_last; /* published, to be asked again; pull.c */
    uint32_t waiting_count;
    uint32_t again; /* pulls that asked again and are not answered yet */
    /* In the shard threads' lists of streams that are gone; each guarded by its thread's mutex. */
    struct exchange_stream *gone_next[];
};

/* The result of a message's answered shares so far, in one atomic value. */
struct exchange_outcome {
    uint32_t first_refused; /* a push: index of the entry that `err` is about */
    enum err err;
};

/* A push or pull on its way through the shard threads. */
struct exchange_message {
    struct exchange_stream *stream;           /* a reference */
    struct rpc_message *received;             /* a reference; NULL: a pull that is asked again */
    struct to_shard content;                  /* in the arena */
    atomic_uint left;                         /* shares that are not answered */
    _Atomic(struct exchange_outcome) outcome; /* push.c, pull.c: of the answered shares */
    struct arena arena;
};

/* Whether the member was named by SERVER_ENDED. Any thread. */
bool exchange_has_ended(struct exchange *exchange, uint64_t member);

/* Not greeted yet. NULL: out of memory. One reference, the caller's. */
struct exchange_stream *exchange_stream_new(struct exchange *exchange,
                                            struct rpc_stream *rpc) MUST_USE;
struct exchange_stream *exchange_stream_ref(struct exchange_stream *stream);
void exchange_stream_unref(struct exchange_stream *stream);

/* Sends a message with its payload. ERR_CANCELLED: the stream has ended already, which is fine. Any
 * other error ends the stream. Any thread. */
enum err exchange_stream_send(struct exchange_stream *stream, enum rpc_priority priority,
                              const struct from_shard *message, const struct rpc_part *parts,
                              size_t part_count);

/* NULL: out of memory. Takes a reference to the stream. */
struct exchange_message *exchange_message_new(struct exchange_stream *stream) MUST_USE;
void exchange_message_free(struct exchange_message *message);

#endif
