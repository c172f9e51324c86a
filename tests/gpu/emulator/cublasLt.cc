/* cuBLASLt on the emulated device: plain loops, with the checks that the real one makes. Matrices
 * are column-major. The heuristic's first candidate splits K and adds in place, to see
 * it refused; the second one splits a K that is long, and adds as the caller allows. */
#include "tests/gpu/emulator/cublasLt.h"

#include "tests/gpu/emulator/device.h"

#include <stdlib.h>

struct emulator_handle {
};

struct emulator_operation {
    int32_t transpose_a, transpose_b, epilogue;
    const void *bias;
    void *aux;
    int64_t aux_stride;
};

struct emulator_layout {
    int64_t rows, columns, stride;
    bool bf16;

    float get(const void *data, int64_t i) const
    {
        unsigned bits = 0;
        float x;
        memcpy(bf16 ? (char *)&bits + 2 : (char *)&bits, (const char *)data + i * bytes(), bytes());
        memcpy(&x, &bits, sizeof x);
        return x;
    }

    void set(void *data, int64_t i, float x) const
    {
        unsigned bits;
        memcpy(&bits, &x, sizeof bits);
        if (bf16)
            bits += (bits >> 16 & 1) + 0x7fff;
        memcpy((char *)data + i * bytes(), bf16 ? (char *)&bits + 2 : (char *)&bits, bytes());
    }

    size_t bytes() const
    {
        return bf16 ? 2 : 4;
    }
};

struct emulator_preference {
    uint64_t workspace_bytes;
    uint32_t values[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES + 1];
};

