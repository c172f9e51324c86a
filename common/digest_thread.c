/* One piece goes back and forth between two threads. */
#include "common/digest_thread.h"

#include "common/thread.h"
#include "common/time.h"

#include <stdlib.h>

enum piece_state { PIECE_NONE, PIECE_GIVEN, PIECE_DONE, PIECE_LAST };

struct digest_thread {
    struct thread thread;
    bool lowers_priority;
    struct thread_mutex mutex; /* guards what follows */
    struct thread_cond changed;
    enum piece_state state;
    struct slice bytes;
    struct digest digest;
    enum err err;
};

static void change_locked(struct digest_thread *thread, enum piece_state state)
{
    thread->state = state;
    thread_wake_all(&thread->changed);
}

static void compute_digests(void *argument)
{
    struct digest_thread *thread = argument;
    if (thread->lowers_priority)
        thread_lower_priority();
    thread_lock(&thread->mutex);
    while (thread->state != PIECE_LAST) {
        if (thread->state != PIECE_GIVEN) {
            ignore(thread_wait_locked(&thread->changed, &thread->mutex, TIME_NEVER));
            continue;
        }
        struct slice bytes = thread->bytes;
        thread_unlock(&thread->mutex);
        struct digest digest = {{0}};
        enum err err = digest_sha256(bytes, &digest);
        thread_lock(&thread->mutex);
        thread->digest = digest;
        thread->err = err;
        change_locked(thread, PIECE_DONE);
    }
    thread_unlock(&thread->mutex);
}

enum err digest_thread_new(bool lowers_priority, struct digest_thread **ret_thread)
{
    struct digest_thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL)
        return ERR_NOMEM;
    thread->lowers_priority = lowers_priority;
    thread_mutex_init(&thread->mutex);
    thread_cond_init(&thread->changed);
    enum err err = thread_start(&thread->thread, "digests", compute_digests, thread);
    if (err == ERR_OK) {
        *ret_thread = thread;
        return ERR_OK;
    }
    thread_cond_release(&thread->changed);
    thread_mutex_release(&thread->mutex);
    free(thread);
    return err;
}

void digest_thread_free(struct digest_thread *thread)
{
    if (thread == NULL)
        return;
    thread_lock(&thread->mutex);
    check(thread->state == PIECE_NONE);
    change_locked(thread, PIECE_LAST);
    thread_unlock(&thread->mutex);
    thread_join(&thread->thread);
    thread_cond_release(&thread->changed);
    thread_mutex_release(&thread->mutex);
    free(thread);
}

void digest_thread_begin(struct digest_thread *thread, struct slice bytes)
{
    thread_lock(&thread->mutex);
    check(thread->state == PIECE_NONE);
    thread->bytes = bytes;
    change_locked(thread, PIECE_GIVEN);
    thread_unlock(&thread->mutex);
}

enum err digest_thread_end(struct digest_thread *thread, struct digest *ret_digest)
{
    thread_lock(&thread->mutex);
    check(thread->state == PIECE_GIVEN || thread->state == PIECE_DONE);
    while (thread->state != PIECE_DONE)
        ignore(thread_wait_locked(&thread->changed, &thread->mutex, TIME_NEVER));
    enum err err = thread->err;
    if (err == ERR_OK)
        *ret_digest = thread->digest;
    change_locked(thread, PIECE_NONE);
    thread_unlock(&thread->mutex);
    return err;
}
