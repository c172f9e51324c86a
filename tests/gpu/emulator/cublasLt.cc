/* cuBLASLt on the emulated device: plain loops, with the checks that the real one makes. Matrices
 * are column-major. The heuristic's first candidate splits K, to see it refused. */
#include "tests/gpu/emulator/cublasLt.h"

#include "tests/gpu/emulator/device.h"

struct emulator_handle {
};

struct emulator_operation {
    int32_t transpose_a, transpose_b, epilogue;
    const float *bias;
};

struct emulator_layout {
    int64_t rows, columns, stride;
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
    void *const places[] = {&operation->transpose_a, &operation->transpose_b, &operation->epilogue,
                            &operation->bias};
    size_t wanted = attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof(void *) : 4;
    if (bytes != wanted)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(places[attribute], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t,
                                          uint64_t rows, uint64_t columns, int64_t stride)
{
    *layout = new emulator_layout{(int64_t)rows, (int64_t)columns, stride};
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

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results,
                                              int *ret_count)
{
    if (!shapes_fit(operation, a, b, c) || wanted < 2)
        return CUBLAS_STATUS_INVALID_VALUE;
    uint32_t alignment = preference->values[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
    results[0] = {{alignment, 2}, 0, CUBLAS_STATUS_SUCCESS};
    results[1] = {{alignment, 1}, 0, CUBLAS_STATUS_SUCCESS};
    *ret_count = 2;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written)
{
    uint32_t number = attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? algorithm->splits : 0;
    bool narrow = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                  attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    if (bytes != (narrow ? sizeof(uint16_t) : sizeof(uint32_t)))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &number, bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static bool aligned(const void *data, const emulator_layout *layout, uint32_t alignment)
{
    return (uintptr_t)data % alignment == 0 && layout->stride * 4 % alignment == 0;
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

static void multiply(const emulator_operation *operation, const float *a,
                     const emulator_layout *a_layout, const float *b,
                     const emulator_layout *b_layout, float beta, float *c,
                     const emulator_layout *c_layout)
{
    struct steps in_a = steps_of(a_layout, operation->transpose_a);
    struct steps in_b = steps_of(b_layout, operation->transpose_b);
    int64_t inner = columns_of(a_layout, operation->transpose_a);
    for (int64_t column = 0; column < c_layout->columns; column++) {
        for (int64_t row = 0; row < c_layout->rows; row++) {
            const float *x = a + row * in_a.down, *y = b + column * in_b.right;
            float sum = operation->epilogue == CUBLASLT_EPILOGUE_BIAS ? operation->bias[row] : 0;
            for (int64_t i = 0; i < inner; i++)
                sum += x[i * in_a.right] * y[i * in_b.down];
            float *at = c + column * c_layout->stride + row;
            *at = beta == 0 ? sum : beta * *at + sum;
        }
    }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t *algorithm, void *, size_t, cudaStream_t)
{
    bool right = shapes_fit(operation, a_layout, b_layout, c_layout) && c == d &&
                 *(const float *)alpha == 1 && aligned(a, a_layout, algorithm->alignment) &&
                 aligned(b, b_layout, algorithm->alignment) &&
                 aligned(d, c_layout, algorithm->alignment) && algorithm->splits == 1;
    if (!right)
        return CUBLAS_STATUS_INVALID_VALUE;
    device_open();
    multiply(operation, (const float *)a, a_layout, (const float *)b, b_layout,
             *(const float *)beta, (float *)d, c_layout);
    device_close();
    return CUBLAS_STATUS_SUCCESS;
}
