/* The events to come, by (time, order of scheduling), so a seed gives one order. */
#ifndef ROOST_TESTS_SIM_QUEUE_H
#define ROOST_TESTS_SIM_QUEUE_H

#include "common/err.h"
#include "common/tree.h"
#include "proto/wire.h"

#define SIM_EVENTS(X)                                                                                \
    X(STREAM_DATA)    /* index: the end it arrives at; number: stream; message */                    \
    X(STREAM_END)     /* index: the end that learns of it; number: stream */                         \
    X(WORKER_START)   /* index: worker */                                                            \
    X(SERVER_START)   /* index: server */                                                            \
    X(SERVER_DRAIN)   /* index: server; an operator asks (again) that it gives its chunks away */    \
    X(SERVER_FORSAKE) /* index: server; an operator asks to go on without it */                      \
    X(SERVERS)        /* an operator adds servers that a run waits for */                            \
    X(THREAD)         /* index: of its process' place; number: wait; detail: the place's kind */     \
    X(STREAM_SENT)    /* index: the end whose message has left; number: stream */                    \
    X(STREAM_CANCELLED)  /* index: the end that cancelled; number: stream */                         \
    X(RPC_REQUEST)       /* number: call; message */                                                 \
    X(RPC_ANSWER)        /* number: call; detail: err; message */                                    \
    X(COORDINATOR_START) /* index: coordinator */                                                    \
    X(COORDINATOR_OVER) /* index: coordinator; number: term; it learns that another has its office \
                         */ \
    X(PROCESS_RESUME)   /* index, detail: place; number: which stop */                               \
    X(PROCESS_EXIT)     /* index, detail: place; number: which exit */                               \
    X(CLOG)             /* index: end; number: stream; detail: nothing arrives there before */       \
    X(FAULT)            /* index: its kind */                                                        \
    X(STORY)            /* index: rule of the plan; detail: where its deed begins */                 \
    X(CALM)             /* the faults are over */

#define SIM_EVENT_ENUM(name) EVENT_##name,
enum event_kind { SIM_EVENTS(SIM_EVENT_ENUM) EVENT_KIND_COUNT };
#undef SIM_EVENT_ENUM

const char *queue_kind_name(enum event_kind kind);

/* The simulator's own knowledge about a push or pull: the ticket that it really is for. */
struct truth {
    uint64_t generation;
    uint64_t step;
    struct node node;
    uint64_t version; /* that it was computed on */
    uint64_t id;      /* the worker's */
    bool pull;
};

enum { MESSAGE_COPIES_MAX = 64, MESSAGE_SLICES_MAX = 1 + MESSAGE_COPIES_MAX };

/* Bytes under way. References are counted, because a message may arrive twice. Weights are not
 * copied: they are read when they arrive, as a network card reads them when it sends. */
struct message {
    uint32_t references;
    uint32_t copy_count;
    struct counted *copies[MESSAGE_COPIES_MAX]; /* behind `data` */
    struct truth truth;
    size_t bytes;
    uint8_t data[];
};

struct message *message_new(const void *data, size_t bytes);
void message_unref(struct message *message); /* NULL is fine */
size_t message_bytes(const struct message *message);
/* Its bytes in order; returns how many slices they are. */
uint32_t message_slices(const struct message *message, struct slice *ret_slices);

struct event {
    uint64_t at_us;
    uint64_t sequence;
    enum event_kind kind;
    uint32_t index;
    uint64_t number;
    uint64_t detail;
    struct message *message;
};

/* A heap. {0} is empty. */
struct queue {
    struct event *events;
    size_t count, capacity;
    uint64_t sequences;
};

void queue_release(struct queue *queue);
/* Takes the event's message; its `sequence` is given here. */
void queue_put(struct queue *queue, struct event take_event);
/* The next event, which is the caller's now; false: nothing will ever happen. */
bool queue_take(struct queue *queue, struct event *ret_event);

#endif
