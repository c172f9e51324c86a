/* Attention in tiles (FlashAttention: Dao et al. 2022, algorithms 1 and 4): a block owns TILE rows
 * of one head of one sample and walks over the tiles of the other side. The (T,T) scores only ever
 * exist as one tile in shared memory.
 *
 * Two runs are equal: every element of out, dQ, dK and dV belongs to one thread of one block, which
 * adds the tiles' contributions first to last. So the backward pass is two kernels, one for a tile
 * of queries (dQ), one for a tile of keys (dK, dV), each of which makes the probabilities it needs
 * again from qkv and lse.
 *
 * A block's threads are SIDE x SIDE. Thread (y, x) owns rows y*EACH … of its tile; of the columns
 * of scores it owns x, x + SIDE …, of the channels x*4 … x*4+3 of every 64. WIDTH is the head's
 * size rounded up to what a template is there for; what is beyond the size is 0. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/math.cuh"

enum {
    SIDE = 16,
    FOUR = 4,           /* channels that are loaded at once */
    WIDE = SIDE * FOUR, /* channels that a block's row of threads owns at once */
    SIZE_MAX_F32 = 256, /* channels of a head */
};

/* Four tiles of channels and one of scores fit in the 99 KiB of shared memory that every GPU since
 * compute capability 8.0 gives a block: (64,4) takes 85 KiB, (128,2) 71 KiB, (256,1) 66 KiB. */
template <int WIDTH, int EACH> struct layout {
    enum {
        TILE = SIDE * EACH,     /* rows */
        STRIDE = WIDTH + FOUR,  /* of rows of channels: no two of a warp's rows share a bank */
        ACROSS = TILE + FOUR,   /* of rows of scores */
        ROWS = TILE * STRIDE,   /* floats of a tile of channels */
        SCORES = TILE * ACROSS, /* floats of a tile of scores */
        WIDES = WIDTH / WIDE,
    };
};

static __device__ int thread_x(void)
{
    return threadIdx.x % SIDE;
}

static __device__ int thread_y(void)
{
    return threadIdx.x / SIDE;
}

/* Blocks are numbered head by head, the last tiles first: when causal, the tiles of queries with
 * most to do start first. */
template <int TILE> static __device__ struct tile tile_of(const struct heads &heads)
{
    int block = (int)blockIdx.x, tiles = (heads.T + TILE - 1) / TILE, head = block / tiles;
    struct tile tile = head_of(heads, head / heads.H, head % heads.H);
    tile.first = (tiles - 1 - block % tiles) * TILE;
    return tile;
}

/* -- tiles in shared memory -------------------------------------------------------------------- */

/* to = rows first … of `from`, `stride` floats apart; 0 beyond T and beyond the head's size. */
template <int WIDTH, int EACH>
static __device__ void load_rows(float *to, const float *from, int first, int stride,
                                 const struct heads &heads)
{
    using L = layout<WIDTH, EACH>;
    for (int i = threadIdx.x; i < L::TILE * WIDTH; i += SIDE * SIDE) {
        int row = i / WIDTH, c = i % WIDTH;
        bool there = first + row < heads.T && c < heads.size;
        to[row * L::STRIDE + c] = there ? from[(int64_t)(first + row) * stride + c] : 0;
    }
}

static __device__ void load_four(float (&to)[FOUR], const float *from)
{
    float4 four = *(const float4 *)from;
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
}

/* products = a b^T: of the thread's rows of a with its columns, which are rows of b. */
template <int WIDTH, int EACH>
static __device__ void multiply_rows(float (&products)[EACH][EACH], const float *a, const float *b,
                                     int size)
{
    using L = layout<WIDTH, EACH>;
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
            products[i][j] = 0;
    a += thread_y() * EACH * L::STRIDE;
    b += thread_x() * L::STRIDE;
    for (int c = 0; c < size; c += FOUR) {
        float left[EACH][FOUR], right[EACH][FOUR];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            load_four(left[i], a + i * L::STRIDE + c);
            load_four(right[i], b + i * SIDE * L::STRIDE + c);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++)
#pragma unroll
                for (int q = 0; q < FOUR; q++)
                    products[i][j] = fmaf(left[i][q], right[j][q], products[i][j]);
    }
}

