/* Held sums are a short sorted list. A push finds its place in it, its other half, or the sums that
 * it replaces. */
#include "server/shard/reduce.h"

#include <string.h>

/* ---- received bytes ---- */

static void copy_f32(const struct kernels *kernels, float *out, const void *bytes, int64_t n)
{
    (void)kernels;
    memcpy(out, bytes, (size_t)n * sizeof *out);
}

static void copy_f32_uncached(const struct kernels *kernels, float *out, const void *bytes,
                              int64_t n)
{
    kernels->copy_in_uncached(kernels, out, bytes, (size_t)n * sizeof *out);
}

typedef void values_fn(const struct kernels *kernels, float *out, const void *bytes, int64_t n);

/* What is read twice, for the sum and for the digest, is copied before, in runs that stay in the
 * smallest cache: who sent it may still change it (rpc_message), and what is added and what the digest
 * is of are the same bytes. */
enum { DIGEST_RUN_VALUES = 2048 };

static const uint8_t *copy_run(const uint8_t *values, size_t bytes,
                               uint8_t ret_run[static DIGEST_RUN_VALUES * sizeof(float)])
{
    memcpy(ret_run, values, bytes);
    return ret_run;
}

/* NULL: nobody wants the values. */
static float *behind(float *out, uint32_t n)
{
    return out == NULL ? NULL : out + n;
}

/* The next n values, as they come. */
static void use_next(const struct reduce_values *from, const struct kernels *kernels,
                     values_fn *use, float *out, uint32_t n)
{
    size_t size = codec_bytes(from->codec);
    while (n > 0) {
        uint8_t value[8];
        _Alignas(64) uint8_t run_bytes[DIGEST_RUN_VALUES * sizeof(float)];
        const uint8_t *values;
        uint32_t run_max = from->digest != NULL && n > DIGEST_RUN_VALUES ? DIGEST_RUN_VALUES : n;
        size_t run = cursor_values(from->cursor, size, run_max, value, &values);
        if (from->digest != NULL)
            values = copy_run(values, run * size, run_bytes);
        use(kernels, out, values, (int64_t)run);
        if (from->digest != NULL)
            digest_keyed_add(from->digest, (struct slice){values, run * size});
        out = behind(out, (uint32_t)run);
        n -= (uint32_t)run;
    }
}

static const uint8_t zeros[DIGEST_RUN_VALUES * sizeof(float)];

/* n values that did not come. A sum to which zeros are added is not what it was where it is -0. */
static void use_zeros(const struct reduce_values *from, const struct kernels *kernels,
                      values_fn *use, float *out, uint32_t n)
{
    struct slice slice = {zeros, sizeof zeros};
    struct cursor cursor = {.slices = &slice, .slice_count = 1};
    struct reduce_values run = {&cursor, from->codec, from->digest, NULL};
    while (n > 0) {
        uint32_t count = n < DIGEST_RUN_VALUES ? n : DIGEST_RUN_VALUES;
        cursor.offset = 0;
        use_next(&run, kernels, use, out, count);
        out = behind(out, count);
        n -= count;
    }
}

/* Gives the n values to `use`, in runs that lie together. */
static void use_values(const struct reduce_values *from, const struct kernels *kernels,
                       values_fn *use, float *out, uint32_t n)
{
    const struct reduce_rows *rows = from->rows;
    if (rows == NULL) {
        use_next(from, kernels, use, out, n);
        return;
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        check(rows->rows[i] < n / rows->cols); /* who received them has judged them */
        uint32_t first = rows->rows[i] * rows->cols;
        check(at <= first);
        use_zeros(from, kernels, use, behind(out, at), first - at);
        use_next(from, kernels, use, behind(out, first), rows->cols);
        at = first + rows->cols;
    }
    use_zeros(from, kernels, use, behind(out, at), n - at);
}

void reduce_copy(const struct reduce_values *from, const struct kernels *kernels, float *out,
                 uint32_t n)
{
    use_values(from, kernels, from->codec == CODEC_BF16 ? kernels->cast_from_bf16 : copy_f32, out,
               n);
}

static void add_values(const struct reduce_values *from, const struct kernels *kernels, float *acc,
                       uint32_t n)
{
    use_values(from, kernels, from->codec == CODEC_BF16 ? kernels->add_bf16 : kernels->add_f32, acc,
               n);
}

static void leave(const struct kernels *kernels, float *out, const void *bytes, int64_t n)
{
    (void)kernels, (void)out, (void)bytes, (void)n;
}

