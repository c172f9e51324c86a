/* The fixed tree: same bits for every order of arrival, nesting, bounded memory; received values in
 * slices that end anywhere. */
#include "tests/unit/unit.h"

#include "common/rand.h"
#include "server/shard/reduce.h"

#include <math.h>
#include <stdbool.h>

enum { N = 37, SLOTS_MAX = 16 };

/* A tree with everything it needs, and the slots' gradients, made of the seed. */
struct reduce_fixture {
    uint32_t slot_count, ahead_max;
    uint64_t seed;
    bool sparse; /* most values are zeros, and half of all pushes bring the others alone */
    const struct kernels *kernels;
    struct reduce reduce;
    struct reduce_buffers buffers;
    struct reduce_sum held[64];
    float *free[64];
    float slots[SLOTS_MAX][N];
    struct rand_state rand;
};

static void reduce_set_up(struct reduce_fixture *f)
{
    struct kernels_options options = {.backend = KERNELS_CPU};
    char reason[256];
    f->rand = (struct rand_state){f->seed};
    assert_true(kernels_new(&options, &f->kernels, reason, sizeof reason));
    f->reduce = (struct reduce){.slots = f->slot_count, .ahead_max = f->ahead_max, .held = f->held};
    f->buffers = (struct reduce_buffers){.n = N,
                                         .sparse = f->sparse,
                                         .uncached = f->seed % 2 == 1, /* the bits are the same */
                                         .made_max = reduce_sums_max(f->slot_count, f->ahead_max),
                                         .free = f->free};
    assert_true(f->buffers.made_max <= 64);
    for (uint32_t s = 0; s < f->slot_count; s++)
        for (uint32_t i = 0; i < N; i++) {
            /* Of very different sizes, so that another order of addition gives other bits. */
            double size = (double)(UINT64_C(1) << rand_below(&f->rand, 40));
            f->slots[s][i] = (float)((rand_unit(&f->rand) - 0.5) * size);
            if (f->sparse && rand_below(&f->rand, 4) > 0)
                f->slots[s][i] = rand_below(&f->rand, 4) > 0 ? 0.0F : -0.0F;
        }
}

static void reduce_tear_down(struct reduce_fixture *f)
{
    reduce_clear(&f->reduce, &f->buffers);
    reduce_buffers_release(&f->buffers, f->kernels);
    kernels_free(f->kernels);
}

/* Another tree, of another seed. */
static void again(struct reduce_fixture *f, uint32_t slot_count, uint32_t ahead_max, uint64_t seed)
{
    bool sparse = f->sparse;
    reduce_tear_down(f);
    *f = (struct reduce_fixture){slot_count, ahead_max, seed, sparse};
    reduce_set_up(f);
}

/* The definition: a node is the sum of its halves, a missing half is skipped. */
static void tree_sum(const struct reduce_fixture *f, struct node node, float *sum)
{
    if (node.level == 0) {
        memcpy(sum, f->slots[node.index], N * sizeof *sum);
        return;
    }
    struct node left = {node.level - 1, node.index * 2}, right = {node.level - 1, left.index + 1};
    tree_sum(f, left, sum);
    if (node_slots(right, f->reduce.slots) == 0)
        return;
    float other[N];
    tree_sum(f, right, other);
    for (uint32_t i = 0; i < N; i++)
        sum[i] = sum[i] + other[i];
}

static struct node root(const struct reduce_fixture *f)
{
    return (struct node){tree_level(f->reduce.slots), 0};
}

/* Leaves those that have a bit, as rows of one value. */
static struct reduce_rows few_of(float values[static N], uint32_t ret_rows[static N])
{
    struct reduce_rows rows = {.cols = 1, .rows = ret_rows};
    for (uint32_t i = 0; i < N; i++)
        if (values[i] != 0 || signbit(values[i]) != 0) {
            values[rows.count] = values[i];
            ret_rows[rows.count++] = i;
        }
    return rows;
}

