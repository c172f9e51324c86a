/* Tensor cores of a warpgroup (PTX's wgmma, sm_90a alone): four warps, the first of which has a
 * number that four divides, multiply 64 rows by 64 columns, 16 of the inner dimension at a time.
 * Lanes hold results and left factors as in mma.cuh, warp w rows 16 w … of the 64.
 *
 * Other factors lie in shared memory, in rows of 64 numbers, one behind another, from an address that
 * 1024 divides. Of a row's eight packs of 8 numbers pack c lies where pack c ^ row % 8 would
 * ("128-byte swizzle"): the same column of eight rows is in all banks.
 *
 * Products run beside the program, in their order: what they read stays as it is, and what they add
 * to is not looked at, until group_wait(). Source: PTX ISA 9.0, "Asynchronous warpgroup level matrix instructions". */
#ifndef ROOST_KERNELS_CUDA_WGMMA_CUH
#define ROOST_KERNELS_CUDA_WGMMA_CUH

#include "kernels/cuda/mma.cuh"

enum {
    GROUP_WARPS = 4,
    GROUP_ROWS = 64,
    GROUP_COLUMNS = 64, /* of a row in shared memory, and of a product */
    GROUP_ALIGNMENT = 1024,
};

/* Numbers from the tile's first one. */
static __device__ inline int group_place(int row, int column)
{
    return row * GROUP_COLUMNS + ((column / 8 ^ row % 8) * 8 | column % 8);
}

/* Of a factor that begins there: eight rows are 1024 bytes; "128-byte swizzle". Its inner dimension
 * goes along rows, or over them. */
static __device__ inline uint64_t group_factor(const bf16 *at)
{
    const uint64_t rows_bytes = 1024, swizzle = 1, unused = 1;
    uint64_t address = (unsigned)__cvta_generic_to_shared(at) & 0x3ffffu;
    return address >> 4 | unused << 16 | (rows_bytes >> 4) << 32 | swizzle << 62;
}

/* The same so many numbers further on; 8 divides them. */
static __device__ inline uint64_t group_factor_at(uint64_t factor, int numbers)
{
    return factor + (unsigned)(numbers / 8);
}

/* The 64 columns of a product: 4 pairs of 8. */
typedef mma_sum group_sums[2];

#ifdef __CUDACC__
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define GROUP_PAIR(how, sums, p)                                                                   \
    how((sums)[p][0].at[0]), how((sums)[p][0].at[1]), how((sums)[p][0].at[2]),                     \
        how((sums)[p][0].at[3]), how((sums)[p][1].at[0]), how((sums)[p][1].at[1]),                 \
        how((sums)[p][1].at[2]), how((sums)[p][1].at[3])
#define GROUP_SUMS(how, sums)                                                                      \
    GROUP_PAIR(how, sums, 0), GROUP_PAIR(how, sums, 1), GROUP_PAIR(how, sums, 2),                  \
        GROUP_PAIR(how, sums, 3)
#define GROUP_PRODUCT                                                                              \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "                                        \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                      \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "

/* Registers and shared memory are as the next products are to find them. */
static __device__ inline void group_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* The products since the last one are a group; waits until all but the newest `GROUPS` are over. */
static __device__ inline void group_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int GROUPS> static __device__ inline void group_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
}

/* Of what products add to: after group_wait(), nothing of it was read before; before group_begin(), all
 * is computed by then. */
static __device__ inline void group_settle(group_sums *sums)
{
    asm volatile("" : GROUP_SUMS("+f", sums)::"memory");
}

/* Before group_begin(), of a left factor in registers: it is computed by then. */
static __device__ inline void group_hold(const mma_left &left)
{
    asm volatile("" ::"r"(left.pairs[0]), "r"(left.pairs[1]), "r"(left.pairs[2]), "r"(left.pairs[3])
                 : "memory");
}

/* sums = left right^T; both have 64 rows, and their inner dimension goes along them. */
static __device__ inline void group_multiply(group_sums *sums, uint64_t left, uint64_t right)
{
    asm volatile(GROUP_PRODUCT "%32, %33, 0, 1, 1, 0, 0;"
                 : GROUP_SUMS("=f", sums)
                 : "l"(left), "l"(right)
                 : "memory");
}

/* sums += left right^T */
static __device__ inline void group_multiply_add(group_sums *sums, uint64_t left, uint64_t right)
{
    asm volatile(GROUP_PRODUCT "%32, %33, 1, 1, 1, 0, 0;"
                 : GROUP_SUMS("+f", sums)
                 : "l"(left), "l"(right)
                 : "memory");
}

/* sums += left right; the inner dimension goes over 16 rows of `right`. */
static __device__ inline void group_add(group_sums *sums, const mma_left &left, uint64_t right)
{
    asm volatile(GROUP_PRODUCT "{%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                 : GROUP_SUMS("+f", sums)
                 : "r"(left.pairs[0]), "r"(left.pairs[1]), "r"(left.pairs[2]), "r"(left.pairs[3]),
                   "l"(right)
                 : "memory");
}

/* What this thread wrote into shared memory is there for products, once all have met. */
static __device__ inline void group_publish(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#else /* for a device that lacks them, where nobody launches this */
static __device__ inline void group_begin(void)
{
    __trap();
}
static __device__ inline void group_commit(void)
{
}
template <int GROUPS> static __device__ inline void group_wait(void)
{
}
static __device__ inline void group_settle(group_sums *)
{
}
static __device__ inline void group_hold(const mma_left &)
{
}
static __device__ inline void group_multiply(group_sums *, uint64_t, uint64_t)
{
}
static __device__ inline void group_multiply_add(group_sums *, uint64_t, uint64_t)
{
}
static __device__ inline void group_add(group_sums *, const mma_left &, uint64_t)
{
}
static __device__ inline void group_publish(void)
{
}
#endif
#endif

#endif
