#include "kernels/cpu/cpu.h"

/* The bias is written first and the product added to it: as cheap as the zeroes that GEMM would
 * write otherwise. */
static void broadcast_rows(float *out, const float *bias, int64_t N, int64_t O)
{
    for (int64_t row = 0; row < N; row++)
        memcpy(out + row * O, bias, (size_t)O * sizeof *out);
}

/* -- one row --------------------------------------------------------------------------------------
 * A product with one row reads each weight once, which GEMM copies into its own order first. Not by
 * GEMV: what OpenBLAS's gives depends on where the arrays lie, in some shapes. */

/* So many rows of the weights at a time, or one: each is read from memory in a stream of its own. */
enum { STREAMS = 4 };

/* out (rows) = weight (rows,I) times inp (I) */
static inline __attribute__((always_inline)) void multiply(float *out, const float *weight,
                                                           const float *inp, int64_t I, int rows)
{
    vec sums[STREAMS];
    for (int row = 0; row < rows; row++)
        sums[row] = vec_zero();
    for (int64_t i = 0; i < I; i += LANES)
        for (int row = 0; row < rows; row++)
            sums[row] =
                vec_fma(vec_load(weight + row * I + i, I - i), vec_load(inp + i, I - i), sums[row]);
    for (int row = 0; row < rows; row++)
        out[row] = vec_sum(sums[row]);
}

static void row_forward(float *out, const float *inp, const float *weight, const float *bias,
                        int64_t I, int64_t O)
{
    int64_t o = 0;
    for (; O - o >= STREAMS; o += STREAMS)
        multiply(out + o, weight + o * I, inp, I, STREAMS);
    for (; o < O; o++)
        multiply(out + o, weight + o * I, inp, I, 1);
    for (o = 0; bias && o < O; o++)
        out[o] += bias[o];
}

/* dinp (I) += dout (rows) times weight (rows,I), row after row */
static inline __attribute__((always_inline)) void
multiply_back(float *dinp, const float *dout, const float *weight, int64_t I, int rows)
{
    for (int64_t i = 0; i < I; i += LANES) {
        vec sum = vec_load(dinp + i, I - i);
        for (int row = 0; row < rows; row++)
            sum = vec_fma(vec_set(dout[row]), vec_load(weight + row * I + i, I - i), sum);
        vec_store(dinp + i, sum, I - i);
    }
}

static void row_backward_input(float *dinp, const float *dout, const float *weight, int64_t I,
                               int64_t O)
{
    int64_t o = 0;
    memset(dinp, 0, (size_t)I * sizeof *dinp);
    for (; O - o >= STREAMS; o += STREAMS)
        multiply_back(dinp, dout + o, weight + o * I, I, STREAMS);
    for (; o < O; o++)
        multiply_back(dinp, dout + o, weight + o * I, I, 1);
}

/* dweight (rows,I) += dout (rows) times inp (I) */
static inline __attribute__((always_inline)) void
add_products(float *dweight, const float *dout, const float *inp, int64_t I, int rows)
{
    for (int64_t i = 0; i < I; i += LANES)
        for (int row = 0; row < rows; row++) {
            float *sum = dweight + row * I + i;
            vec_store(sum,
                      vec_fma(vec_set(dout[row]), vec_load(inp + i, I - i), vec_load(sum, I - i)),
                      I - i);
        }
}

static void row_backward_weight(float *dweight, const float *dout, const float *inp, int64_t I,
                                int64_t O)
{
    int64_t o = 0;
    for (; O - o >= STREAMS; o += STREAMS)
        add_products(dweight + o * I, dout + o, inp, I, STREAMS);
    for (; o < O; o++)
        add_products(dweight + o * I, dout + o, inp, I, 1);
}

/* -- any number of rows ---------------------------------------------------------------------------
 */

void VARIANT(linear_forward)(SELF, float *out, const float *inp, const float *weight,
                             const float *bias, int64_t N, int64_t I, int64_t O)
{
    if (N == 1) {
        row_forward(out, inp, weight, bias, I, O);
        return;
    }
    if (bias)
        broadcast_rows(out, bias, N, O);
    gemm_multiply(&k->state->gemm, out, O, 1, (struct gemm_matrix){inp, I, GEMM_AS_IS},
                  (struct gemm_matrix){weight, I, GEMM_TRANSPOSED}, bias ? 1 : 0, N, O, I);
}