/* Pushes the node with its right sum, in slices cut at random places. */
static enum reduce_result push(struct reduce_fixture *f, struct node node)
{
    float sum[N];
    uint32_t few[N];
    tree_sum(f, node, sum);
    bool alone = f->sparse && rand_below(&f->rand, 2) > 0;
    struct reduce_rows rows = {0};
    if (alone)
        rows = few_of(sum, few);
    size_t at = 0, bytes_all = (alone ? rows.count : N) * sizeof *sum;
    struct slice slices[8];
    for (uint32_t i = 0; i < 8; i++) {
        size_t rest = bytes_all - at;
        size_t bytes = i == 7 ? rest : rand_below(&f->rand, rest + 1);
        slices[i] = (struct slice){(const uint8_t *)sum + at, bytes};
        at += bytes;
    }
    struct cursor cursor = {slices, 8, 0, 0};
    const struct reduce_values values = {.cursor = &cursor, .rows = alone ? &rows : NULL};
    enum reduce_result result = reduce_push(&f->reduce, &f->buffers, f->kernels, node, &values);
    assert_int_equal(cursor_bytes(&cursor), result == REDUCE_COUNTED ? 0 : bytes_all);
    assert_int_equal(reduce_buffers_held(&f->reduce) + f->buffers.free_count,
                     f->buffers.made_count);
    reduce_check(&f->reduce);
    return result;
}

static void assert_whole(const struct reduce_fixture *f)
{
    float sum[N];
    tree_sum(f, root(f), sum);
    const struct reduce_sum *whole = reduce_root(&f->reduce);
    assert_non_null(whole);
    float got[N] = {0};
    if (whole->sum != NULL)
        memcpy(got, whole->sum, sizeof got);
    for (uint32_t i = 0; i < whole->sparse.count; i++)
        got[whole->sparse.rows[i]] = whole->sparse.values[i];
    assert_memory_equal(got, sum, sizeof sum);
}

static void next_permutation_from(struct reduce_fixture *f, uint32_t *order, uint32_t placed,
                                  uint32_t *ret_count)
{
    uint32_t slots = f->reduce.slots;
    if (placed == slots) {
        for (uint32_t i = 0; i < slots; i++) {
            assert_null(reduce_root(&f->reduce));
            assert_int_equal(push(f, (struct node){0, order[i]}), REDUCE_COUNTED);
        }
        assert_whole(f);
        reduce_clear(&f->reduce, &f->buffers);
        assert_int_equal(f->buffers.free_count, f->buffers.made_count);
        ++*ret_count;
        return;
    }
    for (uint32_t i = placed; i < slots; i++) {
        uint32_t slot = order[i];
        order[i] = order[placed];
        order[placed] = slot;
        next_permutation_from(f, order, placed + 1, ret_count);
        order[placed] = order[i];
        order[i] = slot;
    }
}

TEST_F(every_order_of_arrival_gives_the_same_bits, reduce, .slot_count = 1)
{
    uint32_t factorial = 1;
    for (uint32_t slots = 1; slots <= 6; slots++) {
        again(f, slots, slots, slots);
        uint32_t order[SLOTS_MAX], count = 0;
        for (uint32_t i = 0; i < slots; i++)
            order[i] = i;
        next_permutation_from(f, order, 0, &count);
        factorial *= slots;
        assert_int_equal(count, factorial);
    }
}

TEST_F(another_order_of_addition_gives_other_bits, reduce, .slot_count = 6, .ahead_max = 6,
       .seed = 1)
{ /* so the tests above can fail */
    float sum[N], running[N] = {0};
    tree_sum(f, root(f), sum);
    for (uint32_t s = 0; s < 6; s++)
        for (uint32_t i = 0; i < N; i++)
            running[i] += f->slots[s][i];
    assert_memory_not_equal(sum, running, sizeof sum);
}

static struct node any_node(struct reduce_fixture *f)
{
    for (;;) {
        struct node node;
        node.level = (uint32_t)rand_below(&f->rand, root(f).level + 1);
        node.index = (uint32_t)rand_below(&f->rand, f->reduce.slots);
        if (node_valid(node, f->reduce.slots))
            return node;
    }
}

/* Whether all slots of `node` have been pushed, as the rules say it, slot by slot. */
static bool inside(const struct reduce_fixture *f, struct node node)
{
    for (uint32_t i = 0; i < f->reduce.held_count; i++)
        if (node_first(f->reduce.held[i].node) <= node_first(node) &&
            node_end(node) <= node_end(f->reduce.held[i].node))
            return true;
    return false;
}

