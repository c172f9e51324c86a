/* Two runs are equal: one thread an element. */
#include "kernels/cuda/elements.cuh"

/* NaN stays NaN. */
template <typename Element>
static __global__ void forward(Element *out, const Element *inp, int64_t n)
{
    int64_t i = element_index();
    if (i < n)
        out[i] = 0 > value(inp[i]) ? rounded<Element>(0) : inp[i];
}

void cuda_relu_forward(SELF, element *out, const element *inp, int64_t n)
{
    LAUNCH_ELEMENTS(k, ceil_div(n, THREADS), THREADS, 0, forward, out, inp, n);
}

template <typename Element>
static __global__ void backward(Element *dinp, const Element *dout, const Element *out, int64_t n)
{
    int64_t i = element_index();
    if (i < n)
        dinp[i] = 0 < value(out[i]) ? dout[i] : rounded<Element>(0);
}

void cuda_relu_backward(SELF, element *dinp, const element *dout, const element *out, int64_t n)
{
    LAUNCH_ELEMENTS(k, ceil_div(n, THREADS), THREADS, 0, backward, dinp, dout, out, n);
}