void VARIANT(linear_add_forward)(SELF, float *out, const float *residual, const float *inp,
                                 const float *weight, const float *bias, int64_t N, int64_t I,
                                 int64_t O)
{
    VARIANT(linear_forward)(k, out, inp, weight, bias, N, I, O);
    VARIANT(add)(k, out, out, residual, N * O);
}

void VARIANT(linear_gelu_forward)(SELF, float *out, float *pre, const float *inp,
                                  const float *weight, const float *bias, int64_t N, int64_t I,
                                  int64_t O)
{
    VARIANT(linear_forward)(k, pre, inp, weight, bias, N, I, O);
    VARIANT(gelu_forward)(k, out, pre, N * O);
}

void VARIANT(linear_finish)(SELF, float *out, const float *residual, const float *sum,
                            const float *bias, int64_t N, int64_t O)
{
    for (int64_t row = 0; row < N; row++)
        for (int64_t o = 0; o < O; o += LANES) {
            int64_t at = row * O + o, left = O - o;
            vec x = vec_load(sum + at, left);
            if (bias)
                x = vec_add(x, vec_load(bias + o, left));
            if (residual)
                x = vec_add(vec_load(residual + at, left), x);
            vec_store(out + at, x, left);
        }
}

void VARIANT(linear_backward_input)(SELF, float *dinp, const float *dout, const float *weight,
                                    int64_t N, int64_t I, int64_t O)
{
    if (N == 1) {
        row_backward_input(dinp, dout, weight, I, O);
        return;
    }
    gemm_multiply(&k->state->gemm, dinp, I, 1, (struct gemm_matrix){dout, O, GEMM_AS_IS},
                  (struct gemm_matrix){weight, I, GEMM_AS_IS}, 0, N, I, O);
}

void VARIANT(linear_gelu_backward_input)(SELF, float *dpre, const float *dout, const float *weight,
                                         const float *pre, int64_t N, int64_t I, int64_t O)
{
    VARIANT(linear_backward_input)(k, dpre, dout, weight, N, I, O);
    VARIANT(gelu_backward)(k, dpre, dpre, pre, N * I);
}

/* dbias (O) += the rows of dout (N,O), first to last. */
static void add_rows(float *dbias, const float *dout, int64_t N, int64_t O)
{
    for (int64_t o = 0; o < O; o += LANES) {
        vec sum = vec_load(dbias + o, O - o);
        for (int64_t row = 0; row < N; row++)
            sum = vec_add(sum, vec_load(dout + row * O + o, O - o));
        vec_store(dbias + o, sum, O - o);
    }
}

/* OpenBLAS packs all outputs at once: for a head of 50,304 that is 50 MB, in blocks 8 MB. */
enum { OUTPUTS_AT_A_TIME = 8192 };

static void rows_backward_weight(SELF, float *dweight, const float *dout, const float *inp,
                                 int64_t N, int64_t I, int64_t O)
{
    for (int64_t o = 0; o < O; o += OUTPUTS_AT_A_TIME) {
        int64_t count = O - o < OUTPUTS_AT_A_TIME ? O - o : OUTPUTS_AT_A_TIME;
        gemm_multiply(&k->state->gemm, dweight + o * I, I, 1,
                      (struct gemm_matrix){dout + o, O, GEMM_TRANSPOSED},
                      (struct gemm_matrix){inp, I, GEMM_AS_IS}, 1, count, I, N);
    }
}

void VARIANT(linear_backward_weight)(SELF, float *dweight, float *dbias, const float *dout,
                                     const float *inp, int64_t N, int64_t I, int64_t O)
{
    if (N == 1)
        row_backward_weight(dweight, dout, inp, I, O);
    else
        rows_backward_weight(k, dweight, dout, inp, N, I, O);
    if (dbias)
        add_rows(dbias, dout, N, O);
}
