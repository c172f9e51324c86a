/* What attention's two implementations share: where heads lie. attention.cu computes in fp32 and
 * chooses, attention_bf16.cu on tensor cores. */
#ifndef ROOST_KERNELS_CUDA_ATTENTION_CUH
#define ROOST_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/elements.cuh"

/* All heads of all samples, as the kernels see them. Rows of q, k, v are `wide` apart, of out C.
 * Places in a row and rows of a sample are counted in 32 bits: what loops compare and multiply. */
struct heads {
    int T, C, H, G, size; /* size = C/H */
    int wide, between;    /* a row of qkv; from a head's keys to its values */
    int ahead;            /* later keys that a query sees: none, or all when not causal */
    float scale;
    bool packed; /* rows of heads can be loaded and stored PACK_BYTES at a time */
};

/* The tile of a block: which rows of which head. */
struct tile {
    int first;             /* row */
    int64_t queries, keys; /* where the head's begin in qkv … */
    int64_t out;           /* … and its output in out */
    int64_t lse;           /* … and its rows in lse */
};

/* Query head h of sample b. */
static __device__ inline struct tile head_of(const struct heads &heads, int b, int h)
{
    int64_t row = (int64_t)b * heads.T, sample = row * heads.wide;
    int shared = h / (heads.H / heads.G) * heads.size;
    struct tile tile;
    tile.queries = sample + h * heads.size;
    tile.keys = sample + heads.C + shared;
    tile.out = row * heads.C + h * heads.size;
    tile.lse = row * heads.H + (int64_t)h * heads.T;
    return tile;
}

/* The last key that a query sees; queries beyond T see as many as the last one. */
static __device__ inline int last_key(const struct heads &heads, int query)
{
    int key = query + heads.ahead, last = heads.T - 1;
    return key < last ? key : last;
}

/* The first query that sees a key. */
static __device__ inline int first_query(const struct heads &heads, int key)
{
    return key < heads.ahead ? 0 : key - heads.ahead;
}

/* -- host -------------------------------------------------------------------------------------- */

/* `arrays`: those that rows of heads are loaded from and stored to. */
template <typename... Arrays>
static inline struct heads heads_of(SELF, int64_t T, int64_t C, int64_t H, int64_t G, bool causal,
                                    Arrays... arrays)
{
    struct heads heads;
    check(T <= INT32_MAX / 4); /* twice that many, and a tile's rows beyond, are counted */
    check(3 * C <= INT32_MAX);
    heads.T = (int)T;
    heads.C = (int)C;
    heads.H = (int)H;
    heads.G = (int)G;
    heads.size = heads.C / heads.H;
    heads.wide = (heads.H + 2 * heads.G) * heads.size;
    heads.between = heads.G * heads.size;
    heads.scale = 1 / sqrtf((float)heads.size);
    heads.ahead = causal ? 0 : heads.T;
    heads.packed = packs_fit(k, heads.size, arrays...);
    check(heads.size * H == C);
    check(H % G == 0);
    return heads;
}

static inline bool head_size_fits(SELF, const struct heads &heads, int most)
{
    if (heads.size > most)
        cuda_fail(k, "attention: heads of %d channels; a GPU computes at most %d here", heads.size,
                  most);
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
