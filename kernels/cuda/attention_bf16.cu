/* Attention on tensor cores (FlashAttention-2: Dao 2023, algorithms 1 and 2), arranged as in
 * attention.cu: a block owns rows of one head, WARPS warps with 16 * TILES rows each, and walks
 * over the other side, OTHERS rows at a time, the next ones on their way while these are used
 * (attention_tiles.cuh). Where products run beside the program, those of one tile's weights go on while
 * the next tile's scores are made (LATE). Scores live in registers only: a warp's scores, rounded to bf16, are the
 * left factor of its next product.
 *
 * Two runs are equal, for attention.cu's reasons. What is rounded to bf16: the inputs, P and dS,
 * and the results; all sums are fp32. Exponentials are powers of 2: e^x = 2^(x log2 e). */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/math.cuh"

enum {
    LANES_OF_ROW = 4,    /* lanes that share a row of a result */
    SIZE_MAX_BF16 = 128, /* channels of a head: what registers hold */
};

/* A pack of which the first `left` elements are there and the others are 0. It is rare: short. */
static __device__ void copy_some(bf16 *to, const bf16 *from, int left)
{
#pragma unroll 1
    for (int j = 0; j < 8; j++)
        to[j] = j < left ? from[j] : bf16{0};
}

/* to = rows first … of `from`, `stride` apart; 0 beyond T and beyond the head's size. */
template <class Tiles, int ROWS>
static __device__ void fetch(bf16 *to, const bf16 *from, int first, int stride,
                             const struct heads &heads)
{
    enum {
        PACKS = Tiles::WIDTH / 8,
        STEP = Tiles::WARPS * WARP / PACKS
    }; /* of a row; rows at a time */
    static_assert(STEP % 8 == 0 && ROWS % STEP == 0, "rows that lie alike");
    const int c = threadIdx.x % PACKS * 8, row = threadIdx.x / PACKS;
    const int rows_left = heads.T - first - row, left = heads.size - c;
    to += Tiles::template place<ROWS>(row, c);
    from += (int64_t)(first + row) * stride + c;
    if (heads.packed) {
#pragma unroll
        for (int i = 0; i < ROWS; i += STEP)
            copy_async(to + i * Tiles::STRIDE, from + (int64_t)i * stride,
                       i < rows_left && left > 0);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < ROWS; i += STEP)
        copy_some(to + i * Tiles::STRIDE, from + (int64_t)i * stride, i < rows_left ? left : 0);
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

/* What a lane keeps of its two rows of each tile: the largest score, which the row's lanes all
 * know, and the sum of its own columns' exponentials. */
template <int TILES> struct softmax_rows {
    float largest[TILES][2], sum[TILES][2];
};

/* scores -> 2^(scale2 (score - largest so far)); what was added up so far is to be scaled by `factor`,
 * to the new largest. `scale2`: scale * log2 e. */
template <int TILES, int PAIRS>
static __device__ void exponentiate(sums<TILES, PAIRS> &scores, struct softmax_rows<TILES> &rows,
                                    float (&factor)[TILES][2], float scale2)
{
    float base[TILES][2], largest[TILES][2];
#pragma unroll
    for (int t = 0; t < TILES; t++)
        largest[t][0] = rows.largest[t][0], largest[t][1] = rows.largest[t][1];
    EACH_ELEMENT(TILES, PAIRS)
    largest[t][j / 2] = larger(scores.at[t][p][i].at[j], largest[t][j / 2]);
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            largest[t][half] = warp_largest(largest[t][half], LANES_OF_ROW);
            /* a row that has seen no key so far: all of it stays 0 */
            base[t][half] = largest[t][half] == -INFINITY ? 0 : largest[t][half] * scale2;
            factor[t][half] = exp2_of(rows.largest[t][half] * scale2 - base[t][half]);
            rows.largest[t][half] = largest[t][half];
            rows.sum[t][half] *= factor[t][half];
        }
    EACH_ELEMENT(TILES, PAIRS)
    {
        float &score = scores.at[t][p][i].at[j];
        score = exp2_of(fmaf(score, scale2, -base[t][j / 2]));
        rows.sum[t][j / 2] += score;
    }
}

