/* Tiles of attention_bf16.cu: rows of one head in shared memory, and how a block multiplies them.
 * warp_tiles have tensor cores of a warp (mma.cuh), group_tiles those of a warpgroup (wgmma.cuh).
 *
 * A block owns ROWS rows, each warp TILES times 16 of them, and walks over OTHERS rows of the other
 * side at a time. WIDTH: the head's size rounded up to what a template is there for; what is beyond
 * it is 0. Both have
 *
 *   BLOCKS                 at a time on a multiprocessor
 *   OWN, OTHER             elements of a tile of own rows, of others
 *   STRIDE                 from a row to the next, in elements, where 8 divides the row's number
 *   place<R>(row, column)  of an element in a tile of R rows
 *   factor, of(tile)       what products read, asked for once; stage(): of the others' tile so many on
 *   publish()              what the thread wrote is there for products, once all have met
 *   start(), commit()      before products, when what they read is there; those since are a group.
 *                          start(scores, products): also what they read and add to in registers
 *   wait<GROUPS>(…)        for all groups but the newest GROUPS, to which these sums belong
 *   multiply_rows          scores = own rows (of the warp) others^T
 *   rounded_scores         what round_scores() makes of scores, a left factor
 *   add_products           products += rounded scores others */
#ifndef ROOST_KERNELS_CUDA_ATTENTION_TILES_CUH
#define ROOST_KERNELS_CUDA_ATTENTION_TILES_CUH

#include "kernels/cuda/wgmma.cuh"

static __device__ inline int lane(void)
{
    return threadIdx.x % WARP;
}

static __device__ inline int warp(void)
{
    return threadIdx.x / WARP;
}

/* A warp's results: 16 rows a tile, `PAIRS` times 16 columns. */
template <int TILES, int PAIRS> struct sums {
    mma_sum at[TILES][PAIRS][2];
};

/* Loops over results are unrolled to the last: an index that is not known when compiling would put
 * them in memory instead of registers. */
#define EACH_RESULT(TILES, PAIRS)                                                                  \
    _Pragma("unroll") for (int t = 0; t < TILES; t++)                                              \
        _Pragma("unroll") for (int p = 0; p < PAIRS; p++)                                          \
            _Pragma("unroll") for (int i = 0; i < 2; i++)
#define EACH_ELEMENT(TILES, PAIRS)                                                                 \
    EACH_RESULT(TILES, PAIRS) _Pragma("unroll") for (int j = 0; j < 4; j++)

template <int TILES, int PAIRS> static __device__ void clear(sums<TILES, PAIRS> &s)
{
    EACH_RESULT(TILES, PAIRS)
    s.at[t][p][i] = mma_sum{};
}

/* The same rounded: the inner dimension of a further product. */
template <int TILES, int PAIRS> struct left_tiles {
    mma_left at[TILES][PAIRS];
};

template <int TILES, int PAIRS>
static __device__ left_tiles<TILES, PAIRS> round_scores(const sums<TILES, PAIRS> &scores)
{
    left_tiles<TILES, PAIRS> rounded;
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int p = 0; p < PAIRS; p++)
            rounded.at[t][p] = left_of(scores.at[t][p][0], scores.at[t][p][1]);
    return rounded;
}

/* -- of warps ---------------------------------------------------------------------------------- */

