#include "kernels/cuda/gemm.cuh"

#include <cublasLt.h>

#include <stdarg.h>

enum {
    PLANS_MAX = 256,     /* a model needs three a linear, times the row counts that occur */
    CANDIDATES_MAX = 16, /* asked of the heuristic */
    ALIGNMENT = 16,      /* bytes; what is aligned less counts as aligned to a float */
    PLAN_TEXT_BYTES = 80,
};

/* How one shape is computed. */
struct plan {
    int64_t M, N, K;
    bool transpose_a, transpose_b, bias;
    uint32_t alignment;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
};

struct gemm {
    cublasLtHandle_t handle;
    bool tf32;
    int plans_count;
    struct plan plans[PLANS_MAX];
    size_t text_bytes;
    char text[sizeof(cudaDeviceProp::name) + (PLANS_MAX + 2) * PLAN_TEXT_BYTES];
};

static void add_text(struct gemm *gemm, const char *format, ...) PRINTF_LIKE(2, 3);

static void add_text(struct gemm *gemm, const char *format, ...)
{
    size_t left = sizeof gemm->text - gemm->text_bytes;
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(gemm->text + gemm->text_bytes, left, format, arguments);
    va_end(arguments);
    check(bytes >= 0);
    check((size_t)bytes < left);
    gemm->text_bytes += (size_t)bytes;
}

bool gemm_new(const struct kernels_options *options, const cudaDeviceProp *device,
              struct gemm **ret_gemm, char *reason, size_t reason_bytes)
{
    struct gemm *gemm = (struct gemm *)calloc(1, sizeof *gemm);
    if (!gemm) {
        snprintf(reason, reason_bytes, "out of memory");
        return false;
    }
    cublasStatus_t status = cublasLtCreate(&gemm->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        snprintf(reason, reason_bytes, "cuBLASLt: %s", cublasLtGetStatusString(status));
        free(gemm);
        return false;
    }
    gemm->tf32 = options->tf32;
    add_text(gemm, "cuBLASLt %zu %s %s, %d SMs of sm_%d%d:", cublasLtGetVersion(),
             gemm->tf32 ? "tf32" : "fp32", device->name, device->multiProcessorCount, device->major,
             device->minor);
    *ret_gemm = gemm;
    return true;
}

static void release_plan(struct plan *plan)
{
    cublasLtMatrixLayoutDestroy(plan->a);
    cublasLtMatrixLayoutDestroy(plan->b);
    cublasLtMatrixLayoutDestroy(plan->c);
    cublasLtMatmulDescDestroy(plan->operation);
}

void gemm_free(struct gemm *gemm)
{
    if (!gemm)
        return;
    for (int i = 0; i < gemm->plans_count; i++)
        release_plan(&gemm->plans[i]);
    cublasLtDestroy(gemm->handle);
    free(gemm);
}

const char *gemm_numerics(const struct gemm *gemm)
{
    return gemm->text;
}

static bool ok(SELF, cublasStatus_t status)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        cuda_fail(k, "cuBLASLt: %s", cublasLtGetStatusString(status));
    return status == CUBLAS_STATUS_SUCCESS;
}

/* -- a plan for a shape ------------------------------------------------------------------------ */

static cublasStatus_t set_operation(cublasLtMatmulDesc_t operation,
                                    cublasLtMatmulDescAttributes_t attribute, int32_t value)
{
    return cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value);
}

static cublasStatus_t set_preference(cublasLtMatmulPreference_t preference,
                                     cublasLtMatmulPreferenceAttributes_t attribute, uint32_t value)
{
    return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
}

/* A row-major matrix (rows, columns), which cuBLASLt sees as column-major (columns, rows). */
static cublasStatus_t new_layout(cublasLtMatrixLayout_t *ret_layout, bool transposed, int64_t rows,
                                 int64_t columns)
{
    int64_t stored_rows = transposed ? columns : rows, stored_columns = transposed ? rows : columns;
    return cublasLtMatrixLayoutCreate(ret_layout, CUDA_R_32F, (uint64_t)stored_columns,
                                      (uint64_t)stored_rows, stored_columns);
}

static bool create(SELF, struct plan *plan, const float *bias)
{
    const cublasComputeType_t compute =
        k->state->gemm->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    /* Column-major, the product is c^T = b^T a^T: b comes first. */
    return ok(k, cublasLtMatmulDescCreate(&plan->operation, compute, CUDA_R_32F)) &&
           ok(k, set_operation(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                               plan->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N)) &&
           ok(k, set_operation(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB,
                               plan->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N)) &&
           ok(k, set_operation(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                               bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT)) &&
           ok(k, cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                &bias, sizeof bias)) &&
           ok(k, new_layout(&plan->a, plan->transpose_a, plan->M, plan->K)) &&
           ok(k, new_layout(&plan->b, plan->transpose_b, plan->K, plan->N)) &&
           ok(k, new_layout(&plan->c, false, plan->M, plan->N));
}

/* What may be chosen: nothing that adds up partial products of a split K. */
static bool limit(SELF, cublasLtMatmulPreference_t preference, uint32_t alignment)
{
    const uint64_t workspace_bytes = WORKSPACE_BYTES;
    return ok(k, cublasLtMatmulPreferenceSetAttribute(preference,
                                                      CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &workspace_bytes, sizeof workspace_bytes)) &&
           ok(k, set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                CUBLASLT_REDUCTION_SCHEME_NONE)) &&
           ok(k,
              set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment)) &&
           ok(k,
              set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment)) &&
           ok(k,
              set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment)) &&
           ok(k, set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment));
}

