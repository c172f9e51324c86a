/* Chunks that change their server with a commit (P11). For shard*.c only. */
#ifndef ROOST_SERVER_SHARD_SHARD_MOVE_H
#define ROOST_SERVER_SHARD_SHARD_MOVE_H

#include "server/shard/shard_core.h"

/* Carries out the moves of the decision for `step`, which the shard takes now. Errors change
 * nothing: ERR_NOMEM; ERR_MALFORMED: a chunk that is to leave is not here, or has open sums; or a
 * chunk that is to come is here. */
enum err shard_move_begin(struct shard *shard, uint64_t step,
                          const struct shard_moves *moves) MUST_USE;
/* The cut of the newest decision, which everybody has carried out, is written again: chunks are in
 * the files of the servers that have them now. */
void shard_move_again(struct shard *shard, const struct shard_moves *moves);
/* The index of a chunk that leaves and may be sent now; the count of chunks: none. */
uint32_t shard_move_next(const struct shard *shard);
void shard_move_send(struct shard *shard, uint32_t index, struct shard_effects *effects);

#endif
