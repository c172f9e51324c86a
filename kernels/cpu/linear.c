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

/* The products of `a` and `b`, summed in four sums of their own. */
static float dot(const float *a, const float *b, int64_t n)
{
    enum { SUMS = 4 };
    vec sums[SUMS] = {vec_zero(), vec_zero(), vec_zero(), vec_zero()};
    int64_t i = 0;
    for (; n - i >= SUMS * LANES; i += SUMS * LANES)
        for (int s = 0; s < SUMS; s++)
            sums[s] = vec_fma(vec_load(a + i + s * LANES, LANES),
                              vec_load(b + i + s * LANES, LANES), sums[s]);
    for (; i < n; i += LANES)
        sums[0] = vec_fma(vec_load(a + i, n - i), vec_load(b + i, n - i), sums[0]);
    return vec_sum(vec_add(vec_add(sums[0], sums[1]), vec_add(sums[2], sums[3])));
}

static void row_forward(float *out, const float *inp, const float *weight, const float *bias,
                        int64_t I, int64_t O)
{
    for (int64_t o = 0; o < O; o++)
        out[o] = (bias ? bias[o] : 0) + dot(weight + o * I, inp, I);
}

/* y += a * x */
static void add_scaled(float *y, float a, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES)
        vec_store(y + i, vec_fma(vec_set(a), vec_load(x + i, n - i), vec_load(y + i, n - i)),
                  n - i);
}

static void row_backward_input(float *dinp, const float *dout, const float *weight, int64_t I,
                               int64_t O)
{
    memset(dinp, 0, (size_t)I * sizeof *dinp);
    for (int64_t o = 0; o < O; o++)
        add_scaled(dinp, dout[o], weight + o * I, I);
}

static void row_backward_weight(float *dweight, const float *dout, const float *inp, int64_t I,
                                int64_t O)
{
    for (int64_t o = 0; o < O; o++)
        add_scaled(dweight + o * I, dout[o], inp, I);
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
