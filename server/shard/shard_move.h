/* Chunks that change their server with a commit (P11). For shard*.c only. */
#ifndef ROOST_SERVER_SHARD_SHARD_MOVE_H
#define ROOST_SERVER_SHARD_SHARD_MOVE_H

#include "server/shard/shard_core.h"

/* The moves of the decision for `step`, which is taken now. Nothing changed: ERR_NOMEM;
 * ERR_MALFORMED: a chunk to leave is not here, or has open sums; one to take is here. */
enum err shard_move_begin(struct shard *shard, uint64_t step,
                          const struct shard_moves *moves) MUST_USE;
/* A chunk that has left may be sent now: its index, or the count: none. */
uint32_t shard_move_next(const struct shard *shard);
void shard_move_send(struct shard *shard, uint32_t index, struct shard_effects *effects);

#endif
