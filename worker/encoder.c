#include "worker/encoder.h"

#include "common/ring.h"
#include "common/thread.h"
#include "common/time.h"

#include <stdlib.h>
#include <string.h>

/* With a reference to the stream; the push's entries and tickets are its own. */
struct waiting {
    struct ring link;
    struct encoder_job job;
};

struct encoder {
    struct encoder_options options;
    struct thread thread;
    struct thread_mutex reading; /* who holds it reads gradients */
    struct thread_mutex mutex;   /* guards the rest */
    struct thread_cond changed;
    struct ring jobs; /* that wait */
    bool busy, stopping;
};

static void waiting_free(struct waiting *waiting)
{
    struct encoder_job *job = &waiting->job;
    rpc_stream_unref(job->to.stream);
    free((void *)(uintptr_t)job->push.entries);
    free((void *)(uintptr_t)job->push.tickets);
    free(waiting);
}

/* ---- the thread ---- */

static void do_job(struct encoder *encoder, const struct encoder_job *job)
{
    const struct encoder_options *options = &encoder->options;
    size_t bytes = 0;
    encoder_lock(encoder);
    enum err err = options->send(&job->source, &job->to, &job->push, &bytes);
    encoder_unlock(encoder);
    options->done(options->context, job, err, bytes);
}

/* NULL: the encoder ends. */
static struct waiting *next_waiting(struct encoder *encoder)
{
    struct waiting *waiting = NULL;
    thread_lock(&encoder->mutex);
    encoder->busy = false;
    thread_wake_all(&encoder->changed);
    while (ring_is_empty(&encoder->jobs) && !encoder->stopping)
        ignore(thread_wait_locked(&encoder->changed, &encoder->mutex, TIME_NEVER)); /* looks */
    if (!encoder->stopping) {
        waiting = RING_ITEM(encoder->jobs.behind, struct waiting, link);
        ring_take(&waiting->link);
        encoder->busy = true;
    }
    thread_unlock(&encoder->mutex);
    return waiting;
}

static void encode(void *argument)
{
    struct encoder *encoder = argument;
    struct waiting *waiting;
    while ((waiting = next_waiting(encoder)) != NULL) {
        do_job(encoder, &waiting->job);
        waiting_free(waiting);
    }
}

/* ---- its owner ---- */

enum err encoder_new(const struct encoder_options *options, struct encoder **ret_encoder)
{
    struct encoder *encoder = calloc(1, sizeof *encoder);
    if (encoder == NULL)
        return ERR_NOMEM;
    encoder->options = *options;
    ring_init(&encoder->jobs);
    thread_mutex_init(&encoder->reading);
    thread_mutex_init(&encoder->mutex);
    thread_cond_init(&encoder->changed);
    enum err err = thread_start(&encoder->thread, "encode", encode, encoder);
    if (err == ERR_OK) {
        *ret_encoder = encoder;
        return ERR_OK;
    }
    thread_cond_release(&encoder->changed);
    thread_mutex_release(&encoder->mutex);
    thread_mutex_release(&encoder->reading);
    free(encoder);
    return err;
}

void encoder_free(struct encoder *encoder)
{
    if (encoder == NULL)
        return;
    thread_lock(&encoder->mutex);
    encoder->stopping = true;
    thread_wake_all(&encoder->changed);
    thread_unlock(&encoder->mutex);
    thread_join(&encoder->thread);
    while (!ring_is_empty(&encoder->jobs)) {
        struct waiting *waiting = RING_ITEM(encoder->jobs.behind, struct waiting, link);
        ring_take(&waiting->link);
        waiting_free(waiting);
    }
    thread_cond_release(&encoder->changed);
    thread_mutex_release(&encoder->mutex);
    thread_mutex_release(&encoder->reading);
    free(encoder);
}

/* NULL: no memory. */
static void *copy_of(const void *from, size_t bytes)
{
    void *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy != NULL && bytes > 0)
        memcpy(copy, from, bytes);
    return copy;
}

static enum err copy_push(const struct push *from, struct push *push)
{
    *push = *from;
    push->entries = copy_of(from->entries, from->entry_count * sizeof *from->entries);
    push->tickets = copy_of(from->tickets, from->ticket_count * sizeof *from->tickets);
    return push->entries != NULL && push->tickets != NULL ? ERR_OK : ERR_NOMEM;
}

enum err encoder_push(struct encoder *encoder, const struct encoder_job *job)
{
    struct waiting *waiting = calloc(1, sizeof *waiting);
    if (waiting == NULL)
        return ERR_NOMEM;
    waiting->job = *job;
    rpc_stream_ref(job->to.stream);
    if (copy_push(&job->push, &waiting->job.push) != ERR_OK) {
        waiting_free(waiting);
        return ERR_NOMEM;
    }
    thread_lock(&encoder->mutex);
    ring_add(&encoder->jobs, &waiting->link);
    thread_wake_all(&encoder->changed);
    thread_unlock(&encoder->mutex);
    return ERR_OK;
}

void encoder_drain(struct encoder *encoder)
{
    thread_lock(&encoder->mutex);
    while (encoder->busy || !ring_is_empty(&encoder->jobs))
        ignore(thread_wait_locked(&encoder->changed, &encoder->mutex, TIME_NEVER)); /* looks */
    thread_unlock(&encoder->mutex);
}

void encoder_lock(struct encoder *encoder)
{
    thread_lock(&encoder->reading);
}

void encoder_unlock(struct encoder *encoder)
{
    thread_unlock(&encoder->reading);
}
