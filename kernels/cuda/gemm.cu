#include "kernels/cuda/gemm.cuh"

#include <cublasLt.h>

#include <stdarg.h>

enum {
    PLANS_MAX = 256,     /* a model needs three a linear, times the row counts that occur */
    CANDIDATES_MAX = 16, /* asked of the heuristic */
    ALIGNMENT = 16,      /* bytes; what is aligned less counts as aligned to an element */
    PLAN_TEXT_BYTES = 80,
};

/* How one shape is computed. */
struct plan {
    int64_t M, N, K;
    bool transpose_a, transpose_b, c_is_float, adds;
    enum gemm_epilogue epilogue;
    uint32_t alignment;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    bool declined; /* there is no algorithm with that epilogue */
    cublasLtMatmulAlgo_t algorithm;
};

struct gemm {
    cublasLtHandle_t handle;
    enum kernels_compute compute;
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
    gemm->compute = options->compute;
    static const char *const names[] = {"fp32", "tf32", "bf16"};
    add_text(gemm, "cuBLASLt %zu %s %s, %d SMs of sm_%d%d:", cublasLtGetVersion(),
             names[gemm->compute], device->name, device->multiProcessorCount, device->major,
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
static cublasStatus_t new_layout(cublasLtMatrixLayout_t *ret_layout, cudaDataType_t type,
                                 bool transposed, int64_t rows, int64_t columns)
{
    int64_t stored_rows = transposed ? columns : rows, stored_columns = transposed ? rows : columns;
    return cublasLtMatrixLayoutCreate(ret_layout, type, (uint64_t)stored_columns,
                                      (uint64_t)stored_rows, stored_columns);
}

static cublasStatus_t set_pointer(cublasLtMatmulDesc_t operation,
                                  cublasLtMatmulDescAttributes_t attribute, const void *value)
{
    return cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value);
}

/* What the epilogue reads and writes beside the product: different with each call. */
static bool point(SELF, const struct plan *plan, const struct gemm_product *product)
{
    switch (plan->epilogue) {
    case GEMM_PLAIN:
        return true;
    case GEMM_BIAS:
        return ok(k,
                  set_pointer(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product->bias));
    case GEMM_GELU:
        return ok(k,
                  set_pointer(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product->bias)) &&
               ok(k, set_pointer(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                 product->pre));
    case GEMM_GELU_BACKWARD:
        return ok(k, set_pointer(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                 product->pre));
    case GEMM_SUMS:
        return ok(k,
                  set_pointer(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product->sums));
    }
    return false;
}

/* How what the epilogue reads and writes lies in memory. */
static bool describe(SELF, const struct plan *plan)
{
    switch (plan->epilogue) {
    case GEMM_PLAIN:
    case GEMM_BIAS:
        return true;
    case GEMM_GELU:
    case GEMM_GELU_BACKWARD:
        return ok(k, cublasLtMatmulDescSetAttribute(plan->operation,
                                                    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &plan->N,
                                                    sizeof plan->N));
    case GEMM_SUMS:
        return ok(k,
                  set_operation(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F));
    }
    return false;
}

/* Column-major, the product is c^T (N,M) = b^T (N,K) a^T (K,M): b comes first. So a bias (N) is one
 * for each row of cuBLASLt's result, as it wants it. The sums (M), of a's rows over K, are of the
 * columns of its second factor, a^T, one for each column of its result: BGRADB, not BGRADA. (With a
 * = dout^T, b = inp, K the rows of both, they are a bias' gradient.) */
static bool create_operation(SELF, struct plan *plan, const struct gemm_product *product)
{
    static const int32_t epilogues[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                                        CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
                                        CUBLASLT_EPILOGUE_BGRADB};
    const cublasComputeType_t compute = k->state->gemm->compute == KERNELS_COMPUTE_TF32
                                            ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    return ok(k, cublasLtMatmulDescCreate(&plan->operation, compute, CUDA_R_32F)) &&
           ok(k, set_operation(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                               plan->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N)) &&
           ok(k, set_operation(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB,
                               plan->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N)) &&
           ok(k, set_operation(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                               epilogues[plan->epilogue])) &&
           describe(k, plan) && point(k, plan, product);
}

static bool create(SELF, struct plan *plan, const struct gemm_product *product)
{
    const cudaDataType_t elements = k->state->bf16 ? CUDA_R_16BF : CUDA_R_32F;
    const cudaDataType_t result = plan->c_is_float ? CUDA_R_32F : elements;
    return create_operation(k, plan, product) &&
           ok(k, new_layout(&plan->a, elements, plan->transpose_a, plan->M, plan->K)) &&
           ok(k, new_layout(&plan->b, elements, plan->transpose_b, plan->K, plan->N)) &&
           ok(k, new_layout(&plan->c, result, false, plan->M, plan->N));
}

/* What may be chosen: nothing that adds up partial products of a split K. */
static bool limit(SELF, cublasLtMatmulPreference_t preference, const struct plan *plan)
{
    const uint64_t workspace_bytes = WORKSPACE_BYTES;
    const uint32_t alignment = plan->alignment;
    const uint32_t of_c =
        plan->c_is_float && alignment < sizeof(float) ? (uint32_t)sizeof(float) : alignment;
    return ok(k, cublasLtMatmulPreferenceSetAttribute(preference,
                                                      CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &workspace_bytes, sizeof workspace_bytes)) &&
           ok(k, set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                CUBLASLT_REDUCTION_SCHEME_NONE)) &&
           ok(k,
              set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment)) &&
           ok(k,
              set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment)) &&
           ok(k, set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_c)) &&
           ok(k, set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_c));
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

