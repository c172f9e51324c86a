/* e^x, tanh, log, sin and cos as in kernels/cpu/vector_math.h: the same polynomials and the same
 * order of operations, so the same bits. */
#ifndef ROOST_KERNELS_CUDA_MATH_CUH
#define ROOST_KERNELS_CUDA_MATH_CUH

#include "kernels/cuda/cuda.cuh"

#define LN2_HIGH 0x1.62e43p-1f
#define LN2_LOW (-0x1.05c61p-29f)

template <int COUNT> static __device__ inline float polynomial(float x, const float (&c)[COUNT])
{
    float sum = c[COUNT - 1];
#pragma unroll
    for (int i = COUNT - 2; i >= 0; i--)
        sum = fmaf(sum, x, c[i]);
    return sum;
}

/* Arguments above 88 count as 88; below -87.3 the result is 0; NaN stays NaN. */
static __device__ inline float exp_of(float x)
{
    const float q[] = {0.5f,           0.166666657f,   0.0416662954f,
                       0.00833349675f, 0.00139446603f, 0.000197903413f};
    const float shift = 0x1.8p23f;
    x = 88 < x ? 88 : x;
    float shifted = fmaf(x, 0x1.715476p0f, shift);
    float n = shifted - shift;
    float r = fmaf(-n, LN2_LOW, fmaf(-n, LN2_HIGH, x));
    float e = fmaf(r * r, polynomial(r, q), r) + 1;
    float power = __uint_as_float((__float_as_uint(shifted) << 23) + (127u << 23));
    return x < -87.3f ? 0 : e * power;
}

static __device__ inline float tanh_of(float x)
{
    const float p[] = {-0.333333313f, 0.133332103f,    -0.0539472029f,
                       0.0217029676f, -0.00818267651f, 0.00214753929f};
    float size = fabsf(x), z = x * x;
    float near = fmaf(z * polynomial(z, p), x, x);
    float far = 1 - 2 / (exp_of(size + size) + 1);
    return size < 0.625f ? near : copysignf(far, x);
}

/* Of a finite x >= 1; NaN stays NaN. */
static __device__ inline float log_of(float x)
{
    const float p[] = {0.333333135f,  -0.250000089f, 0.200021192f,  -0.166679963f, 0.142195523f,
                       -0.124055885f, 0.118881635f,  -0.116756566f, 0.0674664378f};
    const unsigned low = 0x3f3504f3;
    unsigned above = __float_as_uint(x) - low;
    float n = (float)(int)(above >> 23);
    float f = __uint_as_float((above & 0x7fffff) + low) - 1, square = f * f;
    float tail = fmaf(n, LN2_LOW, square * f * polynomial(f, p));
    tail = f + fmaf(-0.5f, square, tail);
    return x == x ? fmaf(n, LN2_HIGH, tail) : x;
}

/* For powers of 2 where the CPU's bits are not asked for: e^x = 2^(x log2 e). */
#define LOG2_E 1.4426950408889634f

#ifdef __CUDACC__

/* 2^x; about two units in the last place off. */
static __device__ inline float exp2_of(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

#endif

/* How far n (high + low) is from the nearest whole number, at most 1/2. */
static __device__ inline float circles_of(float n, float high, float low)
{
    const float shift = 0x1.8p23f;
    float whole = fmaf(n, high, shift) - shift;
    float left = fmaf(n, low, fmaf(n, high, 0 - whole));
    return left - ((left + shift) - shift);
}

/* sin(2 pi u) for |u| <= 1/4 */
static __device__ inline float sin_quarter(float u)
{
    const float p[] = {6.28318548f,  -41.3417549f, 81.6097641f,
                       -76.8651199f, 44.5208778f,  -28.7183533f};
    return u * polynomial(u * u, p);
}

/* sin and cos of 2 pi u for |u| <= 1/2 */
static __device__ inline float sin_circles(float u)
{
    float size = fabsf(u);
    return copysignf(sin_quarter(size < 0.5f - size ? size : 0.5f - size), u);
}

static __device__ inline float cos_circles(float u)
{
    return sin_quarter(0.25f - fabsf(u));
}

#endif
