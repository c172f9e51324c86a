/* Attention on tensor cores (FlashAttention-2: Dao 2023, algorithms 1 and 2), arranged as in
 * attention.cu: a block owns rows of one head, WARPS warps with 16 * TILES rows each, and walks
 * over the other side, OTHERS rows at a time, the next ones on their way while these are used
 * (attention_tiles.cuh). Scores live in registers only: a warp's scores, rounded to bf16, are the
 * left factor of its next product.
 *
 * Two runs are equal, for attention.cu's reasons. What is rounded to bf16: the inputs, P and dS,
 * and the results; all sums are fp32. Exponentials are powers of 2: e^x = 2^(x log2 e). */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/math.cuh"

#include <float.h>

enum {
    LANES_OF_ROW = 4,    /* lanes that share a row of a result */
    SIZE_MAX_BF16 = 128, /* channels of a head: what registers hold */
    QUERIES_MAX = WORKSPACE_BYTES / (2 * (int)sizeof(float)), /* of all heads, backward */
};

/* A pack of which the first `left` elements are there and the others are 0. It is rare: short. */
static __device__ void copy_some(bf16 *to, const bf16 *from, int left)
{
#pragma unroll 1
    for (int j = 0; j < 8; j++)
        to[j] = j < left ? from[j] : bf16{0};
}

/* What a thread fetches of a tile: a pack of a row, and of those STEP rows apart. */
template <class Tiles> struct part {
    enum { PACKS = Tiles::WIDTH / 8, STEP = Tiles::WARPS * WARP / PACKS };

    static __device__ int row(void)
    {
        return threadIdx.x / PACKS;
    }

    static __device__ int column(void)
    {
        return threadIdx.x % PACKS * 8;
    }

    /* Of the tile that begins with row `first` of `array`, whose rows are `stride` apart. */
    static __device__ const bf16 *of(const bf16 *array, int first, int stride)
    {
        return array + (int64_t)(first + row()) * stride + column();
    }
};

/* to = the tile of which the thread's part begins at `from`; 0 beyond its first `rows`, and beyond the
 * head's size. */
template <class Tiles, int ROWS>
static __device__ void fetch(bf16 *to, const bf16 *from, int stride, int rows,
                             const struct heads &heads)
{
    enum { STEP = part<Tiles>::STEP };
    static_assert(STEP % 8 == 0 && ROWS % STEP == 0, "rows that lie alike");
    const int left = heads.size - part<Tiles>::column();
    rows = left > 0 ? rows - part<Tiles>::row() : 0;
    to += Tiles::template place<ROWS>(part<Tiles>::row(), part<Tiles>::column());
    if (heads.packed) {
#pragma unroll
        for (int i = 0; i < ROWS; i += STEP)
            copy_async(to + i * Tiles::STRIDE, from + (int64_t)i * stride, i < rows);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < ROWS; i += STEP)
        copy_some(to + i * Tiles::STRIDE, from + (int64_t)i * stride, i < rows ? left : 0);
}

/* Tiles come first in shared memory. It begins aligned, as these kernels have no static arrays there. */
static __device__ bf16 *tiles_begin(float4 *shared)
{
    device_check((unsigned)__cvta_generic_to_shared(shared) % GROUP_ALIGNMENT == 0);
    return (bf16 *)shared;
}

/* What was fetched is there for all; what the block used before is free. */
template <class Tiles> static __device__ void meet(void)
{
    wait_for_copies<0>();
    Tiles::publish();
    __syncthreads();
}

/* Where element j of the i-th result of pair p lies: row of the tile, column. */
static __device__ int row_in_tile(int j)
{
    return lane() / 4 + j / 2 * 8;
}

static __device__ int column_of(int p, int i, int j)
{
    return p * 16 + i * 8 + lane() % 4 * 2 + j % 2;
}