/* Those that may be declined. */
static bool is_optional(enum gemm_epilogue epilogue)
{
    return epilogue != GEMM_PLAIN && epilogue != GEMM_BIAS;
}

/* The heuristic's first candidate that runs and does not split K. */
static bool choose(SELF, struct plan *plan, cublasLtMatmulPreference_t preference)
{
    cublasLtMatmulHeuristicResult_t candidates[CANDIDATES_MAX];
    int count = 0;
    if (!limit(k, preference, plan))
        return false;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        k->state->gemm->handle, plan->operation, plan->b, plan->a, plan->c, plan->c, preference,
        CANDIDATES_MAX, candidates, &count);
    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; i++) {
        if (candidates[i].state != CUBLAS_STATUS_SUCCESS || splits_k(&candidates[i].algo))
            continue;
        plan->algorithm = candidates[i].algo;
        return true;
    }
    plan->declined = is_optional(plan->epilogue);
    if (!plan->declined)
        cuda_fail(k,
                  "cuBLASLt: no algorithm without a split for a product of %lld x %lld x %lld (%s)",
                  (long long)plan->M, (long long)plan->N, (long long)plan->K,
                  cublasLtGetStatusString(status));
    return plan->declined;
}

/* " NTb+f 64x50304x768/16: 71.20.5.0.2.0": transposition; b bias, g GELU, d its backward, s sums of
 * a; + something is added, f the result is fp32 and the factors are not; shape, alignment, and then
 * the algorithm's number, tile, stages, inner shape, cluster and custom option, or "none". */
static void note(struct gemm *gemm, const struct plan *plan)
{
    static const char *const epilogues[] = {"", "b", "g", "d", "s"};
    bool widens = plan->c_is_float && gemm->compute == KERNELS_COMPUTE_BF16;
    const cublasLtMatmulAlgo_t *algorithm = &plan->algorithm;
    add_text(gemm, " %c%c%s%s%s %lldx%lldx%lld/%u: ", plan->transpose_a ? 'T' : 'N',
             plan->transpose_b ? 'T' : 'N', epilogues[plan->epilogue], plan->adds ? "+" : "",
             widens ? "f" : "", (long long)plan->M, (long long)plan->N, (long long)plan->K,
             plan->alignment);
    if (plan->declined)
        add_text(gemm, "none");
    else
        add_text(gemm, "%u.%u.%u.%u.%u.%u",
                 configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID, 0),
                 configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, 0),
                 configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID, 0),
                 configured<uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 0),
                 configured<uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 0),
                 configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 0));
}

