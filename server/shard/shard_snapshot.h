/* What a shard hands to the writer of a cut. For shard*.c only. */
#ifndef ROOST_SERVER_SHARD_SHARD_SNAPSHOT_H
#define ROOST_SERVER_SHARD_SHARD_SNAPSHOT_H

#include "server/shard/shard_core.h"

/* Begins the cut of the version that the shard has. */
void shard_snapshot_start(struct shard *shard);
/* Hands out the next chunk, or the end where there is none. *ret_done false: the writer has enough
 * for now, or holds all copy buffers. ERR_NOMEM: nothing changed. */
enum err shard_snapshot_next(struct shard *shard, struct shard_effects *effects,
                             bool *ret_done) MUST_USE;

/* The place of a copy buffer that the writer does not hold; NULL: there is none. ERR_NOMEM. */
enum err shard_snapshot_spare(struct shard *shard, struct counted ***ret_place) MUST_USE;
/* The writer has what lies in that place now. */
void shard_snapshot_spare_used(struct shard *shard);

/* A step that comes beside a cut is to find its buffers made: whether one is to be made now, and
 * making it. Without memory they are made when they are needed. */
bool shard_snapshot_wants_spare(const struct shard *shard);
void shard_snapshot_make_spare(struct shard *shard);

#endif
