/* Memory of one request. */
#include "tests/unit/unit.h"

#include "common/arena.h"

TEST(pieces_are_aligned_and_apart)
{
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    uint8_t *before = arena_take(&arena, 1);
    for (size_t bytes = 1; bytes < 3000; bytes += 37) {
        uint8_t *piece = arena_take(&arena, bytes);
        assert_non_null(piece);
        assert_int_equal((uintptr_t)piece % 16, 0);
        memset(piece, 0xaa, bytes);
        assert_int_equal(*before, before == piece ? 0xaa : *before);
    }
}

TEST(the_cap_counts_every_piece)
{
    struct arena arena = {.bytes_max = 64};
    assert_non_null(arena_take(&arena, 33)); /* takes 48 */
    assert_null(arena_take(&arena, 17));
    assert_non_null(arena_take(&arena, 16));
    assert_null(arena_take(&arena, 1));
    arena_release(&arena);
    assert_non_null(arena_take(&arena, 64));
    arena_release(&arena);
}

TEST(a_piece_larger_than_a_block_is_given)
{
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 24};
    uint8_t *large = arena_take(&arena, 1 << 20);
    assert_non_null(large);
    memset(large, 1, 1 << 20);
    uint8_t *small = arena_take(&arena, 8);
    memset(small, 2, 8);
    assert_int_equal(large[(1 << 20) - 1], 1);
}

TEST(arrays_are_zeroed_and_their_size_is_checked)
{
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 16};
    memset(arena.first, 0xff, sizeof arena.first);
    uint32_t *array = arena_array(&arena, 100, sizeof *array);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(array[i], 0);
    assert_null(arena_array(&arena, SIZE_MAX / 2, 3));
    assert_null(arena_take(&arena, SIZE_MAX));
}
