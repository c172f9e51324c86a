/* The worker's state, which its files share, and the events that threads post to main. For
 * worker*.c only. */
#ifndef ROOST_WORKER_WORKER_CORE_H
#define ROOST_WORKER_WORKER_CORE_H

#include "common/inbox.h"
#include "common/rand.h"
#include "common/rpc/rpc.h"
#include "common/thread.h"
#include "common/time.h"
#include "worker/agent.h"
#include "worker/encoder.h"
#include "worker/notice_watch.h"
#include "worker/peers.h"
#include "worker/push_cost.h"
#include "worker/turn.h"
#include "worker/worker_config.h"
#include "worker/worker_run.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum worker_event_kind {
    EVENT_ACQUIRED,
    EVENT_MAPPED,        /* Describe is answered */
    EVENT_UNHEARD,       /* a Complete that the coordinator may not have */
    EVENT_MESSAGE,       /* of a server's stream */
    EVENT_STREAM_CLOSED, /* of a server */
    EVENT_PUSHED,        /* a message of gradients was sent there, or not */
    EVENT_NOTICE,        /* message of the member stream */
    EVENT_MEMBER_CLOSED,
    EVENT_PLACED,      /* the executor is that of the ticket's place */
    EVENT_UNREACHABLE, /* a member of a lease */
    EVENT_ASKED,       /* streamed: for a unit's weights */
    EVENT_GRADIENT,
    EVENT_COMPUTED,
    EVENT_SIGNAL,
    EVENT_CLOUD /* a notice of the cloud's metadata service */
};

struct worker_event {
    enum worker_event_kind kind;
    enum err err;
    uint64_t origin; /* number of the stream, or of the membership that asked */
    uint32_t server;
    uint32_t lane; /* of what a compute thread posts */
    union {
        struct {
            uint64_t sequence;   /* of an acquire */
            struct buf response; /* owned */
            char *why;           /* the error's sentence; owned, may be NULL */
        } answer;
        struct {
            struct buf request; /* owned */
            unsigned failures;
        } unheard;
        struct rpc_message *message; /* a reference */
        char *why;                   /* how a stream ended; owned, may be NULL */
        struct {
            uint32_t unit;
            struct node node; /* of a gradient */
        };
        bool made; /* the lane's executor, for this ticket */
        struct {
            size_t bytes;      /* of the payload */
            uint64_t given_ms; /* when it was given to the encoder */
            char *why;         /* what a device that failed reports; owned, may be NULL */
        } pushed;
        struct {
            uint64_t attempt, member;
        } unreachable;
        struct {
            struct agent_result result;
            enum ticket_kind kind;
            struct place place;
            struct place_cost cost;
            uint64_t compute_ms; /* without waiting for weights */
            char *why;           /* the error's sentence; owned, may be NULL */
        } computed;
        int signal;
        struct {
            enum notice_verdict verdict;
            char text[NOTICE_TEXT_BYTES];
        } cloud;
    };
};

/* This end of a stream. */
struct worker_link {
    struct rpc_channel *channel;
    struct rpc_stream *stream; /* NULL: none, or given up */
    uint64_t number;           /* of the stream; events of other numbers are late */
    bool sparse;               /* its server takes sparse pushes */
    uint64_t untrusted_ms;     /* a refused certificate is not warned of before this moment */
};

/* Which units' weights are in place, and whose gradients may be overwritten: between main and
 * compute. A streamed unit is asked for first. */
struct units {
    struct thread_mutex mutex; /* guards the rest */
    struct thread_cond changed;
    bool *ready;
    bool *acked; /* streamed: the unit's gradients are with the servers */
    bool cancelled;
    uint64_t waited_ns; /* by compute, for these and for values of other places */
};

/* Of the ticket that is computed (worker_meter.h): moments, and what was taken before it. */
struct worker_meter {
    bool counted;               /* the room below is */
    struct turn_room room;      /* of the ticket's program */
    uint64_t row_ns;            /* when the newest row began */
    uint64_t first_ns, last_ns; /* the first act that computes begins, the newest one ends */
    uint64_t busy_ns;
    uint64_t peer_bytes_before;
};

/* What computes one ticket after another: a thread, with an executor of the run. */
struct worker_lane {
    struct worker *worker;
    uint32_t number;
    struct thread compute;
    struct inbox *tickets; /* into its thread */
    struct units units;
    uint64_t replicated;         /* the main thread's: of the ticket at hand (replicated.h) */
    const struct ticket *ticket; /* this and the rest: the thread's; the one at hand */
    bool waits;                  /* it has given its turn back */
    uint64_t blamed;             /* whom the newest value did not come from */
    struct worker_meter meter;
};

