/* Events that other threads send to the daemon's main thread, through its inbox. */
#ifndef ROOST_SERVER_EVENTS_H
#define ROOST_SERVER_EVENTS_H

#include "common/arena.h"
#include "common/rpc/rpc.h"
#include "proto/wire.h"

enum call_kind {
    CALL_DESCRIBE,
    CALL_JOIN,
    CALL_ACQUIRE,
    CALL_COMPLETE,
    CALL_LEAVE,
    CALL_PRODUCTS,
    CALL_START_RUN,
    CALL_STOP_RUN,
    CALL_CHECKPOINT,
    CALL_DRAIN,
    CALL_STATUS
};

/* A unary call, decoded. Its holder answers it, once, with one of the two functions below. */
struct call {
    enum call_kind kind;
    uint64_t number; /* rpc_request_number() */
    size_t place;    /* control/waiting.h: in the list, while it waits */
    struct rpc_request *request;
    struct arena arena; /* what the decoded request points to */
    union {
        struct describe_request describe;
        struct join_request join;
        struct acquire_request acquire;
        struct complete_request complete;
        struct leave_request leave;
        struct products_request products;
        struct start_run_request start_run;
        struct stop_run_request stop_run;
        struct drain_request drain;
    };
};

/* Any thread. */
void call_reply(struct call *take_call, struct buf *take_response);
void call_fail(struct call *take_call, enum err err, const char *text);

struct connection; /* connection.h */

enum event_kind {
    EVENT_CALL = 1,
    EVENT_CALL_CANCELLED,     /* nobody waits for call `number` any more */
    EVENT_CONNECTION_MESSAGE, /* connection, message */
    EVENT_CONNECTION_CLOSED,  /* connection */
    EVENT_LINK_MESSAGE,       /* message of the coordinator, over the link's stream `number` */
    EVENT_LINK,               /* the link has something to look at */
    EVENT_REPORT,             /* message: a report of this daemon's own shards */
    EVENT_SIGNAL              /* number */
};

/* Owns what it points to. */
struct event {
    enum event_kind kind;
    uint64_t number;
    struct call *call;
    struct connection *connection;
    struct rpc_message *message;
};

void event_release(struct event *event); /* a call that nobody has answered fails with CANCELLED */

#endif