/* In most tiles no row of the warp has a new largest score. */
template <int TILES>
static __device__ bool is_scaled(const float (&factor)[TILES][2])
{
    bool scaled = false;
#pragma unroll
    for (int t = 0; t < TILES; t++)
        scaled |= factor[t][0] != 1 || factor[t][1] != 1;
    return __ballot_sync(0xffffffffu, scaled) != 0;
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
    enum { TILES = Tiles::TILES, OTHERS = Tiles::OTHERS, STAGES = Tiles::STAGES };
    enum { LATE = STAGES > 2 }; /* a tile's weights are multiplied while the next one is there */
    extern __shared__ float4 shared[];
    bf16 *queries = Tiles::begin(shared), *keys = queries + Tiles::OWN,
         *values = keys + STAGES * Tiles::OTHER;
    int number = head_number<Tiles::ROWS>(heads), first = first_row<Tiles::ROWS>(heads);
    struct tile tile = head_of(heads, number / heads.H, number % heads.H);
    int query = first + warp() * TILES * 16, end = last_key(heads, first + Tiles::ROWS - 1) + 1;
    const float scale2 = heads.scale * LOG2_E;
    struct softmax_rows<TILES> rows;
    float factor[TILES][2];
    int now = 0;
    typename Tiles::channel_sums products;
    typename Tiles::scores_sums scores;
    typename Tiles::rounded_scores weights = {}; /* so the first tile's values are added as zeros */
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        rows.largest[t][0] = rows.largest[t][1] = -INFINITY;
        rows.sum[t][0] = rows.sum[t][1] = 0;
    }
    clear(products);
    fetch<Tiles, Tiles::ROWS>(queries, qkv + tile.queries, first, heads.wide, heads);
    fetch<Tiles, Tiles::OTHERS>(keys, qkv + tile.keys, 0, heads.wide, heads);
    fetch<Tiles, Tiles::OTHERS>(values, qkv + tile.keys + heads.between, 0, heads.wide, heads);
    copies_are_a_group();
    for (int key = 0; key < end; key += OTHERS) {
        int before = now, next;
        now = key / OTHERS % STAGES;
        next = (now + 1) % STAGES;
        meet<Tiles>(); /* these are there, and what `next` held has been used */
        if (key + OTHERS < end) {
            fetch<Tiles, Tiles::OTHERS>(keys + next * Tiles::OTHER, qkv + tile.keys, key + OTHERS,
                                        heads.wide, heads);
            fetch<Tiles, Tiles::OTHERS>(values + next * Tiles::OTHER,
                                        qkv + tile.keys + heads.between, key + OTHERS, heads.wide,
                                        heads);
        }
        copies_are_a_group();
        Tiles::start();
        Tiles::multiply_rows(scores, queries, keys + now * Tiles::OTHER);
        Tiles::commit();
        if (LATE)
            Tiles::add_products(products, weights, values + before * Tiles::OTHER);
        Tiles::commit();
        Tiles::template wait<1>(scores);
        hide_keys(scores, query, key, heads);
        exponentiate(scores, rows, factor, scale2);
        if (is_scaled(factor)) {
            Tiles::template wait<0>(products);
            scale_rows(products, factor);
        } else
            Tiles::template wait<0>(products);
        weights = round_scores(scores);
        if (!LATE)
            Tiles::add_products(products, weights, values + now * Tiles::OTHER);
    }
    Tiles::start();
    if (LATE)
        Tiles::add_products(products, weights, values + now * Tiles::OTHER);
    Tiles::commit();
    Tiles::template wait<0>(products);
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = warp_sum(rows.sum[t][half], LANES_OF_ROW);
            int row = query + t * 16 + row_in_tile(half * 2);
            factor[t][half] = 1 / sum;
            if (lane() % LANES_OF_ROW == 0 && row < heads.T)
                lse[tile.lse + row] = heads.scale * rows.largest[t][half] + log_of(sum);
        }
    store_rows(out + tile.out, query, heads.C, products, factor, heads);
}

