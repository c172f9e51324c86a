/* Elements on the device: float or bf16, the upper half of a float. Kernels are templates of the
 * element's type and of how many elements a thread loads at once; they compute in float. */
#ifndef ROOST_KERNELS_CUDA_ELEMENTS_CUH
#define ROOST_KERNELS_CUDA_ELEMENTS_CUH

#include "kernels/cuda/cuda.cuh"

struct bf16 {
    uint16_t bits;
};

#ifdef __CUDACC__

/* PTX's cvt.rn.bf16x2.f32: to nearest, ties to even. A NaN becomes 0x7fff, whatever it was. */
static __device__ inline unsigned rounded_pair(float upper, float lower)
{
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
    return pair;
}

#endif

static __device__ inline bf16 to_bf16(float x)
{
    return bf16{(uint16_t)rounded_pair(0, x)};
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

enum { PACK_BYTES = 16 }; /* loaded and stored as one, at most */

/* Elements that lie together. */
template <typename Element, int COUNT>
struct alignas(sizeof(Element) * COUNT < PACK_BYTES ? sizeof(Element) * COUNT
                                                    : (size_t)PACK_BYTES) pack {
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

/* A pack's values, and elements of them again. Those in bf16 lie two in a register, the first one in
 * its lower half: to take both at once costs half of what one by one does. */
template <int COUNT>
static __device__ inline pack<float, COUNT> values(const pack<float, COUNT> &elements)
{
    return elements;
}

template <int COUNT>
static __device__ inline pack<float, COUNT> values(const pack<bf16, COUNT> &elements)
{
    pack<float, COUNT> x;
    unsigned pairs[COUNT / 2];
    memcpy(pairs, &elements, sizeof pairs);
    for (int i = 0; i < COUNT; i += 2) {
        x.at[i] = __uint_as_float(pairs[i / 2] << 16);
        x.at[i + 1] = __uint_as_float(pairs[i / 2] & 0xffff0000);
    }
    return x;
}

static __device__ inline pack<float, 1> values(const pack<bf16, 1> &elements)
{
    return pack<float, 1>{{value(elements.at[0])}};
}

template <int COUNT>
static __device__ inline void round_into(pack<float, COUNT> &elements, const pack<float, COUNT> &x)
{
    elements = x;
}

template <int COUNT>
static __device__ inline void round_into(pack<bf16, COUNT> &elements, const pack<float, COUNT> &x)
{
    for (int i = 0; i < COUNT; i += 2) {
        unsigned pair = rounded_pair(x.at[i + 1], x.at[i]);
        memcpy(&elements.at[i], &pair, sizeof pair);
    }
}

static __device__ inline void round_into(pack<bf16, 1> &elements, const pack<float, 1> &x)
{
    elements.at[0] = to_bf16(x.at[0]);
}

template <typename Element, int COUNT>
static __device__ inline pack<Element, COUNT> rounded(const pack<float, COUNT> &x)
{
    pack<Element, COUNT> elements;
    round_into(elements, x);
    return elements;
}

/* -- element by element: a thread has COUNT that lie together, at the end of n fewer or none -----
 */

template <int COUNT> static __device__ inline int64_t first_element(void)
{
    return element_index() * COUNT;
}

/* Elements i … of `from`; 0 beyond n. */
template <int COUNT, typename Element>
static __device__ inline pack<Element, COUNT> load_at(const Element *from, int64_t i, int64_t n)
{
    if (i + COUNT <= n)
        return load<COUNT>(from + i);
    pack<Element, COUNT> elements = {};
    for (int j = 0; j < COUNT && i + j < n; j++)
        elements.at[j] = from[i + j];
    return elements;
}

/* Elements i … of `to`, but none beyond n, = elements */
template <int COUNT, typename Element>
static __device__ inline void store_at(Element *to, int64_t i, int64_t n,
                                       const pack<Element, COUNT> &elements)
{
    if (i + COUNT <= n) {
        store(to + i, elements);
        return;
    }
    for (int j = 0; j < COUNT && i + j < n; j++)
        to[i + j] = elements.at[j];
}

/* -- host -------------------------------------------------------------------------------------- */

/* Whether these arrays can be loaded PACK_BYTES at a time from their first element on. */
template <typename... Arrays> static inline bool are_aligned(Arrays... arrays)
{
    bool aligned = true;
    const void *const all[] = {arrays...};
    for (const void *array : all)
        aligned = aligned && (uintptr_t)array % PACK_BYTES == 0;
    return aligned;
}

/* Whether rows of C elements of these arrays can be loaded PACK_BYTES at a time. */
template <typename... Arrays> static inline bool packs_fit(SELF, int64_t C, Arrays... arrays)
{
    return C * (int64_t)k->element_bytes % PACK_BYTES == 0 && are_aligned(arrays...);
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

/* The same for n elements, of which a thread has a pack, from first_element() on; `packed`:
 * are_aligned(). */
#define LAUNCH_EACH(k, packed, n, kernel, ...)                                                     \
    LAUNCH_PACKS(k, packed, ceil_div(n, (int64_t)THREADS *pack_count(k, packed)), THREADS, 0,      \
                 kernel, __VA_ARGS__)

/* The same of kernel<COUNT>, whose arrays are floats whatever elements are. */
#define LAUNCH_EACH_FLOAT(k, packed, n, kernel, ...)                                               \
    ((packed) ? launch(k, ceil_div(n, THREADS * 4), THREADS, 0, kernel<4>, __VA_ARGS__)            \
              : launch(k, ceil_div(n, THREADS), THREADS, 0, kernel<1>, __VA_ARGS__))

#endif
