/* A warp a row of a matrix (N,C): blocks of THREADS, ceil_div(N, ROWS) of them. */
#ifndef ROOST_KERNELS_CUDA_ROWS_CUH
#define ROOST_KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda/elements.cuh"

enum { ROWS = THREADS / WARP }; /* of a block */

static __device__ inline int64_t warp_row(void)
{
    return (int64_t)blockIdx.x * ROWS + threadIdx.x / WARP;
}

/* A lane's packs of a row: for (int c = lane_pack<COUNT>(); c < C; c += WARP * COUNT) */
template <int COUNT> static __device__ inline int lane_pack(void)
{
    return (int)(threadIdx.x % WARP) * COUNT;
}

#endif
