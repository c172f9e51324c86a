/* What attention's two implementations share: where heads lie. attention.cu computes in fp32 and
 * chooses, attention_bf16.cu on tensor cores. */
#ifndef ROOST_KERNELS_CUDA_ATTENTION_CUH
#define ROOST_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/elements.cuh"

/* All heads of all samples, as the kernels see them. Rows of q, k, v are `wide` apart, of out C. */
struct heads {
    int64_t T, C, H, G, size; /* size = C/H */
    int64_t wide, values;     /* a row of qkv; where its values begin */
    float scale;
    bool causal;
    bool packed; /* rows of heads can be loaded PACK_BYTES at a time */
};

/* The tile of a block: which rows of which head. */
struct tile {
    int64_t first;                 /* row */
    int64_t queries, keys, values; /* where the head's begin in qkv … */
    int64_t out;                   /* … and its output in out */
    int64_t lse;                   /* … and its rows in lse */
};

/* Query head h of sample b. */
static __device__ inline struct tile head_of(const struct heads &heads, int64_t b, int64_t h)
{
    int64_t sample = b * heads.T * heads.wide, shared = h / (heads.H / heads.G) * heads.size;
    struct tile tile;
    tile.queries = sample + h * heads.size;
    tile.keys = sample + heads.C + shared;
    tile.values = sample + heads.values + shared;
    tile.out = b * heads.T * heads.C + h * heads.size;
    tile.lse = (b * heads.H + h) * heads.T;
    return tile;
}

static __device__ inline bool sees(const struct heads &heads, int64_t query, int64_t key)
{
    return query < heads.T && key < heads.T && (!heads.causal || key <= query);
}

/* -- host -------------------------------------------------------------------------------------- */

/* `arrays`: those that rows of heads are loaded from. */
template <typename... Arrays>
static inline struct heads heads_of(SELF, int64_t T, int64_t C, int64_t H, int64_t G, bool causal,
                                    Arrays... arrays)
{
    struct heads heads;
    heads.T = T;
    heads.C = C;
    heads.H = H;
    heads.G = G;
    heads.size = C / H;
    heads.wide = (H + 2 * G) * heads.size;
    heads.values = (H + G) * heads.size;
    heads.scale = 1 / sqrtf((float)heads.size);
    heads.causal = causal;
    heads.packed = packs_fit(k, heads.size, arrays...);
    check(heads.size * H == C);
    check(H % G == 0);
    return heads;
}

static inline bool head_size_fits(SELF, const struct heads &heads, int most)
{
    if (heads.size > most)
        cuda_fail(k, "attention: heads of %lld channels; a GPU computes at most %d here",
                  (long long)heads.size, most);
    return heads.size <= most;
}

/* A block for each tile of `rows` of `heads_count` heads, with more shared memory than a launch may
 * have without asking. */
template <typename... Parameters, typename... Arguments>
static void launch_tiles(SELF, int64_t heads_count, int64_t tiles, int threads, size_t shared_bytes,
                         void (*kernel)(Parameters...), Arguments... arguments)
{
    if (cuda_ok(k,
                cudaFuncSetAttribute((const void *)kernel,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)shared_bytes),
                "attention's shared memory"))
        launch(k, heads_count * tiles, threads, shared_bytes, kernel, arguments...);
}

void attention_bf16_forward(SELF, bf16 *out, float *lse, const bf16 *qkv, int64_t B,
                            const struct heads &heads);
void attention_bf16_backward(SELF, bf16 *dqkv, const bf16 *dout, const bf16 *out, const float *lse,
                             const bf16 *qkv, int64_t B, const struct heads &heads);

#endif
