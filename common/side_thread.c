/* One piece of work goes back and forth between two threads. */
#include "common/side_thread.h"

#include "common/time.h"

#include <stdlib.h>

enum work_state { WORK_NONE, WORK_GIVEN, WORK_DONE, WORK_LAST };

struct side_thread {
    struct thread thread;
    enum thread_share share;
    struct thread_mutex mutex; /* guards what follows */
    struct thread_cond changed;
    enum work_state state;
    void (*work)(void *argument);
    void *argument;
};

static void change_locked(struct side_thread *thread, enum work_state state)
{
    thread->state = state;
    thread_wake_all(&thread->changed);
}

static void work_beside(void *argument)
{
    struct side_thread *thread = argument;
    thread_lower_priority(thread->share);
    thread_lock(&thread->mutex);
    while (thread->state != WORK_LAST) {
        if (thread->state != WORK_GIVEN) {
            ignore(thread_wait_locked(&thread->changed, &thread->mutex, TIME_NEVER));
            continue;
        }
        thread_unlock(&thread->mutex);
        thread->work(thread->argument);
        thread_lock(&thread->mutex);
        change_locked(thread, WORK_DONE);
    }
    thread_unlock(&thread->mutex);
}

enum err side_thread_new(const char *name, enum thread_share share, struct side_thread **ret_thread)
{
    struct side_thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL)
        return ERR_NOMEM;
    thread->share = share;
    thread_mutex_init(&thread->mutex);
    thread_cond_init(&thread->changed);
    enum err err = thread_start(&thread->thread, name, work_beside, thread);
    if (err == ERR_OK) {
        *ret_thread = thread;
        return ERR_OK;
    }
    thread_cond_release(&thread->changed);
    thread_mutex_release(&thread->mutex);
    free(thread);
    return err;
}

void side_thread_free(struct side_thread *thread)
{
    if (thread == NULL)
        return;
    thread_lock(&thread->mutex);
    check(thread->state == WORK_NONE);
    change_locked(thread, WORK_LAST);
    thread_unlock(&thread->mutex);
    thread_join(&thread->thread);
    thread_cond_release(&thread->changed);
    thread_mutex_release(&thread->mutex);
    free(thread);
}

void side_thread_begin(struct side_thread *thread, void (*work)(void *argument), void *argument)
{
    thread_lock(&thread->mutex);
    check(thread->state == WORK_NONE);
    thread->work = work;
    thread->argument = argument;
    change_locked(thread, WORK_GIVEN);
    thread_unlock(&thread->mutex);
}

void side_thread_end(struct side_thread *thread)
{
    thread_lock(&thread->mutex);
    check(thread->state == WORK_GIVEN || thread->state == WORK_DONE);
    while (thread->state != WORK_DONE)
        ignore(thread_wait_locked(&thread->changed, &thread->mutex, TIME_NEVER)); /* never */
    change_locked(thread, WORK_NONE);
    thread_unlock(&thread->mutex);
}