/* -- backward ---------------------------------------------------------------------------------- */

/* D (B,H,T) = sum(dout * out) of each query: sum(P * dP). SHARED_BY lanes a query, each COUNT
 * channels. */
template <int COUNT, int SHARED_BY>
static __global__ void sum_rows(float *D, const bf16 *dout, const bf16 *out, int rows,
                                struct heads heads)
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
    if (number < rows && lane == 0)
        D[number] = sum;
}

/* A compiler moves a wait for products up, before the powers that are to be taken meanwhile, but not
 * over a branch that looks at them. No power is negative. */
template <int TILES, int PAIRS>
static __device__ void finish_before(const sums<TILES, PAIRS> &powers)
{
    unsigned signs = 0;
    EACH_ELEMENT(TILES, PAIRS)
    signs |= __float_as_uint(powers.at[t][p][i].at[j]);
    device_check(signs >> 31 == 0);
}

/* A tile of queries: dQ = scale * dS K, dP = dout V^T. */
template <class Tiles>
static __global__ void __launch_bounds__(Tiles::WARPS *WARP, Tiles::BLOCKS)
    backward_queries(bf16 *dqkv, const bf16 *dout, const float *lse, const float *D,
                     const bf16 *qkv, struct heads heads)
{
    enum { OTHERS = Tiles::OTHERS, STAGES = Tiles::STAGES };
    enum { LATE = STAGES > 2 }; /* as in forward */
    extern __shared__ float4 shared[];
    bf16 *queries = Tiles::begin(shared), *douts = queries + Tiles::OWN, *keys = douts + Tiles::OWN;
    bf16 *values = keys + STAGES * Tiles::OTHER;
    int number = head_number<Tiles::ROWS>(heads), first = first_row<Tiles::ROWS>(heads);
    struct tile tile = head_of(heads, number / heads.H, number % heads.H);
    int query = first + warp() * 16, end = last_key(heads, first + Tiles::ROWS - 1) + 1;
    const float scale2 = heads.scale * LOG2_E;
    float lse2[2] = {}, row_D[2] = {}, scale[1][2] = {{heads.scale, heads.scale}};
    int now = 0;
    typename Tiles::channel_sums products;
    typename Tiles::scores_sums scores, dscores;
    typename Tiles::rounded_scores rounded = {};
    for (int half = 0; half < 2; half++) {
        int row = query + row_in_tile(half * 2);
        if (row < heads.T) {
            lse2[half] = lse[tile.lse + row] * LOG2_E;
            row_D[half] = D[tile.lse + row];
        }
    }
    clear(products);
    fetch<Tiles, Tiles::ROWS>(queries, qkv + tile.queries, first, heads.wide, heads);
    fetch<Tiles, Tiles::ROWS>(douts, dout + tile.out, first, heads.C, heads);
    fetch<Tiles, Tiles::OTHERS>(keys, qkv + tile.keys, 0, heads.wide, heads);
    fetch<Tiles, Tiles::OTHERS>(values, qkv + tile.keys + heads.between, 0, heads.wide, heads);
    copies_are_a_group();
    for (int key = 0; key < end; key += OTHERS) {
        int before = now, next;
        now = key / OTHERS % STAGES;
        next = (now + 1) % STAGES;
        meet<Tiles>(); /* as in forward */
        if (key + OTHERS < end) {
            fetch<Tiles, Tiles::OTHERS>(keys + next * Tiles::OTHER, qkv + tile.keys, key + OTHERS,
                                        heads.wide, heads);
            fetch<Tiles, Tiles::OTHERS>(values + next * Tiles::OTHER,
                                        qkv + tile.keys + heads.between, key + OTHERS, heads.wide,
                                        heads);
        }
        copies_are_a_group();
        Tiles::start();
        Tiles::multiply_rows(scores, queries, keys + now * Tiles::OTHER);
        Tiles::commit();
        Tiles::multiply_rows(dscores, douts, values + now * Tiles::OTHER);
        Tiles::commit();
        if (LATE)
            Tiles::add_products(products, rounded, keys + before * Tiles::OTHER);
        Tiles::commit();
        Tiles::template wait<2>(scores);
        hide_keys(scores, query, key, heads);
        EACH_ELEMENT(1, OTHERS / 16) /* P */
        scores.at[t][p][i].at[j] =
            exp2_of(fmaf(scores.at[t][p][i].at[j], scale2, -lse2[j / 2]));
        if (LATE)
            finish_before(scores);
        Tiles::template wait<1>(dscores);
        EACH_ELEMENT(1, OTHERS / 16) /* dS = P * (dP - D) */
        dscores.at[t][p][i].at[j] =
            scores.at[t][p][i].at[j] * (dscores.at[t][p][i].at[j] - row_D[j / 2]);
        Tiles::template wait<0>(products);
        rounded = round_scores(dscores);
        if (!LATE) {
            Tiles::start();
            Tiles::add_products(products, rounded, keys + now * Tiles::OTHER);
            Tiles::commit();
            Tiles::template wait<0>(products);
        }
    }
    Tiles::start();
    if (LATE)
        Tiles::add_products(products, rounded, keys + now * Tiles::OTHER);
    Tiles::commit();
    Tiles::template wait<0>(products);
    store_rows(dqkv + tile.queries, query, heads.wide, products, scale, heads);
}

