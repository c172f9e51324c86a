/* Chunk -> server, balanced by bytes. */
#include "server/coordinator/map.h"

#include "common/scoped.h"

#include <stdlib.h>
#include <string.h>

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

/* Adds the range behind the others; it becomes one with the last range when both have the same
 * server. */
static uint32_t add_range(struct chunk_range *ranges, uint32_t count, struct chunk_range range)
{
    if (count > 0 && ranges[count - 1].server == range.server) {
        ranges[count - 1].count += range.count;
        return count;
    }
    ranges[count] = range;
    return count + 1;
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
    for (uint32_t i = 0; i < piece_count; i++)
        range_count =
            add_range(ranges, range_count,
                      (struct chunk_range){pieces[i].first, pieces[i].count, pieces[i].server});
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

uint32_t map_chunks(const struct map *map, uint32_t server)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < map->range_count; i++)
        count += map->ranges[i].server == server ? map->ranges[i].count : 0;
    return count;
}

enum err map_copy(const struct map *map, struct map *ret_map)
{
    struct chunk_range *ranges = calloc(map->range_count + 1, sizeof *ranges);
    if (ranges == NULL)
        return ERR_NOMEM;
    memcpy(ranges, map->ranges, map->range_count * sizeof *ranges);
    *ret_map = (struct map){map->chunk_count, map->range_count, ranges};
    return ERR_OK;
}

enum err map_of(const uint32_t *servers, uint32_t chunk_count, struct map *ret_map)
{
    struct chunk_range *ranges = calloc(chunk_count + 1, sizeof *ranges);
    uint32_t range_count = 0;
    if (ranges == NULL)
        return ERR_NOMEM;
    for (uint32_t c = 0; c < chunk_count; c++)
        range_count = add_range(ranges, range_count, (struct chunk_range){c, 1, servers[c]});
    *ret_map = (struct map){chunk_count, range_count, ranges};
    return ERR_OK;
}

/* ---- moves ---- */

struct plan {
    struct piece *pieces; /* with the server that has them, or will have them */
    uint32_t piece_count;
    const enum map_server_role *roles;
    uint32_t server_count;
    uint64_t load[WIRE_SERVERS_MAX];
    uint64_t bytes_max, bytes;
    struct map_move *moves;
    uint32_t move_count, move_max;
};

/* The pieces of the model, where the map has them: it was built of them. */
static void find_pieces(struct plan *plan, const struct map *map)
{
    for (uint32_t i = 0; i < plan->piece_count; i++) {
        struct piece *piece = &plan->pieces[i];
        piece->server = map_server(map, piece->first);
        plan->load[piece->server] += piece->bytes;
    }
}

/* The serving server with least, or most; of equals the one of lowest number. */
static uint32_t extreme(const struct plan *plan, bool most)
{
    uint32_t found = WIRE_SERVERS_MAX;
    for (uint32_t i = 0; i < plan->server_count; i++) {
        if (plan->roles[i] != MAP_SERVES)
            continue;
        if (found == WIRE_SERVERS_MAX ||
            (most ? plan->load[i] > plan->load[found] : plan->load[i] < plan->load[found]))
            found = i;
    }
    return found;
}

/* False: this plan is full. */
static bool move_piece(struct plan *plan, struct piece *piece, uint32_t to)
{
    if (plan->move_count == plan->move_max ||
        (plan->move_count > 0 && piece->bytes > plan->bytes_max - plan->bytes))
        return false;
    plan->moves[plan->move_count++] = (struct map_move){
        .first = piece->first,
        .count = piece->count,
        .from = piece->server,
        .to = to,
        .bytes = piece->bytes,
    };
    plan->bytes =
        piece->bytes < plan->bytes_max - plan->bytes ? plan->bytes + piece->bytes : plan->bytes_max;
    check(plan->load[piece->server] >= piece->bytes);
    check(plan->roles[to] == MAP_SERVES);
    plan->load[piece->server] -= piece->bytes;
    plan->load[to] += piece->bytes;
    piece->server = to;
    return true;
}

/* Pieces are sorted by bytes, largest first. False: the plan is full. */
static bool plan_leavers(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->piece_count; i++)
        if (plan->roles[plan->pieces[i].server] == MAP_LEAVES &&
            !move_piece(plan, &plan->pieces[i], extreme(plan, false)))
            return false;
    return true;
}

