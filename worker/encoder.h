/* Pushes on their way out: a thread of its own encodes and sends them, one after another, so that
 * heartbeats, acknowledgements and weights do not wait until a device has come so far, except in
 * encoder_drain(), before the next ticket. */
#ifndef ROOST_WORKER_ENCODER_H
#define ROOST_WORKER_ENCODER_H

#include "worker/push.h"

struct encoder;

struct encoder_job {
    uint32_t server;
    uint64_t number; /* of the stream */
    uint32_t lane;
    struct push_source source;
    struct push_stream to;
    struct push push;
    uint64_t given_ms;
};

struct encoder_options {
    /* push_send(), but in tests. The encoder's thread, as the next one. */
    enum err (*send)(const struct push_source *source, const struct push_stream *to,
                     const struct push *push, size_t *ret_bytes);
    void (*done)(void *context, const struct encoder_job *job, enum err err, size_t bytes);
    void *context;
};

/* ERR_NOMEM; ERR_BUSY: the machine allows no more threads. */
enum err encoder_new(const struct encoder_options *options, struct encoder **ret_encoder) MUST_USE;
/* What waits is not sent. NULL is fine. */
void encoder_free(struct encoder *encoder);

/* Copies the job, takes a reference to its stream. The executor's gradients may be read until
 * encoder_drain(). ERR_NOMEM. */
enum err encoder_push(struct encoder *encoder, const struct encoder_job *job) MUST_USE;
/* Waits until all was sent: then the next run may begin. */
void encoder_drain(struct encoder *encoder);

/* Who else reads gradients meanwhile (an executor reads one thing at a time). */
void encoder_lock(struct encoder *encoder);
void encoder_unlock(struct encoder *encoder);

#endif
