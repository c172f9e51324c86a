/* Calls between processes: unary calls and two-way streams over mutually authenticated TLS 1.3.
 *
 * The wire is gRPC; its library is hidden behind this header (in common/rpc/grpc/), so the rest of
 * roost sees bytes, roles, deadlines and `enum err`, and the transport can be replaced.
 *
 * A stream between two processes of one user on one machine goes through shared memory, if its method
 * allows that (common/shared/lines.h): the connection is made and judged as ever, begins and ends the
 * stream, and carries its messages until both ends have the memory.
 *
 * Threads. A loop owns N polling threads; a connection belongs to one of them, and so do the calls on
 * it, but where all places for calls of that thread are taken, a server has others take them. As many
 * threads more serve streams through shared memory, once there are some. Every callback runs on one of these, those
 * of one call or stream one after another; a callback must not block (post the work to its owner) and must not call rpc_call(), nor a function
 * that frees a loop, server or channel. Functions marked "any thread" may be called anywhere, also
 * in callbacks, but not while holding a lock that a `released` function of a counted takes.
 *
 * Bytes. A received message lies in slices of the transport's memory, counted and never copied:
 * keep it by its reference. Through shared memory these are the sender's own, if they lie in its pool. A sent message is a header, given away, and parts of counted memory.
 * That memory is immutable from then on, and is released only when the transport no longer reads
 * it: that may be long after the message was sent, never before.
 *
 * Bounds. Messages, the queue of a stream, open calls of a connection: all have a `_max`. A full queue
 * answers ERR_BUSY; a message that is too long is ERR_INVALID to its sender, ERR_MALFORMED to who gets
 * it; a call over the limit waits at the client. A stream always reads: how much a peer may have under
 * way is the protocol's matter (credits); a handler that sees them exceeded ends the stream.
 *
 * Errors. An `enum err` travels as the trailer `roost-err` beside the nearest gRPC status, whose
 * message is the sentence of the reason; a foreign peer sees a sensible status. */
#ifndef ROOST_COMMON_RPC_RPC_H
#define ROOST_COMMON_RPC_RPC_H

#include "common/buf.h"
#include "common/rpc/tls.h"

#include <stdbool.h>
#include <string.h>

/* Once per process, before any other thread, and before a certificate is read: allocator settings
 * for large messages, TLS 1.3 only. `log` = the library's own complaints (refused handshakes) go to
 * stderr, a line of level debug each. */
void rpc_process_init(bool log);

struct logger;

struct rpc_settings {
    unsigned threads;              /* polling threads; 0: one per core */
    uint32_t keepalive_ms;         /* a silent peer is asked after this time … */
    uint32_t keepalive_timeout_ms; /* … and given up when it has not answered within this */
    uint32_t message_bytes_max;    /* of a message sent or received */
    uint32_t queue_messages_max;   /* messages waiting to be sent: per stream and priority */
    uint32_t calls_max;            /* open calls and streams of one connection, at a server */
    uint32_t connections_max;      /* with one certificate, at a server */
    uint64_t unfinished_bytes_max; /* of messages that began, of all connections of a server … */
    uint32_t role_bytes_max[TLS_ROLE_COUNT]; /* … and of one, beside what it reads ahead */
    uint32_t reconnect_ms_min;               /* backoff between attempts to connect, jittered */
    uint32_t reconnect_ms_max;
    uint32_t shared_ring_bytes; /* of a stream's shared memory, each way; 0: there is none */
    /* Gets a warning when a limit of a server has closed connections. NULL: nobody does. Borrowed until
     * the loop is freed. */
    const struct logger *logger;
};

/* All cores; 5 s, 4 s: less than the 10 s that calls may take; 1 MiB; 256; 128; 4096; 512 MiB,
 * 1 MiB; 100 ms to 1 s; 256 KiB. */
struct rpc_settings rpc_settings_default(void);

/* ---- The loop: polling threads. One for all servers and channels of a process. ---- */

struct rpc_loop;

