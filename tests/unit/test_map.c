/* Chunk -> server, balanced by bytes. */
#include "tests/unit/unit.h"

#include "server/coordinator/map.h"

/* Four parameters: a large one of 8 chunks, and 1, 2 and 1 chunks. */
static const struct map_parameter parameters[] = {
    {0, 1, 100, 100}, {1, 8, 1000, 7500}, {9, 2, 800, 1600}, {11, 1, 50, 50}};
enum { PARAMETERS = 4, CHUNKS = 12 };

static uint64_t bytes_of(const struct map *map, uint32_t server)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < PARAMETERS; i++)
        for (uint32_t k = 0; k < parameters[i].chunk_count; k++)
            if (map_server(map, parameters[i].chunk_first + k) == server)
                bytes += k + 1 < parameters[i].chunk_count
                             ? parameters[i].chunk_bytes
                             : parameters[i].bytes - k * parameters[i].chunk_bytes;
    return bytes;
}

static struct map map_on(uint32_t servers, uint64_t parameter_bytes_max)
{
    struct map map;
    assert_int_equal(map_build(parameters, PARAMETERS, servers, parameter_bytes_max, &map), ERR_OK);
    return map;
}

TEST(one_server_owns_everything_in_one_range)
{
    scoped(map_release) struct map map = map_on(1, 1 << 20);
    assert_int_equal(map.chunk_count, CHUNKS);
    assert_int_equal(map.range_count, 1);
    assert_int_equal(map.ranges[0].count, CHUNKS);
}

TEST(ranges_cover_each_chunk_once_in_order)
{
    for (uint32_t servers = 1; servers <= 5; servers++) {
        uint32_t next = 0;
        scoped(map_release) struct map map = map_on(servers, 2000);
        for (uint32_t i = 0; i < map.range_count; i++) {
            assert_int_equal(map.ranges[i].first, next);
            assert_true(map.ranges[i].server < servers);
            assert_true(i == 0 || map.ranges[i].server != map.ranges[i - 1].server);
            next += map.ranges[i].count;
        }
        assert_int_equal(next, CHUNKS);
    }
}

TEST(a_parameters_chunks_stay_together_below_the_limit)
{
    scoped(map_release) struct map map = map_on(2, 1 << 20);
    for (uint32_t chunk = 1; chunk < 9; chunk++)
        assert_int_equal(map_server(&map, chunk), map_server(&map, 1));
    /* the large one alone, all others on the other server */
    assert_int_equal(bytes_of(&map, map_server(&map, 1)), 7500);
    assert_int_equal(bytes_of(&map, map_server(&map, 0)), 1750);
}

TEST(a_parameter_above_the_limit_is_shared)
{
    scoped(map_release) struct map map = map_on(2, 2000);
    uint64_t one = bytes_of(&map, 0), other = bytes_of(&map, 1);
    assert_int_equal(one + other, 9250);
    assert_true(one > 4000 && other > 4000);
}

TEST(the_map_is_a_function_of_its_arguments)
{
    struct map one = map_on(3, 1000), other = map_on(3, 1000);
    assert_int_equal(one.range_count, other.range_count);
    assert_memory_equal(one.ranges, other.ranges, one.range_count * sizeof *one.ranges);
    map_release(&one);
    map_release(&other);
}

TEST(more_servers_than_pieces_leave_some_without_chunks)
{
    scoped(map_release) struct map map = map_on(9, 1 << 20);
    assert_int_equal(map.range_count, PARAMETERS);
}

TEST(missing_or_repeated_chunks_are_refused)
{
    const struct map_parameter hole[] = {{0, 2, 4, 8}, {3, 1, 4, 4}};
    const struct map_parameter twice[] = {{0, 2, 4, 8}, {1, 1, 4, 4}};
    const struct map_parameter endless[] = {{0, UINT32_MAX, 4, 8}};
    struct map map;
    assert_int_equal(map_build(hole, 2, 1, 1000, &map), ERR_INVALID);
    assert_int_equal(map_build(twice, 2, 1, 1000, &map), ERR_INVALID);
    assert_int_equal(map_build(endless, 1, 1, 1000, &map), ERR_INVALID);
    assert_int_equal(map_build(NULL, 0, 1, 1000, &map), ERR_INVALID);
}

