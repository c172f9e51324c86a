/* Sums over the rows of a matrix (N,C), per column, in two stages: the rows are cut into parts, a
 * block adds COLUMNS packs of columns of one part, and then several threads a column add the parts.
 * Which rows make a part, and in which order parts are added, follows from N, C and the pack alone.
 */
#ifndef ROOST_KERNELS_CUDA_COLUMNS_CUH
#define ROOST_KERNELS_CUDA_COLUMNS_CUH

#include "kernels/cuda/elements.cuh"

enum {
    COLUMNS = 32,                  /* packs */
    ROW_LANES = THREADS / COLUMNS, /* rows of a part that a block has in hand at a time */
    BLOCKS_WANTED = 1024,          /* several for each multiprocessor of a large GPU */
    PART_COLUMNS = 8,              /* floats that are fetched from memory as one */
    PART_LANES = THREADS / PART_COLUMNS,
};

struct row_parts {
    int64_t count, rows; /* of each but the last, which may have fewer */
    int64_t tiles;       /* that the columns are cut into */
};

/* `pack`: columns that a thread loads at once. */
static inline struct row_parts row_parts(int64_t N, int64_t C, int pack)
{
    struct row_parts parts;
    parts.tiles = ceil_div(C, COLUMNS * pack);
    int64_t wanted = ceil_div(BLOCKS_WANTED, parts.tiles), most = ceil_div(N, 4 * ROW_LANES);
    parts.rows = ceil_div(N, wanted < most ? wanted : most);
    parts.count = ceil_div(N, parts.rows);
    return parts;
}

/* Blocks of a first stage; they are numbered part by part. */
static inline int64_t part_blocks(struct row_parts parts)
{
    return parts.count * parts.tiles;
}

/* What a thread of a first stage adds: rows `row`, row + ROW_LANES … below `end` of the columns
 * from `column` on, which may lie beyond C. */
struct column_walk {
    int64_t part, column, row, end;
};

template <int COUNT>
static __device__ inline struct column_walk column_walk(struct row_parts parts, int64_t N)
{
    struct column_walk walk;
    walk.part = blockIdx.x / parts.tiles;
    walk.column = (blockIdx.x % parts.tiles * COLUMNS + threadIdx.x % COLUMNS) * COUNT;
    walk.row = walk.part * parts.rows + threadIdx.x / COLUMNS;
    walk.end = (walk.part + 1) * parts.rows < N ? (walk.part + 1) * parts.rows : N;
    return walk;
}

/* sums (parts,C) = each thread's sums, added over the block's row lanes: with the lane 4 away, then
 * 2, 1. Called by all threads. */
template <int COUNT>
static __device__ inline void store_part(float *sums, struct column_walk walk,
                                         const float (&own)[COUNT], int64_t C)
{
    __shared__ float lanes[ROW_LANES][COUNT][COLUMNS];
    int lane = threadIdx.x / COLUMNS, x = threadIdx.x % COLUMNS;
    __syncthreads(); /* the sums of an earlier call have been read */
    for (int i = 0; i < COUNT; i++)
        lanes[lane][i][x] = own[i];
    for (int half = ROW_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int i = 0; i < COUNT && lane < half; i++)
            lanes[lane][i][x] += lanes[lane + half][i][x];
    }
    for (int i = 0; i < COUNT && lane == 0 && walk.column < C; i++)
        sums[walk.part * C + walk.column + i] = lanes[0][i][x];
}

/* The second stage: out (C) += sums (parts,C). A block has PART_COLUMNS columns and PART_LANES threads
 * to each: lane l adds parts l, l + PART_LANES …, first to last; then the lanes are added, with the
 * lane 16 away, then 8, 4, 2, 1. */
static __global__ void add_part_columns(float *out, const float *sums, int parts, int64_t C)
{
    __shared__ float lanes[PART_LANES][PART_COLUMNS];
    int lane = threadIdx.x / PART_COLUMNS, x = threadIdx.x % PART_COLUMNS;
    int64_t column = (int64_t)blockIdx.x * PART_COLUMNS + x;
    float sum = 0;
    for (int part = lane; part < parts && column < C; part += PART_LANES)
        sum += sums[part * C + column];
    lanes[lane][x] = sum;
    for (int half = PART_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half)
            lanes[lane][x] += lanes[lane + half][x];
    }
    if (lane == 0 && column < C)
        out[column] += lanes[0][x];
}

static inline void add_parts(SELF, float *out, const float *sums, int64_t parts, int64_t C)
{
    launch(k, ceil_div(C, PART_COLUMNS), THREADS, 0, add_part_columns, out, sums, parts, C);
}

/* Where `index` of several arrays of partial sums lies in the workspace. */
static inline float *part_sums(SELF, struct row_parts parts, int64_t C, int index)
{
    size_t floats = (size_t)(parts.count * C);
    check((size_t)(index + 1) * floats * sizeof(float) <= WORKSPACE_BYTES);
    return (float *)k->state->workspace + (size_t)index * floats;
}

#endif