/* `settings` = NULL: the default ones. They hold for every server and channel of the loop. */
enum err rpc_loop_new(const struct rpc_settings *settings, struct rpc_loop **ret_loop) MUST_USE;
/* After its servers and channels; waits for its threads. Every request must have been answered and
 * every reference to a stream, call or message dropped. */
void rpc_loop_free(struct rpc_loop *loop);
/* Where payloads lie that streams through shared memory need not copy (common/shared/shared_pool.h).
 * NULL: there is no such memory, nor without a loop. Borrowed. */
struct shared_pool;
struct shared_pool *rpc_loop_pool(const struct rpc_loop *loop);

/* ---- Messages: received bytes ---- */

/* The bytes are those of the slices, in order; a slice may end in the middle of a number. The
 * slices live as long as a reference; any thread may hold and drop references. */
struct rpc_message {
    atomic_uint references;
    uint32_t slice_count;
    bool lent; /* the sender may still change what lies behind the first slice: copy it, then judge
                  the copy */
    size_t bytes;
    void (*released)(struct rpc_message *message); /* by the last drop; the transport's */
    const struct slice *slices;
};

struct rpc_message *rpc_message_ref(struct rpc_message *message);
void rpc_message_unref(struct rpc_message *message); /* NULL is fine */
/* A message of its own with a copy of `bytes`: for tests and other transports. NULL: no memory. */
struct rpc_message *rpc_message_new(struct slice bytes) MUST_USE;
/* Copies `bytes` bytes from `offset` on; the caller has compared with message->bytes. */
void rpc_message_copy(const struct rpc_message *message, size_t offset, size_t bytes,
                      void *ret_data);

/* ---- Streams: the same at both ends. Any thread, but where a comment excepts one. ---- */

struct rpc_stream;

/* The peer at the other end. Without TLS the role is TLS_ROLE_NONE and the names are "". */
struct rpc_peer {
    struct tls_holder holder;
    uint64_t certificate; /* a digest of its number; 0: none */
    int64_t ends_s;       /* when it does; 0: there is none */
    struct digest shown;  /* the SHA-256 of all of it; zeros: none */
    char address[64];     /* "127.0.0.1:41022" or "[::1]:41022" */
};

/* Called on the stream's polling thread, one after another; NULL where nothing is to be done.
 * `owner` is what `open` gave, or rpc_stream_open()'s `owner`. */
struct rpc_stream_events {
    /* Server: a stream begins. An error ends it with `reason`; no other event follows then. */
    enum err (*open)(void *method_owner, struct rpc_stream *stream, const struct rpc_peer *peer,
                     void **ret_owner, struct reason *reason);
    void (*message)(void *owner, struct rpc_stream *stream, struct rpc_message *take_message);
    /* A message was given to the connection; `queued` more wait (both priorities). */
    void (*sent)(void *owner, struct rpc_stream *stream, size_t queued);
    /* Server: the client will send no more. NULL: the stream is ended with ERR_OK. */
    void (*ended)(void *owner, struct rpc_stream *stream);
    /* The last event. ERR_OK: the server ended it in order. ERR_CANCELLED: this end cancelled, or
     * at a server the client did or vanished. The transport's own reference to the stream ends
     * after it. */
    void (*closed)(void *owner, struct rpc_stream *stream, enum err err,
                   const struct reason *reason);
};

/* A stream is counted: events lend it until `closed` has returned. To keep it longer, or to use it
 * in another thread, take a reference. */
struct rpc_stream *rpc_stream_ref(struct rpc_stream *stream);
void rpc_stream_unref(struct rpc_stream *stream); /* NULL is fine */

/* Its loop's; NULL has none. */
struct shared_pool *rpc_stream_pool(const struct rpc_stream *stream);
/* Whether its messages go through shared memory by now. Any thread. */
bool rpc_stream_is_shared(struct rpc_stream *stream);

enum rpc_priority {
    RPC_URGENT, /* acknowledgements and control: before all that waits */
    RPC_NORMAL  /* weights and gradients */
};
enum { RPC_PRIORITY_COUNT = 2, RPC_PARTS_MAX = 4096 };

