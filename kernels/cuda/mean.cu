/* Two runs are equal: a weight has one thread. */
#include "kernels/cuda/publish.cuh"

template <int COUNT>
static __global__ void mean(float *w, void *published, enum kernels_format format, const float *g,
                            float scale, int64_t n)
{
    int64_t i = first_element<COUNT>();
    pack<float, COUNT> weights = load_at<COUNT>(g, i, n);
    for (int j = 0; j < COUNT; j++)
        weights.at[j] = scale * weights.at[j];
    publish(w, published, format, weights, i, n);
}

void cuda_mean(SELF, float *w, void *published, enum kernels_format format, const float *g,
               float scale, int64_t n)
{
    LAUNCH_EACH_FLOAT(k, are_aligned(w, published, g), n, mean, w, published, format, g, scale, n);
}
