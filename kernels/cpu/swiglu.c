#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector_math.h"

static inline vec exp_minus(vec x)
{
    return vec_exp(vec_sub(vec_zero(), x));
}

void VARIANT(swiglu_forward)(SELF, float *out, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vec x = vec_load(gate + i, n - i);
        vec silu = vec_div(x, vec_add(vec_set(1), exp_minus(x)));
        vec_store(out + i, vec_mul(silu, vec_load(up + i, n - i)), n - i);
    }
}

/* With s = 1 / (1 + e), e = e^-x: d(x s) = s + x s (1 - s), and 1 - s = e s. */
void VARIANT(swiglu_backward)(SELF, float *dgate, float *dup, const float *dout, const float *gate,
                              const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vec x = vec_load(gate + i, n - i), d = vec_load(dout + i, n - i);
        vec e = exp_minus(x), s = vec_div(vec_set(1), vec_add(vec_set(1), e));
        vec silu = vec_mul(x, s), slope = vec_fma(silu, vec_mul(e, s), s);
        vec dx = vec_mul(vec_mul(d, vec_load(up + i, n - i)), slope);
        vec_store(dup + i, vec_mul(d, silu), n - i);
        vec_store(dgate + i, dx, n - i);
    }
}