/* A number of an algorithm's configuration; `unknown` when this version of cuBLASLt has no such. */
template <typename Number>
static unsigned configured(const cublasLtMatmulAlgo_t *algorithm,
                           cublasLtMatmulAlgoConfigAttributes_t attribute, Number unknown)
{
    Number number = 0;
    size_t written = 0;
    bool known = cublasLtMatmulAlgoConfigGetAttribute(algorithm, attribute, &number, sizeof number,
                                                      &written) == CUBLAS_STATUS_SUCCESS;
    return known ? number : unknown;
}

/* What cannot be asked may split. */
static bool splits_k(const cublasLtMatmulAlgo_t *algorithm)
{
    return configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 2) > 1 ||
           configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                CUBLASLT_REDUCTION_SCHEME_MASK) != CUBLASLT_REDUCTION_SCHEME_NONE;
}

/* The heuristic's first candidate that runs and does not split K. */
static bool choose(SELF, struct plan *plan, cublasLtMatmulPreference_t preference)
{
    cublasLtMatmulHeuristicResult_t candidates[CANDIDATES_MAX];
    int count = 0;
    if (!limit(k, preference, plan->alignment) ||
        !ok(k, cublasLtMatmulAlgoGetHeuristic(k->state->gemm->handle, plan->operation, plan->b,
                                              plan->a, plan->c, plan->c, preference, CANDIDATES_MAX,
                                              candidates, &count)))
        return false;
    for (int i = 0; i < count; i++) {
        if (candidates[i].state != CUBLAS_STATUS_SUCCESS || splits_k(&candidates[i].algo))
            continue;
        plan->algorithm = candidates[i].algo;
        return true;
    }
    cuda_fail(k, "cuBLASLt: no algorithm without a split for a product of %lld x %lld x %lld",
              (long long)plan->M, (long long)plan->N, (long long)plan->K);
    return false;
}

/* " NTb 64x50304x768/16: 71.20.5.0.2": transposition, bias, shape, alignment, and then the
 * algorithm's number, tile, stages, inner shape and cluster. */
static void note(struct gemm *gemm, const struct plan *plan)
{
    const cublasLtMatmulAlgo_t *algorithm = &plan->algorithm;
    add_text(gemm, " %c%c%s %lldx%lldx%lld/%u: %u.%u.%u.%u.%u", plan->transpose_a ? 'T' : 'N',
             plan->transpose_b ? 'T' : 'N', plan->bias ? "b" : "", (long long)plan->M,
             (long long)plan->N, (long long)plan->K, plan->alignment,
             configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID, 0),
             configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, 0),
             configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID, 0),
             configured<uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 0),
             configured<uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 0));
}

static struct plan *new_plan(SELF, const struct plan *wanted, const float *bias)
{
    struct gemm *gemm = k->state->gemm;
    cublasLtMatmulPreference_t preference = NULL;
    if (gemm->plans_count == PLANS_MAX) {
        cuda_fail(k, "more than %d shapes of matrix products", PLANS_MAX);
        return NULL;
    }
    struct plan *plan = &gemm->plans[gemm->plans_count];
    *plan = *wanted;
    bool ready = create(k, plan, bias) && ok(k, cublasLtMatmulPreferenceCreate(&preference)) &&
                 choose(k, plan, preference);
    cublasLtMatmulPreferenceDestroy(preference);
    if (!ready) {
        release_plan(plan);
        return NULL;
    }
    gemm->plans_count++;
    note(gemm, plan);
    return plan;
}

static bool same_shape(const struct plan *a, const struct plan *b)
{
    return a->M == b->M && a->N == b->N && a->K == b->K && a->transpose_a == b->transpose_a &&
           a->transpose_b == b->transpose_b && a->bias == b->bias && a->alignment == b->alignment;
}

static struct plan *find_plan(SELF, const struct plan *wanted, const float *bias)
{
    struct gemm *gemm = k->state->gemm;
    for (int i = 0; i < gemm->plans_count; i++)
        if (same_shape(&gemm->plans[i], wanted))
            return &gemm->plans[i];
    return new_plan(k, wanted, bias);
}

/* -- products ---------------------------------------------------------------------------------- */

/* ALIGNMENT when everything is: pointers, and rows of K or N floats (or whatever lies in a row). */
static uint32_t common_alignment(const float *const *pointers, int count, const int64_t *columns)
{
    for (int i = 0; i < count; i++)
        if ((uintptr_t)pointers[i] % ALIGNMENT != 0 || columns[i] * 4 % ALIGNMENT != 0)
            return sizeof(float);
    return ALIGNMENT;
}

void gemm_multiply(SELF, float *c, struct gemm_matrix a, struct gemm_matrix b, const float *bias,
                   float beta, int64_t M, int64_t N, int64_t K)
{
    if (M == 0 || N == 0)
        return;
    const float *pointers[] = {a.data, b.data, c, bias ? bias : c};
    const int64_t columns[] = {a.transposed ? M : K, b.transposed ? K : N, N, N};
    struct plan wanted = {};
    wanted.M = M;
    wanted.N = N;
    wanted.K = K;
    wanted.transpose_a = a.transposed;
    wanted.transpose_b = b.transposed;
    wanted.bias = bias != NULL;
    wanted.alignment = common_alignment(pointers, 4, columns);
    struct plan *plan = find_plan(k, &wanted, bias);
    if (!plan)
        return;
    const float alpha = 1;
    ok(k, cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                         sizeof bias)) &&
        ok(k, cublasLtMatmul(k->state->gemm->handle, plan->operation, &alpha, b.data, plan->b,
                             a.data, plan->a, &beta, c, plan->c, c, plan->c, &plan->algorithm,
                             k->state->workspace, WORKSPACE_BYTES, k->state->stream));
}