/* to's rows first … (`stride` apart) = scale[row] * products; `first`: the warp's own first row */
template <int TILES, int PAIRS>
static __device__ void store_rows(bf16 *to, int first, int stride,
                                  const sums<TILES, PAIRS> &products,
                                  const float (&scale)[TILES][2], const struct heads &heads)
{
    EACH_RESULT(TILES, PAIRS)
    _Pragma("unroll") for (int half = 0; half < 2; half++)
    {
        const float *x = &products.at[t][p][i].at[half * 2];
        int row = first + t * 16 + row_in_tile(half * 2);
        int c = column_of(p, i, 0);
        bf16 *at = to + (int64_t)row * stride + c;
        unsigned pair = rounded_pair(scale[t][half] * x[1], scale[t][half] * x[0]);
        if (row >= heads.T || c >= heads.size)
            continue;
        if (heads.packed) {
            *(unsigned *)at = pair;
            continue;
        }
        at[0] = bf16{(uint16_t)pair};
        if (c + 1 < heads.size)
            at[1] = bf16{(uint16_t)(pair >> 16)};
    }
}

/* The scores of keys that a query does not see become -infinity, whose exponential is 0. `row`,
 * `column`: what the warp's first row and the first column stand for. Queries beyond T are left
 * alone: nobody reads their rows, and to keys they bring zeros. */
template <int TILES, int PAIRS>
static __device__ void hide_keys(sums<TILES, PAIRS> &scores, int row, int column,
                                 const struct heads &heads)
{
    if (column + PAIRS * 16 - 1 <= last_key(heads, row))
        return; /* all see all */
    int last[TILES][2];
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            last[t][half] =
                last_key(heads, row + t * 16 + row_in_tile(half * 2)) - column - column_of(0, 0, 0);
    EACH_ELEMENT(TILES, PAIRS)
    if (p * 16 + i * 8 + j % 2 > last[t][j / 2])
        scores.at[t][p][i].at[j] = -INFINITY;
}

/* The same where rows are keys and columns queries; keys beyond T are left alone. */
template <int PAIRS>
static __device__ void hide_from_queries(sums<1, PAIRS> &scores, int row, int column,
                                         const struct heads &heads)
{
    if (first_query(heads, row + 15) <= column)
        return; /* all see all */
    int before = column + column_of(0, 0, 0);
    int first[2] = {first_query(heads, row + row_in_tile(0)) - before,
                    first_query(heads, row + row_in_tile(2)) - before};
    EACH_ELEMENT(1, PAIRS)
    if (p * 16 + i * 8 + j % 2 < first[j / 2])
        scores.at[t][p][i].at[j] = -INFINITY;
}

/* -- forward ----------------------------------------------------------------------------------- */

/* What a lane keeps of its two rows of each tile. Exponentials are powers of 2: of scale2 * score less
 * `base`, which the row's lanes all know, where `scale2` is scale * log2 e. Of its own columns it has
 * their sum. */
template <int TILES> struct softmax_rows {
    float base[TILES][2], sum[TILES][2];
};

enum { GROWTH = 8 }; /* a row's powers may grow from 1 to 2^8 before its base follows its scores */

/* Each row's base follows its largest score, of which a lane has one. What was added up so far is to be
 * scaled by `factor`. */
template <int TILES>
static __device__ void follow(struct softmax_rows<TILES> &rows, const float (&largest)[TILES][2],
                              float (&factor)[TILES][2], float scale2)
{
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float power = warp_largest(largest[t][half], LANES_OF_ROW) * scale2;
            bool over = power > rows.base[t][half] + GROWTH;
            float base = over ? power : rows.base[t][half];
            factor[t][half] = over ? exp2_of(rows.base[t][half] - base) : 1;
            rows.base[t][half] = base;
            rows.sum[t][half] *= factor[t][half];
        }
}

/* scores -> their powers. True: some row of the warp has a `factor` for what was added up so far. Most
 * tiles have no score so large that a base would follow it, which the lanes find out together: a row's
 * largest score is over its base when that of one of its lanes is. */
template <int TILES, int PAIRS>
static __device__ bool exponentiate(sums<TILES, PAIRS> &scores, struct softmax_rows<TILES> &rows,
                                    float (&factor)[TILES][2], float scale2)
{
    float largest[TILES][2];
    bool over = false;
#pragma unroll
    for (int t = 0; t < TILES; t++)
        largest[t][0] = largest[t][1] = -INFINITY;
    EACH_ELEMENT(TILES, PAIRS)
    largest[t][j / 2] = larger(scores.at[t][p][i].at[j], largest[t][j / 2]);
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            over |= largest[t][half] * scale2 > rows.base[t][half] + GROWTH;
    bool follows = __ballot_sync(0xffffffffu, over) != 0;
    if (follows)
        follow(rows, largest, factor, scale2);
    EACH_ELEMENT(TILES, PAIRS)
    {
        float &score = scores.at[t][p][i].at[j];
        score = exp2_of(fmaf(score, scale2, -rows.base[t][j / 2]));
        rows.sum[t][j / 2] += score;
    }
    return follows;
}

