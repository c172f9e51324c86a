/* Named threads, and the lock and condition for the few structs that threads share. */
#ifndef ROOST_COMMON_THREAD_H
#define ROOST_COMMON_THREAD_H

#include "common/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct scene_memory;

/* A started thread. Stays where it is in memory from thread_start() to thread_join(). */
struct thread {
    pthread_t id;
    char name[16];
    void (*run)(void *argument);
    void *argument;
    const struct scene_memory *memory; /* the starter's */
    _Atomic(pthread_t) self;           /* by the thread itself, before run() */
};

/* Runs run(argument) in a thread of that name (cut to 15 bytes, as `top -H` shows it). Signals are
 * blocked there: they reach the main thread. ERR_BUSY: the machine allows no more threads. */
enum err thread_start(struct thread *thread, const char *name, void (*run)(void *),
                      void *argument) MUST_USE;
void thread_join(struct thread *thread); /* waits for its end; once for each start */
/* Whether it is the one that asks: one thread owns each object, and its functions check that. */
bool thread_is_current(const struct thread *thread);
/* For work that nobody waits for while others work. Alone such a thread is as fast as any. */
enum thread_share {
    THREAD_SHARE_SMALL, /* a tenth of an ordinary one's, where others want the core */
    THREAD_SHARE_IDLE,  /* cores that nobody else wants: others never wait for it, and while they
                           take all cores it gets next to nothing */
};
/* What the calling thread gets of the cores from now on; of the disk it comes last. */
void thread_lower_priority(enum thread_share share);
void thread_rest(uint64_t ns);    /* leaves the core to others for some time, below a second */
unsigned thread_core_count(void); /* cores that this process may use, at least 1 */
/* Ends the process on the spot, with that exit status: no thread goes on, nothing is flushed. (Not
 * noreturn: a simulated process is dead when this returns.) */
void thread_end_process(int status);

/* A mutex. The struct that holds it has a comment on what it guards. A thread never holds two. */
struct thread_mutex {
    pthread_mutex_t mutex;
};
void thread_mutex_init(struct thread_mutex *mutex);
void thread_mutex_release(struct thread_mutex *mutex);
void thread_lock(struct thread_mutex *mutex);
void thread_unlock(struct thread_mutex *mutex);

/* A condition; deadlines are moments of time_now_ns(). */
struct thread_cond {
    pthread_cond_t cond;
};
void thread_cond_init(struct thread_cond *cond);
void thread_cond_release(struct thread_cond *cond);
/* Waits, `mutex` held, until woken (perhaps for nothing: look again). ERR_DEADLINE: the moment
 * `deadline_ns` passed; TIME_NEVER waits for good. */
enum err thread_wait_locked(struct thread_cond *cond, struct thread_mutex *mutex,
                            uint64_t deadline_ns) MUST_USE;
void thread_wake_one(struct thread_cond *cond);
void thread_wake_all(struct thread_cond *cond);

#endif
