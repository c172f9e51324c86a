#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector_math.h"

static inline vec exp_minus(vec x)
{
    return vec_exp(vec_sub(vec_zero(), x));
}

void VARIANT(swiglu_forward)(SELF, float *out, const float *inp, int64_t N, int64_t C)
{
    for (int64_t row = 0; row < N; row++, out += C, inp += 2 * C)
        for (int64_t c = 0; c < C; c += LANES) {
            vec x = vec_load(inp + c, C - c);
            vec silu = vec_div(x, vec_add(vec_set(1), exp_minus(x)));
            vec_store(out + c, vec_mul(silu, vec_load(inp + C + c, C - c)), C - c);
        }
}

/* With s = 1 / (1 + e), e = e^-x: d(x s) = s + x s (1 - s), and 1 - s = e s. */
void VARIANT(swiglu_backward)(SELF, float *dinp, const float *dout, const float *inp, int64_t N,
                              int64_t C)
{
    for (int64_t row = 0; row < N; row++, dout += C, inp += 2 * C, dinp += 2 * C)
        for (int64_t c = 0; c < C; c += LANES) {
            vec x = vec_load(inp + c, C - c), d = vec_load(dout + c, C - c);
            vec e = exp_minus(x), s = vec_div(vec_set(1), vec_add(vec_set(1), e));
            vec silu = vec_mul(x, s), slope = vec_fma(silu, vec_mul(e, s), s);
            vec dgate = vec_mul(vec_mul(d, vec_load(inp + C + c, C - c)), slope);
            vec_store(dinp + C + c, vec_mul(d, silu), C - c);
            vec_store(dinp + c, dgate, C - c);
        }
}