/* The channels that a thread owns of its rows. */
template <int WIDTH, int EACH> struct owned {
    float at[EACH][WIDTH / WIDE][FOUR];
};

/* sums += scores (TILE,TILE) rows (TILE,WIDTH) */
template <int WIDTH, int EACH>
static __device__ void add_products(struct owned<WIDTH, EACH> &sums, const float *scores,
                                    const float *rows)
{
    using L = layout<WIDTH, EACH>;
    scores += thread_y() * EACH * L::ACROSS;
    rows += thread_x() * FOUR;
    for (int r = 0; r < L::TILE; r += FOUR) {
        float left[EACH][FOUR];
#pragma unroll
        for (int i = 0; i < EACH; i++)
            load_four(left[i], scores + i * L::ACROSS + r);
#pragma unroll
        for (int q = 0; q < FOUR; q++)
#pragma unroll
            for (int w = 0; w < L::WIDES; w++) {
                float right[FOUR];
                load_four(right, rows + (r + q) * L::STRIDE + w * WIDE);
#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int c = 0; c < FOUR; c++)
                        sums.at[i][w][c] = fmaf(left[i][q], right[c], sums.at[i][w][c]);
            }
    }
}

/* The thread's products become the tile's scores, for all threads. */
template <int WIDTH, int EACH>
static __device__ void share_scores(float *scores, const float (&products)[EACH][EACH])
{
    using L = layout<WIDTH, EACH>;
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
            scores[(thread_y() * EACH + i) * L::ACROSS + thread_x() + j * SIDE] = products[i][j];
}

/* to's rows first … (`stride` floats apart) = scale[row] * sums */
template <int WIDTH, int EACH>
static __device__ void store_rows(float *to, int first, int stride,
                                  const struct owned<WIDTH, EACH> &sums, const float (&scale)[EACH],
                                  const struct heads &heads)
{
    using L = layout<WIDTH, EACH>;
    for (int i = 0; i < EACH; i++) {
        int row = first + thread_y() * EACH + i;
        for (int w = 0; w < L::WIDES; w++)
            for (int q = 0; q < FOUR; q++) {
                int c = w * WIDE + thread_x() * FOUR + q;
                if (row < heads.T && c < heads.size)
                    to[(int64_t)row * stride + c] = scale[i] * sums.at[i][w][q];
            }
    }
}

/* -- forward ----------------------------------------------------------------------------------- */

/* What a thread keeps of its rows while the keys pass: all SIDE threads of a row know `largest`;
 * `sum` is of the thread's own columns. */
template <int EACH> struct softmax_rows {
    float largest[EACH], sum[EACH];
};

/* scores -> e^(score - largest so far), 0 where the query does not see the key. `factor`: what
 * earlier tiles' sums must be multiplied with, since the largest may have grown. */
template <int EACH>
static __device__ void exponentiate(float (&scores)[EACH][EACH], struct softmax_rows<EACH> &rows,
                                    float (&factor)[EACH], int query, int key,
                                    const struct heads &heads)
{
    for (int i = 0; i < EACH; i++) {
        float largest = rows.largest[i];
        int last = last_key(heads, query + i) - key;
        for (int j = 0; j < EACH; j++) {
            scores[i][j] = j * SIDE <= last ? heads.scale * scores[i][j] : -INFINITY;
            largest = larger(scores[i][j], largest);
        }
        largest = warp_largest(largest, SIDE);
        factor[i] = exp_of(rows.largest[i] - largest);
        rows.largest[i] = largest;
        rows.sum[i] *= factor[i];
        for (int j = 0; j < EACH; j++) {
            scores[i][j] = exp_of(scores[i][j] - largest);
            rows.sum[i] += scores[i][j];
        }
    }
}

template <int WIDTH, int EACH>
static __device__ void scale_rows(struct owned<WIDTH, EACH> &sums, const float (&factor)[EACH])
{
    for (int i = 0; i < EACH; i++)
        for (int w = 0; w < WIDTH / WIDE; w++)
            for (int q = 0; q < FOUR; q++)
                sums.at[i][w][q] *= factor[i];
}

