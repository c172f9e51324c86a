/* Two runs are equal: one warp a row with a fixed tree over its lanes, and the parameters'
 * gradients by columns.cuh. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/rows.cuh"

template <typename Element, int COUNT> static __device__ float row_mean(const Element *x, int64_t C)
{
    float sum = 0;
    for (int64_t c = first_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<float, COUNT> in = values(load<COUNT>(x + c));
        for (int i = 0; i < COUNT; i++)
            sum += in.at[i];
    }
    return warp_sum(sum) / (float)C;
}

template <typename Element, int COUNT>
static __device__ float row_variance(const Element *x, float mean, int64_t C)
{
    float sum = 0;
    for (int64_t c = first_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<float, COUNT> in = values(load<COUNT>(x + c));
        for (int i = 0; i < COUNT; i++)
            sum = fmaf(in.at[i] - mean, in.at[i] - mean, sum);
    }
    return warp_sum(sum) / (float)C;
}

template <typename Element, int COUNT>
static __global__ void forward(Element *out, float *mean, float *rstd, const Element *inp,
                               const Element *gamma, const Element *beta, int64_t N, int64_t C)
{
    int64_t row = warp_row();
    if (row >= N)
        return;
    inp += row * C;
    out += row * C;
    float m = row_mean<Element, COUNT>(inp, C);
    float r = 1 / sqrtf(row_variance<Element, COUNT>(inp, m, C) + 1e-5f);
    for (int64_t c = first_pack<COUNT>(); c < C; c += WARP * COUNT) {
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

/* With x the normalised input and g = dout * gamma:
 * dinp += rstd * (g - mean(g) - x * mean(g * x)). */
template <typename Element, int COUNT>
static __global__ void backward_input(Element *dinp, const Element *dout, const Element *inp,
                                      const float *mean, const float *rstd, const Element *gamma,
                                      int64_t N, int64_t C)
{
    int64_t row = warp_row();
    if (row >= N)
        return;
    dinp += row * C;
    dout += row * C;
    inp += row * C;
    float m = mean[row], r = rstd[row], sum_g = 0, sum_gx = 0;
    for (int64_t c = first_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<Element, COUNT> d = load<COUNT>(dout + c), in = load<COUNT>(inp + c);
        pack<Element, COUNT> weight = load<COUNT>(gamma + c);
        for (int i = 0; i < COUNT; i++) {
            float g = value(d.at[i]) * value(weight.at[i]);
            sum_g += g;
            sum_gx = fmaf(g, (value(in.at[i]) - m) * r, sum_gx);
        }
    }
    float mean_g = warp_sum(sum_g) / (float)C, mean_gx = warp_sum(sum_gx) / (float)C;
    for (int64_t c = first_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<Element, COUNT> d = load<COUNT>(dout + c), in = load<COUNT>(inp + c);
        pack<Element, COUNT> weight = load<COUNT>(gamma + c), sum = load<COUNT>(dinp + c);
        for (int i = 0; i < COUNT; i++) {
            float g = value(d.at[i]) * value(weight.at[i]), x = (value(in.at[i]) - m) * r;
            sum.at[i] = rounded<Element>(fmaf(r, fmaf(-x, mean_gx, g - mean_g), value(sum.at[i])));
        }
        store<COUNT>(dinp + c, sum);
    }
}

/* The first stage of dgamma += dout * x and dbeta += dout, summed over rows. */
template <typename Element, int COUNT>
static __global__ void backward_parameters(float *dgamma_sums, float *dbeta_sums,
                                           const Element *dout, const Element *inp,
                                           const float *mean, const float *rstd,
                                           struct row_parts parts, int64_t N, int64_t C)
{
    struct column_walk walk = column_walk<COUNT>(parts, N);
    float dgamma[COUNT] = {}, dbeta[COUNT] = {};
    for (int64_t row = walk.row; row < walk.end && walk.column < C; row += ROW_LANES) {
        pack<Element, COUNT> d = load<COUNT>(dout + row * C + walk.column);
        pack<Element, COUNT> in = load<COUNT>(inp + row * C + walk.column);
        for (int i = 0; i < COUNT; i++) {
            float x = (value(in.at[i]) - mean[row]) * rstd[row];
            dgamma[i] = fmaf(value(d.at[i]), x, dgamma[i]);
            dbeta[i] += value(d.at[i]);
        }
    }
    store_part(dgamma_sums, walk, dgamma, C);
    store_part(dbeta_sums, walk, dbeta, C);
}

void cuda_layernorm_backward(SELF, element *dinp, float *dgamma, float *dbeta, const element *dout,
                             const element *inp, const float *mean, const float *rstd,
                             const element *gamma, int64_t N, int64_t C)
{
    if (N == 0)
        return;
    bool packed = packs_fit(k, C, dinp, dout, inp, gamma);
    struct row_parts parts = row_parts(N, C, pack_count(k, packed));
    float *dgamma_sums = part_sums(k, parts, C, 0), *dbeta_sums = part_sums(k, parts, C, 1);
    LAUNCH_PACKS(k, packed, ceil_div(N, ROWS), THREADS, 0, backward_input, dinp, dout, inp, mean,
                 rstd, gamma, N, C);
    LAUNCH_PACKS(k, packed, part_blocks(parts), THREADS, 0, backward_parameters, dgamma_sums,
                 dbeta_sums, dout, inp, mean, rstd, parts, N, C);
    add_parts(k, dgamma, dgamma_sums, parts.count, C);
    add_parts(k, dbeta, dbeta_sums, parts.count, C);
}