size_t cublasLtGetVersion()
{
    return 0;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "invalid value";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new emulator_handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *operation, cublasComputeType_t,
                                        cudaDataType_t)
{
    *operation = new emulator_operation{};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation)
{
    delete operation;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    void *const places[] = {&operation->transpose_a, &operation->transpose_b,
                            &operation->epilogue,    &operation->bias,
                            &operation->aux,         &operation->aux_stride};
    size_t wanted = attribute >= CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof(void *) : 4;
    if (bytes != wanted)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(places[attribute], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t stride)
{
    *layout = new emulator_layout{(int64_t)rows, (int64_t)columns, stride, type == CUDA_R_16BF};
    return stride >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new emulator_preference{};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    bool workspace = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    if (bytes != (workspace ? sizeof(uint64_t) : sizeof(uint32_t)))
        return CUBLAS_STATUS_INVALID_VALUE;
    void *place = &preference->values[attribute];
    memcpy(workspace ? &preference->workspace_bytes : place, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* Rows and columns of a factor as the product takes it. */
static int64_t rows_of(const emulator_layout *layout, int transpose)
{
    return transpose ? layout->columns : layout->rows;
}

static int64_t columns_of(const emulator_layout *layout, int transpose)
{
    return transpose ? layout->rows : layout->columns;
}

static bool shapes_fit(const emulator_operation *operation, const emulator_layout *a,
                       const emulator_layout *b, const emulator_layout *c)
{
    return rows_of(a, operation->transpose_a) == c->rows &&
           columns_of(b, operation->transpose_b) == c->columns &&
           columns_of(a, operation->transpose_a) == rows_of(b, operation->transpose_b);
}

static const int64_t LONG_K = 128;

/* The real one has no algorithm for some products with an epilogue; here it is those with odd rows,
 * so that both ways are taken. */
static bool has_algorithm(const emulator_operation *operation, const emulator_layout *c)
{
    if (getenv("ROOST_EMULATED_ALGORITHMS")) /* a test pretends that there is none at all */
        return false;
    return operation->epilogue != CUBLASLT_EPILOGUE_BIAS || c->stride % 2 == 0;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results,
                                              int *ret_count)
{
    uint32_t of_a = preference->values[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
    uint32_t of_b = preference->values[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES];
    uint32_t of_c = preference->values[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES];
    if (!shapes_fit(operation, a, b, c) || wanted < 3)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (of_c < c->bytes() || !has_algorithm(operation, c))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    uint32_t schemes = preference->values[CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK];
    uint32_t added = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    bool is_long = columns_of(a, operation->transpose_a) >= LONG_K;
    const cublasStatus_t success = CUBLAS_STATUS_SUCCESS;
    int count = 0;
    results[count++] = {{of_a, of_b, of_c, 2, CUBLASLT_REDUCTION_SCHEME_INPLACE}, 0, success};
    if (is_long && schemes & added)
        results[count++] = {{of_a, of_b, of_c, 2, added}, 0, success};
    results[count++] = {{of_a, of_b, of_c, 1, CUBLASLT_REDUCTION_SCHEME_NONE}, 0, success};
    *ret_count = count;
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_power(uint32_t bytes)
{
    return bytes >= 2 && bytes <= 16 && (bytes & (bytes - 1)) == 0;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    if (!shapes_fit(operation, a, b, c))
        return CUBLAS_STATUS_INVALID_VALUE;
    bool known = is_power(algorithm->aligned_a) && is_power(algorithm->aligned_b) &&
                 is_power(algorithm->aligned_c) && algorithm->splits >= 1 && algorithm->splits <= 2;
    *result = {*algorithm, 0, known ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED};
    return result->state;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written)
{
    uint32_t number = attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM         ? algorithm->splits
                      : attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME ? algorithm->scheme
                                                                           : 0;
    bool narrow = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                  attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    if (bytes != (narrow ? sizeof(uint16_t) : sizeof(uint32_t)))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &number, bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_aligned(const void *data, uint32_t bytes)
{
    return (uintptr_t)data % bytes == 0;
}

/* As the real one asks of what a GELU leaves or finds: bf16, and rows of 16 bytes. */
static bool aux_fits(const emulator_operation *operation, const emulator_layout *layout)
{
    bool needed = operation->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
                  operation->epilogue == CUBLASLT_EPILOGUE_DGELU;
    return !needed || (layout->bf16 && operation->aux && (uintptr_t)operation->aux % 16 == 0 &&
                       operation->aux_stride % 8 == 0 && operation->aux_stride >= layout->rows);
}

/* How far apart an element of a factor, as the product takes it, is from the one below it and from
 * the one right of it. */
struct steps {
    int64_t down, right;
};

static struct steps steps_of(const emulator_layout *layout, int transpose)
{
    return transpose ? steps{layout->stride, 1} : steps{1, layout->stride};
}

static double gelu_tanh(double x)
{
    return tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
}

static float gelu(double x)
{
    return (float)(0.5 * x * (1 + gelu_tanh(x)));
}

static float gelu_slope(double x)
{
    double t = gelu_tanh(x);
    return (float)(0.5 * (1 + t) +
                   0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x));
}

/* What becomes of one sum. */
static float finish(const emulator_operation *operation, const emulator_layout *layout, float sum,
                    int64_t row, int64_t column)
{
    int64_t at = column * operation->aux_stride + row;
    switch (operation->epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
        return sum + layout->get(operation->bias, row);
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        sum += layout->get(operation->bias, row);
        layout->set(operation->aux, at, sum);
        return gelu(sum);
    case CUBLASLT_EPILOGUE_DGELU:
        return sum * gelu_slope(layout->get(operation->aux, at));
    default:
        return sum;
    }
}

/* The real one may write all of its workspace. */
static void spoil(void *workspace, size_t bytes)
{
    size_t few = 256;
    memset(workspace, 0xff, few);
    memset((char *)workspace + bytes - few, 0xff, few);
}

/* The real one rounds once: c is added before the epilogue. */
static void multiply(const emulator_operation *operation, int64_t splits, const void *a,
                     const emulator_layout *a_layout, const void *b,
                     const emulator_layout *b_layout, float beta, const void *c, void *d,
                     const emulator_layout *c_layout)
{
    struct steps in_a = steps_of(a_layout, operation->transpose_a);
    struct steps in_b = steps_of(b_layout, operation->transpose_b);
    int64_t inner = columns_of(a_layout, operation->transpose_a);
    for (int64_t column = 0; column < c_layout->columns; column++) {
        for (int64_t row = 0; row < c_layout->rows; row++) {
            int64_t x = row * in_a.down, y = column * in_b.right;
            int64_t at = column * c_layout->stride + row;
            float sum = beta == 0 ? 0 : beta * c_layout->get(c, at);
            for (int64_t part = 0; part < splits; part++) {
                float of_part = 0;
                for (int64_t i = inner * part / splits; i < inner * (part + 1) / splits; i++)
                    of_part +=
                        a_layout->get(a, x + i * in_a.right) * b_layout->get(b, y + i * in_b.down);
                sum += of_part;
            }
            c_layout->set(d, at, finish(operation, c_layout, sum, row, column));
        }
    }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    bool right =
        shapes_fit(operation, a_layout, b_layout, c_layout) && aux_fits(operation, c_layout) &&
        *(const float *)alpha == 1 && is_aligned(a, algorithm->aligned_a) &&
        is_aligned(b, algorithm->aligned_b) && is_aligned(c, algorithm->aligned_c) &&
        is_aligned(d, algorithm->aligned_c) && is_aligned(operation->bias, 16) &&
        (algorithm->splits == 1 || algorithm->scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    if (!right)
        return CUBLAS_STATUS_INVALID_VALUE;
    for (uint32_t part = 1; part < algorithm->splits; part++)
        stream_give(stream, [] {}); /* it takes longer by that */
    stream_give(stream, [operation = *operation, splits = algorithm->splits, a, in_a = *a_layout, b,
                         in_b = *b_layout, factor = *(const float *)beta, c, d, in_c = *c_layout,
                         workspace, workspace_bytes] {
        device_open();
        multiply(&operation, splits, a, &in_a, b, &in_b, factor, c, d, &in_c);
        spoil(workspace, workspace_bytes);
        device_close();
    });
    return CUBLAS_STATUS_SUCCESS;
}
