/* Two runs are equal: one warp a row with a fixed tree over its lanes, the backward pass as
 * norms.cuh says. */
#include "kernels/cuda/norms.cuh"

template <typename Element, int COUNT> static __device__ float row_mean(const Element *x, int C)
{
    float sum = 0;
    for (int c = lane_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<float, COUNT> in = values(load<COUNT>(x + c));
        for (int i = 0; i < COUNT; i++)
            sum += in.at[i];
    }
    return warp_sum(sum) / (float)C;
}

template <typename Element, int COUNT>
static __device__ float row_variance(const Element *x, float mean, int C)
{
    float sum = 0;
    for (int c = lane_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<float, COUNT> in = values(load<COUNT>(x + c));
        for (int i = 0; i < COUNT; i++)
            sum = fmaf(in.at[i] - mean, in.at[i] - mean, sum);
    }
    return warp_sum(sum) / (float)C;
}

template <typename Element, int COUNT>
static __global__ void forward(Element *out, float *mean, float *rstd, const Element *inp,
                               const Element *gamma, const Element *beta, int64_t N, int C)
{
    int64_t row = warp_row();
    if (row >= N)
        return;
    inp += row * C;
    out += row * C;
    float m = row_mean<Element, COUNT>(inp, C);
    float r = 1 / sqrtf(row_variance<Element, COUNT>(inp, m, C) + 1e-5f);
    for (int c = lane_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<float, COUNT> x = values(load<COUNT>(inp + c));
        pack<float, COUNT> g = values(load<COUNT>(gamma + c)), b = values(load<COUNT>(beta + c));
        for (int i = 0; i < COUNT; i++)
            x.at[i] = fmaf((x.at[i] - m) * r, g.at[i], b.at[i]);
        store(out + c, rounded<Element>(x));
    }
    if (threadIdx.x % WARP == 0) {
        mean[row] = m;
        rstd[row] = r;
    }
}

void cuda_layernorm_forward(SELF, element *out, float *mean, float *rstd, const element *inp,
                            const element *gamma, const element *beta, int64_t N, int64_t C)
{
    LAUNCH_PACKS(k, packs_fit(k, C, out, inp, gamma, beta), ceil_div(N, ROWS), THREADS, 0, forward,
                 out, mean, rstd, inp, gamma, beta, N, C);
}

void cuda_layernorm_backward(SELF, element *dinp, float *dgamma, float *dbeta, const element *dout,
                             const element *inp, const float *mean, const float *rstd,
                             const element *gamma, int64_t N, int64_t C)
{
    norm_backward(k, dinp, dgamma, dbeta, dout, inp, mean, rstd, gamma, N, C);
}
