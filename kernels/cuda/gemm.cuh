/* Matrix products by cuBLASLt. How a shape is computed is chosen once, by cuBLASLt's heuristic, and
 * kept; what was chosen stands in the table's `numerics`. Algorithms that split K and reduce are
 * not admitted, so a product's bits depend on its shape and alignment alone. */
#ifndef ROOST_KERNELS_CUDA_GEMM_CUH
#define ROOST_KERNELS_CUDA_GEMM_CUH

#include "kernels/cuda/cuda.cuh"

/* False: `reason` says why. tf32: factors are rounded to 10 bits of mantissa, sums stay fp32. */
bool gemm_new(const struct kernels_options *options, const cudaDeviceProp *device,
              struct gemm **ret_gemm, char *reason, size_t reason_bytes) MUST_USE;
void gemm_free(struct gemm *gemm); /* NULL is fine */

/* Grows with each new shape; read it while no operation is called. */
const char *gemm_numerics(const struct gemm *gemm);

/* A matrix as it lies in memory: row-major, without gaps. */
struct gemm_matrix {
    const float *data;
    bool transposed;
};

/* c (M,N) = a (M,K) b (K,N) + beta * c + bias (N); shapes are those after transposition; with beta
 * 0, c may be uninitialised; bias may be NULL. */
void gemm_multiply(SELF, float *c, struct gemm_matrix a, struct gemm_matrix b, const float *bias,
                   float beta, int64_t M, int64_t N, int64_t K);

#endif
