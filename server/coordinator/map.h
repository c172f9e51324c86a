/* Chunk -> server: who owns what, balanced by bytes. A pure function of the model and the number of
 * servers, so every coordinator that computes it gets the same map.
 *
 * A parameter's chunks live on one server unless the parameter exceeds `parameter_bytes_max`; then
 * it is cut into runs of chunks of at most that size. Largest first, each to the server that has
 * least (Graham's longest-processing-time rule: at most 4/3 of the best possible share). */
#ifndef ROOST_SERVER_COORDINATOR_MAP_H
#define ROOST_SERVER_COORDINATOR_MAP_H

#include "common/err.h"
#include "proto/wire.h"

/* One parameter: its chunks are [chunk_first, chunk_first + chunk_count). */
struct map_parameter {
    uint32_t chunk_first;
    uint32_t chunk_count;
    uint64_t chunk_bytes; /* of each chunk; the last one may be smaller */
    uint64_t bytes;       /* of all */
};

struct map {
    uint32_t chunk_count;
    uint32_t range_count;
    struct chunk_range *ranges; /* ascending, without gaps, neighbours on different servers */
};

/* The map of `parameters`, in ascending chunk order, over `server_count` servers (at least 1).
 * ERR_NOMEM; ERR_INVALID: chunks are missing or named twice. */
enum err map_build(const struct map_parameter *parameters, uint32_t parameter_count,
                   uint32_t server_count, uint64_t parameter_bytes_max,
                   struct map *ret_map) MUST_USE;
void map_release(struct map *map);

/* The server (index) of a chunk below chunk_count. */
uint32_t map_server(const struct map *map, uint32_t chunk);

#endif