template <int TILES, int PAIRS>
static __device__ void scale_rows(sums<TILES, PAIRS> &products, const float (&factor)[TILES][2])
{
    EACH_ELEMENT(TILES, PAIRS)
    products.at[t][p][i].at[j] *= factor[t][j / 2];
}

/* The last tiles come first: when causal they have most to do. */
template <int ROWS> static __device__ int first_row(const struct heads &heads)
{
    int tiles = (heads.T + ROWS - 1) / ROWS;
    return (tiles - 1 - (int)blockIdx.x % tiles) * ROWS;
}

template <int ROWS> static __device__ int head_number(const struct heads &heads)
{
    return (int)blockIdx.x / ((heads.T + ROWS - 1) / ROWS);
}

template <class Tiles>
static __global__ void __launch_bounds__(Tiles::WARPS *WARP, Tiles::BLOCKS)
    forward(bf16 *out, float *lse, const bf16 *qkv, struct heads heads)
{
    enum { TILES = Tiles::TILES, OTHERS = Tiles::OTHERS };
    extern __shared__ __align__(GROUP_ALIGNMENT) float4 shared[];
    bf16 *queries = tiles_begin(shared), *keys = queries + Tiles::OWN,
         *values = keys + 2 * Tiles::OTHER;
    int number = head_number<Tiles::ROWS>(heads), first = first_row<Tiles::ROWS>(heads);
    struct tile tile = head_of(heads, number / heads.H, number % heads.H);
    int query = first + warp() * TILES * 16, end = last_key(heads, first + Tiles::ROWS - 1) + 1;
    const float scale2 = heads.scale * LOG2_E;
    struct softmax_rows<TILES> rows;
    float factor[TILES][2];
    typename Tiles::channel_sums products;
    typename Tiles::scores_sums scores;
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        rows.base[t][0] = rows.base[t][1] = -FLT_MAX; /* which any score is over */
        rows.sum[t][0] = rows.sum[t][1] = 0;
    }
    clear(products);
    const bf16 *from = part<Tiles>::of(qkv + tile.keys, 0, heads.wide);
    fetch<Tiles, Tiles::ROWS>(queries, part<Tiles>::of(qkv + tile.queries, first, heads.wide),
                              heads.wide, heads.T - first, heads);
    fetch<Tiles, OTHERS>(keys, from, heads.wide, heads.T, heads);
    fetch<Tiles, OTHERS>(values, from + heads.between, heads.wide, heads.T, heads);
    copies_are_a_group();
    const typename Tiles::factor own = Tiles::of(queries), key_rows = Tiles::of(keys),
                                 value_rows = Tiles::of(values);
    int now = 0;
    for (int key = 0; key < end; key += OTHERS) {
        int next = 1 - now, left = heads.T - key - OTHERS;
        meet<Tiles>(); /* these are there, and what `next` held has been used */
        if (key + OTHERS < end) {
            from += (int64_t)OTHERS * heads.wide;
            fetch<Tiles, OTHERS>(keys + next * Tiles::OTHER, from, heads.wide, left, heads);
            fetch<Tiles, OTHERS>(values + next * Tiles::OTHER, from + heads.between, heads.wide,
                                 left, heads);
        }
        copies_are_a_group();
        Tiles::start();
        Tiles::multiply_rows(scores, own, Tiles::stage(key_rows, now));
        Tiles::commit();
        Tiles::template wait<0>(scores);
        hide_keys(scores, query, key, heads);
        if (exponentiate(scores, rows, factor, scale2))
            scale_rows(products, factor);
        const typename Tiles::rounded_scores rounded = round_scores(scores);
        Tiles::start(rounded, products);
        Tiles::add_products(products, rounded, Tiles::stage(value_rows, now));
        Tiles::commit();
        Tiles::template wait<0>(products);
        now = next;
    }
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = warp_sum(rows.sum[t][half], LANES_OF_ROW);
            int row = query + t * 16 + row_in_tile(half * 2);
            factor[t][half] = 1 / sum;
            if (lane() % LANES_OF_ROW == 0 && row < heads.T)
                lse[tile.lse + row] = rows.base[t][half] / LOG2_E + log_of(sum);
        }
    store_rows(out + tile.out, query, heads.C, products, factor, heads);
}