TEST_F(p4_nodes_that_overlap_still_count_each_slot_once, reduce, .slot_count = 1)
{
    for (uint64_t seed = 0; seed < 400; seed++) {
        again(f, (uint32_t)(1 + seed % SLOTS_MAX), SLOTS_MAX, seed);
        while (reduce_root(&f->reduce) == NULL) {
            struct node node = any_node(f);
            bool duplicate = inside(f, node);
            assert_int_equal(reduce_holds(&f->reduce, node), duplicate);
            assert_int_equal(push(f, node), duplicate ? REDUCE_DUPLICATE : REDUCE_COUNTED);
        }
        assert_whole(f);
        assert_int_equal(push(f, root(f)), REDUCE_DUPLICATE);
    }
}

TEST_F(sums_of_rows_that_come_alone_have_the_bits_of_whole_ones, reduce, .slot_count = 1,
       .sparse = true)
{
    for (uint64_t seed = 0; seed < 1000; seed++) {
        again(f, (uint32_t)(1 + seed % SLOTS_MAX), SLOTS_MAX, seed);
        while (reduce_root(&f->reduce) == NULL) {
            struct node node = any_node(f);
            bool duplicate = inside(f, node);
            assert_int_equal(push(f, node), duplicate ? REDUCE_DUPLICATE : REDUCE_COUNTED);
        }
        assert_whole(f);
    }
}

TEST_F(rows_that_come_alone_fill_no_tree_beyond_its_bound, reduce, .slot_count = 1, .sparse = true)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        uint32_t slots = (uint32_t)(1 + seed % SLOTS_MAX), ahead_max = (uint32_t)(seed % 4);
        again(f, slots, ahead_max, seed);
        while (reduce_root(&f->reduce) == NULL) /* the lowest missing one always has room */
            for (uint32_t i = 0; i < slots; i++)
                push(f, (struct node){0, (uint32_t)rand_below(&f->rand, slots)});
        assert_whole(f);
        assert_true(f->buffers.made_count <= reduce_sums_max(slots, ahead_max));
    }
}

TEST_F(p4_a_node_around_takes_the_place_of_what_is_held, reduce, .slot_count = 8, .ahead_max = 8,
       .seed = 5)
{
    assert_int_equal(push(f, (struct node){0, 0}), REDUCE_COUNTED);
    assert_int_equal(push(f, (struct node){0, 3}), REDUCE_COUNTED);
    assert_int_equal(push(f, (struct node){1, 2}), REDUCE_COUNTED);
    assert_int_equal(f->reduce.held_count, 3);
    assert_int_equal(push(f, (struct node){2, 0}), REDUCE_COUNTED);
    assert_int_equal(f->reduce.held_count, 2);
    assert_int_equal(f->buffers.free_count, 1);
    /* Around what is held, and completes a pair. */
    assert_int_equal(push(f, (struct node){2, 1}), REDUCE_COUNTED);
    assert_whole(f);
}

TEST_F(a_half_without_slots_is_skipped, reduce, .slot_count = 5, .ahead_max = 5, .seed = 6)
{
    /* slot 4 stands for (1,2) and (2,1) */
    assert_int_equal(push(f, (struct node){0, 4}), REDUCE_COUNTED);
    assert_int_equal(push(f, (struct node){1, 2}), REDUCE_DUPLICATE);
    assert_int_equal(push(f, (struct node){2, 1}), REDUCE_DUPLICATE);
    assert_int_equal(push(f, (struct node){2, 0}), REDUCE_COUNTED);
    assert_whole(f);
}

