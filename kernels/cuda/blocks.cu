/* Two runs are equal: one thread a value. A block crosses in one copy, through the staging memory on
 * the device unless its values lie there as they do in the bytes. */
#include "kernels/cuda/elements.cuh"

static_assert((int)KERNELS_BLOCK_BYTES_MAX <= (int)STAGING_BYTES, "a block is staged whole");

/* Where value i of the bytes lies in the block. */
static __device__ inline int64_t place(unsigned i, unsigned cols, int64_t stride)
{
    return i / cols * stride + i % cols;
}

template <typename To, typename From>
static __global__ void scatter(To *block, int64_t stride, const From *values, unsigned cols,
                               unsigned n)
{
    unsigned i = (unsigned)element_index();
    if (i < n)
        block[place(i, cols, stride)] = rounded<To>(value(values[i]));
}

template <typename To>
static __global__ void gather(To *values, const float *block, int64_t stride, unsigned cols,
                              unsigned n)
{
    unsigned i = (unsigned)element_index();
    if (i < n)
        values[i] = rounded<To>(block[place(i, cols, stride)]);
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

template <typename To>
static void scatter_any(SELF, To *block, int64_t stride, enum kernels_format format, int64_t rows,
                        int64_t cols)
{
    const void *staging = k->state->staging;
    unsigned n = (unsigned)(rows * cols);
    if (format == KERNELS_BF16)
        launch_each(k, n, scatter<To, bf16>, block, stride, (const bf16 *)staging, (unsigned)cols,
                    n);
    else
        launch_each(k, n, scatter<To, float>, block, stride, (const float *)staging, (unsigned)cols,
                    n);
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
    void *staging = k->state->staging;
    unsigned n = (unsigned)(rows * cols);
    if (format == KERNELS_BF16)
        launch_each(k, n, gather<bf16>, (bf16 *)staging, block, stride, (unsigned)cols, n);
    else if (!is_there)
        launch_each(k, n, gather<float>, (float *)staging, block, stride, (unsigned)cols, n);
    cuda_give_out(k, bytes, is_there ? block : staging, count);
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
