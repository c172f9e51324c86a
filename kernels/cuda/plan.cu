#include "kernels/cuda/plan.cuh"

bool plan_ok(SELF, cublasStatus_t status)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        cuda_fail(k, "cuBLASLt: %s", cublasLtGetStatusString(status));
    return status == CUBLAS_STATUS_SUCCESS;
}

/* -- descriptions ------------------------------------------------------------------------------ */

static cublasStatus_t set_operation(cublasLtMatmulDesc_t operation,
                                    cublasLtMatmulDescAttributes_t attribute, int32_t value)
{
    return cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value);
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

bool plan_point(SELF, const struct plan *plan, const struct gemm_product *product)
{
    switch (plan->shape.epilogue) {
    case GEMM_PLAIN:
        return true;
    case GEMM_BIAS:
        return plan_ok(
            k, set_pointer(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product->bias));
    case GEMM_GELU:
        return plan_ok(k, set_pointer(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                      product->bias)) &&
               plan_ok(k, set_pointer(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                      product->pre));
    case GEMM_GELU_BACKWARD:
        return plan_ok(k, set_pointer(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                      product->pre));
    }
    return false;
}

/* How what the epilogue reads and writes lies in memory. */
static bool describe(SELF, const struct plan *plan)
{
    const int64_t columns = plan->shape.N;
    switch (plan->shape.epilogue) {
    case GEMM_PLAIN:
    case GEMM_BIAS:
        return true;
    case GEMM_GELU:
    case GEMM_GELU_BACKWARD:
        return plan_ok(k, cublasLtMatmulDescSetAttribute(plan->operation,
                                                         CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                                         &columns, sizeof columns));
    }
    return false;
}

/* Column-major, the product is c^T (N,M) = b^T (N,K) a^T (K,M): b comes first. So a bias (N) is one
 * for each row of cuBLASLt's result, as it wants it. */
static bool create_operation(SELF, struct plan *plan, const struct gemm_product *product)
{
    static const int32_t epilogues[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                                        CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU};
    const cublasComputeType_t compute = k->state->gemm->compute == KERNELS_COMPUTE_TF32
                                            ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    return plan_ok(k, cublasLtMatmulDescCreate(&plan->operation, compute, CUDA_R_32F)) &&
           plan_ok(k, set_operation(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                    plan->shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N)) &&
           plan_ok(k, set_operation(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB,
                                    plan->shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N)) &&
           plan_ok(k, set_operation(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                    epilogues[plan->shape.epilogue])) &&
           describe(k, plan) && plan_point(k, plan, product);
}

static bool create(SELF, struct plan *plan, const struct gemm_product *product)
{
    const struct plan_shape *shape = &plan->shape;
    const cudaDataType_t elements = k->state->bf16 ? CUDA_R_16BF : CUDA_R_32F;
    const cudaDataType_t result = shape->c_is_float ? CUDA_R_32F : elements;
    return create_operation(k, plan, product) &&
           plan_ok(k, new_layout(&plan->a, elements, shape->transpose_a, shape->M, shape->K)) &&
           plan_ok(k, new_layout(&plan->b, elements, shape->transpose_b, shape->K, shape->N)) &&
           plan_ok(k, new_layout(&plan->c, result, false, shape->M, shape->N));
}

void plan_release(struct plan *plan)
{
    cublasLtMatrixLayoutDestroy(plan->a);
    cublasLtMatrixLayoutDestroy(plan->b);
    cublasLtMatrixLayoutDestroy(plan->c);
    cublasLtMatmulDescDestroy(plan->operation);
}

/* -- algorithms -------------------------------------------------------------------------------- */

static cublasStatus_t set_preference(cublasLtMatmulPreference_t preference,
                                     cublasLtMatmulPreferenceAttributes_t attribute, uint32_t value)
{
    return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
}

/* Partial products of a split K may be added in the type of the sums, in a step of their own: in
 * one order then, and nothing is rounded before. What adds them in c itself adds them as they come,
 * and what keeps them in the type of c rounds them. */
