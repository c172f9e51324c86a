/* The backward pass of LayerNorm and, where there is no mean, of RMSNorm, in one pass over the rows: a
 * block has a part of them, a warp a row. A row of few columns lies in the warp's
 * registers, and so do the sums of its lanes' columns (norm_backward_near). Of a wide one each warp
 * makes the gradient; then, while the rows are near, each thread adds them to the sums of its own
 * columns, which lie in shared memory and no other thread touches (norm_backward_wide). columns.cuh
 * adds the parts.
 *
 * Two runs are equal: a warp adds over its lanes by a fixed tree, a thread its columns' rows first to
 * last, the block its warps first to last, and which rows make a part follows from N and C alone. */
#ifndef ROOST_KERNELS_CUDA_NORMS_CUH
#define ROOST_KERNELS_CUDA_NORMS_CUH

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/rows.cuh"

enum {
    NEAR_WARPS = 4,         /* of a block … */
    NEAR_PARTS = 384,       /* … three of which registers have room for, on each multiprocessor */
    WIDE_PARTS = 512,       /* several blocks for each multiprocessor of a large GPU */
    NORM_COLUMNS = 48 << 7, /* whose two sums fit in 48 KiB, what a block has without asking */
};

struct norm_parts {
    int count, rows; /* of each but the last, which may have fewer */
    bool centered;   /* LayerNorm's */
    int windows;     /* of NORM_COLUMNS; blocks are numbered part by part */
};

/* -- rows that registers hold ------------------------------------------------------------------ */

/* What a lane adds up of its columns over the warp's rows. */
template <int COUNT, int PACKS> struct column_sums {
    pack<float, COUNT> gammas[PACKS], betas[PACKS];
};

/* A row's, with x the normalised input and g = dout * gamma: dgamma += dout * x, dbeta += dout,
 * dinp += rstd * (g - mean(g) - x * mean(g * x)), without mean(g) where there is no mean. */
template <typename Element, int COUNT, int PACKS>
static __device__ void differentiate_row(column_sums<COUNT, PACKS> &sums, Element *dinp,
                                         const Element *dout, const Element *inp,
                                         const Element *gamma, float mean, float rstd,
                                         bool centered, int C)
{
    pack<Element, COUNT> d[PACKS], in[PACKS], before[PACKS];
    float sum_g = 0, sum_gx = 0;
    load_row(d, dout, C);
    load_row(in, inp, C);
    load_row(before, (const Element *)dinp, C);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int c = lane_pack<COUNT>() + p * WARP * COUNT;
        pack<float, COUNT> g = values(d[p]), x = values(in[p]);
        pack<float, COUNT> weight = values(load_below<COUNT>(gamma, c, C));
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float normal = (x.at[i] - mean) * rstd, product = g.at[i] * weight.at[i];
            sum_g += product;
            sum_gx = fmaf(product, normal, sum_gx);
            sums.gammas[p].at[i] = fmaf(g.at[i], normal, sums.gammas[p].at[i]);
            sums.betas[p].at[i] += g.at[i];
        }
    }
    const float mean_g = centered ? warp_sum(sum_g) / (float)C : 0;
    const float mean_gx = warp_sum(sum_gx) / (float)C;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int c = lane_pack<COUNT>() + p * WARP * COUNT;
        pack<float, COUNT> g = values(d[p]), x = values(in[p]), sum = values(before[p]);
        pack<float, COUNT> weight = values(load_below<COUNT>(gamma, c, C));
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float normal = (x.at[i] - mean) * rstd;
            float inner = fmaf(-normal, mean_gx, g.at[i] * weight.at[i] - mean_g);
            sum.at[i] = fmaf(rstd, inner, sum.at[i]);
        }
        if (c < C)
            store(dinp + c, rounded<Element>(sum));
    }
}

/* to (C) = the sums of the block's warps; `shared` has room for a row of each. */
template <int COUNT, int PACKS>
static __device__ void add_warps(float *to, float *shared, const pack<float, COUNT> (&own)[PACKS],
                                 int C)
{
    __syncthreads(); /* what an earlier call left has been read */
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int c = lane_pack<COUNT>() + p * WARP * COUNT;
        if (c < C)
            store(shared + threadIdx.x / WARP * C + c, own[p]);
    }
    __syncthreads();
    for (int c = threadIdx.x; c < C; c += NEAR_WARPS * WARP) {
        float sum = shared[c];
        for (int warp = 1; warp < NEAR_WARPS; warp++)
            sum += shared[warp * C + c];
        to[c] = sum;
    }
}

