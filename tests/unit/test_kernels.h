/* What the kernels' tests share: made-up arrays, and how far two arrays are apart. */
#ifndef ROOST_TESTS_UNIT_TEST_KERNELS_H
#define ROOST_TESTS_UNIT_TEST_KERNELS_H

#include "tests/unit/unit.h"

#include "kernels/kernels.h"

#include <math.h>

/* The i-th value in [-1, 1) of stream `seed`: a multiple of 2^-23, made of integers alone, so that
 * tests/golden/make_kernels.py makes the same. (The mixing is lowbias32 by Chris Wellons.) */
static inline uint32_t hash_bits(uint32_t seed, uint32_t i)
{
    uint32_t x = i * 0x9e3779b9u + seed * 0x85ebca6bu;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

static inline float hash_float(uint32_t seed, uint32_t i)
{
    return (float)(int32_t)((hash_bits(seed, i) >> 8) - (1u << 23)) / (float)(1 << 23);
}

/* Arrays of exactly the size asked for (the address sanitizer then sees every slip), all freed by
 * arrays_release(). */
struct arrays {
    void *memory[128];
    int count;
};

static inline void *arrays_take(struct arrays *arrays, size_t bytes)
{
    check(arrays->count < (int)(sizeof arrays->memory / sizeof *arrays->memory));
    void *memory = calloc(1, bytes ? bytes : 1);
    check(memory);
    return arrays->memory[arrays->count++] = memory;
}

/* n floats: scale * hash_float */
static inline float *arrays_floats(struct arrays *arrays, uint32_t seed, int64_t n, float scale)
{
    float *x = arrays_take(arrays, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = scale * hash_float(seed, (uint32_t)i);
    return x;
}

/* n integers in [0, below) */
static inline int32_t *arrays_integers(struct arrays *arrays, uint32_t seed, int64_t n,
                                       int64_t below)
{
    int32_t *x = arrays_take(arrays, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (int32_t)(hash_bits(seed, (uint32_t)i) % (uint32_t)below);
    return x;
}

static inline void arrays_release(struct arrays *arrays)
{
    while (arrays->count > 0)
        free(arrays->memory[--arrays->count]);
}

/* base^(-2i/S) of every pair, in circles, as kernels_rope wants it. */
static inline struct kernels_rope rope_of(double base, int64_t S)
{
    struct kernels_rope rope = {.high = {0}};
    for (int64_t i = 0; i < S / 2; i++) {
        double circles = pow(base, (double)(-2 * i) / (double)S) / (2 * M_PI);
        rope.high[i] = (float)circles;
        rope.low[i] = (float)(circles - (double)rope.high[i]);
    }
    return rope;
}

static inline double norm(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* |x - expected| / |expected| in the L2 norm */
static inline double distance(const float *x, const double *expected, int64_t n)
{
    double sum = 0, size = norm(expected, n);
    for (int64_t i = 0; i < n; i++)
        sum += ((double)x[i] - expected[i]) * ((double)x[i] - expected[i]);
    return size > 0 ? sqrt(sum) / size : sqrt(sum);
}

/* The table of that variant, with OpenBLAS; NULL where this CPU cannot run it. */
static inline const struct kernels *kernels_for(enum kernels_isa isa)
{
    const struct kernels_options options = {.isa = isa, .gemm_core = "auto"};
    const struct kernels *k = NULL;
    char reason[256];
    if (!kernels_new(&options, &k, reason, sizeof reason)) {
        fprintf(stderr, "# %s\n", reason);
        return NULL;
    }
    return k;
}

SCOPED_FREE(const struct kernels, kernels_free)

/* A test of `k`, the table of the fastest variant here. */
#define TEST_ON_CPU(title)                                                                         \
    static void title##_on(const struct kernels *k);                                               \
    TEST(title)                                                                                    \
    {                                                                                              \
        scoped(kernels_free_scoped) const struct kernels *k = kernels_for(KERNELS_ISA_AUTO);       \
        title##_on(k);                                                                             \
    }                                                                                              \
    static void title##_on(const struct kernels *k)

#endif
