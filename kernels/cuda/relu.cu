/* Two runs are equal: one thread an element. */
#include "kernels/cuda/cuda.cuh"

/* NaN stays NaN. */
static __global__ void forward(float *out, const float *inp, int64_t n)
{
    int64_t i = element_index();
    if (i < n)
        out[i] = 0 > inp[i] ? 0 : inp[i];
}

void cuda_relu_forward(SELF, float *out, const float *inp, int64_t n)
{
    launch_each(k, n, forward, out, inp, n);
}

static __global__ void backward(float *dinp, const float *dout, const float *out, int64_t n)
{
    int64_t i = element_index();
    if (i < n)
        dinp[i] = 0 < out[i] ? dout[i] : 0;
}

void cuda_relu_backward(SELF, float *dinp, const float *dout, const float *out, int64_t n)
{
    launch_each(k, n, backward, dinp, dout, out, n);
}
