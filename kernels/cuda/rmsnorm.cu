/* Two runs are equal: one warp a row with a fixed tree over its lanes, the backward pass as norms.cuh
 * says. */
#include "kernels/cuda/norms.cuh"

template <typename Element, int COUNT>
static __global__ void forward(Element *out, float *rstd, const Element *inp, const Element *gamma,
                               int64_t N, int C)
{
    int64_t row = warp_row();
    if (row >= N)
        return;
    inp += row * C;
    out += row * C;
    float sum = 0;
    for (int c = lane_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<float, COUNT> in = values(load<COUNT>(inp + c));
        for (int i = 0; i < COUNT; i++)
            sum = fmaf(in.at[i], in.at[i], sum);
    }
    float r = 1 / sqrtf(warp_sum(sum) / (float)C + 1e-5f);
    for (int c = lane_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<float, COUNT> x = values(load<COUNT>(inp + c)), g = values(load<COUNT>(gamma + c));
        for (int i = 0; i < COUNT; i++)
            x.at[i] = x.at[i] * r * g.at[i];
        store(out + c, rounded<Element>(x));
    }
    if (threadIdx.x % WARP == 0)
        rstd[row] = r;
}

void cuda_rmsnorm_forward(SELF, element *out, float *rstd, const element *inp, const element *gamma,
                          int64_t N, int64_t C)
{
    LAUNCH_PACKS(k, packs_fit(k, C, out, inp, gamma), ceil_div(N, ROWS), THREADS, 0, forward, out,
                 rstd, inp, gamma, N, C);
}

void cuda_rmsnorm_backward(SELF, element *dinp, float *dgamma, const element *dout,
                           const element *inp, const float *rstd, const element *gamma, int64_t N,
                           int64_t C)
{
    norm_backward(k, dinp, dgamma, NULL, dout, inp, NULL, rstd, gamma, N, C);
}
