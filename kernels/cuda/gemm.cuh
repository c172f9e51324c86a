/* Matrix products by cuBLASLt. How a shape is computed is chosen once, by cuBLASLt's heuristic, and
 * kept; what was chosen stands in the table's `numerics`. Algorithms that split K and reduce are
 * not admitted, so a product's bits depend on its shape and alignment alone. */
#ifndef ROOST_KERNELS_CUDA_GEMM_CUH
#define ROOST_KERNELS_CUDA_GEMM_CUH

#include "kernels/cuda/elements.cuh"

/* False: `reason` says why. */
bool gemm_new(const struct kernels_options *options, const cudaDeviceProp *device,
              struct gemm **ret_gemm, char *reason, size_t reason_bytes) MUST_USE;
void gemm_free(struct gemm *gemm); /* NULL is fine */

/* Grows with each new shape; read it while no operation is called. */
const char *gemm_numerics(const struct gemm *gemm);

/* A factor as it lies in memory: row-major, without gaps. */
struct gemm_matrix {
    const element *data;
    bool transposed;
};

/* What becomes of a product in the same pass. GELU needs a bias, writes the sum before it to `pre`;
 * GELU_BACKWARD multiplies with GELU's slope at `pre`. Both need gemm_may_fuse(). */
enum gemm_epilogue { GEMM_PLAIN, GEMM_BIAS, GEMM_GELU, GEMM_GELU_BACKWARD };

/* c (M,N) = epilogue(a (M,K) b (K,N) + add (M,N) + bias (N)); shapes are those after transposition.
 */
struct gemm_product {
    void *c;
    bool c_is_float; /* c and `add` are fp32 whatever elements are */
    const void *add; /* may be c; NULL: nothing */
    struct gemm_matrix a, b;
    const element *bias;
    element *pre; /* (M,N) */
    enum gemm_epilogue epilogue;
    int64_t M, N, K;
};
void gemm_multiply(SELF, const struct gemm_product *product);

/* Whether cuBLASLt does a GELU with the product: elements are bf16 and rows of N are aligned. */
bool gemm_may_fuse(SELF, const element *pre, int64_t N);

#endif