/* What keys are told of a tile of queries beside their rows; 0 beyond T. */
template <int ROWS> struct query_numbers {
    float lse[ROWS], D[ROWS];
};

template <class Tiles>
static __device__ void fetch_numbers(struct query_numbers<Tiles::OTHERS> &to, const float *lse,
                                     const float *D, int first, const struct heads &heads)
{
    for (int i = threadIdx.x; i < 2 * Tiles::OTHERS; i += Tiles::WARPS * WARP) {
        int row = i % Tiles::OTHERS;
        bool there = first + row < heads.T;
        if (i < Tiles::OTHERS)
            copy_async(&to.lse[row], lse + first + row, there);
        else
            copy_async(&to.D[row], D + first + row, there);
    }
}

/* A tile of keys: dV = P^T dout, dK = scale * dS^T Q, over the query heads that share them, first
 * to last. Scores are transposed here: the warp's rows are keys, its columns queries. */
template <class Tiles>
static __global__ void __launch_bounds__(Tiles::WARPS *WARP, Tiles::BLOCKS)
    backward_keys(bf16 *dqkv, const bf16 *dout, const float *lse, const float *D, const bf16 *qkv,
                  struct heads heads)
{
    enum { OTHERS = Tiles::OTHERS, STAGES = Tiles::STAGES };
    extern __shared__ float4 shared[];
    bf16 *keys = Tiles::begin(shared), *values = keys + Tiles::OWN, *queries = values + Tiles::OWN;
    bf16 *douts = queries + STAGES * Tiles::OTHER;
    __shared__ struct query_numbers<OTHERS> numbers[STAGES];
    int number = head_number<Tiles::ROWS>(heads), first = first_row<Tiles::ROWS>(heads);
    int shares = heads.H / heads.G, b = number / heads.G, h = number % heads.G * shares;
    struct tile tile = head_of(heads, b, h);
    const int key = first + warp() * 16, begin = first_query(heads, first) / OTHERS * OTHERS;
    const int steps = shares * ((heads.T - begin + OTHERS - 1) / OTHERS);
    int query = begin;
    const float scale2 = heads.scale * LOG2_E;
    const float scale[1][2] = {{heads.scale, heads.scale}}, one[1][2] = {{1, 1}};
    typename Tiles::channel_sums dkeys, dvalues;
    typename Tiles::scores_sums scores, dscores;
    clear(dkeys);
    clear(dvalues);
    fetch<Tiles, Tiles::ROWS>(keys, qkv + tile.keys, first, heads.wide, heads);
    fetch<Tiles, Tiles::ROWS>(values, qkv + tile.keys + heads.between, first, heads.wide, heads);
    fetch<Tiles, Tiles::OTHERS>(queries, qkv + tile.queries, begin, heads.wide, heads);
    fetch<Tiles, Tiles::OTHERS>(douts, dout + tile.out, begin, heads.C, heads);
    fetch_numbers<Tiles>(numbers[0], lse + tile.lse, D + tile.lse, begin, heads);
    copies_are_a_group();
    for (int step = 0; step < steps; step++) {
        int now = step % STAGES, next = (now + 1) % STAGES, query_then = query + OTHERS;
        struct tile then = tile;
        if (query_then >= heads.T) { /* the next head's begin */
            query_then = begin;
            then.queries += heads.size;
            then.out += heads.size;
            then.lse += heads.T;
        }
        meet<Tiles>(); /* as in forward */
        if (step + 1 < steps) {
            fetch<Tiles, Tiles::OTHERS>(queries + next * Tiles::OTHER, qkv + then.queries,
                                        query_then, heads.wide, heads);
            fetch<Tiles, Tiles::OTHERS>(douts + next * Tiles::OTHER, dout + then.out, query_then,
                                        heads.C, heads);
            fetch_numbers<Tiles>(numbers[next], lse + then.lse, D + then.lse, query_then, heads);
        }
        copies_are_a_group();
        Tiles::start();
        Tiles::multiply_rows(scores, keys, queries + now * Tiles::OTHER);
        Tiles::commit();
        Tiles::multiply_rows(dscores, values, douts + now * Tiles::OTHER);
        Tiles::commit();
        Tiles::template wait<1>(scores);
        hide_from_queries(scores, key, query, heads);
        EACH_ELEMENT(1, OTHERS / 16) /* P */
        scores.at[t][p][i].at[j] =
            exp2_of(fmaf(scores.at[t][p][i].at[j], scale2,
                         -LOG2_E * numbers[now].lse[column_of(p, i, j)]));
        Tiles::start();
        Tiles::add_products(dvalues, round_scores(scores), douts + now * Tiles::OTHER);
        Tiles::commit();
        Tiles::template wait<1>(dscores);
        EACH_ELEMENT(1, OTHERS / 16) /* dS = P * (dP - D) */
        dscores.at[t][p][i].at[j] =
            scores.at[t][p][i].at[j] *
            (dscores.at[t][p][i].at[j] - numbers[now].D[column_of(p, i, j)]);
        Tiles::start();
        Tiles::add_products(dkeys, round_scores(dscores), queries + now * Tiles::OTHER);
        Tiles::commit();
        Tiles::template wait<0>(dkeys, dvalues);
        tile = then;
        query = query_then;
    }
    store_rows(dqkv + tile.keys, key, heads.wide, dkeys, scale, heads);
    store_rows(dqkv + tile.keys + heads.between, key, heads.wide, dvalues, one, heads);
}