void reduce_read(const struct reduce_values *values, uint32_t n)
{
    use_values(values, NULL, leave, NULL, n);
}

/* The rows that come. */
static void read_rows(const struct reduce_values *from, const struct kernels *kernels, uint32_t n,
                      struct sparse *ret_sparse)
{
    const struct reduce_rows *rows = from->rows;
    values_fn *use = from->codec == CODEC_BF16 ? kernels->cast_from_bf16 : copy_f32;
    uint32_t at = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        uint32_t first = rows->rows[i] * rows->cols;
        if (from->digest != NULL)
            use_zeros(from, kernels, leave, NULL, first - at);
        use_next(from, kernels, use, ret_sparse->values + (size_t)i * rows->cols, rows->cols);
        ret_sparse->rows[i] = rows->rows[i];
        at = first + rows->cols;
    }
    if (from->digest != NULL)
        use_zeros(from, kernels, leave, NULL, n - at);
    ret_sparse->count = rows->count;
}

void cursor_copy(struct cursor *cursor, const struct kernels *kernels, enum codec codec, float *out,
                 uint32_t n)
{
    reduce_copy(&(struct reduce_values){.cursor = cursor, .codec = codec}, kernels, out, n);
}

void cursor_add(struct cursor *cursor, const struct kernels *kernels, enum codec codec, float *acc,
                uint32_t n)
{
    add_values(&(struct reduce_values){.cursor = cursor, .codec = codec}, kernels, acc, n);
}

/* ---- buffers ---- */

static float *buffers_take(struct reduce_buffers *buffers, const struct kernels *kernels)
{
    if (buffers->free_count > 0)
        return buffers->free[--buffers->free_count];
    check(buffers->made_count < buffers->made_max);
    float *sum = kernels->alloc(kernels, (size_t)buffers->n * sizeof *sum);
    if (sum != NULL)
        buffers->made_count++;
    return sum;
}

/* Gives back what the sum lies in. */
static void give_back(struct reduce_buffers *buffers, struct reduce_sum *sum)
{
    sparse_release(&sum->sparse);
    if (sum->sum == NULL)
        return;
    check(buffers->free_count < buffers->made_count);
    buffers->free[buffers->free_count++] = sum->sum;
    sum->sum = NULL;
}

void reduce_buffers_release(struct reduce_buffers *buffers, const struct kernels *kernels)
{
    check(buffers->free_count == buffers->made_count);
    for (uint32_t i = 0; i < buffers->free_count; i++)
        kernels->free(kernels, buffers->free[i]);
    buffers->free_count = buffers->made_count = 0;
}

/* ---- the tree ---- */

uint32_t reduce_sums_max(uint32_t slots, uint32_t ahead_max)
{
    uint32_t level = tree_level(slots);
    return ahead_max + (level > 0 ? level : 1);
}

/* The largest node with the same slots: a node whose other half has none stands for its parent. */
static struct node widest(struct node node, uint32_t slots)
{
    while (node.level < tree_level(slots) && node_slots(node_sibling(node), slots) == 0)
        node = node_parent(node);
    return node;
}

/* Index of the first held sum that does not end at or before `slot`. */
static uint32_t position(const struct reduce *reduce, uint32_t slot)
{
    uint32_t i = 0;
    while (i < reduce->held_count && node_end(reduce->held[i].node) <= slot)
        i++;
    return i;
}

/* How many held sums make the unbroken run from slot 0, and the first slot behind it. */
static uint32_t unbroken(const struct reduce *reduce, uint32_t *ret_missing)
{
    uint32_t i = 0, slot = 0;
    while (i < reduce->held_count && node_first(reduce->held[i].node) == slot)
        slot = node_end(reduce->held[i++].node);
    *ret_missing = slot;
    return i;
}

bool reduce_holds(const struct reduce *reduce, struct node node)
{
    uint32_t i = position(reduce, node_first(node));
    return i < reduce->held_count && node_contains(reduce->held[i].node, node);
}

/* Whether there is a buffer for a node that needs one of its own. */
static bool may_open(const struct reduce *reduce, struct node node)
{
    uint32_t missing;
    uint32_t run = unbroken(reduce, &missing);
    if (node_first(node) <= missing && missing < node_end(node))
        return true;
    return reduce->held_count - run < reduce->ahead_max;
}