static struct plan *new_plan(SELF, const struct plan *wanted, const struct gemm_product *product)
{
    struct gemm *gemm = k->state->gemm;
    cublasLtMatmulPreference_t preference = NULL;
    if (gemm->plans_count == PLANS_MAX) {
        cuda_fail(k, "more than %d shapes of matrix products", PLANS_MAX);
        return NULL;
    }
    struct plan *plan = &gemm->plans[gemm->plans_count];
    *plan = *wanted;
    bool ready = create(k, plan, product) && ok(k, cublasLtMatmulPreferenceCreate(&preference)) &&
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
           a->transpose_b == b->transpose_b && a->c_is_float == b->c_is_float &&
           a->adds == b->adds && a->epilogue == b->epilogue && a->alignment == b->alignment;
}

static struct plan *find_plan(SELF, const struct plan *wanted, const struct gemm_product *product)
{
    struct gemm *gemm = k->state->gemm;
    for (int i = 0; i < gemm->plans_count; i++)
        if (same_shape(&gemm->plans[i], wanted))
            return &gemm->plans[i];
    return new_plan(k, wanted, product);
}

/* -- products ---------------------------------------------------------------------------------- */

/* ALIGNMENT when everything is: where a matrix begins, and its rows as they lie in memory. */
static uint32_t common_alignment(SELF, const struct gemm_product *p)
{
    const size_t bytes = k->element_bytes, c_bytes = p->c_is_float ? sizeof(float) : bytes;
    const void *arrays[] = {p->a.data, p->b.data, p->c, p->add, p->bias, p->pre, p->sums};
    const size_t rows[] = {(size_t)(p->a.transposed ? p->M : p->K) * bytes,
                           (size_t)(p->b.transposed ? p->K : p->N) * bytes, (size_t)p->N * c_bytes};
    bool aligned = true;
    for (const void *array : arrays)
        aligned = aligned && (uintptr_t)array % ALIGNMENT == 0;
    for (size_t row : rows)
        aligned = aligned && row % ALIGNMENT == 0;
    return aligned ? (uint32_t)ALIGNMENT : (uint32_t)bytes;
}

/* False: the plan is to decline. A failure is not: what follows it is of no use. */
static bool multiply(SELF, const struct gemm_product *product)
{
    struct plan wanted = {};
    wanted.M = product->M;
    wanted.N = product->N;
    wanted.K = product->K;
    wanted.transpose_a = product->a.transposed;
    wanted.transpose_b = product->b.transposed;
    wanted.c_is_float = product->c_is_float;
    wanted.adds = product->add != NULL;
    wanted.epilogue = product->epilogue;
    wanted.alignment = common_alignment(k, product);
    struct plan *plan = find_plan(k, &wanted, product);
    if (plan && plan->declined)
        return false;
    if (!plan || !point(k, plan, product))
        return true;
    const float alpha = 1, beta = product->add ? 1 : 0;
    const void *add = product->add ? product->add : product->c;
    ok(k, cublasLtMatmul(k->state->gemm->handle, plan->operation, &alpha, product->b.data, plan->b,
                         product->a.data, plan->a, &beta, add, plan->c, product->c, plan->c,
                         &plan->algorithm, k->state->workspace, WORKSPACE_BYTES, k->state->stream));
    return true;
}

void gemm_multiply(SELF, const struct gemm_product *product)
{
    bool done = product->M == 0 || product->N == 0 || multiply(k, product);
    check(done); /* what is not optional is not declined */
}

static bool may_fuse(SELF, const struct gemm_product *product)
{
    if (product->epilogue == GEMM_SUMS)
        return (product->c_is_float || !k->state->bf16) &&
               k->state->gemm->compute != KERNELS_COMPUTE_TF32;
    return k->state->bf16 && packs_fit(k, product->N, product->pre);
}

bool gemm_fuse(SELF, const struct gemm_product *product)
{
    check(is_optional(product->epilogue));
    return may_fuse(k, product) && (product->M == 0 || product->N == 0 || multiply(k, product));
}
