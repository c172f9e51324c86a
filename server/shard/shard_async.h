/* The events of a shard in an async run. For shard*.c only. */
#ifndef ROOST_SERVER_SHARD_SHARD_ASYNC_H
#define ROOST_SERVER_SHARD_SHARD_ASYNC_H

#include "server/shard/shard_core.h"

/* shard_push() of an async run. */
struct shard_ack shard_async_push(struct shard *shard, const struct push *push,
                                  struct cursor *payload, struct shard_effects *effects) MUST_USE;
/* Answers a pull that passed the checks: with all chunks, each at the version that it has. */
void shard_async_pull(struct shard *shard, uint64_t sender, const struct pull *pull,
                      struct shard_effects *effects);
/* Applies one gradient that waited for the log. */
enum err shard_async_work(struct shard *shard, struct shard_effects *effects) MUST_USE;
/* Reports the open step, if every chunk has all its tickets. */
void shard_async_report(const struct shard *shard, struct shard_effects *effects);

#endif