enum {
    WORKER_UNHEARD_MAX = 8,
    WORKER_MESSAGES_MAX = 16384,                   /* credits of all servers, and more */
    WORKER_EVENTS_MAX = WORKER_MESSAGES_MAX + 4096 /* our own threads' beside them */
};

/* A Complete of this membership that is sent again; without data: none is. */
struct unheard {
    struct buf request;
    uint64_t at_ms;
    unsigned failures;
};

struct worker {
    const struct worker_config *config;
    struct rpc_loop *loop;
    struct rpc_channel *channel; /* to the coordinator */
    struct inbox *inbox;
    struct worker_lane lanes[AGENT_LANES_MAX]; /* run.lanes of them are used */
    struct turn turn;
    uint64_t metered_ns; /* who has the turn: up to then time was counted */
    struct worker_run run;
    bool has_run;
    struct encoder *encoder; /* while the run is served */
    struct agent *agent;
    struct peers *peers;   /* other places of a mesh; NULL: there are none, or nobody may ask */
    uint32_t wire_version; /* spoken with this coordinator */
    uint64_t membership;   /* rises with each join */
    uint64_t stream_count; /* opened so far */
    uint64_t member;       /* the newest; 0: none yet */
    struct proof secret;   /* its own */
    uint32_t heartbeat_ms;
    uint64_t heartbeat_at_ms;
    uint64_t renew_at_ms;      /* when it looks for a renewed certificate */
    struct tls_identity shown; /* the newest one's names and times */
    int64_t warned_s;          /* of its end; 0: never */
    struct worker_link member_link;
    uint32_t link_count;
    struct worker_link *links; /* one a server */
    uint64_t ticket_ms;        /* when the newest ticket's compute began */
    struct unheard unheard[WORKER_UNHEARD_MAX];
    struct push_cost push_cost;                   /* of the first lane's tickets */
    struct place computed;                        /* the newest ticket's that was */
    struct place_cost costs[TICKET_VALIDATE + 1]; /* by kind: what nobody has been told of there */
    char leave_reason[NOTICE_TEXT_BYTES + 32];
    atomic_uint signals;      /* that came */
    _Atomic uint64_t ends_ms; /* when the process ends, whatever it does; 0: nobody told it to */
    struct rand_state jitter;
    uint64_t memory_logged; /* the most that an executor has taken */
    bool graphs_reported;   /* that the device refused one */
    bool stopped;
    enum err stop;
    struct reason failure;      /* the newest sentence that came with an error */
    struct reason stop_failure; /* the one that the agent stopped with */
    bool stop_noted;
};

static inline uint64_t worker_now_ms(void)
{
    return time_now_ns() / 1000000;
}

/* Releases what the event owns. */
static inline void worker_event_release(const struct worker_event *event)
{
    if (event->kind == EVENT_MESSAGE || event->kind == EVENT_NOTICE)
        rpc_message_unref(event->message);
    if (event->kind == EVENT_STREAM_CLOSED || event->kind == EVENT_MEMBER_CLOSED)
        free(event->why);
    if (event->kind == EVENT_PUSHED)
        free(event->pushed.why);
    if (event->kind == EVENT_COMPUTED)
        free(event->computed.why);
    if (event->kind == EVENT_UNHEARD)
        free(event->unheard.request.data);
    if (event->kind == EVENT_ACQUIRED || event->kind == EVENT_MAPPED) {
        free(event->answer.response.data);
        free(event->answer.why);
    }
}

/* Posts the event into main's inbox, with what it owns. Any thread. */
static inline void worker_post(struct worker *worker, const struct worker_event *event)
{
    if (inbox_post(worker->inbox, event) != ERR_OK)
        worker_event_release(event);
}

/* The same of a peer's message. Credits allow fewer than there is room for: one more is a broken
 * peer's. False: it is dropped; cancel its stream. The places beyond are for our own threads. */
static inline bool worker_post_message(struct worker *worker, const struct worker_event *event)
{
    bool posted = inbox_post_below(worker->inbox, event, WORKER_MESSAGES_MAX) == ERR_OK;
    if (!posted)
        worker_event_release(event);
    return posted;
}

#endif