/* -- which template ---------------------------------------------------------------------------- */

/* Tiles of `own` arrays of own rows, and the stages of two arrays of others. */
template <class Tiles> static size_t shared_bytes(int own)
{
    const size_t before = Tiles::ALIGNMENT - alignof(float4);
    return before + (size_t)(own * Tiles::OWN + 2 * Tiles::STAGES * Tiles::OTHER) * sizeof(bf16);
}

template <class Tiles, typename... Parameters, typename... Arguments>
static void launch_as(SELF, int64_t heads_count, int own, const struct heads &heads,
                      void (*kernel)(Parameters...), Arguments... arguments)
{
    launch_tiles(k, heads_count, ceil_div(heads.T, Tiles::ROWS), Tiles::WARPS * WARP,
                 shared_bytes<Tiles>(own), kernel, arguments..., heads);
}

template <class Tiles>
static void forward_as(SELF, bf16 *out, float *lse, const bf16 *qkv, int64_t B,
                       const struct heads &heads)
{
    launch_as<Tiles>(k, B * heads.H, 1, heads, forward<Tiles>, out, lse, qkv);
}

void attention_bf16_forward(SELF, bf16 *out, float *lse, const bf16 *qkv, int64_t B,
                            const struct heads &heads)
{
    if (!head_size_fits(k, heads, SIZE_MAX_BF16))
        return;
    if (k->state->groups && heads.size <= 64)
        forward_as<group_tiles<64, 2, 3, 2>>(k, out, lse, qkv, B, heads);
    else if (k->state->groups)
        forward_as<group_tiles<128, 2, 3, 1>>(k, out, lse, qkv, B, heads);
    else if (heads.size <= 64)
        forward_as<warp_tiles<64, 2, 64, 3>>(k, out, lse, qkv, B, heads);
    else
        forward_as<warp_tiles<128, 1, 64, 2>>(k, out, lse, qkv, B, heads);
}

