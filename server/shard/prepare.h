/* Makes from a run's spec and model what a shard needs to start: its chunks, settings and initial
 * values. Used by the shard thread, the simulator and the reference, so that all three run the same
 * shard. */
#ifndef ROOST_SERVER_SHARD_PREPARE_H
#define ROOST_SERVER_SHARD_PREPARE_H

#include "common/model/model.h"
#include "common/settings/spec.h"
#include "server/shard/shard.h"

/* The chunks of `server` in the map, ascending; *ret_chunks is the caller's to free(). ERR_NOMEM;
 * ERR_INVALID: a range is beyond the model's chunks. */
enum err prepare_chunks(const struct model *model, const struct chunk_range *ranges,
                        uint32_t range_count, uint32_t server, struct shard_chunk **ret_chunks,
                        uint32_t *ret_count) MUST_USE;

/* A chunk of the model as shards know it. */
struct shard_chunk prepare_chunk(const struct model *model, uint32_t chunk);

/* Of the model's largest chunk. */
uint32_t prepare_weights_max(const struct model *model);

/* The settings that the spec gives every shard: slots, delay, codecs, node level, optimizer, and
 * the limits; the copies of a snapshot are those of a whole server. The caller adds kernels,
 * chunks, and the numbers that fence. */
struct shard_config prepare_config(const struct spec *spec);
/* What the copies for snapshots of one server's shards may take: the spec's memory, or `bytes_max`,
 * if that is less; 0: there is no such limit. */
uint64_t prepare_copies_bytes(const struct spec *spec, uint64_t bytes_max);
/* Copies for a snapshot of a shard, of `threads` that one server has and that divide these bytes. At
 * least 1. */
uint32_t prepare_copies(const struct spec *spec, const struct shard_config *config,
                        uint64_t bytes_max, uint32_t threads);

/* Fills in the initial values of all chunks of a new shard, before shard_start(). `chunks` are the
 * shard's. */
void prepare_initial(struct shard *shard, const struct model *model, uint64_t seed,
                     const struct shard_chunk *chunks, uint32_t count);

#endif
