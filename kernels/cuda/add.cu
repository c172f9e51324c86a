/* Two runs are equal: one thread an element. */
#include "kernels/cuda/cuda.cuh"

static __global__ void add(float *out, const float *a, const float *b, int64_t n)
{
    int64_t i = element_index();
    if (i < n)
        out[i] = a[i] + b[i];
}

void cuda_add(SELF, float *out, const float *a, const float *b, int64_t n)
{
    launch_each(k, n, add, out, a, b, n);
}
