/* Two runs are equal: an element has one thread. The formulas are explained in
 * kernels/cpu/swiglu.c. */
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/math.cuh"

template <typename Element, int COUNT>
static __global__ void forward(Element *out, const Element *gate, const Element *up, int64_t n)
{
    int64_t i = first_element<COUNT>();
    pack<Element, COUNT> g = load_at<COUNT>(gate, i, n), u = load_at<COUNT>(up, i, n);
    for (int j = 0; j < COUNT; j++) {
        float x = value(g.at[j]);
        g.at[j] = rounded<Element>(x / (1 + exp_of(-x)) * value(u.at[j]));
    }
    store_at(out, i, n, g);
}

void cuda_swiglu_forward(SELF, element *out, const element *gate, const element *up, int64_t n)
{
    LAUNCH_EACH(k, are_aligned(out, gate, up), n, forward, out, gate, up, n);
}

template <typename Element, int COUNT>
static __global__ void backward(Element *dgate, Element *dup, const Element *dout,
                                const Element *gate, const Element *up, int64_t n)
{
    int64_t i = first_element<COUNT>();
    pack<Element, COUNT> ds = load_at<COUNT>(dout, i, n);
    pack<Element, COUNT> g = load_at<COUNT>(gate, i, n), u = load_at<COUNT>(up, i, n);
    for (int j = 0; j < COUNT; j++) {
        float x = value(g.at[j]), d = value(ds.at[j]);
        float e = exp_of(-x), s = 1 / (1 + e), silu = x * s;
        float dx = d * value(u.at[j]) * fmaf(silu, e * s, s);
        u.at[j] = rounded<Element>(d * silu);
        g.at[j] = rounded<Element>(dx);
    }
    store_at(dup, i, n, u);
    store_at(dgate, i, n, g);
}

void cuda_swiglu_backward(SELF, element *dgate, element *dup, const element *dout,
                          const element *gate, const element *up, int64_t n)
{
    LAUNCH_EACH(k, are_aligned(dgate, dup, dout, gate, up), n, backward, dgate, dup, dout, gate, up,
                n);
}
