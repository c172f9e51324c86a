#include "kernels/cpu/cpu.h"

/* Zhang and Sennrich 2019 (arXiv:1910.07467), with Llama's epsilon. */
static float row_rstd(const float *x, int64_t C)
{
    vec sum = vec_zero();
    for (int64_t c = 0; c < C; c += LANES) {
        vec a = vec_load(x + c, C - c);
        sum = vec_fma(a, a, sum);
    }
    return 1 / __builtin_sqrtf(vec_sum(sum) / (float)C + 1e-5f);
}

void VARIANT(rmsnorm_forward)(SELF, float *out, float *rstd, const float *inp, const float *gamma,
                              int64_t N, int64_t C)
{
    for (int64_t row = 0; row < N; row++, inp += C, out += C) {
        rstd[row] = row_rstd(inp, C);
        for (int64_t c = 0; c < C; c += LANES) {
            vec x = vec_mul(vec_load(inp + c, C - c), vec_set(rstd[row]));
            vec_store(out + c, vec_mul(x, vec_load(gamma + c, C - c)), C - c);
        }
    }
}

/* With x = inp * rstd and g = dout * gamma: dinp += rstd * (g - x * mean(g * x)),
 * dgamma += dout * x. */
void VARIANT(rmsnorm_backward)(SELF, float *dinp, float *dgamma, const float *dout,
                               const float *inp, const float *rstd, const float *gamma, int64_t N,
                               int64_t C)
{
    for (int64_t row = 0; row < N; row++, inp += C, dout += C, dinp += C) {
        const vec row_rstd = vec_set(rstd[row]);
        vec sum = vec_zero();
        for (int64_t c = 0; c < C; c += LANES) {
            vec d = vec_load(dout + c, C - c);
            vec x = vec_mul(vec_load(inp + c, C - c), row_rstd);
            sum = vec_fma(vec_mul(d, vec_load(gamma + c, C - c)), x, sum);
            vec_store(dgamma + c, vec_fma(d, x, vec_load(dgamma + c, C - c)), C - c);
        }
        const vec mean_gx = vec_set(vec_sum(sum) / (float)C);
        for (int64_t c = 0; c < C; c += LANES) {
            vec x = vec_mul(vec_load(inp + c, C - c), row_rstd);
            vec g = vec_mul(vec_load(dout + c, C - c), vec_load(gamma + c, C - c));
            vec d = vec_fnma(x, mean_gx, g);
            vec_store(dinp + c, vec_fma(row_rstd, d, vec_load(dinp + c, C - c)), C - c);
        }
    }
}
