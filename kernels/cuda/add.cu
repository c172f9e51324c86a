/* Two runs are equal: an element has one thread. */
#include "kernels/cuda/elements.cuh"

template <int COUNT>
static __global__ void add(float *out, const float *a, const float *b, int64_t n)
{
    int64_t i = first_element<COUNT>();
    pack<float, COUNT> sum = load_at<COUNT>(a, i, n), more = load_at<COUNT>(b, i, n);
    for (int j = 0; j < COUNT; j++)
        sum.at[j] += more.at[j];
    store_at(out, i, n, sum);
}

void cuda_add(SELF, float *out, const float *a, const float *b, int64_t n)
{
    LAUNCH_EACH_FLOAT(k, are_aligned(out, a, b), n, add, out, a, b, n);
}

template <int COUNT>
static __global__ void subtract(float *out, const float *a, const float *b, int64_t n)
{
    int64_t i = first_element<COUNT>();
    pack<float, COUNT> difference = load_at<COUNT>(a, i, n), less = load_at<COUNT>(b, i, n);
    for (int j = 0; j < COUNT; j++)
        difference.at[j] -= less.at[j];
    store_at(out, i, n, difference);
}

void cuda_subtract(SELF, float *out, const float *a, const float *b, int64_t n)
{
    LAUNCH_EACH_FLOAT(k, are_aligned(out, a, b), n, subtract, out, a, b, n);
}