/* ---- moves ---- */

enum { EVERYTHING = 1 << 30 };

static const struct map_limits together = {1 << 20, EVERYTHING, 4};

/* Plans and moves; how many pieces moved. */
static uint32_t replan(struct map *map, const enum map_server_role *roles,
                       const struct map_limits *limits)
{
    struct map_move *moves;
    uint32_t count;
    struct map next;
    assert_int_equal(map_plan(map, parameters, PARAMETERS, roles, limits, &moves, &count), ERR_OK);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(map_server(map, moves[i].first), moves[i].from);
    assert_int_equal(map_moved(map, moves, count, &next), ERR_OK);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t c = 0; c < moves[i].count; c++)
            assert_int_equal(map_server(&next, moves[i].first + c), moves[i].to);
    map_release(map);
    *map = next;
    free(moves);
    return count;
}

TEST(what_leaves_goes_to_those_with_least)
{
    const enum map_server_role roles[] = {MAP_LEAVES, MAP_SERVES, MAP_ABSENT, MAP_SERVES};
    scoped(map_release) struct map map = map_on(1, 1 << 20);
    assert_int_equal(replan(&map, roles, &together), PARAMETERS);
    assert_int_equal(map_chunks(&map, 0) + map_chunks(&map, 2), 0);
    assert_int_equal(bytes_of(&map, 1), 7500);
    assert_int_equal(bytes_of(&map, 3), 1750);
    assert_int_equal(replan(&map, roles, &together), 0);
}

TEST(one_that_is_added_gets_an_even_share_with_few_moves)
{
    const enum map_server_role roles[] = {MAP_SERVES, MAP_SERVES};
    const struct map_limits limits = {2000, EVERYTHING, 2};
    scoped(map_release) struct map map = map_on(1, 2000);
    assert_in_range(replan(&map, roles, &limits), 1, 4);
    uint64_t one = bytes_of(&map, 0), other = bytes_of(&map, 1);
    assert_int_equal(one + other, 9250);
    assert_true(one >= 4000 && other >= 4000);
    assert_int_equal(replan(&map, roles, &limits), 0);
}

TEST(a_plan_is_bounded_and_the_next_goes_on)
{
    const enum map_server_role roles[] = {MAP_LEAVES, MAP_SERVES};
    const struct map_limits limits = {2000, 1600, 2};
    uint32_t plans = 0, moved = 0;
    scoped(map_release) struct map map = map_on(1, 2000);
    for (uint32_t count; (count = replan(&map, roles, &limits)) > 0; plans++)
        moved += count;
    assert_int_equal(moved, 7); /* pieces of the four parameters */
    assert_in_range(plans, 5, 7);
    assert_int_equal(map_chunks(&map, 1), CHUNKS);
    assert_int_equal(map.range_count, 1);
}

TEST(what_a_plan_brings_back_does_not_move)
{
    const struct map_parameter small[] = {{0, 2, 48, 96}, {2, 3, 24, 60}, {5, 1, 20, 20},
                                          {6, 1, 12, 12}, {7, 1, 16, 16}, {8, 1, 12, 12}};
    const enum map_server_role roles[] = {MAP_SERVES, MAP_SERVES, MAP_SERVES};
    const struct map_limits limits = {64, EVERYTHING, 3};
    scoped(map_release) struct map map = {0};
    struct map_move *moves;
    uint32_t count;
    assert_int_equal(map_build(small, 6, 2, 64, &map), ERR_OK);
    assert_int_equal(map_plan(&map, small, 6, roles, &limits, &moves, &count), ERR_OK);
    assert_true(count > 0);
    for (uint32_t i = 0; i < count; i++)
        assert_int_not_equal(moves[i].from, moves[i].to);
    free(moves);
}

TEST(nobody_left_to_take_them_is_an_error)
{
    const enum map_server_role roles[] = {MAP_LEAVES, MAP_ABSENT, MAP_ABSENT, MAP_ABSENT};
    struct map_move *moves;
    uint32_t count;
    scoped(map_release) struct map map = map_on(1, 1 << 20);
    assert_int_equal(map_plan(&map, parameters, PARAMETERS, roles, &together, &moves, &count),
                     ERR_INVALID);
}
