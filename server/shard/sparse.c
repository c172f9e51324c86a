#include "server/shard/sparse.h"

#include <stdlib.h>
#include <string.h>

enum err sparse_init(struct sparse *sparse, uint32_t cols, size_t rows_max)
{
    size_t value_bytes = rows_max * cols * sizeof(float);
    uint8_t *memory = malloc(value_bytes + rows_max * sizeof(uint32_t) + 1);
    if (memory == NULL)
        return ERR_NOMEM;
    *sparse = (struct sparse){.cols = cols,
                              .values = (float *)(void *)memory,
                              .rows = (uint32_t *)(void *)(memory + value_bytes)};
    return ERR_OK;
}

void sparse_release(struct sparse *sparse)
{
    free(sparse->values);
    *sparse = (struct sparse){0};
}

static float *row_at(const struct sparse *sparse, uint32_t i)
{
    return sparse->values + (size_t)i * sparse->cols;
}

static uint32_t count_together(const struct sparse *a, const struct sparse *b)
{
    uint32_t both = 0;
    for (uint32_t i = 0, j = 0; i < a->count && j < b->count;) {
        both += a->rows[i] == b->rows[j] ? 1 : 0;
        uint32_t row = a->rows[i];
        i += row <= b->rows[j] ? 1 : 0;
        j += b->rows[j] <= row ? 1 : 0;
    }
    return a->count + b->count - both;
}

/* x + 0: another value where x is -0. */
static void add_zeros(const struct kernels *kernels, float *values, size_t n)
{
    static const float zeros[2048];
    for (size_t run; n > 0; n -= run, values += run) {
        run = n < sizeof zeros / sizeof zeros[0] ? n : sizeof zeros / sizeof zeros[0];
        kernels->add(kernels, values, values, zeros, (int64_t)run);
    }
}

/* From the last row to the first, so that no row of `sum` is written before it was read. */
void sparse_merge(struct sparse *sum, const struct sparse *other, const struct kernels *kernels)
{
    uint32_t cols = sum->cols, i = sum->count, j = other->count;
    uint32_t to = sum->count = count_together(sum, other);
    while (to > 0) {
        bool ours = j == 0 || (i > 0 && sum->rows[i - 1] >= other->rows[j - 1]);
        bool theirs = i == 0 || (j > 0 && other->rows[j - 1] >= sum->rows[i - 1]);
        uint32_t row = ours ? sum->rows[i - 1] : other->rows[j - 1];
        float *out = row_at(sum, --to);
        if (ours)
            memmove(out, row_at(sum, --i), cols * sizeof *out);
        else
            memcpy(out, row_at(other, --j), cols * sizeof *out);
        if (ours && theirs)
            kernels->add(kernels, out, out, row_at(other, --j), cols);
        else
            add_zeros(kernels, out, cols);
        sum->rows[to] = row;
    }
}

void sparse_add_to(const struct sparse *sparse, const struct kernels *kernels, float *sum,
                   uint32_t n)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < sparse->count; i++) {
        uint32_t first = sparse->rows[i] * sparse->cols;
        check(at <= first && first < n);
        add_zeros(kernels, sum + at, first - at);
        kernels->add(kernels, sum + first, sum + first, row_at(sparse, i), sparse->cols);
        at = first + sparse->cols;
    }
    add_zeros(kernels, sum + at, n - at);
}
