/* Weights on their way in: pulled by chunk, and written from the received slices into place.
 * Agent's thread. */
#ifndef ROOST_WORKER_PULL_H
#define ROOST_WORKER_PULL_H

#include "common/rpc/rpc.h"
#include "worker/lent_weights.h"

/* Sends the pull on the server's Exchange stream. Errors as push_send(). */
enum err pull_send(struct rpc_stream *stream, const struct pull *pull) MUST_USE;

/* ERR_MALFORMED unless the message's payload is exactly the chunks that its header names. */
enum err pull_check(const struct model *model, const struct from_shard *message,
                    struct reason *reason) MUST_USE;
/* Puts a checked message's chunks among the executor's weights; the agent wants them. What the sender
 * lent stays where it lies, if `lent` has a place for it. */
void pull_receive(struct executor *executor, struct lent_weights *lent, const struct model *model,
                  const struct from_shard *message, struct rpc_message *received);

#endif
