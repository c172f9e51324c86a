/* Tensor cores: products of 16 x 16 by 16 x 8 tiles of bf16, added up in fp32 (PTX's
 * mma.m16n8k16), and how a warp's lanes share such tiles.
 *
 * Lane l holds, of a result, row l/4 and row l/4 + 8, of each the columns l%4*2 and the next. Of
 * the factors it holds pairs of neighbours along the inner dimension in one register: of the left
 * one rows l/4, l/4 + 8 at l%4*2 and at l%4*2 + 8, of the right one column l/4. Two results side by
 * side are therefore, rounded, the left factor of a further product. */
#ifndef ROOST_KERNELS_CUDA_MMA_CUH
#define ROOST_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/elements.cuh"

struct mma_left {
    unsigned pairs[4];
};
struct mma_right {
    unsigned pairs[2];
};
struct mma_sum {
    float at[4];
};

#ifdef __CUDACC__

static __device__ inline void mma(mma_sum &sum, const mma_left &a, const mma_right &b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sum.at[0]), "+f"(sum.at[1]), "+f"(sum.at[2]), "+f"(sum.at[3])
                 : "r"(a.pairs[0]), "r"(a.pairs[1]), "r"(a.pairs[2]), "r"(a.pairs[3]),
                   "r"(b.pairs[0]), "r"(b.pairs[1]));
}

/* Four 8 x 8 tiles: lane l names row l%8 of tile l/8 and gets of each tile row l/4, columns l%4*2
 * and the next. */
static __device__ inline void load_tiles(unsigned (&pairs)[4], const bf16 *row)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(at)
                 : "memory");
}

/* The same, each tile transposed: lane l gets rows l%4*2 and the next, column l/4. */
static __device__ inline void load_tiles_transposed(unsigned (&pairs)[4], const bf16 *row)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(at)
                 : "memory");
}

/* Starts to copy PACK_BYTES from the device's memory into shared memory; zeros, and nothing is read,
 * when they are not `there`. */
static __device__ inline void copy_async(bf16 *to, const bf16 *from, bool there)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to), bytes = there ? PACK_BYTES : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
}

/* The same for one number. */
static __device__ inline void copy_async(float *to, const float *from, bool there)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to), bytes = there ? sizeof *to : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
}

/* What was started so far is a group; waits until all but the newest `GROUPS` groups of the thread
 * are there. */
static __device__ inline void copies_are_a_group(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int GROUPS> static __device__ inline void wait_for_copies(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

#endif

/* Two results that lie side by side, as a left factor. */
static __device__ inline mma_left left_of(const mma_sum &first, const mma_sum &second)
{
    return mma_left{{rounded_pair(first.at[1], first.at[0]), rounded_pair(first.at[3], first.at[2]),
                     rounded_pair(second.at[1], second.at[0]),
                     rounded_pair(second.at[3], second.at[2])}};
}

#endif