TEST_F(full_means_busy_but_not_for_pairs_and_the_lowest_missing, reduce, .slot_count = 16,
       .ahead_max = 2, .seed = 7)
{
    assert_int_equal(push(f, (struct node){0, 15}), REDUCE_COUNTED);
    assert_int_equal(push(f, (struct node){0, 12}), REDUCE_COUNTED);
    assert_int_equal(push(f, (struct node){0, 8}), REDUCE_BUSY);
    assert_int_equal(push(f, (struct node){1, 4}), REDUCE_BUSY);
    assert_int_equal(push(f, (struct node){0, 13}), REDUCE_COUNTED); /* completes a pair */
    assert_int_equal(push(f, (struct node){1, 7}), REDUCE_COUNTED);  /* around what is held */
    assert_int_equal(f->reduce.held_count, 1);                       /* (2,3) */
    assert_int_equal(push(f, (struct node){0, 5}), REDUCE_COUNTED);
    assert_int_equal(push(f, (struct node){0, 9}), REDUCE_BUSY);
    for (uint32_t slot = 0; slot < 16; slot++) /* the lowest missing, always */
        if (!reduce_holds(&f->reduce, (struct node){0, slot}))
            assert_int_equal(push(f, (struct node){0, slot}), REDUCE_COUNTED);
    assert_whole(f);
}

TEST_F(any_order_ends_within_the_bound_when_busy_ones_come_again, reduce, .slot_count = 1)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        uint32_t slots = (uint32_t)(1 + seed % SLOTS_MAX), ahead_max = (uint32_t)(seed % 4);
        again(f, slots, ahead_max, seed);
        bool progress = true;
        while (reduce_root(&f->reduce) == NULL && progress) {
            progress = false;
            uint32_t from = (uint32_t)rand_below(&f->rand, slots);
            for (uint32_t i = 0; i < slots; i++)
                progress |= push(f, (struct node){0, (from + i) % slots}) == REDUCE_COUNTED;
        }
        assert_whole(f);
        assert_true(f->buffers.made_count <= reduce_sums_max(slots, ahead_max));
    }
}

TEST_F(values_are_read_whatever_the_slices, reduce, .slot_count = 1, .ahead_max = 1, .seed = 8)
{
    uint16_t halves[N];
    float expected[N], expected_sum[N], out[N], acc[N];
    f->kernels->cast_to_bf16(f->kernels, halves, f->slots[0], N);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t bits = (uint32_t)halves[i] << 16;
        memcpy(&expected[i], &bits, sizeof bits);
        expected_sum[i] = f->slots[0][i] + expected[i];
    }
    struct slice slices[sizeof halves]; /* of 0 to 6 bytes */
    size_t count = 0;
    for (size_t at = 0; at < sizeof halves; count++) {
        size_t rest = sizeof halves - at, bytes = count % 7 < rest ? count % 7 : rest;
        slices[count] = (struct slice){(const uint8_t *)halves + at, bytes};
        at += bytes;
    }
    struct cursor cursor = {slices, count, 0, 0};
    assert_int_equal(cursor_bytes(&cursor), sizeof halves);
    cursor_copy(&cursor, f->kernels, CODEC_BF16, out, N);
    assert_memory_equal(out, expected, sizeof out);
    memcpy(acc, f->slots[0], sizeof acc);
    cursor = (struct cursor){slices, count, 0, 0};
    cursor_skip(&cursor, 2);
    cursor_add(&cursor, f->kernels, CODEC_BF16, acc + 1, N - 1);
    acc[0] = expected_sum[0];
    assert_memory_equal(acc, expected_sum, sizeof acc);
}

/* ---- some rows come, the others are zeros ---- */

enum { COLS = 5, ROWS = 9, TABLE = ROWS * COLS, COME = 3 };

/* All values of a table of which the second, third and last row come, in two slices; and what came
 * as it was put together. */
struct table {
    uint32_t rows[COME];
    struct reduce_rows which;
    uint8_t all[TABLE * sizeof(float)], come[COME * COLS * sizeof(float)];
    struct slice whole, cut[2];
    enum codec codec;
};

static void table_init(struct reduce_fixture *f, struct table *table, enum codec codec)
{
    float values[TABLE] = {0};
    size_t row_bytes = COLS * codec_bytes(codec);
    *table = (struct table){.rows = {1, 2, ROWS - 1}, .codec = codec};
    table->which = (struct reduce_rows){COLS, COME, table->rows};
    for (uint32_t i = 0; i < COME; i++)
        for (uint32_t col = 0; col < COLS; col++)
            values[table->rows[i] * COLS + col] = col == 0 ? -0.0F : f->slots[i][col];
    if (codec == CODEC_BF16)
        f->kernels->cast_to_bf16(f->kernels, table->all, values, TABLE);
    else
        memcpy(table->all, values, sizeof values);
    for (uint32_t i = 0; i < COME; i++)
        memcpy(table->come + i * row_bytes, table->all + table->rows[i] * row_bytes, row_bytes);
    table->whole = (struct slice){table->all, ROWS * row_bytes};
    table->cut[0] = (struct slice){table->come, row_bytes + 3}; /* inside a value */
    table->cut[1] = (struct slice){table->come + row_bytes + 3, (COME - 1) * row_bytes - 3};
}