static bool limit(SELF, cublasLtMatmulPreference_t preference, const struct plan_shape *shape,
                  bool splits)
{
    const uint64_t workspace_bytes = WORKSPACE_BYTES;
    const uint32_t schemes =
        splits ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    /* cuBLASLt's first factor is b */
    return plan_ok(k, cublasLtMatmulPreferenceSetAttribute(
                          preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                          sizeof workspace_bytes)) &&
           plan_ok(k, set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                     schemes)) &&
           plan_ok(k, set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                     shape->aligned_b)) &&
           plan_ok(k, set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                     shape->aligned_a)) &&
           plan_ok(k, set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                     shape->aligned_c)) &&
           plan_ok(k, set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                     shape->aligned_c));
}

/* A number of an algorithm's configuration; 0 when this version of cuBLASLt has no such. */
template <typename Number>
static unsigned configured(const cublasLtMatmulAlgo_t *algorithm,
                           cublasLtMatmulAlgoConfigAttributes_t attribute)
{
    Number number = 0;
    size_t written = 0;
    bool known = cublasLtMatmulAlgoConfigGetAttribute(algorithm, attribute, &number, sizeof number,
                                                      &written) == CUBLAS_STATUS_SUCCESS;
    return known ? number : 0;
}

/* The preference has said so already. */
static bool may_be_chosen(const cublasLtMatmulAlgo_t *algorithm, bool splits)
{
    bool is_split = configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1;
    unsigned scheme = configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    return is_split ? splits && scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                    : scheme == CUBLASLT_REDUCTION_SCHEME_NONE ||
                          scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

static int ask(SELF, const struct plan *plan, cublasLtMatmulPreference_t preference, bool splits,
               cublasLtMatmulAlgo_t (&ret_algorithms)[CANDIDATES_MAX])
{
    cublasLtMatmulHeuristicResult_t candidates[CANDIDATES_MAX];
    int found = 0, count = 0;
    if (!limit(k, preference, &plan->shape, splits) ||
        cublasLtMatmulAlgoGetHeuristic(k->state->gemm->handle, plan->operation, plan->b, plan->a,
                                       plan->c, plan->c, preference, CANDIDATES_MAX, candidates,
                                       &found) != CUBLAS_STATUS_SUCCESS)
        return 0;
    for (int i = 0; i < found; i++)
        if (candidates[i].state == CUBLAS_STATUS_SUCCESS &&
            may_be_chosen(&candidates[i].algo, splits))
            ret_algorithms[count++] = candidates[i].algo;
    return count;
}

int plan_candidates(SELF, const struct plan *plan, bool splits,
                    cublasLtMatmulAlgo_t (&ret_algorithms)[CANDIDATES_MAX])
{
    cublasLtMatmulPreference_t preference = NULL;
    int count = plan_ok(k, cublasLtMatmulPreferenceCreate(&preference))
                    ? ask(k, plan, preference, splits, ret_algorithms)
                    : 0;
    cublasLtMatmulPreferenceDestroy(preference);
    return count;
}

/* -- algorithms that another table chose ------------------------------------------------------- */

/* What stands behind the shape in the entry of its own; NULL: it has none. */
static const char *entry_of(const struct gemm *gemm, const struct plan_shape *shape)
{
    char text[PLAN_TEXT_BYTES], begin[PLAN_TEXT_BYTES + 2];
    plan_shape_text(gemm, shape, text);
    snprintf(begin, sizeof begin, ";%s ", text);
    const char *found = gemm->products ? strstr(gemm->products, begin) : NULL;
    return found ? found + strlen(begin) : NULL;
}

static bool read_digit(char digit, unsigned *ret_value)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = digit ? strchr(digits, digit) : NULL;
    *ret_value = found ? (unsigned)(found - digits) : 0;
    return found != NULL;
}

/* Zeros at the end are not written. */
static bool read_words(const char *words, cublasLtMatmulAlgo_t *ret_algorithm)
{
    unsigned char bytes[sizeof *ret_algorithm] = {};
    unsigned high, low;
    size_t count = 0;
    for (; *words && *words != ';'; words += 2)
        if (count == sizeof bytes || !read_digit(words[0], &high) || !read_digit(words[1], &low))
            return false;
        else
            bytes[count++] = (unsigned char)(high << 4 | low);
    memcpy(ret_algorithm, bytes, sizeof bytes);
    return count > 0;
}

