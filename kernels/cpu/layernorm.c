#include "kernels/cpu/cpu.h"

static float row_mean(const float *x, int64_t C)
{
    vec sum = vec_zero();
    for (int64_t c = 0; c < C; c += LANES)
        sum = vec_add(sum, vec_load(x + c, C - c));
    return vec_sum(sum) / (float)C;
}

static float row_variance(const float *x, float mean, int64_t C)
{
    vec sum = vec_zero();
    for (int64_t c = 0; c < C; c += LANES) {
        vec a = vec_cut(vec_sub(vec_load(x + c, C - c), vec_set(mean)), C - c);
        sum = vec_fma(a, a, sum);
    }
    return vec_sum(sum) / (float)C;
}

void VARIANT(layernorm_forward)(SELF, float *out, float *mean, float *rstd, const float *inp,
                                const float *gamma, const float *beta, int64_t N, int64_t C)
{
    for (int64_t row = 0; row < N; row++, inp += C, out += C) {
        mean[row] = row_mean(inp, C);
        rstd[row] = 1 / __builtin_sqrtf(row_variance(inp, mean[row], C) + 1e-5f);
        for (int64_t c = 0; c < C; c += LANES) {
            vec x = vec_sub(vec_load(inp + c, C - c), vec_set(mean[row]));
            x = vec_mul(x, vec_set(rstd[row]));
            x = vec_fma(x, vec_load(gamma + c, C - c), vec_load(beta + c, C - c));
            vec_store(out + c, x, C - c);
        }
    }
}

/* With x the normalised input and g = dout * gamma:
 * dinp += rstd * (g - mean(g) - x * mean(g * x)), dgamma += dout * x, dbeta += dout. */
void VARIANT(layernorm_backward)(SELF, float *dinp, float *dgamma, float *dbeta, const float *dout,
                                 const float *inp, const float *mean, const float *rstd,
                                 const float *gamma, int64_t N, int64_t C)
{
    for (int64_t row = 0; row < N; row++, inp += C, dout += C, dinp += C) {
        const vec row_mean = vec_set(mean[row]), row_rstd = vec_set(rstd[row]);
        vec sum_g = vec_zero(), sum_gx = vec_zero();
        for (int64_t c = 0; c < C; c += LANES) {
            vec d = vec_load(dout + c, C - c);
            vec x = vec_mul(vec_sub(vec_load(inp + c, C - c), row_mean), row_rstd);
            vec g = vec_mul(d, vec_load(gamma + c, C - c));
            sum_g = vec_add(sum_g, g);
            sum_gx = vec_fma(g, x, sum_gx); /* g is 0 in a tail's missing lanes */
            vec_store(dgamma + c, vec_fma(d, x, vec_load(dgamma + c, C - c)), C - c);
            vec_store(dbeta + c, vec_add(d, vec_load(dbeta + c, C - c)), C - c);
        }
        const vec mean_g = vec_set(vec_sum(sum_g) / (float)C);
        const vec mean_gx = vec_set(vec_sum(sum_gx) / (float)C);
        for (int64_t c = 0; c < C; c += LANES) {
            vec x = vec_mul(vec_sub(vec_load(inp + c, C - c), row_mean), row_rstd);
            vec g = vec_mul(vec_load(dout + c, C - c), vec_load(gamma + c, C - c));
            vec d = vec_fnma(x, mean_gx, vec_sub(g, mean_g));
            vec_store(dinp + c, vec_fma(row_rstd, d, vec_load(dinp + c, C - c)), C - c);
        }
    }
}
