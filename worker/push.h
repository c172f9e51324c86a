/* Gradients on their way out: encoded chunk by chunk into one counted payload, never copied again.
 */
#ifndef ROOST_WORKER_PUSH_H
#define ROOST_WORKER_PUSH_H

#include "common/rpc/rpc.h"
#include "worker/whole.h"

size_t push_bytes(const struct push *push); /* of its entries, encoded */
/* Encodes the push's entries from the executor's gradients, or (async) from `whole`, else NULL, and
 * sends the message on the server's Exchange stream. The gradients may be read: their unit's push
 * hook was called and no other run has begun. Agent's thread. ERR_NOMEM, ERR_BUSY, ERR_CANCELLED,
 * ERR_IO (the device has failed): nothing was sent. */
enum err push_send(const struct executor *executor, const struct whole *whole,
                   const struct model *model, struct rpc_stream *stream,
                   const struct push *push) MUST_USE;

#endif
