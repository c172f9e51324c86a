/* Storing an updated weight and, in the same pass, its published copy. */
#ifndef ROOST_KERNELS_CUDA_PUBLISH_CUH
#define ROOST_KERNELS_CUDA_PUBLISH_CUH

#include "kernels/cuda/elements.cuh"

/* w[i] and published[i], which may be unaligned. */
static __device__ inline void publish(float *w, void *published, enum kernels_format format,
                                      float w_new, int64_t i)
{
    w[i] = w_new;
    if (format == KERNELS_F32)
        memcpy((char *)published + 4 * i, &w_new, 4);
    bf16 half = to_bf16(w_new);
    if (format == KERNELS_BF16)
        memcpy((char *)published + 2 * i, &half, 2);
}

#endif
