/* AdamW (Loshchilov and Hutter 2019, algorithm 2), in PyTorch's order of operations. Two runs are
 * equal: one thread a weight. */
#include "kernels/cuda/publish.cuh"

static __global__ void adamw(float *w, float *m, float *v, void *published,
                             enum kernels_format format, const float *g, struct kernels_adamw step,
                             int64_t n)
{
    int64_t i = element_index();
    if (i >= n)
        return;
    float gradient = step.scale * g[i], weight = step.decay * w[i];
    float moment = fmaf(step.beta1, m[i], step.one_minus_beta1 * gradient);
    float variance = fmaf(step.beta2, v[i], step.one_minus_beta2 * gradient * gradient);
    float divisor = fmaf(sqrtf(variance), step.root, step.eps);
    m[i] = moment;
    v[i] = variance;
    publish(w, published, format, weight - step.rate * moment / divisor, i);
}

void cuda_adamw(SELF, float *w, float *m, float *v, void *published, enum kernels_format format,
                const float *g, const struct kernels_adamw *step, int64_t n)
{
    launch_each(k, n, adamw, w, m, v, published, format, g, *step, n);
}