template <int WIDTH, int EACH>
static __global__ void __launch_bounds__(SIDE *SIDE)
    forward(float *out, float *lse, const float *qkv, struct heads heads)
{
    using L = layout<WIDTH, EACH>;
    extern __shared__ float4 shared[];
    float *queries = (float *)shared, *others = queries + L::ROWS, *scores = others + L::ROWS;
    struct tile tile = tile_of<L::TILE>(heads);
    int query = tile.first + thread_y() * EACH;
    int end = last_key(heads, tile.first + L::TILE - 1) + 1;
    struct softmax_rows<EACH> rows;
    struct owned<WIDTH, EACH> sums = {
    };
    float products[EACH][EACH], factor[EACH];
    for (int i = 0; i < EACH; i++) {
        rows.largest[i] = -INFINITY;
        rows.sum[i] = 0;
    }
    load_rows<WIDTH, EACH>(queries, qkv + tile.queries, tile.first, heads.wide, heads);
    for (int key = 0; key < end; key += L::TILE) {
        __syncthreads(); /* the values before have been used */
        load_rows<WIDTH, EACH>(others, qkv + tile.keys, key, heads.wide, heads);
        __syncthreads();
        multiply_rows<WIDTH, EACH>(products, queries, others, heads.size);
        exponentiate<EACH>(products, rows, factor, query, key + thread_x(), heads);
        scale_rows<WIDTH, EACH>(sums, factor);
        share_scores<WIDTH, EACH>(scores, products);
        __syncthreads(); /* the keys have been used */
        load_rows<WIDTH, EACH>(others, qkv + tile.keys + heads.between, key, heads.wide, heads);
        __syncthreads();
        add_products<WIDTH, EACH>(sums, scores, others);
    }
    for (int i = 0; i < EACH; i++) {
        float sum = warp_sum(rows.sum[i], SIDE);
        factor[i] = 1 / sum;
        if (thread_x() == 0 && query + i < heads.T)
            lse[tile.lse + query + i] = rows.largest[i] + log_of(sum);
    }
    store_rows<WIDTH, EACH>(out + tile.out, tile.first, heads.C, sums, factor, heads);
}

/* -- backward ---------------------------------------------------------------------------------- */

/* What the backward pass needs of a query beside its row: D = sum(dout * out) = sum(P * dP). */
struct query_row {
    float lse, D;
};

/* Of the thread's i-th row of a tile whose rows of dout are in shared memory; all SIDE threads of
 * the row learn it. */
template <int WIDTH, int EACH>
static __device__ struct query_row query_row(const float *douts, const float *out, const float *lse,
                                             const struct tile &tile, int first, int i,
                                             const struct heads &heads)
{
    int row = thread_y() * EACH + i, query = first + row;
    struct query_row ret = {};
    if (query < heads.T) {
        const float *row_out = out + tile.out + (int64_t)query * heads.C;
        for (int c = thread_x(); c < heads.size; c += SIDE)
            ret.D = fmaf(douts[row * layout<WIDTH, EACH>::STRIDE + c], row_out[c], ret.D);
        ret.lse = lse[tile.lse + query];
    }
    ret.D = warp_sum(ret.D, SIDE);
    return ret;
}

/* P of a score; 0 where the query does not see the key. */
static __device__ float probability(float score, float lse, bool seen, const struct heads &heads)
{
    return seen ? exp_of(heads.scale * score - lse) : 0;
}

