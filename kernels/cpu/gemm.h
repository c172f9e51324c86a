/* Matrix products by OpenBLAS, loaded at run time because its core type, which decides the bits of
 * every product, is read from the environment only once: while it loads. */
#ifndef ROOST_KERNELS_CPU_GEMM_H
#define ROOST_KERNELS_CPU_GEMM_H

#include "common/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gemm_transpose { GEMM_AS_IS = 111, GEMM_TRANSPOSED = 112 }; /* CBLAS's numbers */

struct gemm {
    void (*sgemm)(int order, int transpose_a, int transpose_b, int M, int N, int K, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    char numerics[96]; /* "OpenBLAS 0.3.21 core=SkylakeX threads=1" */
};

/* Loads OpenBLAS with that core type (not "auto") and thread count. It stays loaded for good; later
 * calls must ask for the same. False: `reason` gets the cause. */
bool gemm_init(struct gemm *gemm, const char *core, int threads, char *reason,
               size_t reason_bytes) MUST_USE;
const char *gemm_core_auto(void);

/* A matrix as GEMM sees it: row-major, `stride` floats from one row to the next. */
struct gemm_matrix {
    const float *data;
    int64_t stride;
    enum gemm_transpose transpose;
};

/* c (M,N), rows `c_stride` apart, = alpha * a (M,K) b (K,N) + beta * c; shapes are those after
 * transposition; with beta 0, c may be uninitialised. */
void gemm_multiply(const struct gemm *gemm, float *c, int64_t c_stride, float alpha,
                   struct gemm_matrix a, struct gemm_matrix b, float beta, int64_t M, int64_t N,
                   int64_t K);

#endif
