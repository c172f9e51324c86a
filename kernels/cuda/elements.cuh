/* Elements on the device: float or bf16, the upper half of a float. Kernels are templates of the
 * element's type and of how many elements a thread loads at once; they compute in float. */
#ifndef ROOST_KERNELS_CUDA_ELEMENTS_CUH
#define ROOST_KERNELS_CUDA_ELEMENTS_CUH

#include "kernels/cuda/cuda.cuh"

struct bf16 {
    uint16_t bits;
};

/* To nearest, ties to even; NaN stays NaN (kernels/cpu/vector.h says how). */
static __device__ inline bf16 to_bf16(float x)
{
    unsigned bits = __float_as_uint(x);
    bits = x == x ? bits + ((bits >> 16 & 1) + 0x7fff) : bits | 0x400000;
    return bf16{(uint16_t)(bits >> 16)};
}

static __device__ inline float value(bf16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}

static __device__ inline float value(float x)
{
    return x;
}

template <typename Element> static __device__ inline Element rounded(float x);

template <> __device__ inline float rounded<float>(float x)
{
    return x;
}

template <> __device__ inline bf16 rounded<bf16>(float x)
{
    return to_bf16(x);
}

/* Elements that lie together; loaded and stored as one, at most 16 bytes. */
template <typename Element, int COUNT> struct alignas(sizeof(Element) * COUNT) pack {
    Element at[COUNT];
};

template <int COUNT, typename Element>
static __device__ inline pack<Element, COUNT> load(const Element *from)
{
    return *(const pack<Element, COUNT> *)from;
}

template <int COUNT, typename Element>
static __device__ inline void store(Element *to, const pack<Element, COUNT> &elements)
{
    *(pack<Element, COUNT> *)to = elements;
}

/* -- host -------------------------------------------------------------------------------------- */

enum { PACK_BYTES = 16 };

static inline bool is_aligned(const void *array)
{
    return (uintptr_t)array % PACK_BYTES == 0;
}

/* Whether rows of C elements of these arrays can be loaded PACK_BYTES at a time. */
template <typename... Arrays> static inline bool packs_fit(SELF, int64_t C, Arrays... arrays)
{
    bool fit = C * (int64_t)k->element_bytes % PACK_BYTES == 0;
    const void *const all[] = {arrays...};
    for (const void *array : all)
        fit = fit && is_aligned(array);
    return fit;
}

/* How many elements a kernel loads at once. */
static inline int pack_count(SELF, bool packed)
{
    return packed ? PACK_BYTES / (int)k->element_bytes : 1;
}

static_assert(PACK_BYTES / sizeof(float) == 4 && PACK_BYTES / sizeof(bf16) == 8, "below");

/* launch() of kernel<Element>. */
#define LAUNCH_ELEMENTS(k, blocks, threads, shared_bytes, kernel, ...)                             \
    ((k)->state->bf16 ? launch(k, blocks, threads, shared_bytes, kernel<bf16>, __VA_ARGS__)        \
                      : launch(k, blocks, threads, shared_bytes, kernel<float>, __VA_ARGS__))

/* launch() of kernel<Element, COUNT>; `packed`: packs_fit(). */
#define LAUNCH_PACKS(k, packed, blocks, threads, shared_bytes, kernel, ...)                        \
    ((k)->state->bf16                                                                              \
         ? (packed) ? launch(k, blocks, threads, shared_bytes, kernel<bf16, 8>, __VA_ARGS__)       \
                    : launch(k, blocks, threads, shared_bytes, kernel<bf16, 1>, __VA_ARGS__)       \
     : (packed) ? launch(k, blocks, threads, shared_bytes, kernel<float, 4>, __VA_ARGS__)          \
                : launch(k, blocks, threads, shared_bytes, kernel<float, 1>, __VA_ARGS__))

#endif
