/* Shard.Exchange at the server: one stream per worker, from hello to the end.
 *
 * A message comes in on the stream's polling thread, is judged by proto/wire.c there, and goes to
 * the shard threads that own its chunks with the received slices uncopied; a shard thread sends the
 * answer. Includes point the way that the message goes: downwards, to exchange_stream.h.
 *
 *     polling thread          shard thread
 *     exchange.c ---inbox---> shard_thread.c -> push.c -> shard_push.c -> kernels
 *                                               push.c -> acknowledgement, urgent
 *     exchange.c ---inbox---> shard_thread.c -> pull.c -> shard_pull.c
 *                                               pull.c -> weights, or a refusal
 *
 * Credits: WIRE_CREDITS pushes and as many pulls may be unanswered. A peer that sends more is not
 * one of our workers: its stream ends. A pull that has to wait is answered with TOO_EARLY and holds
 * no credit any more. When its weights are published, they are sent if few messages wait to be
 * sent. Otherwise only the pull's names wait at the stream, and the shard is asked again later: so
 * a slow peer never keeps old weights in memory. */
#ifndef ROOST_SERVER_THREADS_EXCHANGE_H
#define ROOST_SERVER_THREADS_EXCHANGE_H

#include "server/threads/exchange_stream.h"

/* The row of the method table; workers only. `exchange` outlives the rpc server. */
struct rpc_method exchange_method(struct exchange *exchange);

#endif