/* -- backward ---------------------------------------------------------------------------------- */

/* D (B,H,T) = sum(dout * out) of each query: sum(P * dP); lse2 = lse * log2 e. SHARED_BY lanes a query,
 * each COUNT channels. */
template <int COUNT, int SHARED_BY>
static __global__ void sum_rows(float *D, float *lse2, const float *lse, const bf16 *dout,
                                const bf16 *out, int rows, struct heads heads)
{
    int number = (int)(element_index() / SHARED_BY), lane = threadIdx.x % SHARED_BY;
    float sum = 0;
    if (number < rows) {
        int head = number / heads.T;
        struct tile tile = head_of(heads, head / heads.H, head % heads.H);
        int64_t at = tile.out + (int64_t)(number % heads.T) * heads.C;
        for (int c = lane * COUNT; c < heads.size; c += SHARED_BY * COUNT) {
            pack<float, COUNT> d = values(load<COUNT>(dout + at + c));
            pack<float, COUNT> o = values(load<COUNT>(out + at + c));
            for (int i = 0; i < COUNT; i++)
                sum = fmaf(d.at[i], o.at[i], sum);
        }
    }
    sum = warp_sum(sum, SHARED_BY);
    if (number < rows && lane == 0) {
        D[number] = sum;
        lse2[number] = lse[number] * LOG2_E;
    }
}

/* A tile of queries: dQ = scale * dS K, dP = dout V^T. */
template <class Tiles>
static __global__ void __launch_bounds__(Tiles::WARPS *WARP, Tiles::BLOCKS)
    backward_queries(bf16 *dqkv, const bf16 *dout, const float *lse2, const float *D,
                     const bf16 *qkv, struct heads heads)
{
    enum { OTHERS = Tiles::OTHERS };
    extern __shared__ __align__(GROUP_ALIGNMENT) float4 shared[];
    bf16 *queries = tiles_begin(shared), *douts = queries + Tiles::OWN, *keys = douts + Tiles::OWN;
    bf16 *values = keys + 2 * Tiles::OTHER;
    int number = head_number<Tiles::ROWS>(heads), first = first_row<Tiles::ROWS>(heads);
    struct tile tile = head_of(heads, number / heads.H, number % heads.H);
    int query = first + warp() * 16, end = last_key(heads, first + Tiles::ROWS - 1) + 1;
    const float scale2 = heads.scale * LOG2_E;
    float row_lse2[2] = {}, row_D[2] = {}, scale[1][2] = {{heads.scale, heads.scale}};
    typename Tiles::channel_sums products;
    typename Tiles::scores_sums scores, dscores;
    for (int half = 0; half < 2; half++) {
        int row = query + row_in_tile(half * 2);
        if (row < heads.T) {
            row_lse2[half] = lse2[tile.lse + row];
            row_D[half] = D[tile.lse + row];
        }
    }
    clear(products);
    const bf16 *from = part<Tiles>::of(qkv + tile.keys, 0, heads.wide);
    fetch<Tiles, Tiles::ROWS>(queries, part<Tiles>::of(qkv + tile.queries, first, heads.wide),
                              heads.wide, heads.T - first, heads);
    fetch<Tiles, Tiles::ROWS>(douts, part<Tiles>::of(dout + tile.out, first, heads.C), heads.C,
                              heads.T - first, heads);
    fetch<Tiles, OTHERS>(keys, from, heads.wide, heads.T, heads);
    fetch<Tiles, OTHERS>(values, from + heads.between, heads.wide, heads.T, heads);
    copies_are_a_group();
    const typename Tiles::factor own = Tiles::of(queries), own_douts = Tiles::of(douts),
                                 key_rows = Tiles::of(keys), value_rows = Tiles::of(values);
    int now = 0;
    for (int key = 0; key < end; key += OTHERS) {
        int next = 1 - now, left = heads.T - key - OTHERS;
        meet<Tiles>(); /* as in forward */
        if (key + OTHERS < end) {
            from += (int64_t)OTHERS * heads.wide;
            fetch<Tiles, OTHERS>(keys + next * Tiles::OTHER, from, heads.wide, left, heads);
            fetch<Tiles, OTHERS>(values + next * Tiles::OTHER, from + heads.between, heads.wide,
                                 left, heads);
        }
        copies_are_a_group();
        Tiles::start();
        Tiles::multiply_rows(scores, own, Tiles::stage(key_rows, now));
        Tiles::commit();
        Tiles::multiply_rows(dscores, own_douts, Tiles::stage(value_rows, now));
        Tiles::commit();
        Tiles::template wait<1>(scores);
        hide_keys(scores, query, key, heads);
        EACH_ELEMENT(1, OTHERS / 16) /* P */
        scores.at[t][p][i].at[j] =
            exp2_of(fmaf(scores.at[t][p][i].at[j], scale2, -row_lse2[j / 2]));
        Tiles::template wait<0>(dscores);
        EACH_ELEMENT(1, OTHERS / 16) /* dS = P * (dP - D) */
        dscores.at[t][p][i].at[j] =
            scores.at[t][p][i].at[j] * (dscores.at[t][p][i].at[j] - row_D[j / 2]);
        const typename Tiles::rounded_scores rounded_dscores = round_scores(dscores);
        Tiles::start(rounded_dscores, products);
        Tiles::add_products(products, rounded_dscores, Tiles::stage(key_rows, now));
        Tiles::commit();
        Tiles::template wait<0>(products);
        now = next;
    }
    store_rows(dqkv + tile.queries, query, heads.wide, products, scale, heads);
}

