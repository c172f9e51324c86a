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

/* Counts the entries of thread `index` in its shard (NULL: there is none), calling `carry_out` for
 * what comes of it; the last thread acknowledges. Shard thread. */
void push_count(struct exchange_message *take_message, uint32_t index, struct shard *shard,
                struct shard_effects *effects, push_effects_fn *carry_out, void *owner);

#endif
