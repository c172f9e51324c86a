/* Two runs are equal: one thread an element. */
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/math.cuh"

template <typename Element>
static __global__ void forward(Element *out, const Element *inp, int64_t n)
{
    int64_t i = element_index();
    if (i < n)
        out[i] = rounded<Element>(tanh_of(value(inp[i])));
}

void cuda_tanh_forward(SELF, element *out, const element *inp, int64_t n)
{
    LAUNCH_ELEMENTS(k, ceil_div(n, THREADS), THREADS, 0, forward, out, inp, n);
}

/* d tanh = 1 - tanh^2 */
template <typename Element>
static __global__ void backward(Element *dinp, const Element *dout, const Element *out, int64_t n)
{
    int64_t i = element_index();
    if (i >= n)
        return;
    float t = value(out[i]);
    dinp[i] = rounded<Element>(value(dout[i]) * fmaf(-t, t, 1));
}

void cuda_tanh_backward(SELF, element *dinp, const element *dout, const element *out, int64_t n)
{
    LAUNCH_ELEMENTS(k, ceil_div(n, THREADS), THREADS, 0, backward, dinp, dout, out, n);
}
