/* Weights on their way out: from a pull to the published copies, which are sent as they are.
 *
 * exchange.c begins a pull. Each shard thread that owns some of its chunks asks the shard
 * (pull_ask()), writes to the order log what an async run gives, and answers (pull_answer()). A
 * pull of weights that are not published yet is parked in the shard. The weights are sent when they
 * are published (pull_published()). */
#ifndef ROOST_SERVER_THREADS_PULL_H
#define ROOST_SERVER_THREADS_PULL_H

#include "server/shard/shard.h"
#include "server/threads/exchange_stream.h"

/* A pull has come, to be answered in so many shares. */
void pull_begin(struct exchange_message *message, uint32_t shares);
/* Whether some of its chunks belong to `thread`. */
bool pull_wants(const struct exchange_message *message, uint32_t thread);
/* A share is answered, without weights. The last share ends the pull. */
void pull_share_done(struct exchange_message *take_message, enum err err);
/* Asks the shard of thread `index` (NULL: there is none) for its share of the chunks. True: the
 * caller carries out `effects` in their order; the last of them, WEIGHTS or REFUSAL, is the answer
 * and goes to pull_answer(). It names its chunks in `chunks`, so these must stay until then. False:
 * the share is answered, without weights. Shard thread. */
bool pull_ask(struct exchange_message *take_message, uint32_t index, struct shard *shard,
              uint32_t chunks[static WIRE_ENTRIES_MAX], struct shard_effects *effects);
/* Sends that answer. */
void pull_answer(struct exchange_message *take_message, const struct shard_effect *effect);
/* A parked pull's weights are published: sends them, or remembers to ask again when the stream has
 * sent what waits already. Returns how many bytes were not sent. Takes the effect's references.
 * Shard thread `index`. */
uint64_t pull_published(const struct shard_effect *weights, uint32_t index, uint64_t generation);
/* Sends the refusal of a parked pull that will not be answered any more. */
void pull_refused(const struct shard_effect *refusal);
/* A message has been sent: asks again for as many waiting pulls as fit. Any thread. */
void pull_ask_again(struct exchange_stream *stream);

#endif
