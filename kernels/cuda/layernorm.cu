/* Two runs are equal: one warp a row with a fixed tree over its lanes, and the parameters'
 * gradients by columns.cuh. */
#include "kernels/cuda/columns.cuh"

enum { ROWS = THREADS / WARP }; /* of a block */

static __device__ int64_t warp_row(void)
{
    return (int64_t)blockIdx.x * ROWS + threadIdx.x / WARP;
}

static __device__ float row_mean(const float *x, int64_t C)
{
    float sum = 0;
    for (int64_t c = threadIdx.x % WARP; c < C; c += WARP)
        sum += x[c];
    return warp_sum(sum) / (float)C;
}

static __device__ float row_variance(const float *x, float mean, int64_t C)
{
    float sum = 0;
    for (int64_t c = threadIdx.x % WARP; c < C; c += WARP)
        sum = fmaf(x[c] - mean, x[c] - mean, sum);
    return warp_sum(sum) / (float)C;
}

static __global__ void forward(float *out, float *mean, float *rstd, const float *inp,
                               const float *gamma, const float *beta, int64_t N, int64_t C)
{
    int64_t row = warp_row();
    if (row >= N)
        return;
    inp += row * C;
    out += row * C;
    float m = row_mean(inp, C), r = 1 / sqrtf(row_variance(inp, m, C) + 1e-5f);
    for (int64_t c = threadIdx.x % WARP; c < C; c += WARP)
        out[c] = fmaf((inp[c] - m) * r, gamma[c], beta[c]);
    if (threadIdx.x % WARP == 0) {
        mean[row] = m;
        rstd[row] = r;
    }
}

void cuda_layernorm_forward(SELF, float *out, float *mean, float *rstd, const float *inp,
                            const float *gamma, const float *beta, int64_t N, int64_t C)
{
    launch(k, ceil_div(N, ROWS), THREADS, 0, forward, out, mean, rstd, inp, gamma, beta, N, C);
}

/* With x the normalised input and g = dout * gamma:
 * dinp += rstd * (g - mean(g) - x * mean(g * x)). */
static __global__ void backward_input(float *dinp, const float *dout, const float *inp,
                                      const float *mean, const float *rstd, const float *gamma,
                                      int64_t N, int64_t C)
{
    int64_t row = warp_row();
    if (row >= N)
        return;
    dinp += row * C;
    dout += row * C;
    inp += row * C;
    float m = mean[row], r = rstd[row], sum_g = 0, sum_gx = 0;
    for (int64_t c = threadIdx.x % WARP; c < C; c += WARP) {
        float g = dout[c] * gamma[c];
        sum_g += g;
        sum_gx = fmaf(g, (inp[c] - m) * r, sum_gx);
    }
    float mean_g = warp_sum(sum_g) / (float)C, mean_gx = warp_sum(sum_gx) / (float)C;
    for (int64_t c = threadIdx.x % WARP; c < C; c += WARP) {
        float g = dout[c] * gamma[c], x = (inp[c] - m) * r;
        dinp[c] = fmaf(r, fmaf(-x, mean_gx, g - mean_g), dinp[c]);
    }
}

/* The first stage of dgamma += dout * x and dbeta += dout, summed over rows. */
static __global__ void backward_parameters(float *dgamma_sums, float *dbeta_sums, const float *dout,
                                           const float *inp, const float *mean, const float *rstd,
                                           struct row_parts parts, int64_t N, int64_t C)
{
    struct column_walk walk = column_walk(parts, N, C);
    float dgamma = 0, dbeta = 0;
    if (walk.column < C) {
        for (int64_t row = walk.row; row < walk.end; row += ROW_LANES) {
            float d = dout[row * C + walk.column];
            float x = (inp[row * C + walk.column] - mean[row]) * rstd[row];
            dgamma = fmaf(d, x, dgamma);
            dbeta += d;
        }
    }
    store_part(dgamma_sums, walk, dgamma, C);
    store_part(dbeta_sums, walk, dbeta, C);
}

void cuda_layernorm_backward(SELF, float *dinp, float *dgamma, float *dbeta, const float *dout,
                             const float *inp, const float *mean, const float *rstd,
                             const float *gamma, int64_t N, int64_t C)
{
    if (N == 0)
        return;
    struct row_parts parts = row_parts(N, C);
    float *dgamma_sums = part_sums(k, parts, C, 0), *dbeta_sums = part_sums(k, parts, C, 1);
    launch(k, ceil_div(N, ROWS), THREADS, 0, backward_input, dinp, dout, inp, mean, rstd, gamma, N,
           C);
    launch(k, part_blocks(parts, C), THREADS, 0, backward_parameters, dgamma_sums, dbeta_sums, dout,
           inp, mean, rstd, parts, N, C);
    launch_each(k, C, add_parts, dgamma, dgamma_sums, parts.count, C);
    launch_each(k, C, add_parts, dbeta, dbeta_sums, parts.count, C);
}