static void remove_held(struct reduce *reduce, uint32_t i, uint32_t count)
{
    memmove(&reduce->held[i], &reduce->held[i + count],
            (reduce->held_count - i - count) * sizeof *reduce->held);
    reduce->held_count -= count;
}

/* Index of the other half of held[i]'s place in the tree, or held_count. */
static uint32_t other_half(const struct reduce *reduce, uint32_t i, struct node node)
{
    struct node other = node_sibling(node);
    uint32_t j = node.index % 2 == 1 ? i - 1 : i + 1;
    return j < reduce->held_count && node_equal(reduce->held[j].node, other) ? j
                                                                             : reduce->held_count;
}

/* sum += other, which is given back. Of two that are sparse the first has room. */
static void add_sum(struct reduce_buffers *buffers, const struct kernels *kernels,
                    struct reduce_sum *sum, struct reduce_sum *other)
{
    if (sum->sum == NULL && other->sum == NULL) {
        sparse_merge(&sum->sparse, &other->sparse, kernels);
    } else if (sum->sum != NULL && other->sum != NULL) {
        kernels->add(kernels, sum->sum, sum->sum, other->sum, buffers->n);
    } else {
        const struct sparse *sparse = sum->sum == NULL ? &sum->sparse : &other->sparse;
        float *whole = sum->sum == NULL ? other->sum : sum->sum;
        sparse_add_to(sparse, kernels, whole, buffers->n);
        if (sum->sum == NULL)
            other->sum = NULL;
        sum->sum = whole;
        sparse_release(&sum->sparse);
    }
    give_back(buffers, other);
}

/* Adds pairs upwards from held[i], which is the newest, as long as both halves are there. */
static void fold(struct reduce *reduce, struct reduce_buffers *buffers,
                 const struct kernels *kernels, uint32_t i)
{
    for (;;) {
        struct reduce_sum *sum = &reduce->held[i];
        sum->node = widest(sum->node, reduce->slots);
        if (sum->node.level == tree_level(reduce->slots))
            return;
        uint32_t j = other_half(reduce, i, sum->node);
        if (j == reduce->held_count)
            return;
        add_sum(buffers, kernels, sum, &reduce->held[j]);
        i = i < j ? i : j;
        reduce->held[i] = *sum;
        reduce->held[i].node = node_parent(sum->node);
        remove_held(reduce, i + 1, 1);
    }
}

/* held[i] is `sum`, in place of the `inside` sums there. */
static void put_sum(struct reduce *reduce, struct reduce_buffers *buffers, uint32_t i,
                    uint32_t inside, const struct reduce_sum *sum)
{
    for (uint32_t j = 0; j < inside; j++)
        give_back(buffers, &reduce->held[i + j]);
    memmove(&reduce->held[i + 1], &reduce->held[i + inside],
            (reduce->held_count - i - inside) * sizeof *reduce->held);
    reduce->held_count += 1 - inside;
    reduce->held[i] = *sum;
}

/* ---- a push ---- */

/* Where a node goes. */
struct insertion {
    uint32_t i, inside; /* in place of so many held sums at i */
    uint32_t half;      /* the held sum that is its other half; held_count: there is none */
};

static struct insertion insertion_of(const struct reduce *reduce, struct node node)
{
    uint32_t i = position(reduce, node_first(node));
    uint32_t inside = 0;
    while (i + inside < reduce->held_count && node_contains(node, reduce->held[i + inside].node))
        inside++;
    /* The other half is just before or just behind the sums that the node replaces. */
    uint32_t before = i - 1, behind = i + inside; /* before wraps around: then nothing is there */
    uint32_t half = node.index % 2 == 1 ? before : behind;
    bool there = node.level < tree_level(reduce->slots) && half < reduce->held_count &&
                 node_equal(reduce->held[half].node, node_sibling(node));
    return (struct insertion){i, inside, there ? half : reduce->held_count};
}

static void read_whole(const struct reduce_buffers *buffers, const struct kernels *kernels,
                       const struct reduce_values *values, float *out)
{
    if (buffers->uncached && values->codec == CODEC_FP32 && kernels->copy_in_uncached != NULL)
        use_values(values, kernels, copy_f32_uncached, out, buffers->n);
    else
        reduce_copy(values, kernels, out, buffers->n);
}

/* Rows that the sum may have in the end: its own, and those of all that may be added to it. */
static size_t rows_max(const struct reduce *reduce, const struct reduce_values *values)
{
    size_t count = values->rows->count;
    for (uint32_t i = 0; i < reduce->held_count; i++)
        count += reduce->held[i].sparse.count;
    return count;
}