/* `sums`: dgamma's (parts,C), then dbeta's. */
template <typename Element, int COUNT, int PACKS>
static __global__ void __launch_bounds__(NEAR_WARPS *WARP, PACKS < NEAR_PACKS ? 3 : 2)
    norm_backward_near(Element *dinp, float *sums, const Element *dout, const Element *inp,
                       const float *mean, const float *rstd, const Element *gamma,
                       struct norm_parts parts, int64_t N, int C)
{
    extern __shared__ float4 shared[];
    const int64_t first = (int64_t)blockIdx.x * parts.rows;
    const int64_t end = N - first < parts.rows ? N : first + parts.rows;
    column_sums<COUNT, PACKS> own = {};
    for (int64_t row = first + threadIdx.x / WARP; row < end; row += NEAR_WARPS)
        differentiate_row(own, dinp + row * C, dout + row * C, inp + row * C, gamma,
                          parts.centered ? mean[row] : 0, rstd[row], parts.centered, C);
    sums += (int64_t)blockIdx.x * C;
    add_warps(sums, (float *)shared, own.gammas, C);
    if (parts.centered)
        add_warps(sums + (int64_t)parts.count * C, (float *)shared, own.betas, C);
}

/* -- wide rows --------------------------------------------------------------------------------- */

/* A row's, with x the normalised input and g = dout * gamma:
 * dinp += rstd * (g - mean(g) - x * mean(g * x)), without mean(g) where there is no mean. */
template <typename Element, int COUNT>
static __device__ void add_input_gradient(Element *dinp, const Element *dout, const Element *inp,
                                          const Element *gamma, float mean, float rstd,
                                          bool centered, int C)
{
    float sum_g = 0, sum_gx = 0;
    for (int c = lane_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<float, COUNT> g = values(load<COUNT>(dout + c)), x = values(load<COUNT>(inp + c));
        pack<float, COUNT> weight = values(load<COUNT>(gamma + c));
        for (int i = 0; i < COUNT; i++) {
            float product = g.at[i] * weight.at[i];
            sum_g += product;
            sum_gx = fmaf(product, (x.at[i] - mean) * rstd, sum_gx);
        }
    }
    float mean_g = warp_sum(sum_g) / (float)C, mean_gx = warp_sum(sum_gx) / (float)C;
    mean_g = centered ? mean_g : 0;
    for (int c = lane_pack<COUNT>(); c < C; c += WARP * COUNT) {
        pack<float, COUNT> g = values(load<COUNT>(dout + c)), x = values(load<COUNT>(inp + c));
        pack<float, COUNT> weight = values(load<COUNT>(gamma + c));
        pack<float, COUNT> sum = values(load<COUNT>(dinp + c));
        for (int i = 0; i < COUNT; i++) {
            float normal = (x.at[i] - mean) * rstd;
            float inner = fmaf(-normal, mean_gx, g.at[i] * weight.at[i] - mean_g);
            sum.at[i] = fmaf(rstd, inner, sum.at[i]);
        }
        store(dinp + c, rounded<Element>(sum));
    }
}

/* dgamma += dout * x and dbeta += dout of so many rows, for a thread's packs of `packs` in all. The
 * i-th elements of packs lie together: no two threads share a bank. */
template <typename Element, int COUNT>
static __device__ void add_rows_to_sums(float *dgamma, float *dbeta, const Element *dout,
                                        const Element *inp, const float *mean, const float *rstd,
                                        int rows, int packs, int C, bool centered)
{
    for (int at = threadIdx.x; at < packs; at += THREADS) {
        float gammas[COUNT], betas[COUNT];
        for (int i = 0; i < COUNT; i++) {
            gammas[i] = dgamma[i * packs + at];
            betas[i] = dbeta[i * packs + at];
        }
        for (int row = 0; row < rows; row++) {
            int64_t place = (int64_t)row * C + at * COUNT;
            pack<float, COUNT> d = values(load<COUNT>(dout + place));
            pack<float, COUNT> in = values(load<COUNT>(inp + place));
            float m = centered ? mean[row] : 0, r = rstd[row];
            for (int i = 0; i < COUNT; i++) {
                gammas[i] = fmaf(d.at[i], (in.at[i] - m) * r, gammas[i]);
                betas[i] += d.at[i];
            }
        }
        for (int i = 0; i < COUNT; i++) {
            dgamma[i * packs + at] = gammas[i];
            dbeta[i * packs + at] = betas[i];
        }
    }
}

