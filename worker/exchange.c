#include "worker/exchange.h"

#include "common/model/pieces.h"
#include "worker/carve.h"
#include "worker/collective/walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

/* On a CPU the device's memory is the host's. */
static bool is_host(const struct exchange *x)
{
    return x->k->in == x->k;
}

/* So many bytes of the host, which may be none. False, and an error: there are not. */
static bool take_memory(struct exchange *x, size_t bytes)
{
    if (x->memory != NULL && bytes <= x->bytes)
        return true;
    free(x->memory);
    x->memory = aligned_alloc(CARVE_ALIGNMENT, carve_align(bytes + 1));
    x->bytes = x->memory != NULL ? bytes : 0;
    if (x->memory == NULL)
        x->err = ERR_NOMEM;
    return x->memory != NULL;
}

/* Where an array of the device is on the host: there, or copied to the carved place. NULL, and an
 * error: the device has failed, and what was copied must not be given to others. */
static void *come_out(struct exchange *x, void *array, struct carve *carve, size_t bytes)
{
    if (is_host(x))
        return array;
    void *copy = carve_take(carve, bytes);
    x->k->copy_out(x->k, copy, array, bytes);
    if (x->k->synchronize(x->k) == NULL)
        return copy;
    x->err = ERR_IO;
    return NULL;
}

static void go_in(const struct exchange *x, void *array, const void *copy, size_t bytes)
{
    if (!is_host(x))
        x->k->copy_in(x->k, array, copy, bytes);
}

static size_t copy_bytes(const struct exchange *x, size_t bytes)
{
    return is_host(x) ? 0 : carve_align(bytes);
}

/* ---- what is added ---- */

static void add_floats(void *context, void *out, const void *left, const void *right, size_t count)
{
    const struct exchange *x = context;
    float *sums = out;
    const float *a = left, *b = right;
    if (is_host(x))
        x->k->add(x->k, sums, a, b, (int64_t)count);
    else
        for (size_t i = 0; i < count; i++)
            sums[i] = a[i] + b[i];
}

