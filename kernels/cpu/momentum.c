#include "kernels/cpu/cpu.h"
#include "kernels/cpu/publish.h"

void VARIANT(momentum)(SELF, float *w, float *m, void *published, enum kernels_format format,
                       const float *g, const struct kernels_momentum *step, int64_t n)
{
    const vec scale = vec_set(step->scale), lr = vec_set(step->lr);
    const vec weight_decay = vec_set(step->weight_decay), mu = vec_set(step->momentum);
    const struct target to = target_of(w, step->apart.w, step->apart.w_cached),
                        to_m = target_of(m, step->apart.m, false);
    for (int64_t i = 0; i < n; i += LANES) {
        vec weight = vec_load(w + i, n - i);
        vec d = vec_fma(weight_decay, weight, vec_mul(scale, vec_load(g + i, n - i)));
        vec moment = vec_fma(mu, vec_load(m + i, n - i), d);
        target_store(to_m, moment, i, n);
        d = step->nesterov ? vec_fma(mu, moment, d) : moment;
        publish(to, published, format, vec_fnma(lr, d, weight), i, n);
    }
    vec_stores_end();
}
