/* The network between processes: messages arrive late, out of order, twice or never.
 *
 * A stream (gRPC's) is ordered in each direction and breaks at any instant: what was under way then
 * is lost, for each direction from a moment of its own on, and both ends learn of it when they do.
 * Exchange, member and peers' streams are opened by workers, links by servers; the first message
 * names the opener. A call is unary: request and response may each be lost or late, and the request
 * may be carried out twice; the caller gets one answer, or an error, by its deadline.
 *
 * network_delay_us() decides when anything arrives; a partition delays a stream's messages until it
 * is over; a call is lost. */
#ifndef ROOST_TESTS_SIM_NETWORK_H
#define ROOST_TESTS_SIM_NETWORK_H

#include "tests/sim/faults.h"
#include "tests/sim/queue.h"

struct sim;

enum stream_kind { STREAM_EXCHANGE, STREAM_MEMBER, STREAM_LINK, STREAM_PEER };
enum end { OPENER, ACCEPTOR };

/* A push or pull that has come. */
struct awaited {
    struct truth truth;
    struct message *message; /* of an async run */
    bool silent;             /* a planted bug keeps the answer back */
};

/* A push or pull without an answer. */
struct unanswered {
    uint64_t id;
    bool pull;
    uint32_t missing; /* chunks of a pull */
    bool parked;
    uint64_t sent_us;
};

/* When one who is asked last answered: the asker's clock, and how often it was stopped. */
struct answered {
    uint64_t at_us, clock_us, stops;
};

struct stream {
    uint64_t number;
    enum stream_kind kind;
    uint32_t worker;                  /* opener of exchange, member and peers' streams */
    uint32_t peer;                    /* acceptor of those between workers */
    uint64_t peer_member;             /* that it was, and was meant, at the opening; 0: none */
    uint32_t server;                  /* opener of links; acceptor of exchange streams */
    uint32_t office;                  /* the coordinator that accepts member streams and links */
    uint32_t parked[SIM_THREADS_MAX]; /* pulls of an exchange stream that wait in a thread */
    bool closed[2];                   /* that end does not use it any more */
    uint64_t last_us[2];              /* the newest message to that end arrives then */
    uint64_t cut_us[2];               /* messages to that end do not arrive after */
    struct rpc_stream *rpc[2];        /* at the ends where the product runs; NULL: none */
    /* Exchange: the worker's number of the server, and what it waits for (watch_worker.c). */
    uint32_t link;
    uint32_t unanswered_count, unanswered_capacity;
    struct unanswered *unanswered;
    struct answered answered; /* between workers (watch_places.c), as is the next */
    uint64_t rest;            /* bytes of the value that comes, which follow */
    /* What workers have sent over it (watch.c). */
    uint32_t awaited_count, awaited_capacity;
    struct awaited *awaited;
};

struct network {
    struct stream **streams; /* number n at n - 1 */
    size_t stream_count, stream_capacity;
};

void network_release(struct network *network);
/* A new object behind those of a growing array of pointers. */
void *network_add(void ***items, size_t *count, size_t *capacity, size_t bytes);

/* How long the next message takes from one to the other. */
uint64_t network_delay_us(struct sim *sim, struct machine from, struct machine to);
/* Whether a call, or its answer, is lost on its way. */
bool network_lost(struct sim *sim, struct machine from, struct machine to);

/* `what` names kind, worker, server and coordinator. */
struct stream *network_open(struct sim *sim, struct stream what);
struct stream *network_stream(struct sim *sim, uint64_t number);
void network_send(struct sim *sim, struct stream *stream, enum end to,
                  struct message *take_message);
/* It breaks, at some moment for each direction. */
void network_break(struct sim *sim, struct stream *stream);
/* One end closes it, or dies; the other learns of it, `silent`: when its keepalive fails. */
void network_close(struct sim *sim, struct stream *stream, enum end by, bool silent);
/* The process of that place dies. */
void network_close_all(struct sim *sim, struct machine place, bool silent);
/* Nothing more arrives at that end before `until_us`. */
void network_clog(struct stream *stream, enum end to, uint64_t until_us);
/* The process at that end. */
struct machine network_end(const struct stream *stream, enum end end);

/* Their events. */
void network_deliver(struct sim *sim, struct event *event);
void network_ended(struct sim *sim, const struct event *event);

#endif
