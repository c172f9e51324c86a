/* Declarations that the files of this folder share: the gRPC C core behind common/rpc/rpc.h, and
 * nothing else.
 *
 * Every operation given to the library carries a tag, which comes back through the completion queue
 * of its connection's polling thread; `done` runs there. So all state of a call that only its tags
 * touch needs no lock. Each object counts its operations under way (`pending`) and lets go of its
 * grpc_call when the call is over and the last tag is back; whoever starts an operation in another
 * thread holds a reference to the grpc_call meanwhile.
 *
 * Seen with 1.51 (and followed here): a sent message's memory is free only in the slice's destroy
 * callback; a client notices a killed server only when it waits for initial metadata; one
 * SEND_MESSAGE may be under way per call. */
#ifndef ROOST_COMMON_RPC_GRPC_CORE_H
#define ROOST_COMMON_RPC_GRPC_CORE_H

#include "common/rpc/accepted.h"
#include "common/rpc/rpc.h"
#include "common/thread.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

/* ---- loop.c ---- */

struct rpc_tag {
    void (*done)(struct rpc_tag *tag, bool ok);
};
#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

struct lines;
struct shared_pool;

struct rpc_poller {
    grpc_completion_queue *queue;
    struct thread thread;
    struct rpc_loop *loop;
    struct lines *lines; /* as many threads again, for shared memory; NULL: there is none */
};

struct rpc_loop {
    struct rpc_settings settings;
    struct shared_pool *pool; /* NULL: there is none */
    atomic_uint next_poller;  /* channels take the polling threads in turn, */
    atomic_uint next_lines;   /* and streams the threads of lines */
    atomic_uint_fast64_t next_request;
    atomic_int objects; /* alive: messages, streams, requests, calls */
    atomic_uint tags;   /* given to the library */
    unsigned poller_count;
    struct rpc_poller pollers[];
};

/* Before a tag is given to the library: the polling thread that gets it back has seen all that this
 * thread wrote until now. (The library sees to that as well, but not for the thread sanitizer.) */
void rpc_tag_given(struct rpc_loop *loop);
/* Starts operations of a call; `tag` comes back on its polling thread. */
void rpc_batch(struct rpc_loop *loop, grpc_call *call, const grpc_op *ops, size_t count,
               struct rpc_tag *tag);

/* The open calls and streams of one server or channel: to cancel them all, and to wait for their
 * end. */
struct rpc_member {
    struct rpc_member *next, *previous;
    grpc_call *call; /* lives at least until the member leaves */
    bool cancelled;
};
struct rpc_group {
    struct thread_mutex lock; /* guards the rest */
    struct thread_cond empty;
    struct rpc_member ring; /* its head */
    bool closing;           /* no one joins any more */
};
void rpc_group_init(struct rpc_group *group);
void rpc_group_release(struct rpc_group *group);
/* False: the group is closing. */
bool rpc_group_join(struct rpc_group *group, struct rpc_member *member) MUST_USE;
void rpc_group_leave(struct rpc_group *group, struct rpc_member *member);
bool rpc_group_closing(struct rpc_group *group);
/* From now on no one joins; cancels the calls of all members, waits until all have left. */
void rpc_group_end(struct rpc_group *group);

/* Channel arguments for either end. */
enum { RPC_ARGUMENTS_MAX = 24 };
struct rpc_arguments {
    grpc_arg rows[RPC_ARGUMENTS_MAX];
    grpc_channel_args all;
};
void rpc_arguments_init(struct rpc_arguments *arguments, const struct rpc_settings *settings,
                        bool server);
/* The server's certificate names this host, whatever its address. */
void rpc_arguments_host(struct rpc_arguments *arguments, const char *host);

/* ---- accept.c ---- */

#define RPC_LISTENER_PORT "external:roost"
struct rpc_listener;
struct rpc_listener_config {
    const struct rpc_settings *settings;
    const char *address;                 /* checked */
    const struct tls_identity *identity; /* NULL: no TLS. Borrowed for the call */
};
/* Listens; the argument goes to the library's server, which gets the port RPC_LISTENER_PORT and is
 * started, then the listener is. ERR_INVALID, ERR_EXISTS: the address; ERR_UNTRUSTED: the
 * list of revoked certificates. */
enum err rpc_listener_new(const struct rpc_listener_config *config,
                          struct rpc_listener **ret_listener, unsigned *ret_port,
                          struct reason *reason) MUST_USE;
