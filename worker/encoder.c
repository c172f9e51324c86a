#include "worker/encoder.h"

#include "common/ring.h"
#include "common/thread.h"
#include "common/time.h"

#include <stdlib.h>
#include <string.h>

struct job {
    struct ring link;
    const struct executor *executor;
    const struct whole *whole;
    struct encoder_target target; /* a reference to the stream */
    struct push push;             /* its entries and tickets are the job's own */
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

static void job_free(struct job *job)
{
    rpc_stream_unref(job->target.stream);
    free((void *)(uintptr_t)job->push.entries);
    free((void *)(uintptr_t)job->push.tickets);
    free(job);
}

/* ---- the thread ---- */

static void do_job(struct encoder *encoder, struct job *take_job)
{
    const struct encoder_options *options = &encoder->options;
    encoder_lock(encoder);
    enum err err = options->send(take_job->executor, take_job->whole, options->model,
                                 take_job->target.stream, &take_job->push);
    encoder_unlock(encoder);
    if (err != ERR_OK)
        options->failed(options->context, take_job->target.server, take_job->target.number, err);
    job_free(take_job);
}

/* NULL: the encoder ends. */
static struct job *next_job(struct encoder *encoder)
{
    struct job *job = NULL;
    thread_lock(&encoder->mutex);
    encoder->busy = false;
    thread_wake_all(&encoder->changed);
    while (ring_is_empty(&encoder->jobs) && !encoder->stopping)
        ignore(thread_wait_locked(&encoder->changed, &encoder->mutex, TIME_NEVER)); /* looks */
    if (!encoder->stopping) {
        job = RING_ITEM(encoder->jobs.behind, struct job, link);
        ring_take(&job->link);
        encoder->busy = true;
    }
    thread_unlock(&encoder->mutex);
    return job;
}

static void encode(void *argument)
{
    struct encoder *encoder = argument;
    struct job *job;
    while ((job = next_job(encoder)) != NULL)
        do_job(encoder, job);
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
        struct job *job = RING_ITEM(encoder->jobs.behind, struct job, link);
        ring_take(&job->link);
        job_free(job);
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

static enum err copy_push(struct job *job, const struct push *push)
{
    job->push = *push;
    job->push.entries = copy_of(push->entries, push->entry_count * sizeof *push->entries);
    job->push.tickets = copy_of(push->tickets, push->ticket_count * sizeof *push->tickets);
    return job->push.entries != NULL && job->push.tickets != NULL ? ERR_OK : ERR_NOMEM;
}

enum err encoder_push(struct encoder *encoder, const struct executor *executor,
                      const struct whole *whole, const struct encoder_target *target,
                      const struct push *push)
{
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return ERR_NOMEM;
    job->executor = executor;
    job->whole = whole;
    job->target = *target;
    job->target.stream = rpc_stream_ref(target->stream);
    if (copy_push(job, push) != ERR_OK) {
        job_free(job);
        return ERR_NOMEM;
    }
    thread_lock(&encoder->mutex);
    ring_add(&encoder->jobs, &job->link);
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
