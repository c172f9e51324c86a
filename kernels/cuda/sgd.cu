/* Two runs are equal: a weight has one thread. */
#include "kernels/cuda/publish.cuh"

template <int COUNT>
static __global__ void sgd(float *w, void *published, enum kernels_format format, const float *g,
                           struct kernels_sgd step, int64_t n)
{
    int64_t i = first_element<COUNT>();
    pack<float, COUNT> weights = load_at<COUNT>(w, i, n), gradients = load_at<COUNT>(g, i, n);
    for (int j = 0; j < COUNT; j++) {
        float weight = weights.at[j];
        float d = fmaf(step.weight_decay, weight, step.scale * gradients.at[j]);
        weights.at[j] = fmaf(-step.lr, d, weight);
    }
    publish(w, published, format, weights, i, n);
}

void cuda_sgd(SELF, float *w, void *published, enum kernels_format format, const float *g,
              const struct kernels_sgd *step, int64_t n)
{
    check(step->apart.w == NULL);
    LAUNCH_EACH_FLOAT(k, are_aligned(w, published, g), n, sgd, w, published, format, g, *step, n);
}