/* What keys are told of a tile of queries beside their rows; 0 beyond T. */
template <int ROWS> struct query_numbers {
    float lse2[ROWS], D[ROWS];
};

/* The thread's part of a tile of queries: of their rows, of dout's, and which of their numbers. */
struct query_part {
    const bf16 *queries, *douts;
    const float *number;
};

/* Threads have numbers in the order in which query_numbers has them. */
template <int ROWS> static __device__ const float *own_number(const float *lse2, const float *D)
{
    return (threadIdx.x < ROWS ? lse2 : D) + threadIdx.x % ROWS;
}

static __device__ void go_on(struct query_part &part, int rows, int query_heads,
                             const struct heads &heads)
{
    part.queries += (int64_t)rows * heads.wide + query_heads * heads.size;
    part.douts += (int64_t)rows * heads.C + query_heads * heads.size;
    part.number += rows + query_heads * heads.T;
}

/* `rows`: those that there are. */
template <class Tiles>
static __device__ void
fetch_queries(bf16 *queries, bf16 *douts, struct query_numbers<Tiles::OTHERS> &numbers,
              const struct query_part &from, int rows, const struct heads &heads)
{
    enum { OTHERS = Tiles::OTHERS };
    static_assert(2 * OTHERS <= Tiles::WARPS * WARP, "a thread for each number");
    fetch<Tiles, OTHERS>(queries, from.queries, heads.wide, rows, heads);
    fetch<Tiles, OTHERS>(douts, from.douts, heads.C, rows, heads);
    if (threadIdx.x < 2 * OTHERS)
        copy_async(numbers.lse2 + threadIdx.x, from.number, (int)threadIdx.x % OTHERS < rows);
}

/* A tile of keys: dV = P^T dout, dK = scale * dS^T Q, over the query heads that share them, first
 * to last. Scores are transposed here: the warp's rows are keys, its columns queries. */
