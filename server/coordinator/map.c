/* Chunk -> server, balanced by bytes. */
#include "server/coordinator/map.h"

#include "common/scoped.h"

#include <stdlib.h>

/* Chunks that stay together: a parameter, or a run of a large one's chunks. */
struct piece {
    uint32_t first;
    uint32_t count;
    uint32_t server;
    uint64_t bytes;
};

/* Chunks a piece of this parameter may have. */
static uint32_t piece_chunks(const struct map_parameter *parameter, uint64_t parameter_bytes_max)
{
    if (parameter->bytes <= parameter_bytes_max || parameter->chunk_bytes == 0)
        return parameter->chunk_count;
    uint64_t count = parameter_bytes_max / parameter->chunk_bytes;
    return count > 0 ? (uint32_t)count : 1;
}

/* Ascending, without gaps, from chunk 0 on. */
static bool parameters_valid(const struct map_parameter *parameters, uint32_t parameter_count,
                             uint32_t *ret_chunk_count)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < parameter_count; i++) {
        if (parameters[i].chunk_first != next || parameters[i].chunk_count == 0 ||
            parameters[i].chunk_count > WIRE_CHUNKS_MAX - next)
            return false;
        next += parameters[i].chunk_count;
    }
    *ret_chunk_count = next;
    return next > 0;
}

static uint32_t cut_pieces(const struct map_parameter *parameters, uint32_t parameter_count,
                           uint64_t parameter_bytes_max, struct piece *ret_pieces)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < parameter_count; i++) {
        const struct map_parameter *parameter = &parameters[i];
        uint32_t length = piece_chunks(parameter, parameter_bytes_max);
        uint64_t left = parameter->bytes;
        for (uint32_t done = 0; done < parameter->chunk_count; done += length) {
            bool last = parameter->chunk_count - done <= length;
            uint64_t bytes = last ? left : length * parameter->chunk_bytes;
            bytes = bytes < left ? bytes : left;
            ret_pieces[count++] = (struct piece){
                .first = parameter->chunk_first + done,
                .count = last ? parameter->chunk_count - done : length,
                .bytes = bytes,
            };
            left -= bytes;
        }
    }
    return count;
}

static int by_bytes(const void *a, const void *b)
{
    const struct piece *one = a, *other = b;
    if (one->bytes != other->bytes)
        return one->bytes > other->bytes ? -1 : 1;
    return one->first < other->first ? -1 : 1;
}

static int by_chunk(const void *a, const void *b)
{
    const struct piece *one = a, *other = b;
    return one->first < other->first ? -1 : 1;
}

/* Largest first, each to the server with least; of equals to the one of lowest number. */
static void place(struct piece *pieces, uint32_t piece_count, uint32_t server_count)
{
    uint64_t bytes[WIRE_SERVERS_MAX] = {0};
    qsort(pieces, piece_count, sizeof *pieces, by_bytes);
    for (uint32_t i = 0; i < piece_count; i++) {
        uint32_t least = 0;
        for (uint32_t server = 1; server < server_count; server++)
            if (bytes[server] < bytes[least])
                least = server;
        pieces[i].server = least;
        bytes[least] += pieces[i].bytes;
    }
    qsort(pieces, piece_count, sizeof *pieces, by_chunk);
}

enum err map_build(const struct map_parameter *parameters, uint32_t parameter_count,
                   uint32_t server_count, uint64_t parameter_bytes_max, struct map *ret_map)
{
    check(server_count >= 1);
    check(server_count <= WIRE_SERVERS_MAX);
    uint32_t chunk_count;
    if (!parameters_valid(parameters, parameter_count, &chunk_count))
        return ERR_INVALID;
    scoped(free_scoped) struct piece *pieces = calloc(chunk_count, sizeof *pieces);
    struct chunk_range *ranges = calloc(chunk_count, sizeof *ranges);
    if (pieces == NULL || ranges == NULL) {
        free(ranges);
        return ERR_NOMEM;
    }
    uint32_t piece_count = cut_pieces(parameters, parameter_count, parameter_bytes_max, pieces);
    place(pieces, piece_count, server_count);
    uint32_t range_count = 0;
    for (uint32_t i = 0; i < piece_count; i++) {
        if (range_count > 0 && ranges[range_count - 1].server == pieces[i].server)
            ranges[range_count - 1].count += pieces[i].count;
        else
            ranges[range_count++] =
                (struct chunk_range){pieces[i].first, pieces[i].count, pieces[i].server};
    }
    *ret_map = (struct map){chunk_count, range_count, ranges};
    return ERR_OK;
}

void map_release(struct map *map)
{
    free(map->ranges);
    *map = (struct map){0};
}

uint32_t map_server(const struct map *map, uint32_t chunk)
{
    check(chunk < map->chunk_count);
    uint32_t low = 0, high = map->range_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (map->ranges[middle].first <= chunk)
            low = middle;
        else
            high = middle;
    }
    return map->ranges[low].server;
}
