/* How one shape of a matrix product is computed: cuBLASLt's descriptions of it, and the algorithm
 * that was chosen. For gemm.cu, which finds and runs plans,
 * and candidates.cu, which times their algorithms. */
#ifndef ROOST_KERNELS_CUDA_PLAN_CUH
#define ROOST_KERNELS_CUDA_PLAN_CUH

#include "kernels/cuda/gemm.cuh"

#include <cublasLt.h>

enum {
    PLANS_MAX = 256,     /* a model needs three a linear, times the row counts that occur */
    CANDIDATES_MAX = 16, /* asked of the heuristic */
    PLAN_TEXT_BYTES = 128,
    PLAN_WORDS_BYTES = 2 * sizeof(cublasLtMatmulAlgo_t) + 1,
};

/* What a plan is found by. Where a matrix begins decides which algorithms are fast or possible:
 * `aligned_a` … are the bytes, up to PACK_BYTES, that a, b, and both c and what is added to it are
 * aligned to. How rows lie follows from the shape. */
struct plan_shape {
    int64_t M, N, K;
    bool transpose_a, transpose_b, c_is_float, adds;
    enum gemm_epilogue epilogue;
    uint32_t aligned_a, aligned_b, aligned_c;
};

struct plan {
    struct plan_shape shape;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    bool declined; /* there is no algorithm with that epilogue */
    cublasLtMatmulAlgo_t algorithm;
};

struct gemm {
    cublasLtHandle_t handle;
    enum kernels_compute compute;
    bool fuses_gelu; /* before sm_90 cuBLASLt's own are slower than a product and our kernel */
    int plans_count;
    struct plan plans[PLANS_MAX];
    char *products; /* kernels_options.products where they are of this kind; owned, or NULL */
    size_t head_bytes, text_bytes; /* of the text: what it begins with, and all of it */
    char text[(PLANS_MAX + 2) * PLAN_TEXT_BYTES];
};

/* False: it failed. */
bool plan_ok(SELF, cublasStatus_t status);

/* A plan of the shape, with the algorithm that the products given to this table name, or else the
 * heuristic's first that may be chosen. False: it failed, and there is none. plan_release() */
bool plan_init(SELF, struct plan *plan, const struct plan_shape *shape,
               const struct gemm_product *product) MUST_USE;
void plan_release(struct plan *plan);

/* The heuristic's algorithms for the plan that may be chosen, best first; with or without those
 * that split K. */
int plan_candidates(SELF, const struct plan *plan, bool splits,
                    cublasLtMatmulAlgo_t (&ret_algorithms)[CANDIDATES_MAX]);

/* Tells the plan where this product's arrays beside a, b and c are; false: it failed. */
bool plan_point(SELF, const struct plan *plan, const struct gemm_product *product);

/* With this algorithm. */
cublasStatus_t plan_multiply(SELF, const struct plan *plan, const cublasLtMatmulAlgo_t *algorithm,
                             const struct gemm_product *product) MUST_USE;

/* " NTb+f 64x50304x768/16.16.16": transposition; b bias, g GELU, d its backward; + something
 * is added, f the result is fp32 and the factors are not; shape, alignment. */
void plan_shape_text(const struct gemm *gemm, const struct plan_shape *shape,
                     char (&text)[PLAN_TEXT_BYTES]);

/* "71.20.5.0.2.0.4.2": the algorithm's number, tile, stages, inner shape, cluster, custom option,
 * into how many parts it splits K, and how it adds them up (cublasLtReductionScheme_t). */
void plan_algorithm_text(const cublasLtMatmulAlgo_t *algorithm, char (&text)[PLAN_TEXT_BYTES]);

/* cuBLASLt's own words for it, in hexadecimal: the same version of cuBLASLt can be given them again
 * (cuBLAS's documentation of cublasLtMatmulAlgo_t). */
void plan_words_text(const cublasLtMatmulAlgo_t *algorithm, char (&text)[PLAN_WORDS_BYTES]);

#endif