template <class Tiles>
static __global__ void __launch_bounds__(Tiles::WARPS *WARP, Tiles::BLOCKS)
    backward_keys(bf16 *dqkv, const bf16 *dout, const float *lse2, const float *D, const bf16 *qkv,
                  struct heads heads)
{
    enum { OTHERS = Tiles::OTHERS };
    extern __shared__ __align__(GROUP_ALIGNMENT) float4 shared[];
    bf16 *keys = tiles_begin(shared), *values = keys + Tiles::OWN, *queries = values + Tiles::OWN;
    bf16 *douts = queries + 2 * Tiles::OTHER;
    struct query_numbers<OTHERS> *numbers =
        (struct query_numbers<OTHERS> *)(douts + 2 * Tiles::OTHER);
    int number = head_number<Tiles::ROWS>(heads), first = first_row<Tiles::ROWS>(heads);
    int shares = heads.H / heads.G, b = number / heads.G, h = number % heads.G * shares;
    struct tile tile = head_of(heads, b, h);
    const int key = first + warp() * 16, begin = first_query(heads, first) / OTHERS * OTHERS;
    const int steps = shares * ((heads.T - begin + OTHERS - 1) / OTHERS);
    const float scale2 = heads.scale * LOG2_E;
    const float scale[1][2] = {{heads.scale, heads.scale}}, one[1][2] = {{1, 1}};
    typename Tiles::channel_sums dkeys, dvalues;
    typename Tiles::scores_sums scores, dscores;
    clear(dkeys);
    clear(dvalues);
    const bf16 *own = part<Tiles>::of(qkv + tile.keys, first, heads.wide);
    fetch<Tiles, Tiles::ROWS>(keys, own, heads.wide, heads.T - first, heads);
    fetch<Tiles, Tiles::ROWS>(values, own + heads.between, heads.wide, heads.T - first, heads);
    struct query_part from = {part<Tiles>::of(qkv + tile.queries, begin, heads.wide),
                              part<Tiles>::of(dout + tile.out, begin, heads.C),
                              own_number<OTHERS>(lse2, D) + tile.lse + begin};
    fetch_queries<Tiles>(queries, douts, numbers[0], from, heads.T - begin, heads);
    copies_are_a_group();
    const typename Tiles::factor own_keys = Tiles::of(keys), own_values = Tiles::of(values),
                                 query_rows = Tiles::of(queries), dout_rows = Tiles::of(douts);
    int now = 0, query = begin;
    for (int step = 0; step < steps; step++) {
        int next = 1 - now, query_then = query + OTHERS;
        meet<Tiles>(); /* as in forward */
        if (step + 1 < steps) {
            go_on(from, OTHERS, 0, heads);
            if (query_then >= heads.T) { /* the next head's begin */
                go_on(from, begin - query_then, 1, heads);
                query_then = begin;
            }
            fetch_queries<Tiles>(queries + next * Tiles::OTHER, douts + next * Tiles::OTHER,
                                 numbers[next], from, heads.T - query_then, heads);
        }
        copies_are_a_group();
        Tiles::start();
        Tiles::multiply_rows(scores, own_keys, Tiles::stage(query_rows, now));
        Tiles::commit();
        Tiles::multiply_rows(dscores, own_values, Tiles::stage(dout_rows, now));
        Tiles::commit();
        Tiles::template wait<1>(scores);
        hide_from_queries(scores, key, query, heads);
        EACH_ELEMENT(1, OTHERS / 16) /* P */
        scores.at[t][p][i].at[j] =
            exp2_of(fmaf(scores.at[t][p][i].at[j], scale2, -numbers[now].lse2[column_of(p, i, j)]));
        const typename Tiles::rounded_scores rounded = round_scores(scores);
        Tiles::start(rounded, dvalues);
        Tiles::add_products(dvalues, rounded, Tiles::stage(dout_rows, now));
        Tiles::commit();
        Tiles::template wait<1>(dscores);
        EACH_ELEMENT(1, OTHERS / 16) /* dS = P * (dP - D) */
        dscores.at[t][p][i].at[j] = scores.at[t][p][i].at[j] * (dscores.at[t][p][i].at[j] -
                                                                numbers[now].D[column_of(p, i, j)]);
        const typename Tiles::rounded_scores rounded_dscores = round_scores(dscores);
        Tiles::start(rounded_dscores, dkeys);
        Tiles::add_products(dkeys, rounded_dscores, Tiles::stage(query_rows, now));
        Tiles::commit();
        Tiles::template wait<0>(dkeys, dvalues);
        query = query_then;
        now = next;
    }
    store_rows(dqkv + tile.keys, key, heads.wide, dkeys, scale, heads);
    store_rows(dqkv + tile.keys + heads.between, key, heads.wide, dvalues, one, heads);
}

/* -- which template ---------------------------------------------------------------------------- */

