/* Chunk -> server: who owns what, balanced by bytes; and which chunks move when servers come and
 * go. Pure functions of the model and the servers, so every coordinator gets the same map.
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
uint32_t map_chunks(const struct map *map, uint32_t server);            /* how many it owns */
enum err map_copy(const struct map *map, struct map *ret_map) MUST_USE; /* ERR_NOMEM */
/* The map of these servers, one for each chunk. ERR_NOMEM. */
enum err map_of(const uint32_t *servers, uint32_t chunk_count, struct map *ret_map) MUST_USE;

/* ---- moves ---- */

/* Chunks [first, first + count), neighbours of one owner, go from one server to another. */
struct map_move {
    uint32_t first;
    uint32_t count;
    uint32_t from;
    uint32_t to;
    uint64_t bytes;
};

/* What the plan may use: by server index. */
enum map_server_role {
    MAP_ABSENT, /* no such server */
    MAP_SERVES,
    MAP_LEAVES /* all that it owns goes elsewhere */
};

struct map_limits {
    uint64_t parameter_bytes_max; /* as for map_build(): what stays together */
    uint64_t bytes_max;           /* moves of one plan, unless the first alone is larger */
    uint32_t server_count;
};

/* The next moves, fewest bytes first to what must be: what is on servers that leave goes to those
 * with least, largest pieces first; then, while it makes the largest share smaller, the best
 * fitting piece goes from the server with most to the one with least. None left: the map is as even
 * as its pieces allow. The moves, in ascending order of chunks, are the caller's to free().
 * ERR_NOMEM; ERR_INVALID: nobody serves. */
enum err map_plan(const struct map *map, const struct map_parameter *parameters,
                  uint32_t parameter_count, const enum map_server_role *roles,
                  const struct map_limits *limits, struct map_move **ret_moves,
                  uint32_t *ret_count) MUST_USE;
/* The map with the moves made, which are in ascending order of chunks. ERR_NOMEM. */
enum err map_moved(const struct map *map, const struct map_move *moves, uint32_t count,
                   struct map *ret_map) MUST_USE;

#endif
