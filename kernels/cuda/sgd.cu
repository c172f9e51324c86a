/* Two runs are equal: one thread a weight. */
#include "kernels/cuda/publish.cuh"

static __global__ void sgd(float *w, void *published, enum kernels_format format, const float *g,
                           struct kernels_sgd step, int64_t n)
{
    int64_t i = element_index();
    if (i >= n)
        return;
    float weight = w[i], d = fmaf(step.weight_decay, weight, step.scale * g[i]);
    publish(w, published, format, fmaf(-step.lr, d, weight), i);
}

void cuda_sgd(SELF, float *w, void *published, enum kernels_format format, const float *g,
              const struct kernels_sgd *step, int64_t n)
{
    launch_each(k, n, sgd, w, published, format, g, *step, n);
}