/* A tile of queries: dQ = scale * dS K, dS = P * (dP - D), dP = dout V^T. */
template <int WIDTH, int EACH>
static __global__ void __launch_bounds__(SIDE *SIDE)
    backward_queries(float *dqkv, const float *dout, const float *out, const float *lse,
                     const float *qkv, struct heads heads)
{
    using L = layout<WIDTH, EACH>;
    extern __shared__ float4 shared[];
    float *queries = (float *)shared, *douts = queries + L::ROWS, *keys = douts + L::ROWS;
    float *values = keys + L::ROWS, *scores = values + L::ROWS;
    struct tile tile = tile_of<L::TILE>(heads);
    int query = tile.first + thread_y() * EACH;
    int end = last_key(heads, tile.first + L::TILE - 1) + 1;
    struct owned<WIDTH, EACH> sums = {
    };
    struct query_row rows[EACH];
    float products[EACH][EACH], dproducts[EACH][EACH], scale[EACH];
    load_rows<WIDTH, EACH>(queries, qkv + tile.queries, tile.first, heads.wide, heads);
    load_rows<WIDTH, EACH>(douts, dout + tile.out, tile.first, heads.C, heads);
    __syncthreads();
    for (int i = 0; i < EACH; i++) {
        rows[i] = query_row<WIDTH, EACH>(douts, out, lse, tile, tile.first, i, heads);
        scale[i] = heads.scale;
    }
    for (int key = 0; key < end; key += L::TILE) {
        __syncthreads(); /* keys and scores before have been used */
        load_rows<WIDTH, EACH>(keys, qkv + tile.keys, key, heads.wide, heads);
        load_rows<WIDTH, EACH>(values, qkv + tile.keys + heads.between, key, heads.wide, heads);
        __syncthreads();
        multiply_rows<WIDTH, EACH>(products, queries, keys, heads.size);
        multiply_rows<WIDTH, EACH>(dproducts, douts, values, heads.size);
        for (int i = 0; i < EACH; i++) {
            int last = last_key(heads, query + i) - key - thread_x();
            for (int j = 0; j < EACH; j++)
                products[i][j] = probability(products[i][j], rows[i].lse, j * SIDE <= last, heads) *
                                 (dproducts[i][j] - rows[i].D);
        }
        share_scores<WIDTH, EACH>(scores, products);
        __syncthreads();
        add_products<WIDTH, EACH>(sums, scores, keys);
    }
    store_rows<WIDTH, EACH>(dqkv + tile.queries, tile.first, heads.wide, sums, scale, heads);
}

/* A tile of keys: dV = P^T dout, dK = scale * dS^T Q, over the query heads that share them, first
 * to last. Scores are transposed here: the thread's rows are keys, its columns queries. */
template <int WIDTH, int EACH>
static __global__ void __launch_bounds__(SIDE *SIDE)
    backward_keys(float *dqkv, const float *dout, const float *out, const float *lse,
                  const float *qkv, struct heads heads)
{
    using L = layout<WIDTH, EACH>;
    extern __shared__ float4 shared[];
    float *keys = (float *)shared, *values = keys + L::ROWS, *queries = values + L::ROWS;
    float *douts = queries + L::ROWS, *scores = douts + L::ROWS;
    __shared__ struct query_row rows[L::TILE];
    int block = (int)blockIdx.x, tiles = (heads.T + L::TILE - 1) / L::TILE, group = block / tiles;
    int first_key = (tiles - 1 - block % tiles) * L::TILE, shares = heads.H / heads.G;
    struct owned<WIDTH, EACH> dkeys = {}, dvalues = {
    };
    float products[EACH][EACH], dproducts[EACH][EACH], scale[EACH], one[EACH];
    struct tile tile = head_of(heads, group / heads.G, group % heads.G * shares);
    int key = first_key + thread_y() * EACH;
    load_rows<WIDTH, EACH>(keys, qkv + tile.keys, first_key, heads.wide, heads);
    load_rows<WIDTH, EACH>(values, qkv + tile.keys + heads.between, first_key, heads.wide, heads);
    for (int share = 0; share < shares; share++) {
        tile = head_of(heads, group / heads.G, group % heads.G * shares + share);
        for (int first = first_query(heads, first_key); first < heads.T; first += L::TILE) {
            __syncthreads(); /* queries and scores before have been used */
            load_rows<WIDTH, EACH>(queries, qkv + tile.queries, first, heads.wide, heads);
            load_rows<WIDTH, EACH>(douts, dout + tile.out, first, heads.C, heads);
            __syncthreads();
            for (int i = 0; i < EACH; i++) {
                struct query_row row =
                    query_row<WIDTH, EACH>(douts, out, lse, tile, first, i, heads);
                if (thread_x() == 0)
                    rows[thread_y() * EACH + i] = row;
            }
            multiply_rows<WIDTH, EACH>(products, keys, queries, heads.size);
            multiply_rows<WIDTH, EACH>(dproducts, values, douts, heads.size);
            __syncthreads();
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++) {
                    int column = thread_x() + j * SIDE;
                    bool seen = key + i <= last_key(heads, first + column);
                    products[i][j] = probability(products[i][j], rows[column].lse, seen, heads);
                    dproducts[i][j] = products[i][j] * (dproducts[i][j] - rows[column].D);
                }
            share_scores<WIDTH, EACH>(scores, products);
            __syncthreads();
            add_products<WIDTH, EACH>(dvalues, scores, douts);
            __syncthreads(); /* P has been used */
            share_scores<WIDTH, EACH>(scores, dproducts);
            __syncthreads();
            add_products<WIDTH, EACH>(dkeys, scores, queries);
        }
    }
    for (int i = 0; i < EACH; i++) {
        scale[i] = heads.scale;
        one[i] = 1;
    }
    store_rows<WIDTH, EACH>(dqkv + tile.keys, first_key, heads.wide, dkeys, scale, heads);
    store_rows<WIDTH, EACH>(dqkv + tile.keys + heads.between, first_key, heads.wide, dvalues, one,
                            heads);
}