/* Bytes [offset, offset + bytes) of `counted`. */
struct rpc_part {
    struct counted *counted; /* borrowed: the stream takes a reference of its own */
    size_t offset;
    size_t bytes;
};

/* Sends one message: `take_header` (may be empty), then the parts, in order; order is kept within a
 * priority. ERR_BUSY: the queue of that priority is full; a `sent` will come. ERR_INVALID: longer
 * than message_bytes_max, or more than RPC_PARTS_MAX. ERR_CANCELLED: the stream is closed or ended.
 */
enum err rpc_stream_send(struct rpc_stream *stream, enum rpc_priority priority,
                         struct buf *take_header, const struct rpc_part *parts,
                         size_t part_count) MUST_USE;

/* Server: ends the stream when all that is queued is sent. Once; later sends get ERR_CANCELLED. */
void rpc_stream_finish(struct rpc_stream *stream, enum err err, const char *text);
/* Client: sends no more once the queue is empty. Roost's own streams are cancelled or finished; a
 * client of another make (a health probe) ends its side, which tests do with this. */
void rpc_stream_end(struct rpc_stream *stream);
/* Ends it at once, at either end; `closed` follows. Harmless when it is closed already. */
void rpc_stream_cancel(struct rpc_stream *stream);

/* ---- The server ---- */

struct rpc_request; /* a unary call that waits for its answer */
struct rpc_server;

enum rpc_kind {
    RPC_UNARY,
    RPC_STREAM /* one message or many, either way */
};

/* One row of the method table. */
struct rpc_method {
    const char *path; /* "/roost.v1.Cluster/Join" */
    enum rpc_kind kind;
    unsigned roles;           /* TLS_ROLE_BIT()s that may call it. Others: ERR_DENIED */
    size_t request_bytes_max; /* of a request or of a message of the stream; 0: the setting's */
    bool shared;              /* stream: through shared memory, where both ends can */
    void *owner;
    /* Unary: `bytes` lives until the request is answered. Answer once, from any thread. */
    void (*requested)(void *owner, struct rpc_request *request, struct slice bytes);
    /* Unary, may be NULL: nobody waits for the answer any more (cancelled, deadline, connection
     * gone). The request must be answered all the same. It may be answered in another thread while
     * this runs; `request` is good until this returns. */
    void (*cancelled)(void *owner, struct rpc_request *request);
    const struct rpc_stream_events *events; /* stream */
};

struct rpc_server_config {
    struct rpc_loop *loop;
    const char *address; /* "host:port"; port 0: any free one */
    /* NULL: no TLS; only a loopback address is accepted then, and every method is open. Borrowed
     * for the call. */
    const struct tls_identity *identity;
    const struct rpc_method *methods; /* borrowed until the server is freed */
    size_t method_count;
};

/* Binds and serves; an identity that was read from files is looked at before each handshake, and
 * the one that lies there then is shown (tls_identity_renewed()). ERR_INVALID: the address, or no
 * TLS on an address that is not loopback. ERR_EXISTS: the port is taken. ERR_UNTRUSTED: the
 * identity. */
enum err rpc_server_new(const struct rpc_server_config *config, struct rpc_server **ret_server,
                        struct reason *reason) MUST_USE;
unsigned rpc_server_port(const struct rpc_server *server);
enum { RPC_HOST_BYTES = 256, RPC_ADDRESS_BYTES = RPC_HOST_BYTES + sizeof "[]:65535" };
/* The host of "host:port" or "[host]:port". ERR_INVALID: `address` is neither. */
enum err rpc_address_host(const char *address, char ret_host[static RPC_HOST_BYTES],
                          struct reason *reason) MUST_USE;
/* Is `address` "host:port" or "[host]:port", and, with `loopback_only`, is the host localhost,
 * 127.x.y.z or ::1? ERR_INVALID otherwise. */
enum err rpc_address_check(const char *address, bool loopback_only, struct reason *reason) MUST_USE;
/* The address as TLS compares its host with a certificate's: an IPv6 one in its shortest form. */
void rpc_address_canonical(const char *address, char ret_address[static RPC_ADDRESS_BYTES]);
/* What others connect to, of a server that has that port: the address, with it where the address has
 * port 0. ERR_INVALID: no room. */
