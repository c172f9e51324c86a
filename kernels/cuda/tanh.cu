/* Two runs are equal: one thread an element. */
#include "kernels/cuda/math.cuh"

static __global__ void forward(float *out, const float *inp, int64_t n)
{
    int64_t i = element_index();
    if (i < n)
        out[i] = tanh_of(inp[i]);
}

void cuda_tanh_forward(SELF, float *out, const float *inp, int64_t n)
{
    launch_each(k, n, forward, out, inp, n);
}

/* d tanh = 1 - tanh^2 */
static __global__ void backward(float *dinp, const float *dout, const float *out, int64_t n)
{
    int64_t i = element_index();
    if (i < n)
        dinp[i] = dout[i] * fmaf(-out[i], out[i], 1);
}

void cuda_tanh_backward(SELF, float *dinp, const float *dout, const float *out, int64_t n)
{
    launch_each(k, n, backward, dinp, dout, out, n);
}