/* The piece of `from` whose move brings it and a server with `gap` less closest together: the
 * largest of at most half the gap, else the smallest of less than the gap. NULL: none. */
static struct piece *best_piece(const struct plan *plan, uint32_t from, uint64_t gap)
{
    struct piece *best = NULL;
    for (uint32_t i = 0; i < plan->piece_count; i++) {
        struct piece *piece = &plan->pieces[i];
        if (piece->server != from || piece->bytes == 0 || piece->bytes >= gap)
            continue;
        best = piece;
        if (piece->bytes <= gap / 2)
            break;
    }
    return best;
}

static void plan_even(struct plan *plan)
{
    for (;;) {
        uint32_t most = extreme(plan, true), least = extreme(plan, false);
        struct piece *piece = best_piece(plan, most, plan->load[most] - plan->load[least]);
        if (piece == NULL || !move_piece(plan, piece, least))
            return;
    }
}

static int by_first(const void *a, const void *b)
{
    const struct map_move *one = a, *other = b;
    return one->first < other->first ? -1 : 1;
}

/* Makes two moves of a piece in one plan a single one, or none when the piece comes back. */
static void merge_moves(struct plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->move_count; i++) {
        uint32_t k = 0;
        while (k < count && plan->moves[k].first != plan->moves[i].first)
            k++;
        if (k == count)
            plan->moves[count++] = plan->moves[i];
        else
            plan->moves[k].to = plan->moves[i].to;
    }
    plan->move_count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (plan->moves[i].to != plan->moves[i].from)
            plan->moves[plan->move_count++] = plan->moves[i];
    count = plan->move_count;
    qsort(plan->moves, count, sizeof *plan->moves, by_first);
}

enum err map_plan(const struct map *map, const struct map_parameter *parameters,
                  uint32_t parameter_count, const enum map_server_role *roles,
                  const struct map_limits *limits, struct map_move **ret_moves, uint32_t *ret_count)
{
    check(limits->server_count <= WIRE_SERVERS_MAX);
    struct plan plan = {
        .roles = roles, .server_count = limits->server_count, .bytes_max = limits->bytes_max};
    if (extreme(&plan, false) == WIRE_SERVERS_MAX)
        return ERR_INVALID;
    scoped(free_scoped) struct piece *pieces = calloc(map->chunk_count, sizeof *pieces);
    plan.move_max = 2 * map->chunk_count;
    plan.moves = calloc(plan.move_max, sizeof *plan.moves);
    if (pieces == NULL || plan.moves == NULL) {
        free(plan.moves);
        return ERR_NOMEM;
    }
    plan.pieces = pieces;
    plan.piece_count = cut_pieces(parameters, parameter_count, limits->parameter_bytes_max, pieces);
    find_pieces(&plan, map);
    qsort(pieces, plan.piece_count, sizeof *pieces, by_bytes);
    if (plan_leavers(&plan))
        plan_even(&plan);
    merge_moves(&plan);
    *ret_moves = plan.moves;
    *ret_count = plan.move_count;
    return ERR_OK;
}

enum err map_moved(const struct map *map, const struct map_move *moves, uint32_t count,
                   struct map *ret_map)
{
    struct chunk_range *ranges = calloc((size_t)map->range_count + 2 * count + 1, sizeof *ranges);
    if (ranges == NULL)
        return ERR_NOMEM;
    uint32_t range_count = 0, move = 0, chunk = 0;
    for (uint32_t i = 0; i < map->range_count; i++) {
        uint32_t end = map->ranges[i].first + map->ranges[i].count;
        while (chunk < end) {
            while (move < count && moves[move].first + moves[move].count <= chunk)
                move++;
            bool moved = move < count && moves[move].first <= chunk;
            check(!moved || moves[move].from == map->ranges[i].server);
            uint32_t next = end;
            if (moved && moves[move].first + moves[move].count < end)
                next = moves[move].first + moves[move].count;
            else if (!moved && move < count && moves[move].first < end)
                next = moves[move].first;
            uint32_t server = moved ? moves[move].to : map->ranges[i].server;
            range_count =
                add_range(ranges, range_count, (struct chunk_range){chunk, next - chunk, server});
            chunk = next;
        }
    }
    check(chunk == map->chunk_count);
    *ret_map = (struct map){map->chunk_count, range_count, ranges};
    return ERR_OK;
}
