/* Weights on their way out: from a question to the published copies, sent as they are. */
#ifndef ROOST_SERVER_PULL_H
#define ROOST_SERVER_PULL_H

#include "server/exchange.h"
#include "server/shard.h"

/* A pull has come; it goes to the threads that own its chunks. Polling thread. */
void pull_arrived(struct exchange_message *take_message);
/* Asks the shard of thread `index` (NULL: there is none) for its share of the chunks and sends what
 * it says; other effects than the answer stay for the caller, from the second on. Shard thread. */
void pull_answer(struct exchange_message *take_message, uint32_t index, struct shard *shard,
                 struct shard_effects *effects);
/* A parked pull's weights are published: sends them, or remembers to ask again when the stream
 * has taken what waits already. Takes the effect's references. Shard thread `index`. */
void pull_published(const struct shard_effect *weights, uint32_t index, uint64_t generation);
/* A parked pull will not be answered any more: says so. */
void pull_refused(const struct shard_effect *refusal);
/* A message has left: as many as fit are asked for again. Any thread. */
void pull_ask_again(struct exchange_stream *stream);
/* Forgets what waits; the stream is over and nobody else uses it. */
void pull_forget(struct exchange_stream *stream);

#endif