/* `sums`: dgamma's (parts,C), then dbeta's. Blocks of the first window make the input's gradient. */
template <typename Element, int COUNT>
static __global__ void norm_backward_wide(Element *dinp, float *sums, const Element *dout,
                                          const Element *inp, const float *mean, const float *rstd,
                                          const Element *gamma, struct norm_parts parts, int64_t N,
                                          int C)
{
    extern __shared__ float4 shared[];
    const int part = (int)blockIdx.x / parts.windows, warp = threadIdx.x / WARP;
    const int begin = (int)blockIdx.x % parts.windows * NORM_COLUMNS;
    const int columns = C - begin < NORM_COLUMNS ? C - begin : NORM_COLUMNS;
    const int packs = columns / COUNT;
    const bool centered = parts.centered;
    const int64_t first = (int64_t)part * parts.rows, left = N - first;
    const int rows = left < parts.rows ? (int)left : parts.rows;
    float *dgamma = (float *)shared, *dbeta = dgamma + columns;
    for (int i = threadIdx.x; i < packs; i += THREADS)
        for (int j = 0; j < COUNT; j++)
            dgamma[j * packs + i] = dbeta[j * packs + i] = 0;
    dinp += first * C;
    dout += first * C;
    inp += first * C;
    mean += first;
    rstd += first;
    for (int row = 0; row < rows; row += ROWS) {
        int64_t own = (int64_t)(row + warp) * C, place = (int64_t)row * C + begin;
        if (begin == 0 && row + warp < rows)
            add_input_gradient<Element, COUNT>(dinp + own, dout + own, inp + own, gamma,
                                               centered ? mean[row + warp] : 0, rstd[row + warp],
                                               centered, C);
        add_rows_to_sums<Element, COUNT>(dgamma, dbeta, dout + place, inp + place, mean + row,
                                         rstd + row, rows - row < ROWS ? rows - row : ROWS, packs,
                                         C, centered);
    }
    sums += (int64_t)part * C + begin;
    for (int i = threadIdx.x; i < packs; i += THREADS)
        for (int j = 0; j < COUNT; j++) {
            sums[i * COUNT + j] = dgamma[j * packs + i];
            if (centered)
                sums[(int64_t)parts.count * C + i * COUNT + j] = dbeta[j * packs + i];
        }
}

/* -- host -------------------------------------------------------------------------------------- */

/* `most`: parts. */
static inline struct norm_parts norm_parts(int64_t N, int64_t C, int64_t most, bool centered)
{
    int64_t room = WORKSPACE_BYTES / ((int64_t)sizeof(float) * 2 * C);
    int64_t rows = ceil_div(N, room < most ? room : most);
    struct norm_parts parts;
    parts.rows = (int)(ceil_div(rows, ROWS) * ROWS);
    parts.count = (int)ceil_div(N, parts.rows);
    parts.centered = centered;
    parts.windows = (int)ceil_div(C, NORM_COLUMNS);
    return parts;
}

static inline struct norm_parts backward_near(SELF, element *dinp, float *sums, const element *dout,
                                              const element *inp, const float *mean,
                                              const float *rstd, const element *gamma, int64_t N,
                                              int64_t C)
{
    const struct norm_parts parts = norm_parts(N, C, NEAR_PARTS, mean != NULL);
    LAUNCH_NEAR(k, C, parts.count, NEAR_WARPS * WARP, NEAR_WARPS * sizeof(float) * (size_t)C,
                norm_backward_near, dinp, sums, dout, inp, mean, rstd, gamma, parts, N, (int)C);
    return parts;
}

static inline struct norm_parts backward_wide(SELF, element *dinp, float *sums, const element *dout,
                                              const element *inp, const float *mean,
                                              const float *rstd, const element *gamma, int64_t N,
                                              int64_t C)
{
    const struct norm_parts parts = norm_parts(N, C, WIDE_PARTS, mean != NULL);
    int64_t columns = parts.windows == 1 ? C : (int64_t)NORM_COLUMNS;
    size_t bytes = 2 * sizeof(float) * (size_t)columns;
    LAUNCH_PACKS(k, packs_fit(k, C, dinp, dout, inp, gamma), (int64_t)parts.count * parts.windows,
                 THREADS, bytes, norm_backward_wide, dinp, sums, dout, inp, mean ? mean : rstd,
                 rstd, gamma, parts, N, (int)C);
    return parts;
}

/* Without `mean` and `dbeta`: RMSNorm's. */
static inline void norm_backward(SELF, element *dinp, float *dgamma, float *dbeta,
                                 const element *dout, const element *inp, const float *mean,
                                 const float *rstd, const element *gamma, int64_t N, int64_t C)
{
    if (N == 0)
        return;
    check(C <= WORKSPACE_BYTES / (int64_t)(2 * sizeof(float)));
    bool near = rows_are_near(k, C) && packs_fit(k, C, dinp, dout, inp, gamma);
    float *sums = (float *)k->state->workspace;
    struct norm_parts parts =
        near ? backward_near(k, dinp, sums, dout, inp, mean, rstd, gamma, N, C)
             : backward_wide(k, dinp, sums, dout, inp, mean, rstd, gamma, N, C);
    add_parts(k, dgamma, sums, parts.count, C);
    if (dbeta)
        add_parts(k, dbeta, sums + parts.count * C, parts.count, C);
}

#endif
