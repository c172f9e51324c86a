/* The sum of a layer's products by pieces, in the tree of common/tree.h over the pieces' numbers:
 * sum(left) + sum(right) always. Whoever holds a subtree of the pieces has its node by the same
 * steps; what comes after the whole sum (bias, residual) is the caller's, in a step of its own. */
#ifndef ROOST_WORKER_MODEL_PIECE_SUM_H
#define ROOST_WORKER_MODEL_PIECE_SUM_H

#include "kernels/kernels.h"

/* Writes a piece's product, n elements. */
typedef void piece_product(const void *context, uint32_t piece, element *out);

/* out (n) = the sum over `count` pieces, a power of two; `out` is written while products are made.
 * scratch has piece_sum_bytes(). */
void piece_sum(const struct kernels *k, element *out, void *scratch, uint32_t count, int64_t n,
               piece_product *product, const void *context);
/* Of log2 count arrays: `out` is the one more that a tree needs. */
uint64_t piece_sum_bytes(const struct kernels *k, uint32_t count, int64_t n);

#endif
