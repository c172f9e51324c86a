/* Matrix products by cuBLASLt. How a shape is computed is chosen once, by the products that the
 * table was given or else by cuBLASLt's heuristic, and kept; what was chosen stands in `numerics`. Algorithms that split K are admitted when
 * they keep the parts' sums in fp32 and add them in a step of its own: in one order, so that a
 * product's bits depend on its shape, its alignment and its algorithm alone. */
#ifndef ROOST_KERNELS_CUDA_GEMM_CUH
#define ROOST_KERNELS_CUDA_GEMM_CUH

#include "kernels/cuda/elements.cuh"

/* False: `reason` says why. */
bool gemm_new(const struct kernels_options *options, const cudaDeviceProp *device,
              struct gemm **ret_gemm, char *reason, size_t reason_bytes) MUST_USE;
void gemm_free(struct gemm *gemm); /* NULL is fine */

/* Grows with each new shape; read it while no operation is called. */
const char *gemm_numerics(const struct gemm *gemm);
/* It is made anew: plans have changed. */
void gemm_note_again(struct gemm *gemm);

/* kernels.h, time_products (candidates.cu) and write_products */
void gemm_time(SELF, kernels_report *report, void *context);
void gemm_write_products(SELF, char *text, size_t bytes);

/* A factor as it lies in memory: row-major, without gaps. */
struct gemm_matrix {
    const element *data;
    bool transposed;
};

/* What becomes of a product in the same pass. Only a plain one is always to be had. GELU needs a
 * bias, writes the sum before it to `pre`; GELU_BACKWARD multiplies with GELU's slope at `pre`. */
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
void gemm_multiply(SELF, const struct gemm_product *product); /* a plain one */

/* The same with one of the other epilogues. False: nothing was done, and never will be for this
 * shape and alignment, which `numerics` then says as well: do without.
 * - BIAS is for an aligned one.
 * - GELU and GELU_BACKWARD are for elements of bf16 and aligned rows of `pre`, on sm_90 and later:
 *   before, cuBLASLt's are slower than a plain product and our kernel (llm.c, pull request 338). */
bool gemm_fuse(SELF, const struct gemm_product *product);

#endif