/* They are a peer's: cuBLASLt judges them for this product. */
static bool is_admitted(SELF, const struct plan *plan, const cublasLtMatmulAlgo_t *algorithm)
{
    cublasLtMatmulHeuristicResult_t result = {};
    return cublasLtMatmulAlgoCheck(k->state->gemm->handle, plan->operation, plan->b, plan->a,
                                   plan->c, plan->c, algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
           result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= WORKSPACE_BYTES &&
           may_be_chosen(algorithm, true);
}

/* False: the products do not name one for the shape, or not one that may be used here. */
static bool recall(SELF, struct plan *plan)
{
    cublasLtMatmulAlgo_t algorithm;
    const char *entry = entry_of(k->state->gemm, &plan->shape);
    const char *words = entry ? strpbrk(entry, " ;") : NULL;
    if (!words || *words != ' ' || !read_words(words + 1, &algorithm) ||
        !is_admitted(k, plan, &algorithm))
        return false;
    plan->algorithm = algorithm;
    return true;
}

void plan_words_text(const cublasLtMatmulAlgo_t *algorithm, char (&text)[PLAN_WORDS_BYTES])
{
    const unsigned char *bytes = (const unsigned char *)algorithm;
    size_t count = sizeof *algorithm;
    while (count > 1 && bytes[count - 1] == 0)
        count--;
    for (size_t i = 0; i < count; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

/* -- a plan ------------------------------------------------------------------------------------ */

bool plan_init(SELF, struct plan *plan, const struct plan_shape *shape,
               const struct gemm_product *product)
{
    cublasLtMatmulAlgo_t algorithms[CANDIDATES_MAX];
    *plan = {};
    plan->shape = *shape;
    if (!create(k, plan, product)) {
        plan_release(plan);
        return false;
    }
    if (recall(k, plan))
        return true;
    if (plan_candidates(k, plan, true, algorithms) > 0)
        plan->algorithm = algorithms[0];
    else
        plan->declined = true;
    return true;
}

cublasStatus_t plan_multiply(SELF, const struct plan *plan, const cublasLtMatmulAlgo_t *algorithm,
                             const struct gemm_product *product)
{
    const float alpha = 1, beta = product->add ? 1 : 0;
    const void *add = product->add ? product->add : product->c;
    return cublasLtMatmul(k->state->gemm->handle, plan->operation, &alpha, product->b.data, plan->b,
                          product->a.data, plan->a, &beta, add, plan->c, product->c, plan->c,
                          algorithm, k->state->workspace, WORKSPACE_BYTES, k->state->stream);
}

/* -- text -------------------------------------------------------------------------------------- */

void plan_shape_text(const struct gemm *gemm, const struct plan_shape *shape,
                     char (&text)[PLAN_TEXT_BYTES])
{
    static const char *const epilogues[] = {"", "b", "g", "d"};
    bool widens = shape->c_is_float && gemm->compute == KERNELS_COMPUTE_BF16;
    snprintf(text, sizeof text, "%c%c%s%s%s %lldx%lldx%lld/%u.%u.%u",
             shape->transpose_a ? 'T' : 'N', shape->transpose_b ? 'T' : 'N',
             epilogues[shape->epilogue], shape->adds ? "+" : "", widens ? "f" : "",
             (long long)shape->M, (long long)shape->N, (long long)shape->K, shape->aligned_a,
             shape->aligned_b, shape->aligned_c);
}

void plan_algorithm_text(const cublasLtMatmulAlgo_t *algorithm, char (&text)[PLAN_TEXT_BYTES])
{
    snprintf(text, sizeof text, "%u.%u.%u.%u.%u.%u.%u.%u",
             configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID),
             configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID),
             configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID),
             configured<uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
             configured<uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
             configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
             configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
             configured<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME));
}
