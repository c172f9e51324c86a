/* AdamW (Loshchilov and Hutter 2019, algorithm 2), in PyTorch's order of operations. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/publish.h"

void VARIANT(adamw)(SELF, float *w, float *m, float *v, void *published, enum kernels_format format,
                    const float *g, const struct kernels_adamw *step, int64_t n)
{
    const vec scale = vec_set(step->scale), decay = vec_set(step->decay);
    const vec beta1 = vec_set(step->beta1), one_minus_beta1 = vec_set(step->one_minus_beta1);
    const vec beta2 = vec_set(step->beta2), one_minus_beta2 = vec_set(step->one_minus_beta2);
    const vec rate = vec_set(step->rate), root = vec_set(step->root), eps = vec_set(step->eps);
    const struct target to = target_of(w, step->apart.w, step->apart.w_cached);
    const struct target to_m = target_of(m, step->apart.m, false),
                        to_v = target_of(v, step->apart.v, false);
    for (int64_t i = 0; i < n; i += LANES) {
        vec gradient = vec_mul(scale, vec_load(g + i, n - i));
        vec weight = vec_mul(decay, vec_load(w + i, n - i));
        vec moment = vec_mul(one_minus_beta1, gradient);
        moment = vec_fma(beta1, vec_load(m + i, n - i), moment);
        vec variance = vec_mul(vec_mul(one_minus_beta2, gradient), gradient);
        variance = vec_fma(beta2, vec_load(v + i, n - i), variance);
        vec divisor = vec_fma(vec_sqrt(variance), root, eps);
        target_store(to_m, moment, i, n);
        target_store(to_v, variance, i, n);
        vec change = vec_div(vec_mul(rate, moment), divisor);
        publish(to, published, format, vec_sub(weight, change), i, n);
    }
    vec_stores_end();
}