enum err rpc_address_of(const char *address, unsigned port, char *ret_address, size_t bytes,
                        struct reason *reason) MUST_USE;
/* Whether "host:port" is all addresses of the machine: others would look for it on their own. */
static inline bool rpc_is_everywhere(const char *address)
{
    return strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0;
}
/* Refuses new calls and tells clients; open ones go on. Any thread, not a callback. */
void rpc_server_drain(struct rpc_server *server);
/* Drains, cancels open calls, and waits until every event has been delivered. Requests not answered
 * by then may still be answered, until the loop is freed. Not in a callback. NULL is fine. */
void rpc_server_free(struct rpc_server *server);

/* Whom the handshake found: the roles have been compared already; for tests. */
const struct rpc_peer *rpc_request_peer(const struct rpc_request *request);
/* A number no other request of this process has: for queues that may see a cancelled one. */
uint64_t rpc_request_number(const struct rpc_request *request);

/* The two answers; exactly one of them, once; the request is gone afterwards. Any thread. */
void rpc_reply(struct rpc_request *take_request, struct buf *take_response);
void rpc_fail(struct rpc_request *take_request, enum err err, const char *text);

/* ---- The client ---- */

struct rpc_channel;

/* A channel to "host:port"; connects when first used and again when the connection breaks.
 * `identity` = NULL: no TLS, loopback only. When its files are renewed, new connections use them.
 * ERR_UNTRUSTED: the identity has ended. ERR_NOT_VALID_YET. */
enum err rpc_channel_new(struct rpc_loop *loop, const char *address,
                         const struct tls_identity *identity, struct rpc_channel **ret_channel,
                         struct reason *reason) MUST_USE;
/* The same to a worker, whose certificate names no address: it is the one that shows the
 * certificate of that SHA-256, and nobody else. Without TLS `shown` does not count. */
enum err rpc_channel_new_worker(struct rpc_loop *loop, const char *address,
                                const struct tls_identity *identity, const struct digest *shown,
                                struct rpc_channel **ret_channel, struct reason *reason) MUST_USE;
/* Cancels its calls and streams, waits until every event has been delivered. Not in a callback. */
void rpc_channel_free(struct rpc_channel *channel); /* NULL is fine */
const char *rpc_channel_address(const struct rpc_channel *channel);
/* Whether another certificate lies where the connection's was read from. Then the connection is
 * made again with it, although it stands, and what is under way may fail. */
bool rpc_channel_renew(struct rpc_channel *channel);

/* The answer of a call, once: `response` lives during the callback and is empty on an error. */
typedef void rpc_answered_fn(void *owner, enum err err, struct slice response,
                             const struct reason *reason);

struct rpc_call_config {
    const char *path;    /* "/roost.v1.Cluster/Join" */
    uint32_t timeout_ms; /* then ERR_DEADLINE; not 0 */
    rpc_answered_fn *answered;
    void *owner;
};

/* Starts a call; `answered` follows exactly once if this returns ERR_OK, and never otherwise. Any
 * thread. */
enum err rpc_call_start(struct rpc_channel *channel, const struct rpc_call_config *config,
                        struct buf *take_request) MUST_USE;

/* A call that waits for its answer: for tests, never on a polling thread.
 * Errors: the server's; ERR_UNREACHABLE, ERR_DEADLINE, ERR_UNTRUSTED. */
enum err rpc_call(struct rpc_channel *channel, const char *path, struct slice request,
                  uint32_t timeout_ms, struct buf *ret_response, struct reason *reason) MUST_USE;

/* Opens a stream (no deadline: keepalive finds a dead peer). Sends are queued until the connection
 * stands. `closed` follows exactly once if this returns ERR_OK, perhaps before it returns.
 * *ret_stream is a reference of the caller's. Any thread. */
enum err rpc_stream_open(struct rpc_channel *channel, const char *path,
                         const struct rpc_stream_events *events, void *owner,
                         struct rpc_stream **ret_stream) MUST_USE;

#endif
