/* Storing updated weights and, in the same pass, their published copy. */
#ifndef ROOST_KERNELS_CUDA_PUBLISH_CUH
#define ROOST_KERNELS_CUDA_PUBLISH_CUH

#include "kernels/cuda/elements.cuh"

/* Values i … of `bytes`, but none beyond n; single ones may be unaligned. */
template <typename Wire, int COUNT>
static __device__ inline void store_wire(void *bytes, int64_t i, int64_t n,
                                         const pack<Wire, COUNT> &values)
{
    if (COUNT > 1)
        store_at((Wire *)bytes, i, n, values);
    else if (i < n)
        memcpy((char *)bytes + (int64_t)sizeof(Wire) * i, &values, sizeof values);
}

/* w and `published`, values i … but none beyond n, = w_new */
template <int COUNT>
static __device__ inline void publish(float *w, void *published, enum kernels_format format,
                                      const pack<float, COUNT> &w_new, int64_t i, int64_t n)
{
    store_at(w, i, n, w_new);
    if (format == KERNELS_F32)
        store_wire(published, i, n, w_new);
    if (format == KERNELS_BF16)
        store_wire(published, i, n, rounded<bf16>(w_new));
}

#endif
