#include "kernels/cpu/cpu.h"
#include "kernels/cpu/publish.h"

void VARIANT(sgd)(SELF, float *w, void *published, enum kernels_format format, const float *g,
                  const struct kernels_sgd *step, int64_t n)
{
    const vec scale = vec_set(step->scale), lr = vec_set(step->lr);
    const vec weight_decay = vec_set(step->weight_decay);
    const struct target to = target_of(w, step->apart.w, step->apart.w_cached);
    for (int64_t i = 0; i < n; i += LANES) {
        vec weight = vec_load(w + i, n - i);
        vec d = vec_fma(weight_decay, weight, vec_mul(scale, vec_load(g + i, n - i)));
        publish(to, published, format, vec_fnma(lr, d, weight), i, n);
    }
    vec_stores_end();
}