template <class OfQueries, class OfKeys>
static void backward_as(SELF, bf16 *dqkv, const bf16 *dout, const float *lse, const float *D,
                        const bf16 *qkv, int64_t B, const struct heads &heads)
{
    launch_as<OfQueries>(k, B * heads.H, 2, heads, backward_queries<OfQueries>, dqkv, dout, lse, D,
                         qkv);
    launch_as<OfKeys>(k, B * heads.G, 2, heads, backward_keys<OfKeys>, dqkv, dout, lse, D, qkv);
}

void attention_bf16_backward(SELF, bf16 *dqkv, const bf16 *dout, const bf16 *out, const float *lse,
                             const bf16 *qkv, int64_t B, const struct heads &heads)
{
    int64_t rows = B * heads.H * heads.T;
    if (!head_size_fits(k, heads, SIZE_MAX_BF16))
        return;
    if (rows * (int64_t)sizeof(float) > WORKSPACE_BYTES) {
        cuda_fail(k, "attention: more than %d queries at a time", WORKSPACE_BYTES / 4);
        return;
    }
    float *D = (float *)k->state->workspace;
    if (heads.packed && heads.size <= 64)
        launch_each(k, rows * 8, sum_rows<8, 8>, D, dout, out, rows, heads);
    else if (heads.packed)
        launch_each(k, rows * 16, sum_rows<8, 16>, D, dout, out, rows, heads);
    else
        launch_each(k, rows * WARP, sum_rows<1, WARP>, D, dout, out, rows, heads);
    if (k->state->groups && heads.size <= 64)
        backward_as<group_tiles<64, 1, 3, 3>, group_tiles<64, 1, 2, 3>>(k, dqkv, dout, lse, D, qkv,
                                                                        B, heads);
    else if (k->state->groups)
        backward_as<group_tiles<128, 1, 2, 2>, group_tiles<128, 1, 2, 2>>(k, dqkv, dout, lse, D,
                                                                          qkv, B, heads);
    else if (heads.size <= 64)
        backward_as<warp_tiles<64, 1, 64, 4>, warp_tiles<64, 1, 64, 3>>(k, dqkv, dout, lse, D, qkv,
                                                                        B, heads);
    else
        backward_as<warp_tiles<128, 1, 32, 3>, warp_tiles<128, 1, 32, 2>>(k, dqkv, dout, lse, D,
                                                                          qkv, B, heads);
}
