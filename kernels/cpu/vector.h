/* Sixteen lanes, three bodies: every kernel is written once against this header and compiled three
 * times (scalar, AVX2, AVX-512) with equal bits.
 *
 * They are equal because each lane sees the same correctly rounded operations in the same order: a
 * fused multiply-add is fused in all three (fmaf in scalar code), nothing else is fused
 * (-ffp-contract=off), and sums across lanes use one fixed tree (lane i with i+8, then +4, +2, +1).
 * Loads of fewer than 16 values are filled up with zeros, so that tails need no code of their own
 * (vec_cut() zeroes the lanes beyond the end again after an operation that does not keep 0).
 * Only the payload of a NaN may differ.
 *
 * `left` is the count of values from the pointer to the array's end; at most 16 are touched.
 * Pointers may be unaligned. */
#ifndef ROOST_KERNELS_CPU_VECTOR_H
#define ROOST_KERNELS_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

#define LANES 16

static inline size_t lanes_bytes(int64_t left, size_t value_bytes)
{
    return (size_t)(left < LANES ? left : LANES) * value_bytes;
}

/* -- types, loads, stores, and how one line of the table below becomes a function ---------------
 */

#if defined(__AVX512F__)

#include <immintrin.h>

typedef __m512 vec;
typedef __m512i ivec;
typedef struct {
    __m512d low, high;
} dvec;

static inline __mmask16 some_lanes(int64_t left)
{
    return (__mmask16)((1u << left) - 1);
}

static inline vec vec_load(const void *from, int64_t left)
{
    if (left >= LANES)
        return _mm512_loadu_ps(from);
    return _mm512_maskz_loadu_ps(some_lanes(left), from);
}

static inline void vec_store(void *to, vec a, int64_t left)
{
    if (left >= LANES)
        _mm512_storeu_ps(to, a);
    else
        _mm512_mask_storeu_ps(to, some_lanes(left), a);
}

/* All lanes, to a whole 64-byte line, around the caches; in no order until vec_stores_end(). */
static inline void vec_store_uncached(void *line, vec a)
{
    _mm512_stream_ps(line, a);
}

static inline void vec_stores_end(void)
{
    _mm_sfence();
}

static inline vec vec_cut(vec a, int64_t left)
{
    return left >= LANES ? a : _mm512_maskz_mov_ps(some_lanes(left), a);
}

static inline ivec ivec_load_u16(const void *from, int64_t left)
{
    uint16_t some[LANES] = {0};
    if (left < LANES)
        from = memcpy(some, from, lanes_bytes(left, sizeof *some));
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(from));
}

static inline void ivec_store_u16(void *to, ivec a, int64_t left)
{
    __m256i narrow = _mm512_cvtepi32_epi16(a);
    if (left >= LANES)
        _mm256_storeu_si256(to, narrow);
    else
        memcpy(to, &narrow, lanes_bytes(left, sizeof(uint16_t)));
}

static inline dvec dvec_add_square(dvec acc, vec a)
{
    __m256 half = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(a)), high = _mm512_cvtps_pd(half);
    return (dvec){_mm512_fmadd_pd(low, low, acc.low), _mm512_fmadd_pd(high, high, acc.high)};
}

#define VEC_SET(name, type, value, intrinsic)                                                      \
    static inline type name(value a)                                                               \
    {                                                                                              \
        return _mm512_##intrinsic(a);                                                              \
    }
#define VEC_1(name, intrinsic, scalar)                                                             \
    static inline vec name(vec a)                                                                  \
    {                                                                                              \
        return _mm512_##intrinsic(a);                                                              \
    }
#define VEC_2(name, intrinsic, scalar)                                                             \
    static inline vec name(vec a, vec b)                                                           \
    {                                                                                              \
        return _mm512_##intrinsic(a, b);                                                           \
    }
