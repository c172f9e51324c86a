/* Values out of slices that end anywhere. */
#include "tests/unit/unit.h"

#include "common/cursor.h"
#include "common/rand.h"

enum { BYTES = 96, SLICES_MAX = BYTES + 8 };

/* 0, 1, 2 … cut at random places; empty slices are among them. */
static size_t cut(uint64_t seed, const uint8_t *bytes, struct slice *ret_slices)
{
    struct rand_state state = {seed};
    size_t count = 0;
    for (size_t at = 0; at < BYTES;) {
        size_t here = count >= BYTES / 2 ? BYTES : (size_t)rand_below(&state, 12);
        here = here < BYTES - at ? here : BYTES - at;
        ret_slices[count++] = (struct slice){bytes + at, here};
        at += here;
    }
    ret_slices[count++] = (struct slice){bytes, 0};
    return count;
}

static void check_size(uint64_t seed, size_t size, size_t skip)
{
    uint8_t bytes[BYTES], value[8], got[BYTES];
    struct slice slices[SLICES_MAX];
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)i;
    struct cursor cursor = {slices, cut(seed, bytes, slices), 0, 0};
    assert_int_equal(cursor_bytes(&cursor), BYTES);
    cursor_skip(&cursor, skip);
    size_t wanted = (BYTES - skip) / size, done = 0;
    while (done < wanted) {
        const uint8_t *values;
        size_t count = cursor_values(&cursor, size, wanted - done, value, &values);
        assert_in_range(count, 1, wanted - done);
        memcpy(got + done * size, values, count * size);
        done += count;
        assert_int_equal(cursor_bytes(&cursor), BYTES - skip - done * size);
    }
    assert_memory_equal(got, bytes + skip, wanted * size);
}

TEST(values_come_in_order_whatever_the_slices)
{
    for (uint64_t seed = 0; seed < 300; seed++)
        for (size_t size = 1; size <= 8; size *= 2)
            for (size_t skip = 0; skip < 5; skip++)
                check_size(seed, size, skip);
}

TEST(values_that_lie_together_come_together)
{
    const uint8_t bytes[16] = {0};
    uint8_t value[8];
    const uint8_t *values;
    const struct slice slices[] = {{bytes, 0}, {bytes, 11}, {bytes + 11, 5}};
    struct cursor cursor = {slices, 3, 0, 0};
    assert_int_equal(cursor_values(&cursor, 4, 4, value, &values), 2);
    assert_ptr_equal(values, bytes);
    assert_int_equal(cursor_values(&cursor, 4, 2, value, &values), 1);
    assert_ptr_equal(values, value);
    assert_int_equal(cursor_values(&cursor, 4, 1, value, &values), 1);
    assert_ptr_equal(values, bytes + 12);
    assert_int_equal(cursor_bytes(&cursor), 0);
}

TEST(nothing_is_left_of_nothing)
{
    struct cursor none = {0};
    assert_int_equal(cursor_bytes(&none), 0);
    cursor_skip(&none, 0);
}