void rpc_listener_argument(struct rpc_listener *listener, struct rpc_arguments *arguments);
/* ERR_UNSUPPORTED: this library takes no connections from us. */
enum err rpc_listener_start(struct rpc_listener *listener, struct reason *reason) MUST_USE;
struct accepted_table *rpc_listener_table(const struct rpc_listener *listener);
/* No connection is taken any more: before the library's server shuts down. */
void rpc_listener_stop(struct rpc_listener *listener);
void rpc_listener_free(struct rpc_listener *listener); /* NULL is fine */

/* ---- protector.c ---- */

/* Whether TLS encrypts the library's slices themselves; else the library copies them first. Nothing
 * else refers to that file: without a call the linker would leave it out, and the library copy. */
bool rpc_protects_slices(void);
/* The connection whose records this thread decrypts, if it decrypts some: what is in them goes to
 * accepted_brought(). */
void rpc_protector_watched(struct accepted *accepted);

/* ---- status.c ---- */

/* A call's end as it travels: the nearest status, the trailer, the sentence. */
struct rpc_status {
    grpc_status_code code;
    grpc_metadata trailer; /* empty for ERR_OK */
    size_t trailer_count;
    grpc_slice text;
};
void rpc_status_init(struct rpc_status *status, enum err err, const char *text);
void rpc_status_release(struct rpc_status *status);
/* The op that sends it; `status` must live until its tag is back. */
grpc_op rpc_status_op(struct rpc_status *status);

/* The end of a call, as a client receives it. */
struct rpc_ending {
    grpc_metadata_array trailers;
    grpc_status_code code;
    grpc_slice text;
};
void rpc_ending_init(struct rpc_ending *ending);
void rpc_ending_release(struct rpc_ending *ending);
grpc_op rpc_ending_op(struct rpc_ending *ending);
/* Its meaning. `cancelled`: this end cancelled. `identity`: may be the cause; NULL without TLS. */
enum err rpc_ending_read(const struct rpc_ending *ending, bool cancelled,
                         const struct tls_identity *identity, struct reason *reason);

/* An address of the library's as people write it; an escape is two hexadecimal digits (RFC 3986
 * 2.1). */
void rpc_unescape(const char *text, size_t bytes, char *ret_text, size_t bytes_max);

/* ---- client.c ---- */

/* The meaning of a call's end on that channel; `cancelled`: by its owner. */
enum err rpc_channel_ending(struct rpc_channel *channel, const struct rpc_ending *ending,
                            bool cancelled, struct reason *reason);

/* ---- bytes.c ---- */

/* A message over `take_bytes`. ERR_MALFORMED: longer than `bytes_max` or compressed. */
enum err rpc_message_of(struct rpc_loop *loop, grpc_byte_buffer *take_bytes, size_t bytes_max,
                        struct rpc_message **ret_message, struct reason *reason) MUST_USE;
/* A message of its own, whose bytes are to be filled. NULL: no memory. */
struct rpc_message *rpc_message_empty(size_t bytes, uint8_t **ret_data) MUST_USE;
/* The bytes to send. ERR_INVALID: longer than `bytes_max` or too many parts. */
enum err rpc_bytes_of(struct buf *take_header, const struct rpc_part *parts, size_t part_count,
                      size_t bytes_max, grpc_byte_buffer **ret_bytes) MUST_USE;

/* ---- stream_line.c ---- */

/* Whether a call began with words that say that it comes from this machine. */
bool rpc_is_near(const struct rpc_loop *loop, const grpc_metadata_array *metadata);

/* ---- stream.c ---- */

struct rpc_stream_config {
    struct rpc_loop *loop;
    struct rpc_group *group;
    grpc_call *take_call;
    size_t message_bytes_max;
    const struct rpc_stream_events *events;
    void *owner;                         /* client's, or the method's */
    const struct rpc_peer *peer;         /* server; NULL: this is a client */
    bool near;                           /* server: it may have a line */
    struct accepted_call *take_accepted; /* server, with TLS; else NULL */
    struct rpc_channel *channel;         /* client: lives as long as the group */
};
/* Starts the stream; with `ret_stream` the caller gets a reference. ERR_NOMEM; ERR_CANCELLED: the
 * group is closing. */
enum err rpc_stream_start(const struct rpc_stream_config *config,
                          struct rpc_stream **ret_stream) MUST_USE;

/* ---- request.c ---- */

struct rpc_request_config {
    struct rpc_loop *loop;
    struct rpc_group *group;
    grpc_call *take_call;
    const struct rpc_method *method;
    const struct rpc_peer *peer;
    struct accepted_call *take_accepted; /* NULL: no TLS */
    size_t bytes_max;
};
void rpc_request_start(const struct rpc_request_config *config);

#endif
