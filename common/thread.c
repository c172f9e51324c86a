/* Threads by pthreads. Conditions wait on the monotonic clock, the one of time_now_ns(). */
#include "common/thread.h"

#include "common/scene.h"
#include "common/time.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *thread_main(void *pointer)
{
    struct thread *thread = pointer;
    pthread_setname_np(pthread_self(), thread->name);
    scene_inherit(thread->memory);
    atomic_store(&thread->self, pthread_self());
    thread->run(thread->argument);
    return NULL;
}

enum err thread_start(struct thread *thread, const char *name, void (*run)(void *), void *argument)
{
    *thread = (struct thread){.run = run, .argument = argument, .memory = scene_memory()};
    strncpy(thread->name, name, sizeof thread->name - 1);
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* its own fault, which kills it unheard where it is blocked */
    check(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    int failed = pthread_create(&thread->id, NULL, thread_main, thread);
    check(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    return failed == 0 ? ERR_OK : ERR_BUSY;
}

void thread_join(struct thread *thread)
{
    check(pthread_join(thread->id, NULL) == 0);
}

bool thread_is_current(const struct thread *thread)
{
    return pthread_equal(atomic_load(&thread->self), pthread_self()) != 0;
}

/* Ten levels of nice weigh a tenth of an ordinary thread's share; of the disk's queues it is the
 * last of those that never starve. A thread with that share that runs when another one wakes up goes
 * on for its slice, some 1.4 ms; one of SCHED_IDLE gives its core up at once (Linux 6.18,
 * check_preempt_wakeup_fair()). */
void thread_lower_priority(enum thread_share share)
{
    const int who_process = 1, self = 0, class_best_effort = 2, level_last = 7, class_shift = 13;
    const struct sched_param none = {.sched_priority = 0};
    /* Where the system refuses, the thread works on with an ordinary share. Linux counts all of
     * them by threads. */
    if (nice(10) == -1)
        errno = 0;
    if (share == THREAD_SHARE_IDLE)
        ignore(sched_setscheduler(self, SCHED_IDLE, &none) == 0 ? ERR_OK : ERR_DENIED);
    syscall(SYS_ioprio_set, who_process, self, class_best_effort << class_shift | level_last);
}

void thread_rest(uint64_t ns)
{
    const struct timespec rest = {.tv_nsec = (long)ns};
    nanosleep(&rest, NULL); /* threads block signals, so nothing cuts it short */
}

unsigned thread_core_count(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0)
        return 1; /* more cores than a cpu_set_t has room for */
    int count = CPU_COUNT(&cores);
    return count > 0 ? (unsigned)count : 1;
}

void thread_end_process(int status)
{
    _Exit(status);
}

void thread_mutex_init(struct thread_mutex *mutex)
{
    check(pthread_mutex_init(&mutex->mutex, NULL) == 0);
}

void thread_mutex_release(struct thread_mutex *mutex)
{
    check(pthread_mutex_destroy(&mutex->mutex) == 0);
}

void thread_lock(struct thread_mutex *mutex)
{
    check(pthread_mutex_lock(&mutex->mutex) == 0);
}

void thread_unlock(struct thread_mutex *mutex)
{
    check(pthread_mutex_unlock(&mutex->mutex) == 0);
}

void thread_cond_init(struct thread_cond *cond)
{
    pthread_condattr_t attributes;
    check(pthread_condattr_init(&attributes) == 0);
    check(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    check(pthread_cond_init(&cond->cond, &attributes) == 0);
    check(pthread_condattr_destroy(&attributes) == 0);
}

void thread_cond_release(struct thread_cond *cond)
{
    check(pthread_cond_destroy(&cond->cond) == 0);
}

enum err thread_wait_locked(struct thread_cond *cond, struct thread_mutex *mutex,
                            uint64_t deadline_ns)
{
    if (deadline_ns == TIME_NEVER) {
        check(pthread_cond_wait(&cond->cond, &mutex->mutex) == 0);
        return ERR_OK;
    }
    const struct timespec moment = {
        .tv_sec = (time_t)(deadline_ns / 1000000000),
        .tv_nsec = (long)(deadline_ns % 1000000000),
    };
    int failed = pthread_cond_timedwait(&cond->cond, &mutex->mutex, &moment);
    check(failed == 0 || failed == ETIMEDOUT);
    return failed == 0 ? ERR_OK : ERR_DEADLINE;
}

void thread_wake_one(struct thread_cond *cond)
{
    check(pthread_cond_signal(&cond->cond) == 0);
}

void thread_wake_all(struct thread_cond *cond)
{
    check(pthread_cond_broadcast(&cond->cond) == 0);
}