/* Tiles of `own` arrays of own rows, and two of each of two arrays of others. */
template <class Tiles> static size_t tiles_bytes(int own)
{
    return (size_t)(own * Tiles::OWN + 4 * Tiles::OTHER) * sizeof(bf16);
}

template <class Tiles> static size_t numbers_bytes(void)
{
    return 2 * sizeof(struct query_numbers<Tiles::OTHERS>);
}

template <class Tiles, typename... Parameters, typename... Arguments>
static void launch_as(SELF, int64_t heads_count, size_t shared_bytes, const struct heads &heads,
                      void (*kernel)(Parameters...), Arguments... arguments)
{
    launch_tiles(k, heads_count, ceil_div(heads.T, Tiles::ROWS), Tiles::WARPS * WARP, shared_bytes,
                 kernel, arguments..., heads);
}

template <class Tiles>
static void forward_as(SELF, bf16 *out, float *lse, const bf16 *qkv, int64_t B,
                       const struct heads &heads)
{
    launch_as<Tiles>(k, B * heads.H, tiles_bytes<Tiles>(1), heads, forward<Tiles>, out, lse, qkv);
}

void attention_bf16_forward(SELF, bf16 *out, float *lse, const bf16 *qkv, int64_t B,
                            const struct heads &heads)
{
    if (!head_size_fits(k, heads, SIZE_MAX_BF16))
        return;
    if (k->state->groups && heads.size <= 64)
        forward_as<group_tiles<64, 5>>(k, out, lse, qkv, B, heads);
    else if (k->state->groups)
        forward_as<group_tiles<128, 2>>(k, out, lse, qkv, B, heads);
    else if (heads.size <= 64)
        forward_as<warp_tiles<64, 2, 64, 2>>(k, out, lse, qkv, B, heads);
    else
        forward_as<warp_tiles<128, 1, 64, 2>>(k, out, lse, qkv, B, heads);
}

template <class OfQueries, class OfKeys>
static void backward_as(SELF, bf16 *dqkv, const bf16 *dout, const float *lse2, const float *D,
                        const bf16 *qkv, int64_t B, const struct heads &heads)
{
    launch_as<OfQueries>(k, B * heads.H, tiles_bytes<OfQueries>(2), heads,
                         backward_queries<OfQueries>, dqkv, dout, lse2, D, qkv);
    launch_as<OfKeys>(k, B * heads.G, tiles_bytes<OfKeys>(2) + numbers_bytes<OfKeys>(), heads,
                      backward_keys<OfKeys>, dqkv, dout, lse2, D, qkv);
}

void attention_bf16_backward(SELF, bf16 *dqkv, const bf16 *dout, const bf16 *out, const float *lse,
                             const bf16 *qkv, int64_t B, const struct heads &heads)
{
    int64_t rows = B * heads.H * heads.T;
    if (!head_size_fits(k, heads, SIZE_MAX_BF16))
        return;
    if (rows > QUERIES_MAX) {
        cuda_fail(k, "attention: more than %d queries at a time", QUERIES_MAX);
        return;
    }
    float *D = (float *)k->state->workspace, *lse2 = D + rows;
    if (heads.packed && heads.size <= 64)
        launch_each(k, rows * 8, sum_rows<8, 8>, D, lse2, lse, dout, out, rows, heads);
    else if (heads.packed)
        launch_each(k, rows * 16, sum_rows<8, 16>, D, lse2, lse, dout, out, rows, heads);
    else
        launch_each(k, rows * WARP, sum_rows<1, WARP>, D, lse2, lse, dout, out, rows, heads);
    if (k->state->groups && heads.size <= 64)
        backward_as<group_tiles<64, 3>, group_tiles<64, 3>>(k, dqkv, dout, lse2, D, qkv, B, heads);
    else if (k->state->groups)
        backward_as<group_tiles<128, 2>, group_tiles<128, 2>>(k, dqkv, dout, lse2, D, qkv, B,
                                                              heads);
    else if (heads.size <= 64)
        backward_as<warp_tiles<64, 1, 64, 2>, warp_tiles<64, 1, 64, 2>>(k, dqkv, dout, lse2, D, qkv,
                                                                        B, heads);
    else
        backward_as<warp_tiles<128, 1, 32, 3>, warp_tiles<128, 1, 32, 2>>(k, dqkv, dout, lse2, D,
                                                                          qkv, B, heads);
}
