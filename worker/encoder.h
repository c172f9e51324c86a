/* Pushes on their way out: a thread of its own encodes and sends them, one after another, so that
 * heartbeats, acknowledgements and weights never wait until a device has come so far. */
#ifndef ROOST_WORKER_ENCODER_H
#define ROOST_WORKER_ENCODER_H

#include "worker/push.h"

struct encoder;

struct encoder_options {
    const struct model *model; /* borrowed */
    /* push_send(), but in tests. The encoder's thread. */
    enum err (*send)(const struct executor *executor, const struct whole *whole,
                     const struct model *model, struct rpc_stream *stream, const struct push *push);
    /* It returned that error. The encoder's thread. */
    void (*failed)(void *context, uint32_t server, uint64_t number, enum err err);
    void *context;
};

/* ERR_NOMEM; ERR_BUSY: the machine allows no more threads. */
enum err encoder_new(const struct encoder_options *options, struct encoder **ret_encoder) MUST_USE;
/* What waits is not sent. NULL is fine. */
void encoder_free(struct encoder *encoder);

struct encoder_target {
    uint32_t server;
    uint64_t number; /* of the stream */
    struct rpc_stream *stream;
};
/* Copies the push. The executor's gradients may be read until encoder_drain(). ERR_NOMEM. */
enum err encoder_push(struct encoder *encoder, const struct executor *executor,
                      const struct whole *whole, const struct encoder_target *target,
                      const struct push *push) MUST_USE;
/* Waits until all was sent: then gradients may be overwritten. */
void encoder_drain(struct encoder *encoder);

/* Who else reads gradients meanwhile (an executor reads one thing at a time). */
void encoder_lock(struct encoder *encoder);
void encoder_unlock(struct encoder *encoder);

#endif
