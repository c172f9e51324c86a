/* Parked pulls, which are answered when versions come. For shard*.c only. */
#ifndef ROOST_SERVER_SHARD_SHARD_PULL_H
#define ROOST_SERVER_SHARD_SHARD_PULL_H

#include "server/shard/shard_core.h"

/* The oldest readable version (P5). */
uint64_t shard_pull_oldest(const struct shard *shard, const struct chunk *chunk);
/* Looks again at the pulls that a commit or a move let go. False: there is no room for more
 * effects. */
bool shard_pull_again(struct shard *shard, struct shard_effects *effects);
/* Answers the pulls that waited for the chunks applied so far, as many as effects have room for.
 * The next call answers the others. */
void shard_pull_applied(struct shard *shard, struct shard_effects *effects);

#endif
