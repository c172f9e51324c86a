/* Two runs are equal: one warp a row with a fixed tree over its lanes, and the parameter's gradient
 * by columns.cuh. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/rows.cuh"

template <typename Element, int COUNT>
static __global__ void forward(Element *out, float *rstd, const Element *inp, const Element *gamma,
                               int64_t N, int64_t C)
{
    int64_t row = warp_row();
    if (row >= N)
        return;
    inp += row * C;
    out += row * C;
    float sum = 0;
    for (int64_t c = first_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<float, COUNT> in = values(load<COUNT>(inp + c));
        for (int i = 0; i < COUNT; i++)
            sum = fmaf(in.at[i], in.at[i], sum);
    }
    float r = 1 / sqrtf(warp_sum(sum) / (float)C + 1e-5f);
    for (int64_t c = first_pack<COUNT>(); c < C; c += WARP * COUNT) {
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

/* With x = inp * rstd and g = dout * gamma: dinp += rstd * (g - x * mean(g * x)). */
template <typename Element, int COUNT>
static __global__ void backward_input(Element *dinp, const Element *dout, const Element *inp,
                                      const float *rstd, const Element *gamma, int64_t N, int64_t C)
{
    int64_t row = warp_row();
    if (row >= N)
        return;
    dinp += row * C;
    dout += row * C;
    inp += row * C;
    float r = rstd[row], sum_gx = 0;
    for (int64_t c = first_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<Element, COUNT> d = load<COUNT>(dout + c), in = load<COUNT>(inp + c);
        pack<Element, COUNT> weight = load<COUNT>(gamma + c);
        for (int i = 0; i < COUNT; i++)
            sum_gx = fmaf(value(d.at[i]) * value(weight.at[i]), value(in.at[i]) * r, sum_gx);
    }
    float mean_gx = warp_sum(sum_gx) / (float)C;
    for (int64_t c = first_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<Element, COUNT> d = load<COUNT>(dout + c), in = load<COUNT>(inp + c);
        pack<Element, COUNT> weight = load<COUNT>(gamma + c), sum = load<COUNT>(dinp + c);
        for (int i = 0; i < COUNT; i++) {
            float g = value(d.at[i]) * value(weight.at[i]), x = value(in.at[i]) * r;
            sum.at[i] = rounded<Element>(fmaf(r, fmaf(-x, mean_gx, g), value(sum.at[i])));
        }
        store<COUNT>(dinp + c, sum);
    }
}

/* The first stage of dgamma += dout * x, summed over rows. */
template <typename Element, int COUNT>
static __global__ void backward_parameter(float *sums, const Element *dout, const Element *inp,
                                          const float *rstd, struct row_parts parts, int64_t N,
                                          int64_t C)
{
    struct column_walk walk = column_walk<COUNT>(parts, N);
    float dgamma[COUNT] = {};
    for (int64_t row = walk.row; row < walk.end && walk.column < C; row += ROW_LANES) {
        pack<Element, COUNT> d = load<COUNT>(dout + row * C + walk.column);
        pack<Element, COUNT> in = load<COUNT>(inp + row * C + walk.column);
        for (int i = 0; i < COUNT; i++)
            dgamma[i] = fmaf(value(d.at[i]), value(in.at[i]) * rstd[row], dgamma[i]);
    }
    store_part(sums, walk, dgamma, C);
}

void cuda_rmsnorm_backward(SELF, element *dinp, float *dgamma, const element *dout,
                           const element *inp, const float *rstd, const element *gamma, int64_t N,
                           int64_t C)
{
    if (N == 0)
        return;
    bool packed = packs_fit(k, C, dinp, dout, inp, gamma);
    struct row_parts parts = row_parts(N, C, pack_count(k, packed));
    float *sums = part_sums(k, parts, C, 0);
    LAUNCH_PACKS(k, packed, ceil_div(N, ROWS), THREADS, 0, backward_input, dinp, dout, inp, rstd,
                 gamma, N, C);
    LAUNCH_PACKS(k, packed, part_blocks(parts), THREADS, 0, backward_parameter, sums, dout, inp,
                 rstd, parts, N, C);
    add_parts(k, dgamma, sums, parts.count, C);
}
