#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector_math.h"

#define SQRT_2_OVER_PI 0.7978845608028654
#define CUBIC 0.044715

/* e^(-2u), u = sqrt(2/pi) (x + 0.044715 x^3). Since (1 + tanh u) / 2 = 1 / (1 + e^(-2u)), GELU is
 * x / (1 + e^(-2u)): accurate on both sides, without a tanh. */
static inline vec exp_minus_2u(vec x, vec square)
{
    vec inner = vec_fma(vec_set((float)(-2 * SQRT_2_OVER_PI * CUBIC)), square,
                        vec_set((float)(-2 * SQRT_2_OVER_PI)));
    return vec_exp(vec_mul(x, inner));
}

void VARIANT(gelu_forward)(SELF, float *out, const float *inp, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vec x = vec_load(inp + i, n - i);
        vec e = exp_minus_2u(x, vec_mul(x, x));
        vec_store(out + i, vec_div(x, vec_add(vec_set(1), e)), n - i);
    }
}

/* With s = 1 / (1 + e), e = e^(-2u): d(x s) = s + x s (1 - s) 2u', and 1 - s = e s. */
void VARIANT(gelu_backward)(SELF, float *dinp, const float *dout, const float *inp, int64_t n)
{
    const vec linear = vec_set((float)(2 * SQRT_2_OVER_PI));
    const vec cubic = vec_set((float)(6 * SQRT_2_OVER_PI * CUBIC));
    for (int64_t i = 0; i < n; i += LANES) {
        vec x = vec_load(inp + i, n - i), square = vec_mul(x, x);
        vec e = exp_minus_2u(x, square);
        vec s = vec_div(vec_set(1), vec_add(vec_set(1), e));
        vec slope = vec_mul(x, vec_fma(cubic, square, linear)); /* x 2u' */
        vec d = vec_fma(vec_mul(slope, s), vec_mul(e, s), s);
        vec_store(dinp + i, vec_mul(vec_load(dout + i, n - i), d), n - i);
    }
}
