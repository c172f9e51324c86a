/* e^x, tanh, log, sin and cos on sixteen lanes, from our own minimax polynomials: libm's last bits
 * change from one CPU to the next. Largest errors against double, over every float of the domain:
 * vec_exp 0.99 ulp, vec_tanh 1.33 ulp, vec_log 0.83 ulp (test_kernels_math.c takes every 997th);
 * sin and cos of circles are 3e-7 away at most, up to position 200000. */
#ifndef ROOST_KERNELS_CPU_VECTOR_MATH_H
#define ROOST_KERNELS_CPU_VECTOR_MATH_H

#include "kernels/cpu/vector.h"

#define LN2_HIGH 0x1.62e43p-1f    /* ln 2 rounded to float … */
#define LN2_LOW (-0x1.05c61p-29f) /* … and what that left out */

/* c[0] + c[1] x + … + c[degree] x^degree, by Horner's rule */
static inline vec vec_polynomial(vec x, const float *c, int degree)
{
    vec sum = vec_set(c[degree]);
    for (int i = degree - 1; i >= 0; i--)
        sum = vec_fma(sum, x, vec_set(c[i]));
    return sum;
}

/* Arguments above 88 count as 88. Below -87.3, where e^x is no longer a normal number, 0. NaN stays
 * NaN. With x = n ln 2 + r, |r| <= ln(2)/2: e^x = 2^n (1 + r + r^2 q(r)). */
static inline vec vec_exp(vec x)
{
    static const float q[] = {0.5f,           0.166666657f,   0.0416662954f,
                              0.00833349675f, 0.00139446603f, 0.000197903413f};
    const vec shift = vec_set(0x1.8p23f); /* adding it leaves round(x / ln 2) in the low bits */
    x = vec_min(vec_set(88), x);
    vec shifted = vec_fma(x, vec_set(0x1.715476p0f), shift);
    vec n = vec_sub(shifted, shift);
    vec r = vec_fnma(n, vec_set(LN2_LOW), vec_fnma(n, vec_set(LN2_HIGH), x));
    vec e = vec_add(vec_fma(vec_mul(r, r), vec_polynomial(r, q, 5), r), vec_set(1));
    vec power = bits_vec(ivec_add(ivec_left(vec_bits(shifted), 23), ivec_set(127 << 23)));
    return vec_if_less(x, vec_set(-87.3f), vec_zero(), vec_mul(e, power));
}

/* Near 0 an odd polynomial, elsewhere 1 - 2 / (e^2|x| + 1) with x's sign. NaN stays NaN. */
static inline vec vec_tanh(vec x)
{
    static const float p[] = {-0.333333313f, 0.133332103f,    -0.0539472029f,
                              0.0217029676f, -0.00818267651f, 0.00214753929f};
    vec size = vec_abs(x), z = vec_mul(x, x);
    vec near = vec_fma(vec_mul(z, vec_polynomial(z, p, 5)), x, x);
    vec e = vec_exp(vec_add(size, size));
    vec far = vec_sub(vec_set(1), vec_div(vec_set(2), vec_add(e, vec_set(1))));
    return vec_if_less(size, vec_set(0.625f), near, vec_with_sign(far, x));
}

/* Natural logarithm of a finite x >= 1 (a sum of exponentials whose largest is 1); NaN stays NaN.
 * With x = 2^n (1 + f), 1 + f within sqrt(1/2) … sqrt(2): log x = n ln 2 + f - f^2/2 + f^3 p(f). */
static inline vec vec_log(vec x)
{
    static const float p[] = {0.333333135f,  -0.250000089f, 0.200021192f,
                              -0.166679963f, 0.142195523f,  -0.124055885f,
                              0.118881635f,  -0.116756566f, 0.0674664378f};
    const ivec low = ivec_set(0x3f3504f3); /* the bits of sqrt(1/2) */
    ivec above = ivec_sub(vec_bits(x), low);
    vec n = ivec_float(ivec_right(above, 23));
    vec f = vec_sub(bits_vec(ivec_add(ivec_and(above, ivec_set(0x7fffff)), low)), vec_set(1));
    vec square = vec_mul(f, f);
    vec tail = vec_fma(n, vec_set(LN2_LOW), vec_mul(vec_mul(square, f), vec_polynomial(f, p, 8)));
    tail = vec_add(f, vec_fnma(vec_set(0.5f), square, tail));
    return vec_if_unordered(x, x, x, vec_fma(n, vec_set(LN2_HIGH), tail));
}

/* How far n (high + low) is from the nearest whole number, at most 1/2, for a whole n with n high
 * below 2^22. The product with `high` is exact until its whole circles are gone; what `low` adds
 * may lead over the middle once more. */
static inline vec vec_circles(vec n, vec high, vec low)
{
    const vec shift = vec_set(0x1.8p23f);
    vec whole = vec_sub(vec_fma(n, high, shift), shift);
    vec left = vec_fma(n, low, vec_fma(n, high, vec_sub(vec_zero(), whole)));
    return vec_sub(left, vec_sub(vec_add(left, shift), shift));
}

/* sin(2 pi u) for |u| <= 1/4: u p(u^2) */
static inline vec vec_sin_quarter(vec u)
{
    static const float p[] = {6.28318548f,  -41.3417549f, 81.6097641f,
                              -76.8651199f, 44.5208778f,  -28.7183533f};
    return vec_mul(u, vec_polynomial(vec_mul(u, u), p, 5));
}

/* sin and cos of 2 pi u for |u| <= 1/2: sin(2 pi u) = sin(2 pi (1/2 - u)), cos(2 pi u) =
 * sin(2 pi (1/4 - |u|)). */
static inline vec vec_sin_circles(vec u)
{
    vec size = vec_abs(u);
    return vec_with_sign(vec_sin_quarter(vec_min(size, vec_sub(vec_set(0.5f), size))), u);
}

static inline vec vec_cos_circles(vec u)
{
    return vec_sin_quarter(vec_sub(vec_set(0.25f), vec_abs(u)));
}

#endif
