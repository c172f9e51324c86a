/* A warp a row of a matrix (N,C): blocks of THREADS, ceil_div(N, ROWS) of them. */
#ifndef ROOST_KERNELS_CUDA_ROWS_CUH
#define ROOST_KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda/elements.cuh"

enum {
    ROWS = THREADS / WARP, /* of a block */
    NEAR_PACKS = 4,        /* of a row that a lane has registers for, at most */
};

static __device__ inline int64_t warp_row(void)
{
    return (int64_t)blockIdx.x * ROWS + threadIdx.x / WARP;
}

/* A lane's packs of a row: for (int c = lane_pack<COUNT>(); c < C; c += WARP * COUNT) */
template <int COUNT> static __device__ inline int lane_pack(void)
{
    return (int)(threadIdx.x % WARP) * COUNT;
}

/* Elements c … of a row; 0 beyond C. */
template <int COUNT, typename Element>
static __device__ inline pack<Element, COUNT> load_below(const Element *row, int c, int C)
{
    return c < C ? load<COUNT>(row + c) : pack<Element, COUNT>{};
}

/* All of a lane's packs of a row. */
template <typename Element, int COUNT, int PACKS>
static __device__ inline void load_row(pack<Element, COUNT> (&packs)[PACKS], const Element *row,
                                       int C)
{
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        packs[p] = load_below<COUNT>(row, lane_pack<COUNT>() + p * WARP * COUNT, C);
}

static inline bool rows_are_near(SELF, int64_t C)
{
    return C <= NEAR_PACKS * WARP * pack_count(k, true);
}

#define LAUNCH_NEAR_AS(k, packs, blocks, threads, shared_bytes, kernel, ...)                       \
    ((k)->state->bf16                                                                              \
         ? launch(k, blocks, threads, shared_bytes, kernel<bf16, 8, packs>, __VA_ARGS__)           \
         : launch(k, blocks, threads, shared_bytes, kernel<float, 4, packs>, __VA_ARGS__))

/* launch() of kernel<Element, COUNT, PACKS> for near rows that can be loaded PACK_BYTES at a time. */
#define LAUNCH_NEAR(k, C, blocks, threads, shared_bytes, kernel, ...)                              \
    ((C) <= (NEAR_PACKS - 1) * WARP * pack_count(k, true)                                          \
         ? LAUNCH_NEAR_AS(k, NEAR_PACKS - 1, blocks, threads, shared_bytes, kernel, __VA_ARGS__)   \
         : LAUNCH_NEAR_AS(k, NEAR_PACKS, blocks, threads, shared_bytes, kernel, __VA_ARGS__))

#endif
