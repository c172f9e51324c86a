/* AdamW (Loshchilov and Hutter 2019, algorithm 2), in PyTorch's order of operations. Two runs are
 * equal: a weight has one thread. */
#include "kernels/cuda/publish.cuh"

template <int COUNT>
static __global__ void adamw(float *w, float *m, float *v, void *published,
                             enum kernels_format format, const float *g, struct kernels_adamw step,
                             int64_t n)
{
    int64_t i = first_element<COUNT>();
    pack<float, COUNT> weights = load_at<COUNT>(w, i, n), gradients = load_at<COUNT>(g, i, n);
    pack<float, COUNT> moments = load_at<COUNT>(m, i, n), variances = load_at<COUNT>(v, i, n);
    for (int j = 0; j < COUNT; j++) {
        float gradient = step.scale * gradients.at[j], weight = step.decay * weights.at[j];
        float moment = fmaf(step.beta1, moments.at[j], step.one_minus_beta1 * gradient);
        float variance =
            fmaf(step.beta2, variances.at[j], step.one_minus_beta2 * gradient * gradient);
        float divisor = fmaf(sqrtf(variance), step.root, step.eps);
        moments.at[j] = moment;
        variances.at[j] = variance;
        weights.at[j] = weight - step.rate * moment / divisor;
    }
    store_at(m, i, n, moments);
    store_at(v, i, n, variances);
    publish(w, published, format, weights, i, n);
}

void cuda_adamw(SELF, float *w, float *m, float *v, void *published, enum kernels_format format,
                const float *g, const struct kernels_adamw *step, int64_t n)
{
    check(step->apart.w == NULL);
    LAUNCH_EACH_FLOAT(k, are_aligned(w, m, v, published, g), n, adamw, w, m, v, published, format,
                      g, *step, n);
}
