/* Two runs are equal: each value is one thread's. A block crosses in one copy, through the staging
 * memory on the device unless its values lie there as they do in the bytes. */
#include "kernels/cuda/elements.cuh"

static_assert((int)KERNELS_BLOCK_BYTES_MAX <= (int)STAGING_BYTES, "a block is staged whole");

/* Where value i of the bytes lies in the block. */
static __device__ inline int64_t place(unsigned i, unsigned cols, int64_t stride)
{
    return i / cols * stride + i % cols;
}

/* A thread has COUNT values, which lie together in the block, too. */
template <int COUNT, typename To, typename From>
static __global__ void scatter(To *block, int64_t stride, const From *from, unsigned cols,
                               unsigned n)
{
    unsigned i = (unsigned)first_element<COUNT>();
    if (i < n)
        store(block + place(i, cols, stride), rounded<To>(values(load<COUNT>(from + i))));
}

template <int COUNT, typename To>
static __global__ void gather(To *to, const float *block, int64_t stride, unsigned cols, unsigned n)
{
    unsigned i = (unsigned)first_element<COUNT>();
    if (i < n)
        store(to + i, rounded<To>(load<COUNT>(block + place(i, cols, stride))));
}

static bool fours_fit(const void *block, int64_t stride, int64_t cols)
{
    return stride % 4 == 0 && cols % 4 == 0 && are_aligned(block);
}

static size_t bytes_of(enum kernels_format format, int64_t n)
{
    size_t bytes = (size_t)n * (format == KERNELS_BF16 ? sizeof(bf16) : sizeof(float));
    check(n > 0);
    check(bytes <= KERNELS_BLOCK_BYTES_MAX);
    return bytes;
}

void *cuda_block_room(SELF)
{
    return cuda_room(k);
}

template <typename From, typename To>
static void scatter_staged(SELF, To *block, int64_t stride, int64_t rows, int64_t cols)
{
    const From *staging = (const From *)k->state->staging;
    unsigned n = (unsigned)(rows * cols);
    if (fours_fit(block, stride, cols))
        launch_each(k, n / 4, scatter<4, To, From>, block, stride, staging, (unsigned)cols, n);
    else
        launch_each(k, n, scatter<1, To, From>, block, stride, staging, (unsigned)cols, n);
}

template <typename To>
static void scatter_any(SELF, To *block, int64_t stride, enum kernels_format format, int64_t rows,
                        int64_t cols)
{
    if (format == KERNELS_BF16)
        scatter_staged<bf16>(k, block, stride, rows, cols);
    else
        scatter_staged<float>(k, block, stride, rows, cols);
}

template <typename To>
static void gather_staged(SELF, const float *block, int64_t stride, int64_t rows, int64_t cols)
{
    To *staging = (To *)k->state->staging;
    unsigned n = (unsigned)(rows * cols);
    if (fours_fit(block, stride, cols))
        launch_each(k, n / 4, gather<4, To>, staging, block, stride, (unsigned)cols, n);
    else
        launch_each(k, n, gather<1, To>, staging, block, stride, (unsigned)cols, n);
}

void cuda_decode_block(SELF, element *block, int64_t stride, const void *bytes,
                       enum kernels_format format, int64_t rows, int64_t cols)
{
    size_t count = bytes_of(format, rows * cols);
    bool is_there = (format == KERNELS_BF16) == k->state->bf16 && (stride == cols || rows == 1);
    cuda_give_in(k, is_there ? block : k->state->staging, bytes, count);
    if (is_there)
        return;
    if (k->state->bf16)
        scatter_any(k, (bf16 *)block, stride, format, rows, cols);
    else
        scatter_any(k, (float *)block, stride, format, rows, cols);
}

void cuda_encode_block(SELF, void *bytes, enum kernels_format format, const float *block,
                       int64_t stride, int64_t rows, int64_t cols)
{
    size_t count = bytes_of(format, rows * cols);
    bool is_there = format == KERNELS_F32 && (stride == cols || rows == 1);
    if (format == KERNELS_BF16)
        gather_staged<bf16>(k, block, stride, rows, cols);
    else if (!is_there)
        gather_staged<float>(k, block, stride, rows, cols);
    cuda_give_out(k, bytes, is_there ? block : k->state->staging, count);
}

void cuda_copy_block(SELF, element *block, const element *from, int64_t stride, int64_t rows,
                     int64_t cols)
{
    size_t size = k->element_bytes;
    cuda_ok(k,
            cudaMemcpy2DAsync(block, (size_t)stride * size, from, (size_t)stride * size,
                              (size_t)cols * size, (size_t)rows, cudaMemcpyDeviceToDevice,
                              k->state->stream),
            "copy of a block");
}
