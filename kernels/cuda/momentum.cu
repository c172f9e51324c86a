/* Two runs are equal: a weight has one thread. */
#include "kernels/cuda/publish.cuh"

template <int COUNT>
static __global__ void momentum(float *w, float *m, void *published, enum kernels_format format,
                                const float *g, struct kernels_momentum step, int64_t n)
{
    int64_t i = first_element<COUNT>();
    pack<float, COUNT> weights = load_at<COUNT>(w, i, n), gradients = load_at<COUNT>(g, i, n);
    pack<float, COUNT> moments = load_at<COUNT>(m, i, n);
    for (int j = 0; j < COUNT; j++) {
        float weight = weights.at[j];
        float d = fmaf(step.weight_decay, weight, step.scale * gradients.at[j]);
        float moment = fmaf(step.momentum, moments.at[j], d);
        moments.at[j] = moment;
        d = step.nesterov ? fmaf(step.momentum, moment, d) : moment;
        weights.at[j] = fmaf(-step.lr, d, weight);
    }
    store_at(m, i, n, moments);
    publish(w, published, format, weights, i, n);
}

void cuda_momentum(SELF, float *w, float *m, void *published, enum kernels_format format,
                   const float *g, const struct kernels_momentum *step, int64_t n)
{
    check(step->apart.w == NULL);
    LAUNCH_EACH_FLOAT(k, are_aligned(w, m, published, g), n, momentum, w, m, published, format, g,
                      *step, n);
}