#define VEC_3(name, intrinsic, scalar)                                                             \
    static inline vec name(vec a, vec b, vec c)                                                    \
    {                                                                                              \
        return _mm512_##intrinsic(a, b, c);                                                        \
    }
#define VEC_IF(name, relation, scalar)                                                             \
    static inline vec name(vec a, vec b, vec then, vec otherwise)                                  \
    {                                                                                              \
        return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, relation), otherwise, then);          \
    }
#define IVEC_2(name, intrinsic, scalar)                                                            \
    static inline ivec name(ivec a, ivec b)                                                        \
    {                                                                                              \
        return _mm512_##intrinsic(a, b);                                                           \
    }
#define IVEC_LOGIC(name, intrinsic, scalar) IVEC_2(name, intrinsic##512, scalar)
#define IVEC_SHIFT(name, intrinsic, scalar)                                                        \
    static inline ivec name(ivec a, unsigned count)                                                \
    {                                                                                              \
        return _mm512_##intrinsic(a, count);                                                       \
    }
#define VEC_CAST(name, from, to, intrinsic_512, intrinsic_256, scalar)                             \
    static inline to name(from a)                                                                  \
    {                                                                                              \
        return _mm512_##intrinsic_512(a);                                                          \
    }

#elif defined(__AVX2__)

#include <immintrin.h>

typedef struct {
    __m256 low, high;
} vec;
typedef struct {
    __m256i low, high;
} ivec;
typedef struct {
    __m256d quarter[4];
} dvec;

static inline vec vec_load(const void *from, int64_t left)
{
    float some[LANES] = {0};
    if (left < LANES)
        from = memcpy(some, from, lanes_bytes(left, sizeof *some));
    return (vec){_mm256_loadu_ps(from), _mm256_loadu_ps((const float *)from + 8)};
}

static inline void vec_store(void *to, vec a, int64_t left)
{
    if (left >= LANES) {
        _mm256_storeu_ps(to, a.low);
        _mm256_storeu_ps((float *)to + 8, a.high);
    } else {
        memcpy(to, &a, lanes_bytes(left, sizeof(float)));
    }
}

static inline void vec_store_uncached(void *line, vec a)
{
    _mm256_stream_ps(line, a.low);
    _mm256_stream_ps((float *)line + 8, a.high);
}

static inline void vec_stores_end(void)
{
    _mm_sfence();
}

static inline vec vec_cut(vec a, int64_t left)
{
    return left >= LANES ? a : vec_load(&a, left);
}

static inline ivec ivec_load_u16(const void *from, int64_t left)
{
    uint16_t some[LANES] = {0};
    if (left < LANES)
        from = memcpy(some, from, lanes_bytes(left, sizeof *some));
    __m256i narrow = _mm256_loadu_si256(from);
    return (ivec){_mm256_cvtepu16_epi32(_mm256_castsi256_si128(narrow)),
                  _mm256_cvtepu16_epi32(_mm256_extracti128_si256(narrow, 1))};
}

static inline void ivec_store_u16(void *to, ivec a, int64_t left)
{
    /* packus works within 128-bit halves; the permute puts their quarters in order */
    __m256i narrow = _mm256_permute4x64_epi64(_mm256_packus_epi32(a.low, a.high), 0xd8);
    if (left >= LANES)
        _mm256_storeu_si256(to, narrow);
    else
        memcpy(to, &narrow, lanes_bytes(left, sizeof(uint16_t)));
}

static inline dvec dvec_add_square(dvec acc, vec a)
{
    __m128 four[4] = {_mm256_castps256_ps128(a.low), _mm256_extractf128_ps(a.low, 1),
                      _mm256_castps256_ps128(a.high), _mm256_extractf128_ps(a.high, 1)};
    for (int i = 0; i < 4; i++) {
        __m256d x = _mm256_cvtps_pd(four[i]);
        acc.quarter[i] = _mm256_fmadd_pd(x, x, acc.quarter[i]);
    }
    return acc;
}

