/* Shard.Exchange at the server: one stream per worker, from hello to the end.
 *
 * A message comes in on the stream's polling thread, is judged by proto/wire.c there, and goes to
 * the shard threads that own its chunks with the received slices uncopied; the answer is sent from
 * a shard thread. Includes point the same way as the message: downwards, to exchange_stream.h.
 *
 *     polling thread          shard thread
 *     exchange.c ---inbox---> shard_thread.c -> push.c -> shard_push.c -> kernels
 *                                               push.c -> acknowledgement, urgent
 *     exchange.c ---inbox---> shard_thread.c -> pull.c -> shard_pull.c
 *                                               pull.c -> weights, or a refusal
 *
 * Credits: WIRE_CREDITS pushes and as many pulls may be unanswered; a peer with more is not ours:
 * its stream ends. A pull that has to wait is answered with TOO_EARLY and holds no credit any more;
 * when its weights are published they are sent as long as few messages wait to be sent, otherwise
 * the pull's names wait at the stream and the shard is asked again, so a slow peer never holds old
 * weights. */
#ifndef ROOST_SERVER_THREADS_EXCHANGE_H
#define ROOST_SERVER_THREADS_EXCHANGE_H

#include "server/threads/exchange_stream.h"

/* The row of the method table; workers only. `exchange` outlives the rpc server. */
struct rpc_method exchange_method(struct exchange *exchange);

#endif