static float from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* To nearest, ties to even; NaN stays NaN. */
static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return value != value ? 0x7FFF : (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static void add_bf16(void *context, void *out, const void *left, const void *right, size_t count)
{
    uint16_t *sums = out;
    const uint16_t *a = left, *b = right;
    (void)context;
    for (size_t i = 0; i < count; i++)
        sums[i] = to_bf16(from_bf16(a[i]) + from_bf16(b[i]));
}

/* Where one has something, the other has zeros. */
static void merge_bytes(void *out, const void *left, const void *right, size_t count)
{
    uint8_t *bytes = out;
    const uint8_t *a = left, *b = right;
    for (size_t i = 0; i < count; i++)
        bytes[i] = a[i] | b[i];
}

static void merge_elements(void *context, void *out, const void *left, const void *right,
                           size_t count)
{
    const struct exchange *x = context;
    merge_bytes(out, left, right, count * x->k->element_bytes);
}

/* ---- collectives ---- */

static enum err give(void *context, uint32_t round, const void *bytes, size_t count)
{
    const struct exchange *x = context;
    return x->hooks->give_part(x->hooks->context, x->sequence, round, bytes, count);
}

static enum err take(void *context, uint32_t rank, uint32_t round, void *ret_bytes, size_t count)
{
    const struct exchange *x = context;
    const struct executor_part part = {x->sequence, round, rank};
    return x->hooks->take_part(x->hooks->context, &part, ret_bytes, count);
}

static enum err lend(void *context, uint32_t rank, uint32_t round, void *scratch, size_t count,
                     const void **ret_bytes)
{
    const struct exchange *x = context;
    const struct executor_part part = {x->sequence, round, rank};
    return x->hooks->lend_part(x->hooks->context, &part, scratch, count, ret_bytes);
}

static void expect(void *context, uint32_t rank, uint32_t round, size_t count)
{
    const struct exchange *x = context;
    const struct executor_part part = {x->sequence, round, rank};
    if (x->hooks->expect_part != NULL)
        x->hooks->expect_part(x->hooks->context, &part, count);
}

static void run(struct exchange *x, const struct walk_work *work, void *memory)
{
    const struct walk_carrier carrier = {.give = give,
                                         .take = take,
                                         .context = x,
                                         .lend = x->hooks->lend_part != NULL ? lend : NULL,
                                         .expect = expect};
    x->sequence++;
    x->err = walk_collective(work, x->model->rank, &carrier, memory);
}

struct collective exchange_reduction(const struct model *model, uint64_t n)
{
    uint32_t ranks = model->ranks;
    if (!pieces_ranged(model))
        return (struct collective){.kind = COLLECTIVE_ALL_REDUCE,
                                   .way = COLLECTIVE_HALVING,
                                   .ranks = ranks,
                                   .elements = n};
    check(n % ranks == 0);
    return (struct collective){.kind = COLLECTIVE_REDUCE_SCATTER,
                               .way = COLLECTIVE_DIRECT,
                               .ranks = ranks,
                               .elements = n,
                               .each = n / ranks};
}

struct collective exchange_all_gather(const struct model *model, uint64_t each)
{
    return (struct collective){.kind = COLLECTIVE_ALL_GATHER,
                               .way = COLLECTIVE_DIRECT,
                               .ranks = model->ranks,
                               .elements = model->ranks * each,
                               .each = each};
}

static void reduce(struct exchange *x, void *array, int64_t n, walk_add *add)
{
    size_t bytes = (size_t)n * x->k->element_bytes;
    struct walk_work work = {.collective = exchange_reduction(x->model, (uint64_t)n),
                             .element_bytes = (uint32_t)x->k->element_bytes,
                             .add = add,
                             .context = x};
    size_t walked = walk_bytes(&work.collective, x->model->rank, work.element_bytes);
    if (x->err != ERR_OK || !take_memory(x, copy_bytes(x, bytes) + walked))
        return;
    struct carve carve = {.base = x->memory};
    work.array = come_out(x, array, &carve, bytes);
    if (work.array == NULL)
        return;
    run(x, &work, carve_take(&carve, walked));
    go_in(x, array, work.array, bytes);
}

static void sum(void *context, element *array, int64_t n)
{
    struct exchange *x = context;
    reduce(x, array, n, x->k->element_bytes == sizeof(float) ? add_floats : add_bf16);
}

static void merge(void *context, element *array, int64_t n)
{
    reduce(context, array, n, merge_elements);
}

/* all (ranks, count): what each member has told; of this one it is there. */
static void gather_host(struct exchange *x, void *all, size_t count, size_t element_bytes)
{
    const struct walk_work work = {.collective = exchange_all_gather(x->model, count),
                                   .element_bytes = (uint32_t)element_bytes,
                                   .array = all};
    run(x, &work, x->memory); /* of which a gathering takes nothing */
}

static void gather(void *context, element *array, int64_t n)
{
    struct exchange *x = context;
    size_t bytes = (size_t)n * x->k->element_bytes;
    if (x->err != ERR_OK || !take_memory(x, copy_bytes(x, bytes)))
        return;
    struct carve carve = {.base = x->memory};
    void *all = come_out(x, array, &carve, bytes);
    if (all == NULL)
        return;
    gather_host(x, all, (size_t)n / x->model->ranks, x->k->element_bytes);
    go_in(x, array, all, bytes);
}

/* Few numbers: each member tells all of its own, which is one message to each. */
static void add(void *context, float *numbers, int64_t n)
{
    struct exchange *x = context;
    size_t count = (size_t)n, bytes = count * sizeof *numbers;
    uint32_t ranks = x->model->ranks;
    if (x->err != ERR_OK || !take_memory(x, copy_bytes(x, bytes) + ranks * bytes))
        return;
    struct carve carve = {.base = x->memory};
    float *sum = come_out(x, numbers, &carve, bytes);
    if (sum == NULL)
        return;
    float *told = carve_take(&carve, ranks * bytes);
    memcpy(told + x->model->rank * count, sum, bytes);
    gather_host(x, told, count, sizeof *told);
    for (uint32_t half = ranks / 2; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            add_floats(x, told + i * count, told + 2 * i * count, told + (2 * i + 1) * count,
                       count);
    memcpy(sum, told, bytes);
    go_in(x, numbers, sum, bytes);
}

/* ---- numbers of the loss: of each row one for each piece, and one ---- */

struct numbers {
    uint32_t held; /* pieces of a member */
    size_t rows, all_bytes, row_bytes;
    float *by_piece; /* (pieces, rows) */
    void *by_row;    /* (rows), of 4 bytes each */
    float *told;     /* (ranks, `each` × rows) what members tell each other */
};

/* False: there is an error. */
static bool begin_numbers(struct exchange *x, float *by_piece, void *by_row, int64_t rows,
                          uint32_t each, struct numbers *ret_numbers)
{
    uint32_t pieces = x->model->settings.pieces, ranks = x->model->ranks;
    struct numbers n = {.held = pieces / ranks, .rows = (size_t)rows};
    n.row_bytes = n.rows * sizeof(float);
    n.all_bytes = pieces * n.row_bytes;
    size_t told = ranks * each * n.row_bytes;
    if (x->err != ERR_OK ||
        !take_memory(x, copy_bytes(x, n.all_bytes) + copy_bytes(x, n.row_bytes) + told))
        return false;
    struct carve carve = {.base = x->memory};
    n.by_piece = come_out(x, by_piece, &carve, n.all_bytes);
    n.by_row = come_out(x, by_row, &carve, n.row_bytes);
    n.told = carve_take(&carve, told);
    *ret_numbers = n;
    return n.by_piece != NULL && n.by_row != NULL;
}

/* The row's number of each of a member's pieces: `one` in its first, `rest` in the others. */
static void set_pieces(const struct numbers *n, uint32_t rank, size_t row, float one, float rest)
{
    for (uint32_t piece = 0; piece < n->held; piece++)
        n->by_piece[(rank * n->held + piece) * n->rows + row] = piece == 0 ? one : rest;
}

static float largest_held(const struct numbers *n, uint32_t rank, size_t row)
{
    float most = -INFINITY;
    for (uint32_t piece = 0; piece < n->held; piece++) {
        float x = n->by_piece[(rank * n->held + piece) * n->rows + row];
        most = most > x ? most : x;
    }
    return most;
}

/* A member tells the largest of its pieces for each row, then the targets' logits. */
static void largest(void *context, float *by_piece, float *logit, int64_t rows)
{
    struct exchange *x = context;
    struct numbers n;
    uint32_t rank = x->model->rank, ranks = x->model->ranks;
    if (!begin_numbers(x, by_piece, logit, rows, EXCHANGE_LARGEST_NUMBERS, &n))
        return;
    float *own = n.told + EXCHANGE_LARGEST_NUMBERS * rank * n.rows;
    for (size_t row = 0; row < n.rows; row++)
        own[row] = largest_held(&n, rank, row);
    memcpy(own + n.rows, n.by_row, n.row_bytes);
    gather_host(x, n.told, EXCHANGE_LARGEST_NUMBERS * n.rows, sizeof *n.told);
    for (uint32_t r = 0; r < ranks; r++) {
        const float *told = n.told + EXCHANGE_LARGEST_NUMBERS * r * n.rows;
        for (size_t row = 0; r != rank && row < n.rows; row++)
            set_pieces(&n, r, row, told[row], -INFINITY);
        if (r != rank)
            merge_bytes(n.by_row, n.by_row, told + n.rows, n.row_bytes);
    }
    go_in(x, by_piece, n.by_piece, n.all_bytes);
    go_in(x, logit, n.by_row, n.row_bytes);
}

/* sum(left) + sum(right) */
static float sum_held(const struct numbers *n, uint32_t rank, size_t row)
{
    float level[KERNELS_PIECES_MAX];
    for (uint32_t piece = 0; piece < n->held; piece++)
        level[piece] = n->by_piece[(rank * n->held + piece) * n->rows + row];
    for (uint32_t count = n->held / 2; count > 0; count /= 2)
        for (uint32_t i = 0; i < count; i++)
            level[i] = level[2 * i] + level[2 * i + 1];
    return level[0];
}

/* A member tells the sum of its pieces for each row. A sum is never negative, so its sign is free: it
 * says that the row's target is among this member's classes, and was predicted. The others cannot see
 * then which NaN a sum is: all count as one, its own too. */
static void totals(void *context, float *by_piece, int32_t *correct, int64_t rows)
{
    struct exchange *x = context;
    struct numbers n;
    uint32_t rank = x->model->rank, ranks = x->model->ranks;
    if (!begin_numbers(x, by_piece, correct, rows, EXCHANGE_TOTALS_NUMBERS, &n))
        return;
    int32_t *right = n.by_row;
    for (size_t row = 0; row < n.rows; row++)
        n.told[rank * n.rows + row] = copysignf(sum_held(&n, rank, row), right[row] ? -1 : 1);
    gather_host(x, n.told, n.rows, sizeof *n.told);
    for (uint32_t r = 0; r < ranks; r++)
        for (size_t row = 0; row < n.rows; row++) {
            float told = n.told[r * n.rows + row];
            if (r != rank || isnan(told))
                set_pieces(&n, r, row, isnan(told) ? NAN : fabsf(told), 0);
            right[row] |= signbit(told) != 0;
        }
    go_in(x, by_piece, n.by_piece, n.all_bytes);
    go_in(x, correct, n.by_row, n.row_bytes);
}

/* ---- life ---- */

void exchange_init(struct exchange *x, const struct kernels *k, const struct model *model)
{
    *x = (struct exchange){
        .k = k, .model = model, .calls = {x, sum, merge, gather, add, largest, totals}};
}

void exchange_release(struct exchange *x)
{
    free(x->memory);
    *x = (struct exchange){0};
}

void exchange_begin(struct exchange *x, const struct executor_hooks *hooks)
{
    x->hooks = hooks;
    x->sequence = 0;
    x->err = ERR_OK;
}