/* A sum to which the table is added, or which it begins; where the sum has -0, adding 0 shows. */
static uint64_t table_sum(struct reduce_fixture *f, const struct table *table, bool rows, bool add,
                          struct digest_keyed *digest, float ret_sum[static TABLE])
{
    struct cursor cursor = {table->cut, 2, 0, 0};
    if (!rows)
        cursor = (struct cursor){&table->whole, 1, 0, 0};
    const struct reduce_values values = {&cursor, table->codec, digest,
                                         rows ? &table->which : NULL};
    float *held = f->kernels->alloc(f->kernels, TABLE * sizeof *held), *free[1] = {held};
    struct reduce_sum sums[4];
    struct reduce_buffers buffers = {.n = TABLE,
                                     .uncached = f->seed % 2 == 1,
                                     .made_max = 1,
                                     .made_count = 1,
                                     .free_count = 1,
                                     .free = free};
    struct reduce reduce = {.slots = 2, .ahead_max = 1, .held = sums};
    for (uint32_t i = 0; i < TABLE; i++)
        held[i] = i % 2 == 0 ? -0.0F : 1;
    if (add) {
        buffers.free_count = 0;
        reduce.held_count = 1;
        sums[0] = (struct reduce_sum){.node = {0, 0}, .sum = held};
    }
    assert_int_equal(
        reduce_push(&reduce, &buffers, f->kernels, (struct node){0, add ? 1 : 0}, &values),
        REDUCE_COUNTED);
    assert_int_equal(cursor_bytes(&cursor), 0);
    memcpy(ret_sum, held, TABLE * sizeof *held);
    f->kernels->free(f->kernels, held);
    return digest_keyed_finish(digest);
}

static void check_table(struct reduce_fixture *f, enum codec codec, bool add)
{
    const uint8_t key[DIGEST_KEY_BYTES] = {1};
    struct digest_keyed *digest;
    struct table table;
    float wanted[TABLE], got[TABLE];
    table_init(f, &table, codec);
    assert_int_equal(digest_keyed_new(key, &digest), ERR_OK);
    uint64_t wanted_digest = table_sum(f, &table, false, add, digest, wanted);
    assert_int_equal(table_sum(f, &table, true, add, digest, got), wanted_digest);
    assert_memory_equal(got, wanted, sizeof got);
    struct cursor cursor = {table.cut, 2, 0, 0};
    reduce_read(&(struct reduce_values){&cursor, codec, digest, &table.which}, TABLE);
    assert_int_equal(digest_keyed_finish(digest), wanted_digest);
    digest_keyed_free(digest);
}

TEST_F(rows_that_come_alone_give_the_sums_and_digests_of_all_rows, reduce, .slot_count = 4,
       .ahead_max = 1)
{
    for (uint64_t seed = 0; seed < 2; seed++) {
        again(f, 4, 1, seed);
        for (uint32_t add = 0; add < 2; add++) {
            check_table(f, CODEC_FP32, add);
            check_table(f, CODEC_BF16, add);
        }
    }
}

TEST_F(a_chunk_of_which_no_row_comes_is_zeros, reduce, .slot_count = 1, .ahead_max = 1)
{
    enum { MANY = 5000 }; /* more than are read at a time */
    static float out[MANY];
    struct cursor cursor = {0};
    const struct reduce_rows none = {.cols = 10};
    for (uint32_t i = 0; i < MANY; i++)
        out[i] = 1;
    reduce_copy(&(struct reduce_values){.cursor = &cursor, .rows = &none}, f->kernels, out, MANY);
    for (uint32_t i = 0; i < MANY; i++)
        assert_true(out[i] == 0);
}
