/* Gradients on their way in: from the stream to the shard core, added straight from the received
 * slices, and the acknowledgement back. */
#ifndef ROOST_SERVER_PUSH_H
#define ROOST_SERVER_PUSH_H

#include "server/exchange.h"
#include "server/shard.h"

/* A push has come; its entries go to the threads that own their chunks. Polling thread. */
void push_arrived(struct exchange_message *take_message);

/* Carries out the effects of a call of the shard; ACKs are not for it. */
typedef void push_effects_fn(void *owner, struct shard_effects *effects);

/* What a thread says of its entries: those before `refused` are counted, that one is answered
 * `err`; not to be said before shard_taken() has come to `after`. */
struct push_share {
    uint32_t refused;
    enum err err;
    uint64_t after;
};

/* Counts the entries of thread `index` in its shard (NULL: there is none), calling `carry_out` for
 * what comes of it. push_share_done() is still to be called. Shard thread. */
struct push_share push_count(struct exchange_message *message, uint32_t index, struct shard *shard,
                             struct shard_effects *effects, push_effects_fn *carry_out,
                             void *owner);
/* The thread's share is done; the last one acknowledges. */
void push_share_done(struct exchange_message *take_message, const struct push_share *share);

#endif
