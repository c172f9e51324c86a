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

/* The same where registers hold the row. */
template <typename Element, int COUNT, int PACKS>
static __global__ void forward_near(Element *out, float *mean, float *rstd, const Element *inp,
                                    const Element *gamma, const Element *beta, int64_t N, int C)
{
    int64_t row = warp_row();
    pack<Element, COUNT> in[PACKS];
    if (row >= N)
        return;
    load_row(in, inp + row * C, C);
    float sum = 0, squares = 0;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        pack<float, COUNT> x = values(in[p]);
        for (int i = 0; i < COUNT; i++)
            sum += x.at[i];
    }
    const float m = warp_sum(sum) / (float)C;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        pack<float, COUNT> x = values(in[p]);
        bool there = lane_pack<COUNT>() + p * WARP * COUNT < C;
        for (int i = 0; i < COUNT && there; i++)
            squares = fmaf(x.at[i] - m, x.at[i] - m, squares);
    }
    const float r = 1 / sqrtf(warp_sum(squares) / (float)C + 1e-5f);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int c = lane_pack<COUNT>() + p * WARP * COUNT;
        pack<float, COUNT> x = values(in[p]), g = values(load_below<COUNT>(gamma, c, C));
        pack<float, COUNT> b = values(load_below<COUNT>(beta, c, C));
        for (int i = 0; i < COUNT; i++)
            x.at[i] = fmaf((x.at[i] - m) * r, g.at[i], b.at[i]);
        if (c < C)
            store(out + row * C + c, rounded<Element>(x));
    }
    if (threadIdx.x % WARP == 0) {
        mean[row] = m;
        rstd[row] = r;
    }
}

void cuda_layernorm_forward(SELF, element *out, float *mean, float *rstd, const element *inp,
                            const element *gamma, const element *beta, int64_t N, int64_t C)
{
    bool packed = packs_fit(k, C, out, inp, gamma, beta);
    if (packed && rows_are_near(k, C))
        LAUNCH_NEAR(k, C, ceil_div(N, ROWS), THREADS, 0, forward_near, out, mean, rstd, inp, gamma,
                    beta, N, (int)C);
    else
        LAUNCH_PACKS(k, packed, ceil_div(N, ROWS), THREADS, 0, forward, out, mean, rstd, inp, gamma,
                     beta, N, C);
}

void cuda_layernorm_backward(SELF, element *dinp, float *dgamma, float *dbeta, const element *dout,
                             const element *inp, const float *mean, const float *rstd,
                             const element *gamma, int64_t N, int64_t C)
{
    norm_backward(k, dinp, dgamma, dbeta, dout, inp, mean, rstd, gamma, N, C);
}
