/* Two runs are equal: one thread a weight. */
#include "kernels/cuda/publish.cuh"

static __global__ void momentum(float *w, float *m, void *published, enum kernels_format format,
                                const float *g, struct kernels_momentum step, int64_t n)
{
    int64_t i = element_index();
    if (i >= n)
        return;
    float weight = w[i], d = fmaf(step.weight_decay, weight, step.scale * g[i]);
    float moment = fmaf(step.momentum, m[i], d);
    m[i] = moment;
    d = step.nesterov ? fmaf(step.momentum, moment, d) : moment;
    publish(w, published, format, fmaf(-step.lr, d, weight), i);
}

void cuda_momentum(SELF, float *w, float *m, void *published, enum kernels_format format,
                   const float *g, const struct kernels_momentum *step, int64_t n)
{
    launch_each(k, n, momentum, w, m, published, format, g, *step, n);
}
