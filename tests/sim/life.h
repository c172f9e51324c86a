/* One start of a process that runs the product's own code: its threads, its streams and calls, and
 * whether it still lives.
 *
 * The linker leads common/thread.h, common/rpc/rpc.h, the system's files and the clock here
 * (threads.c, rpc.c, disk.c), so the code of production runs as it is. Threads are fibers: one runs
 * until it waits. A fiber that is woken, or has waited long enough, goes on by an event of the
 * queue, soon after, at a moment of the seed's choice.
 *
 * A process that is killed is dead at once, in the middle of whatever it does: nothing of it is
 * sent, written or seen any more. Its memory is given back by the product's own orderly end, as
 * soon as none of its code is running (life_bury()). */
#ifndef ROOST_TESTS_SIM_LIFE_H
#define ROOST_TESTS_SIM_LIFE_H

#include "common/rpc/rpc.h"
#include "tests/sim/process.h"

enum { LIFE_THREADS_MAX = 16 };

struct sim_fiber;

struct life {
    struct sim *sim;
    struct machine place;
    bool dead;
    uint32_t thread_count;
    struct sim_fiber *threads[LIFE_THREADS_MAX]; /* the first is the main one */
    void (*run)(struct life *life);              /* the main one's function */
    /* The methods that it serves (rpc_server_new()), and its open streams and calls. */
    size_t method_count;
    const struct rpc_method *methods;
    struct rpc_stream *streams;
    struct rpc_channel *channels;
    struct rpc_request *requests;
    /* The receiver of signals (signals_start()). */
    void (*signalled)(void *owner, int number);
    void *signalled_owner;
    uint64_t exits;              /* serial of the exit that was ordered; 0: none */
    struct notice_watch *notice; /* of a worker, once it watches for notices */
    struct life *next;           /* of those that are to be buried */
};

/* The code that runs now. */
struct world {
    struct sim *sim;
    struct life *life;        /* whose code; NULL: the simulator's own */
    struct sim_fiber *thread; /* NULL: an event's */
    bool watching;            /* the simulator's own code runs inside the product's */
};
extern struct world world;

/* Alive, and not the simulator itself. */
static inline bool life_acts(void)
{
    return world.life != NULL && !world.life->dead && !world.watching;
}

/* A process that begins soon with `run`, which ends by itself or when it is told to. */
struct life *life_new(struct sim *sim, struct machine place, void (*run)(struct life *));
/* Code of that process runs until life_leave(), on the event's stack. */
void life_enter(struct life *life);
void life_leave(void);
void life_signal(struct life *life, int number);
/* Its clock has jumped: all that wait look again. */
void life_wake(struct life *life);
/* It has run to its end by itself: its memory goes now. */
bool life_ended(const struct life *life);
void life_free(struct life *life);
/* It is dead; its memory goes when life_bury() is called. */
void life_kill(struct life *life);
void life_bury(struct sim *sim); /* not from a fiber */

/* The number of the shard thread that runs; false: another one does. */
bool life_shard_thread(uint32_t *ret_index);
/* Takes its time, unless the process is dead, or a mutex is held. */
void life_spend(uint64_t us);
/* A thread goes on, perhaps. */
struct machine life_event_place(const struct event *event);
void life_event(struct sim *sim, const struct event *event);
/* It exits because it was ordered so (signals_exit_after()). */
void life_exit(struct sim *sim, const struct event *event);

#endif