/* -- which template ---------------------------------------------------------------------------- */

/* Shared memory of `row_tiles` tiles of channels and one of scores. */
template <int WIDTH, int EACH> static size_t shared_bytes(int row_tiles)
{
    using L = layout<WIDTH, EACH>;
    return (size_t)(row_tiles * L::ROWS + L::SCORES) * sizeof(float);
}

template <int WIDTH, int EACH>
static void forward_as(SELF, float *out, float *lse, const float *qkv, int64_t B,
                       const struct heads &heads)
{
    int64_t tiles = ceil_div(heads.T, layout<WIDTH, EACH>::TILE);
    launch_tiles(k, B * heads.H, tiles, SIDE * SIDE, shared_bytes<WIDTH, EACH>(2),
                 forward<WIDTH, EACH>, out, lse, qkv, heads);
}

template <int WIDTH, int EACH>
static void backward_as(SELF, float *dqkv, const float *dout, const float *out, const float *lse,
                        const float *qkv, int64_t B, const struct heads &heads)
{
    int64_t tiles = ceil_div(heads.T, layout<WIDTH, EACH>::TILE);
    size_t bytes = shared_bytes<WIDTH, EACH>(4);
    launch_tiles(k, B * heads.H, tiles, SIDE * SIDE, bytes, backward_queries<WIDTH, EACH>, dqkv,
                 dout, out, lse, qkv, heads);
    launch_tiles(k, B * heads.G, tiles, SIDE * SIDE, bytes, backward_keys<WIDTH, EACH>, dqkv, dout,
                 out, lse, qkv, heads);
}

size_t cuda_attention_scratch_bytes(SELF, int64_t T, int64_t C, int64_t H)
{
    (void)k;
    (void)T;
    (void)C;
    (void)H;
    return 0;
}

void cuda_attention_forward(SELF, element *out, float *lse, void *scratch, const element *qkv,
                            bool causal, int64_t B, int64_t T, int64_t C, int64_t H, int64_t G)
{
    (void)scratch;
    struct heads heads = heads_of(k, T, C, H, G, causal, qkv, out);
    if (k->state->bf16) {
        attention_bf16_forward(k, (bf16 *)out, lse, (const bf16 *)qkv, B, heads);
        return;
    }
    if (!head_size_fits(k, heads, SIZE_MAX_F32))
        return;
    if (heads.size <= 64)
        forward_as<64, 4>(k, out, lse, qkv, B, heads);
    else if (heads.size <= 128)
        forward_as<128, 2>(k, out, lse, qkv, B, heads);
    else
        forward_as<256, 1>(k, out, lse, qkv, B, heads);
}

void cuda_attention_backward(SELF, element *dqkv, void *scratch, const element *dout,
                             const element *out, const float *lse, const element *qkv, bool causal,
                             int64_t B, int64_t T, int64_t C, int64_t H, int64_t G)
{
    (void)scratch;
    struct heads heads = heads_of(k, T, C, H, G, causal, qkv, dout, out, dqkv);
    if (k->state->bf16) {
        attention_bf16_backward(k, (bf16 *)dqkv, (const bf16 *)dout, (const bf16 *)out, lse,
                                (const bf16 *)qkv, B, heads);
        return;
    }
    if (!head_size_fits(k, heads, SIZE_MAX_F32))
        return;
    if (heads.size <= 64)
        backward_as<64, 4>(k, dqkv, dout, out, lse, qkv, B, heads);
    else if (heads.size <= 128)
        backward_as<128, 2>(k, dqkv, dout, out, lse, qkv, B, heads);
    else
        backward_as<256, 1>(k, dqkv, dout, out, lse, qkv, B, heads);
}
