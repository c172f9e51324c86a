/* One start of a process that runs the product's own code: its threads, its streams and calls, and
 * whether it still lives.
 *
 * The linker leads common/thread.h, common/rpc/rpc.h, the system's files and the clock here
 * (threads.c, rpc.c, disk.c), so the code of production runs as it is. Threads are fibers: one runs
 * until it waits. Who is woken, or has waited long enough, goes on by an event of the queue, soon
 * after, at a moment of the seed's choice.
 *
 * A process that is killed is dead at once, in the middle of whatever it does: nothing of it is
 * sent, written or seen any more. Its memory is given back the way in which the product ends in
 * good order, as soon as nobody stands in it (life_bury()). */
#ifndef ROOST_TESTS_SIM_LIFE_H
#define ROOST_TESTS_SIM_LIFE_H

#include "common/rpc/rpc.h"
#include "tests/sim/process.h"

enum { LIFE_THREADS_MAX = 16, LIFE_METHODS_MAX = 4 };

struct sim_fiber;

struct life {
    struct sim *sim;
    struct place place;
    bool dead;
    uint32_t thread_count;
    struct sim_fiber *threads[LIFE_THREADS_MAX];
    /* What it serves, and what is open. */
    uint32_t method_count;
    struct rpc_method methods[LIFE_METHODS_MAX];
    struct rpc_stream *streams;
    struct rpc_channel *channels;
    struct life *next; /* of those that are to be buried */
    void *owner;       /* whose process it is: what `end` is called with */
    void (*end)(struct life *life);
};

/* What runs now. */
struct world {
    struct sim *sim;
    struct life *life;        /* whose code; NULL: the simulator's own */
    struct sim_fiber *thread; /* NULL: an event's */
    bool watching;            /* the simulator's own code looks at what somebody does */
};
extern struct world world;

/* Alive, and not the simulator itself. */
static inline bool life_acts(void)
{
    return world.life != NULL && !world.life->dead && !world.watching;
}

/* `end` gives its memory back: the product's own calls for that. */
struct life *life_new(struct sim *sim, struct place place, void (*end)(struct life *), void *owner);
/* Code of that process runs until life_leave(), on the event's stack. */
void life_enter(struct life *life);
void life_leave(void);
/* Ends in good order, now. Not from a fiber. */
void life_end(struct life *life);
/* It is dead; its memory goes when life_bury() is called. */
void life_kill(struct life *life);
void life_bury(struct sim *sim); /* not from a fiber */

/* The number of the shard thread that runs; false: another one does. */
bool life_shard_thread(uint32_t *ret_index);
/* Takes its time, unless the process is dead, or a mutex is held. */
void life_spend(uint64_t us);
/* A thread goes on, perhaps. */
struct place life_event_place(const struct event *event);
void life_event(struct sim *sim, const struct event *event);

#endif