/* A sum of the values, read into a buffer, one of those in its place where there is one, or into rows.
 * False: there is no memory now, and nothing was read. */
static bool read_sum(struct reduce *reduce, struct reduce_buffers *buffers,
                     const struct kernels *kernels, const struct insertion *to,
                     const struct reduce_values *values, struct reduce_sum *ret_sum)
{
    if (buffers->sparse && values->rows != NULL) {
        if (sparse_init(&ret_sum->sparse, values->rows->cols, rows_max(reduce, values)) != ERR_OK)
            return false;
        read_rows(values, kernels, buffers->n, &ret_sum->sparse);
        return true;
    }
    float **replaced = to->inside > 0 ? &reduce->held[to->i].sum : &ret_sum->sum;
    ret_sum->sum = *replaced;
    *replaced = NULL;
    if (ret_sum->sum == NULL)
        ret_sum->sum = buffers_take(buffers, kernels);
    if (ret_sum->sum == NULL)
        return false;
    read_whole(buffers, kernels, values, ret_sum->sum);
    return true;
}

/* The other half has the values as well: with it the node's parent is there. */
static void close_half(struct reduce *reduce, struct reduce_buffers *buffers,
                       const struct kernels *kernels, const struct insertion *to)
{
    struct reduce_sum *half = &reduce->held[to->half];
    half->node = node_parent(half->node);
    for (uint32_t j = 0; j < to->inside; j++)
        give_back(buffers, &reduce->held[to->i + j]);
    remove_held(reduce, to->i, to->inside);
    fold(reduce, buffers, kernels, to->half < to->i ? to->half : to->i);
}

enum reduce_result reduce_push(struct reduce *reduce, struct reduce_buffers *buffers,
                               const struct kernels *kernels, struct node node,
                               const struct reduce_values *values)
{
    if (reduce_holds(reduce, node))
        return REDUCE_DUPLICATE;
    node = widest(node, reduce->slots);
    struct insertion to = insertion_of(reduce, node);
    struct reduce_sum *half = to.half < reduce->held_count ? &reduce->held[to.half] : NULL;
    struct reduce_sum sum = {.node = node};
    if (half != NULL && half->sum != NULL) {
        add_values(values, kernels, half->sum, buffers->n);
        close_half(reduce, buffers, kernels, &to);
        return REDUCE_COUNTED;
    }
    if (half == NULL && to.inside == 0 && !may_open(reduce, node))
        return REDUCE_BUSY;
    if (!read_sum(reduce, buffers, kernels, &to, values, &sum))
        return REDUCE_BUSY;
    if (half != NULL) {
        add_sum(buffers, kernels, &sum, half);
        *half = sum;
        close_half(reduce, buffers, kernels, &to);
    } else {
        put_sum(reduce, buffers, to.i, to.inside, &sum);
    }
    return REDUCE_COUNTED;
}

const struct reduce_sum *reduce_root(const struct reduce *reduce)
{
    bool whole = reduce->held_count == 1 && reduce->held[0].node.level == tree_level(reduce->slots);
    return whole ? &reduce->held[0] : NULL;
}

uint32_t reduce_buffers_held(const struct reduce *reduce)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < reduce->held_count; i++)
        count += reduce->held[i].sum != NULL ? 1 : 0;
    return count;
}

void reduce_clear(struct reduce *reduce, struct reduce_buffers *buffers)
{
    for (uint32_t i = 0; i < reduce->held_count; i++)
        give_back(buffers, &reduce->held[i]);
    reduce->held_count = 0;
}

void reduce_check(const struct reduce *reduce)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < reduce->held_count; i++) {
        struct node node = reduce->held[i].node;
        check(node_valid(node, reduce->slots));
        check(node_first(node) >= end);
        end = node_end(node);
        check(node_equal(node, widest(node, reduce->slots)));
        check((reduce->held[i].sum == NULL) == (reduce->held[i].sparse.values != NULL));
        check(node.level == tree_level(reduce->slots) ||
              other_half(reduce, i, node) == reduce->held_count);
    }
    uint32_t missing;
    uint32_t run = unbroken(reduce, &missing);
    check(reduce->held_count - run <= reduce->ahead_max);
    check(reduce->held_count <= reduce_sums_max(reduce->slots, reduce->ahead_max));
}
