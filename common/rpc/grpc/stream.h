/* What the files of a stream share: stream.c has its connection, line.c its shared memory. */
#ifndef ROOST_COMMON_RPC_GRPC_STREAM_H
#define ROOST_COMMON_RPC_GRPC_STREAM_H

#include "common/rpc/grpc/core.h"
#include "common/shared/lines.h"

struct outbound {
    struct outbound *next;
    grpc_byte_buffer *bytes;
};

/* What the connection has brought to a stream that has a line. */
struct brought {
    struct brought *next;
    struct rpc_message *message;
};

/* The header of each message of a line. */
struct line_words {
    uint64_t word;
    uint64_t given;   /* SWITCH: messages, to the connection */
    uint64_t loan;    /* LOAN: its number, … */
    uint64_t extents; /* … and of how many pieces of the sender's pool it is */
};

struct queue {
    struct outbound *first, **last;
    uint32_t count;
};

struct rpc_stream {
    atomic_uint references;
    struct rpc_loop *loop;
    struct rpc_group *group;
    struct rpc_member member;
    const struct rpc_stream_events *events;
    struct rpc_channel *channel; /* client */
    size_t message_bytes_max;
    bool server;
    struct accepted_call *accepted; /* server: until the stream closes; NULL: no TLS */

    /* Only the thread that brings its events, from the first one on. */
    void *owner;
    bool refused;       /* by `open`: no events */
    atomic_bool opened; /* these two are known */

    /* Only the polling thread. */
    bool lined;         /* the line's thread brings its events */
    grpc_metadata said; /* with the beginning, where `says` */
    bool says;
    struct rpc_tag started, received, sent, over_tag, finished;
    grpc_byte_buffer *receiving;
    grpc_metadata_array initial;
    struct rpc_ending ending; /* client: how it ended */
    int client_gone;          /* server: before it got the end */

    /* Only the line's thread. */
    struct line line;
    uint64_t brought_count;       /* messages that came over the connection, also before the line */
    uint64_t before;              /* of these come before all that comes over the line, … */
    bool switched_there;          /* … as the other end has said */
    bool deaf;                    /* it wrote nonsense: the line rests; set with `lock` */
    uint64_t rest_end;            /* what of the ring is read after the end; 0: it has not come */
    struct line_words words;      /* of the newest message over the line */
    struct rpc_message *arriving; /* the newest message over the line, not whole yet; NULL: none */
    uint8_t *arriving_data;
    size_t arrived_bytes;

    struct thread_mutex lock; /* guards what follows */
    grpc_call *call;          /* NULL: closed */
    struct queue queues[RPC_PRIORITY_COUNT];
    unsigned pending; /* operations under way */
    bool sending;
    bool cancelled;      /* by this end */
    bool ended;          /* nothing more may be queued */
    bool ending_sent;    /* the operation that sends the end was started */
    bool over;           /* the end was received */
    enum err finish_err; /* server: with which it ended */
    struct rpc_status status;
    struct reason broken; /* why this end cancelled it, if `broken_err` is not OK */
    enum err broken_err;

    uint64_t given;           /* messages, to the connection */
    bool switched;            /* the others go over the line */
    struct outbound *writing; /* over it, not whole yet; NULL: none */
    struct buf lending;       /* what is written of it, if its payload is lent; else empty */
    uint64_t loan, extents;
    bool begun;
    size_t written_bytes;
    struct brought *brought, **brought_end;
    uint32_t sent_due; /* events, as the next two */
    bool ended_due, close_due;
};

/* ---- stream.c ---- */

void outbound_free(struct outbound *outbound); /* NULL is fine */
/* The most urgent one that is queued; NULL: there is none. */
struct outbound *stream_next_locked(struct rpc_stream *stream);
size_t stream_queued_locked(const struct rpc_stream *stream);
void stream_drop_queued(struct rpc_stream *stream);
/* The event of a message. The thread that brings the stream's events. */
void stream_bring(struct rpc_stream *stream, struct rpc_message *take_message);
/* This end gives up, for a reason of its own. */
void stream_give_up(struct rpc_stream *stream, enum err err, const struct reason *reason);
/* Starts the next write, or the end when all is written and it was asked for. Any thread. */
void stream_pump(struct rpc_stream *stream);
void stream_pump_connection(struct rpc_stream *stream); /* … of the connection alone */
/* The last event; the transport's own reference ends. */
void stream_close(struct rpc_stream *stream);

/* ---- stream_line.c ---- */

/* Client: its beginning says which machine this is. Server: the client is there as well (`near`),
 * so its beginning offers a line. Each does nothing where there can be none. */
void stream_line_ask(struct rpc_stream *stream);
void stream_line_offer(struct rpc_stream *stream);
/* Server: the owner is known. Before, the client may have its beginning, and the line, and write. */
void stream_line_opened(struct rpc_stream *stream);
/* Client: the server's beginning is there. */
void stream_line_answered(struct rpc_stream *stream);

/* What the connection brings to a stream with `lined`, instead of events. Polling thread. */
void stream_line_brought(struct rpc_stream *stream, struct rpc_message *take_message);
void stream_line_sent(struct rpc_stream *stream);
void stream_line_ended(struct rpc_stream *stream);
void stream_line_over(struct rpc_stream *stream);

/* ---- stream_loan.c: messages whose payload stays in the sender's pool ---- */

enum { LOAN_EXTENTS_MAX = 1024 };

/* Lends the message, if it can be: then what is to be written in its place is in `lending`, and the
 * link's loans own it. */
void stream_loan_begin_locked(struct rpc_stream *stream, struct outbound *outbound);
/* What came back, to be freed without the lock; NULL: nothing. */
struct outbound *stream_loan_next_locked(struct rpc_stream *stream);
/* The same of a line that is closed. */
void stream_loan_returned(void *outbound);
/* The message of those words, whose other bytes are `take_head`. ERR_MALFORMED; ERR_NOMEM. */
enum err stream_loan_take(struct rpc_stream *stream, struct rpc_message *take_head,
                          struct rpc_message **ret_message, struct reason *reason) MUST_USE;

/* ---- stream_line.c, once it has switched ---- */

/* A little is written at once, the rest by the line's thread. Any thread. */
void stream_line_pump(struct rpc_stream *stream);

#endif