template <int WIDTH_, int TILES_, int OTHERS_, int BLOCKS_> struct warp_tiles {
    enum {
        WIDTH = WIDTH_,
        TILES = TILES_,
        OTHERS = OTHERS_,
        WARPS = 4,
        BLOCKS = BLOCKS_,
        ROWS = WARPS * TILES * 16,
        STRIDE = WIDTH + 8, /* no two of 8 rows share a bank */
        OWN = ROWS * STRIDE,
        OTHER = OTHERS * STRIDE,
    };
    typedef sums<TILES, OTHERS / 16> scores_sums; /* pairs of 8 others: two results side by side */
    typedef sums<TILES, WIDTH / 16> channel_sums;
    typedef left_tiles<TILES, OTHERS / 16> rounded_scores;

    template <int R> static __device__ int place(int row, int column)
    {
        return row * STRIDE + column;
    }

    typedef const bf16 *factor;

    static __device__ factor of(const bf16 *tile)
    {
        return tile;
    }

    static __device__ factor stage(factor tile, int number)
    {
        return tile + number * OTHER;
    }

    static __device__ void publish(void)
    {
    }

    /* Rows tile_row …, channels 16*step …: a left factor. */
    static __device__ void load_left(mma_left &left, const bf16 *own, int tile_row, int step)
    {
        load_tiles(left.pairs,
                   own + (tile_row + lane() % 16) * STRIDE + step * 16 + lane() / 16 * 8);
    }

    /* Two right factors that lie side by side: columns are rows n … n + 15 of `others`, the inner
     * dimension is its channels 16*step … */
    static __device__ void load_rows_as_columns(mma_right (&right)[2], const bf16 *others, int n,
                                                int step)
    {
        unsigned pairs[4];
        int row = n + lane() % 8 + lane() / 16 * 8;
        load_tiles(pairs, others + row * STRIDE + step * 16 + lane() / 8 % 2 * 8);
        right[0] = mma_right{{pairs[0], pairs[1]}};
        right[1] = mma_right{{pairs[2], pairs[3]}};
    }

    /* The same where the inner dimension is rows 16*step … of `others` and the columns are its
     * channels c … c + 15. */
    static __device__ void load_rows_as_rows(mma_right (&right)[2], const bf16 *others, int c,
                                             int step)
    {
        unsigned pairs[4];
        load_tiles_transposed(pairs,
                              others + (step * 16 + lane() % 16) * STRIDE + c + lane() / 16 * 8);
        right[0] = mma_right{{pairs[0], pairs[1]}};
        right[1] = mma_right{{pairs[2], pairs[3]}};
    }

    static __device__ void start(void)
    {
    }

    static __device__ void start(const rounded_scores &, channel_sums &)
    {
    }

    static __device__ void multiply_rows(scores_sums &scores, factor own, factor others)
    {
        clear(scores);
#pragma unroll
        for (int step = 0; step < WIDTH / 16; step++) {
            mma_left left[TILES];
#pragma unroll
            for (int t = 0; t < TILES; t++)
                load_left(left[t], own, (warp() * TILES + t) * 16, step);
#pragma unroll
            for (int p = 0; p < OTHERS / 16; p++) {
                mma_right right[2];
                load_rows_as_columns(right, others, p * 16, step);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    mma(scores.at[t][p][0], left[t], right[0]);
                    mma(scores.at[t][p][1], left[t], right[1]);
                }
            }
        }
    }

    static __device__ void commit(void)
    {
    }

    template <int GROUPS, class... Sums> static __device__ void wait(Sums &...)
    {
    }

    static __device__ void add_products(channel_sums &products, const rounded_scores &scores,
                                        factor others)
    {
#pragma unroll
        for (int step = 0; step < OTHERS / 16; step++) {
#pragma unroll
            for (int p = 0; p < WIDTH / 16; p++) {
                mma_right right[2];
                load_rows_as_rows(right, others, p * 16, step);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    mma(products.at[t][p][0], scores.at[t][step], right[0]);
                    mma(products.at[t][p][1], scores.at[t][step], right[1]);
                }
            }
        }
    }
};

/* -- of warpgroups ----------------------------------------------------------------------------- */

/* A tile is one of GROUP_COLUMNS channels behind another. Scores are of as many others, so each
 * product is one of wgmma.cuh's. A block is one group: while it multiplies, those of other blocks take
 * exponentials. (Two groups of one block waited for each other at every tile: a tenth slower.) */
template <int WIDTH_, int BLOCKS_> struct group_tiles {
    enum {
        WIDTH = WIDTH_,
        TILES = 1,
        OTHERS = GROUP_COLUMNS,
        WARPS = GROUP_WARPS,
        BLOCKS = BLOCKS_,
        ROWS = GROUP_ROWS,
        STRIDE = GROUP_COLUMNS,
        OWN = ROWS * WIDTH,
        OTHER = OTHERS * WIDTH,
        PARTS = WIDTH / GROUP_COLUMNS, /* of a tile */
        STEPS = GROUP_COLUMNS / 16,    /* products of a part */
    };
    typedef sums<1, OTHERS / 16> scores_sums;
    typedef sums<1, WIDTH / 16> channel_sums;
    typedef left_tiles<1, OTHERS / 16> rounded_scores;

    template <int R> static __device__ int place(int row, int column)
    {
        return column / GROUP_COLUMNS * R * STRIDE + group_place(row, column % GROUP_COLUMNS);
    }

    typedef uint64_t factor;

    static __device__ factor of(const bf16 *tile)
    {
        return group_factor(tile);
    }

    static __device__ factor stage(factor tile, int number)
    {
        return group_factor_at(tile, number * OTHER);
    }

    static __device__ void publish(void)
    {
        group_publish();
    }

    static __device__ void start(void)
    {
        group_begin();
    }

    static __device__ void start(const rounded_scores &scores, channel_sums &products)
    {
        settle(products);
#pragma unroll
        for (int step = 0; step < STEPS; step++)
            group_hold(scores.at[0][step]);
        group_begin();
    }

    static __device__ void multiply_rows(scores_sums &scores, factor left, factor right)
    {
        group_multiply(scores.at[0], left, right);
#pragma unroll
        for (int i = 1; i < PARTS * STEPS; i++) {
            int part = i / STEPS, step = i % STEPS;
            group_multiply_add(scores.at[0],
                               group_factor_at(left, part * ROWS * STRIDE + step * 16),
                               group_factor_at(right, part * OTHERS * STRIDE + step * 16));
        }
    }

    static __device__ void commit(void)
    {
        group_commit();
    }

    template <int PAIRS> static __device__ void settle(sums<1, PAIRS> &products)
    {
#pragma unroll
        for (int p = 0; p < PAIRS; p += STEPS)
            group_settle(products.at[0] + p);
    }

    template <int GROUPS, class... Sums> static __device__ void wait(Sums &...products)
    {
        group_wait<GROUPS>();
        (settle(products), ...);
    }

    static __device__ void add_products(channel_sums &products, const rounded_scores &scores,
                                        factor right)
    {
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int step = 0; step < STEPS; step++)
                group_add(products.at[0] + part * STEPS, scores.at[0][step],
                          group_factor_at(right, (part * OTHERS + step * 16) * STRIDE));
    }
};

#endif