#define VEC_SET(name, type, value, intrinsic)                                                      \
    static inline type name(value a)                                                               \
    {                                                                                              \
        return (type){_mm256_##intrinsic(a), _mm256_##intrinsic(a)};                               \
    }
#define VEC_1(name, intrinsic, scalar)                                                             \
    static inline vec name(vec a)                                                                  \
    {                                                                                              \
        return (vec){_mm256_##intrinsic(a.low), _mm256_##intrinsic(a.high)};                       \
    }
#define VEC_2(name, intrinsic, scalar)                                                             \
    static inline vec name(vec a, vec b)                                                           \
    {                                                                                              \
        return (vec){_mm256_##intrinsic(a.low, b.low), _mm256_##intrinsic(a.high, b.high)};        \
    }
#define VEC_3(name, intrinsic, scalar)                                                             \
    static inline vec name(vec a, vec b, vec c)                                                    \
    {                                                                                              \
        return (vec){_mm256_##intrinsic(a.low, b.low, c.low),                                      \
                     _mm256_##intrinsic(a.high, b.high, c.high)};                                  \
    }
#define VEC_IF(name, relation, scalar)                                                             \
    static inline vec name(vec a, vec b, vec then, vec otherwise)                                  \
    {                                                                                              \
        __m256 low = _mm256_cmp_ps(a.low, b.low, relation);                                        \
        __m256 high = _mm256_cmp_ps(a.high, b.high, relation);                                     \
        return (vec){_mm256_blendv_ps(otherwise.low, then.low, low),                               \
                     _mm256_blendv_ps(otherwise.high, then.high, high)};                           \
    }
#define IVEC_2(name, intrinsic, scalar)                                                            \
    static inline ivec name(ivec a, ivec b)                                                        \
    {                                                                                              \
        return (ivec){_mm256_##intrinsic(a.low, b.low), _mm256_##intrinsic(a.high, b.high)};       \
    }
#define IVEC_LOGIC(name, intrinsic, scalar) IVEC_2(name, intrinsic##256, scalar)
#define IVEC_SHIFT(name, intrinsic, scalar)                                                        \
    static inline ivec name(ivec a, unsigned count)                                                \
    {                                                                                              \
        return (ivec){_mm256_##intrinsic(a.low, (int)count),                                       \
                      _mm256_##intrinsic(a.high, (int)count)};                                     \
    }
#define VEC_CAST(name, from, to, intrinsic_512, intrinsic_256, scalar)                             \
    static inline to name(from a)                                                                  \
    {                                                                                              \
        return (to){_mm256_##intrinsic_256(a.low), _mm256_##intrinsic_256(a.high)};                \
    }

#else /* scalar: any x86-64 */

typedef struct {
    float lane[LANES];
} vec;
typedef struct {
    uint32_t lane[LANES];
} ivec;
typedef struct {
    double lane[LANES];
} dvec;

static inline vec vec_load(const void *from, int64_t left)
{
    vec a = {0};
    memcpy(&a, from, lanes_bytes(left, sizeof(float)));
    return a;
}

static inline void vec_store(void *to, vec a, int64_t left)
{
    memcpy(to, &a, lanes_bytes(left, sizeof(float)));
}

static inline void vec_store_uncached(void *line, vec a)
{
    vec_store(line, a, LANES);
}

static inline void vec_stores_end(void)
{
}

static inline vec vec_cut(vec a, int64_t left)
{
    return vec_load(&a, left);
}

static inline ivec ivec_load_u16(const void *from, int64_t left)
{
    uint16_t some[LANES] = {0};
    memcpy(some, from, lanes_bytes(left, sizeof *some));
    ivec ret;
    for (int i = 0; i < LANES; i++)
        ret.lane[i] = some[i];
    return ret;
}

static inline void ivec_store_u16(void *to, ivec a, int64_t left)
{
    uint16_t some[LANES];
    for (int i = 0; i < LANES; i++)
        some[i] = (uint16_t)a.lane[i];
    memcpy(to, some, lanes_bytes(left, sizeof *some));
}

static inline dvec dvec_add_square(dvec acc, vec a)
{
    for (int i = 0; i < LANES; i++)
        acc.lane[i] += (double)a.lane[i] * (double)a.lane[i];
    return acc;
}

/* `scalar` in every lane; it speaks of a, b, c, the lane's operands. */
#define EACH_LANE(type, scalar)                                                                    \
    type ret;                                                                                      \
    for (int i = 0; i < LANES; i++)                                                                \
        ret.lane[i] = (scalar);                                                                    \
    return ret
#define VEC_SET(name, type, value, intrinsic)                                                      \
    static inline type name(value a)                                                               \
    {                                                                                              \
        EACH_LANE(type, (__typeof__(ret.lane[0]))a);                                               \
    }
#define VEC_1(name, intrinsic, scalar)                                                             \
    static inline float name##_lane(float a)                                                       \
    {                                                                                              \
        return scalar;                                                                             \
    }                                                                                              \
    static inline vec name(vec x)                                                                  \
    {                                                                                              \
        EACH_LANE(vec, name##_lane(x.lane[i]));                                                    \
    }
#define VEC_2(name, intrinsic, scalar)                                                             \
    static inline float name##_lane(float a, float b)                                              \
    {                                                                                              \
        return scalar;                                                                             \
    }                                                                                              \
    static inline vec name(vec x, vec y)                                                           \
    {                                                                                              \
        EACH_LANE(vec, name##_lane(x.lane[i], y.lane[i]));                                         \
    }
#define VEC_3(name, intrinsic, scalar)                                                             \
    static inline float name##_lane(float a, float b, float c)                                     \
    {                                                                                              \
        return scalar;                                                                             \
    }                                                                                              \
    static inline vec name(vec x, vec y, vec z)                                                    \
    {                                                                                              \
        EACH_LANE(vec, name##_lane(x.lane[i], y.lane[i], z.lane[i]));                              \
    }
#define VEC_IF(name, relation, scalar)                                                             \
    static inline int name##_lane(float a, float b)                                                \
    {                                                                                              \
        return scalar;                                                                             \
    }                                                                                              \
    static inline vec name(vec x, vec y, vec then, vec otherwise)                                  \
    {                                                                                              \
        EACH_LANE(vec, name##_lane(x.lane[i], y.lane[i]) ? then.lane[i] : otherwise.lane[i]);      \
    }
#define IVEC_2(name, intrinsic, scalar)                                                            \
    static inline uint32_t name##_lane(uint32_t a, uint32_t b)                                     \
    {                                                                                              \
        return scalar;                                                                             \
    }                                                                                              \
    static inline ivec name(ivec x, ivec y)                                                        \
    {                                                                                              \
        EACH_LANE(ivec, name##_lane(x.lane[i], y.lane[i]));                                        \
    }
#define IVEC_LOGIC(name, intrinsic, scalar) IVEC_2(name, intrinsic, scalar)
#define IVEC_SHIFT(name, intrinsic, scalar)                                                        \
    static inline uint32_t name##_lane(uint32_t a, unsigned count)                                 \
    {                                                                                              \
        return scalar;                                                                             \
    }                                                                                              \
    static inline ivec name(ivec x, unsigned count)                                                \
    {                                                                                              \
        EACH_LANE(ivec, name##_lane(x.lane[i], count));                                            \
    }
#define VEC_CAST(name, from, to, intrinsic_512, intrinsic_256, scalar)                             \
    static inline to name(from x)                                                                  \
    {                                                                                              \
        to ret;                                                                                    \
        scalar;                                                                                    \
        return ret;                                                                                \
    }

#endif

/* -- the operations: name, intrinsic, and what it does in each lane ------------------------------
 */

/* clang-format off */
VEC_SET(vec_set, vec, float, set1_ps)
VEC_1(vec_sqrt, sqrt_ps, __builtin_sqrtf(a))
VEC_2(vec_add, add_ps, a + b)
VEC_2(vec_sub, sub_ps, a - b)
VEC_2(vec_mul, mul_ps, a * b)
VEC_2(vec_div, div_ps, a / b)
VEC_2(vec_min, min_ps, a < b ? a : b) /* b when one is NaN */
VEC_2(vec_max, max_ps, a > b ? a : b) /* b when one is NaN */
VEC_3(vec_fma, fmadd_ps, __builtin_fmaf(a, b, c))
VEC_3(vec_fnma, fnmadd_ps, __builtin_fmaf(-a, b, c))
VEC_IF(vec_if_less, _CMP_LT_OQ, a < b)
VEC_IF(vec_if_unordered, _CMP_UNORD_Q, __builtin_isunordered(a, b))
VEC_CAST(vec_bits, vec, ivec, castps_si512, castps_si256, memcpy(&ret, &x, sizeof ret))
VEC_CAST(bits_vec, ivec, vec, castsi512_ps, castsi256_ps, memcpy(&ret, &x, sizeof ret))
VEC_CAST(ivec_float, ivec, vec, cvtepi32_ps, cvtepi32_ps,
         for (int i = 0; i < LANES; i++) ret.lane[i] = (float)(int32_t)x.lane[i])

VEC_SET(ivec_set, ivec, int32_t, set1_epi32)
IVEC_2(ivec_add, add_epi32, a + b)
IVEC_2(ivec_sub, sub_epi32, a - b)
IVEC_LOGIC(ivec_and, and_si, a & b)
IVEC_LOGIC(ivec_or, or_si, a | b)
IVEC_SHIFT(ivec_left, slli_epi32, a << count)
IVEC_SHIFT(ivec_right, srli_epi32, a >> count)
/* clang-format on */

/* -- built from them: one body for all three -----------------------------------------------------
 */

static inline vec vec_zero(void)
{
    return vec_set(0);
}

static inline float vec_first(vec a)
{
    float first;
    vec_store(&first, a, 1);
    return first;
}

static inline float vec_sum(vec a)
{
    float lane[LANES];
    vec_store(lane, a, LANES);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static inline float vec_largest(vec a)
{
    float lane[LANES];
    vec_store(lane, a, LANES);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
    return lane[0];
}

static inline dvec dvec_zero(void)
{
    dvec zero;
    memset(&zero, 0, sizeof zero);
    return zero;
}

static inline double dvec_sum(dvec a)
{
    double lane[LANES];
    memcpy(lane, &a, sizeof lane);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static inline vec vec_abs(vec a)
{
    return bits_vec(ivec_and(vec_bits(a), ivec_set(INT32_MAX)));
}

/* The magnitude of a (which is not negative) with b's sign. */
static inline vec vec_with_sign(vec a, vec b)
{
    return bits_vec(ivec_or(vec_bits(a), ivec_and(vec_bits(b), ivec_set(INT32_MIN))));
}

static inline vec vec_load_bf16(const void *from, int64_t left)
{
    return bits_vec(ivec_left(ivec_load_u16(from, left), 16));
}

/* To nearest, ties to even: adding 0x7fff plus the last kept bit carries exactly when it should.
 * A NaN is cut off and made quiet instead, since the carry could turn it into an infinity. */
static inline void vec_store_bf16(void *to, vec a, int64_t left)
{
    ivec bits = vec_bits(a);
    ivec last = ivec_and(ivec_right(bits, 16), ivec_set(1));
    ivec rounded = ivec_add(bits, ivec_add(last, ivec_set(0x7fff)));
    ivec quiet = ivec_or(bits, ivec_set(0x400000));
    vec kept = vec_if_unordered(a, a, bits_vec(quiet), bits_vec(rounded));
    ivec_store_u16(to, ivec_right(vec_bits(kept), 16), left);
}

#endif
