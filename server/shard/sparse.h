/* A sum of which only some rows came, and all others are zeros: those rows (an embedding's gradient has
 * one for each token of its samples). What it is added to has the same bits as if all had come: where a
 * row did not come, +0 is added, so -0 becomes +0 there. Pure; one owner. */
#ifndef ROOST_SERVER_SHARD_SPARSE_H
#define ROOST_SERVER_SHARD_SPARSE_H

#include "common/err.h"
#include "kernels/kernels.h"

struct sparse {
    uint32_t cols, count;
    float *values;  /* (count, cols), in one piece of memory with `rows` */
    uint32_t *rows; /* ascending */
};

/* No row, and room for so many. ERR_NOMEM. */
enum err sparse_init(struct sparse *sparse, uint32_t cols, size_t rows_max) MUST_USE;
/* {0} is fine. */
void sparse_release(struct sparse *sparse);
/* `sum` += the other one; there is room for its rows. */
void sparse_merge(struct sparse *sum, const struct sparse *other, const struct kernels *kernels);
/* sum (n) += the sparse one. */
void sparse_add_to(const struct sparse *sparse, const struct kernels *kernels, float *sum,
                   uint32_t n);

#endif
