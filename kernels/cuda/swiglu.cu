/* Two runs are equal: one thread an element. The formulas are explained in kernels/cpu/swiglu.c. */
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/math.cuh"

template <typename Element>
static __global__ void forward(Element *out, const Element *gate, const Element *up, int64_t n)
{
    int64_t i = element_index();
    if (i >= n)
        return;
    float x = value(gate[i]);
    out[i] = rounded<Element>(x / (1 + exp_of(-x)) * value(up[i]));
}

void cuda_swiglu_forward(SELF, element *out, const element *gate, const element *up, int64_t n)
{
    LAUNCH_ELEMENTS(k, ceil_div(n, THREADS), THREADS, 0, forward, out, gate, up, n);
}

template <typename Element>
static __global__ void backward(Element *dgate, Element *dup, const Element *dout,
                                const Element *gate, const Element *up, int64_t n)
{
    int64_t i = element_index();
    if (i >= n)
        return;
    float x = value(gate[i]), d = value(dout[i]);
    float e = exp_of(-x), s = 1 / (1 + e), silu = x * s;
    float dx = d * value(up[i]) * fmaf(silu, e * s, s);
    dup[i] = rounded<Element>(d * silu);
    dgate[i] = rounded<Element>(dx);
}

void cuda_swiglu_backward(SELF, element *dgate, element *dup, const element *dout,
                          const element *gate, const element *up, int64_t n)
{
    LAUNCH_ELEMENTS(k, ceil_div(n, THREADS), THREADS, 0, backward, dgate, dup, dout, gate, up, n);
}
