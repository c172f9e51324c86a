/* Rows of exponentials: what attention and the classifier share. */
#ifndef ROOST_KERNELS_CPU_SOFTMAX_H
#define ROOST_KERNELS_CPU_SOFTMAX_H

#include "kernels/cpu/vector_math.h"

/* The largest of x (n); -infinity when n is 0. NaNs may be passed over: the exponentials' sum still
 * becomes NaN. */
static inline float row_largest(const float *x, int64_t n)
{
    vec largest = vec_set(-__builtin_inff());
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        largest = vec_max(largest, vec_load(x + i, LANES));
    float ret = vec_largest(largest);
    for (; i < n; i++)
        ret = ret > x[i] ? ret : x[i];
    return ret;
}

/* The sum of e^(x - shift) over x (n); to (n), may be x, receives the terms, NULL: nobody does. */
static inline float row_exp(float *to, const float *x, float shift, int64_t n)
{
    vec sum = vec_zero();
    for (int64_t i = 0; i < n; i += LANES) {
        vec e = vec_exp(vec_sub(vec_load(x + i, n - i), vec_set(shift)));
        sum = vec_add(sum, vec_cut(e, n - i));
        if (to)
            vec_store(to + i, e, n - i);
    }
    return vec_sum(sum);
}

static inline void row_scale(float *x, float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES)
        vec_store(x + i, vec_mul(vec_load(x + i, n - i), vec_set(scale)), n - i);
}

static inline float log_of(float x)
{
    return vec_first(vec_log(vec_set(x)));
}

#endif
