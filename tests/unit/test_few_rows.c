/* A gradient of which few rows are not zeros, by itself; test_executor_few.c has it in an executor. */
#include "tests/unit/unit.h"

#include "common/scoped.h"
#include "worker/few_rows.h"

enum { ROWS = 40, COLS = 3, MAX = 4 };

struct few_fixture {
    const struct kernels *k;
    struct few_rows few, other;
    void *memory;
};

static void few_set_up(struct few_fixture *f)
{
    struct carve carve = {0};
    char why[256];
    if (!kernels_new(&(struct kernels_options){.gemm_core = "auto"}, &f->k, why, sizeof why))
        fail_msg("%s", why);
    f->few = f->other = (struct few_rows){.rows = ROWS, .cols = COLS, .max = MAX};
    f->memory = aligned_alloc(CARVE_ALIGNMENT, 2 * few_rows_bytes(&f->few));
    assert_non_null(f->memory);
    memset(f->memory, 0x5a, 2 * few_rows_bytes(&f->few));
    carve.base = f->memory;
    few_rows_carve(&f->few, &carve);
    few_rows_carve(&f->other, &carve);
    assert_int_equal(carve.bytes, 2 * few_rows_bytes(&f->few));
    few_rows_init(&f->few);
    few_rows_init(&f->other);
}

static void few_tear_down(struct few_fixture *f)
{
    few_rows_release(&f->few);
    few_rows_release(&f->other);
    free(f->memory);
    kernels_free(f->k);
}

/* Adds 1 to the first column of each row, as often as it is named. */
static void count_rows(struct few_rows *few, const int32_t *rows, int64_t count)
{
    const int32_t *places = few_rows_places(few, rows, count);
    for (int64_t i = 0; i < count; i++)
        few->values[places[i] * COLS] += 1;
}

static void check_whole(struct few_rows *few, const float wanted[static ROWS])
{
    const float *whole = few_rows_whole(few);
    for (uint32_t i = 0; i < ROWS * COLS; i++)
        assert_true(whole[i] == (i % COLS == 0 ? wanted[i / COLS] : 0));
}

TEST_F(a_row_has_one_place_and_begins_as_zeros, few)
{
    count_rows(&f->few, (const int32_t[]){39, 0, 39}, 3);
    count_rows(&f->few, (const int32_t[]){7, 39, 0, 39}, 4);
    assert_int_equal(f->few.count, 3);
    check_whole(&f->few, (const float[ROWS]){[0] = 2, [7] = 1, [39] = 4});
}

TEST_F(what_is_cleared_is_zeros_and_has_room_again, few)
{
    check_whole(&f->few, (const float[ROWS]){0});
    count_rows(&f->few, (const int32_t[]){1, 2, 3, 4}, 4);
    few_rows_clear(&f->few);
    check_whole(&f->few, (const float[ROWS]){0});
    count_rows(&f->few, (const int32_t[]){5, 4, 7, 8}, 4);
    check_whole(&f->few, (const float[ROWS]){[4] = 1, [5] = 1, [7] = 1, [8] = 1});
}

TEST_F(a_sum_has_the_rows_of_both, few)
{
    count_rows(&f->few, (const int32_t[]){9, 3, 3}, 3);
    count_rows(&f->other, (const int32_t[]){3, 20, 9, 9}, 4);
    few_rows_add(&f->few, &f->other, f->k);
    check_whole(&f->few, (const float[ROWS]){[3] = 3, [9] = 3, [20] = 1});
    check_whole(&f->other, (const float[ROWS]){[3] = 1, [9] = 2, [20] = 1});
}
