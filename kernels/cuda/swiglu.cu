/* Two runs are equal: an element has one thread. The formulas are explained in
 * kernels/cpu/swiglu.c. */
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/math.cuh"

/* inp (N,2C); n = N*C */
template <typename Element, int COUNT>
static __global__ void forward(Element *out, const Element *inp, int64_t n, int64_t C)
{
    int64_t i = first_element<COUNT>();
    if (i >= n)
        return;
    const Element *gate = inp + i / C * 2 * C + i % C;
    pack<Element, COUNT> g = load<COUNT>(gate), u = load<COUNT>(gate + C);
    for (int j = 0; j < COUNT; j++) {
        float x = value(g.at[j]);
        g.at[j] = rounded<Element>(x / (1 + exp_of(-x)) * value(u.at[j]));
    }
    store<COUNT>(out + i, g);
}

void cuda_swiglu_forward(SELF, element *out, const element *inp, int64_t N, int64_t C)
{
    LAUNCH_EACH(k, packs_fit(k, C, out, inp), N * C, forward, out, inp, N * C, C);
}

template <typename Element, int COUNT>
static __global__ void backward(Element *dinp, const Element *dout, const Element *inp, int64_t n,
                                int64_t C)
{
    int64_t i = first_element<COUNT>();
    if (i >= n)
        return;
    int64_t at = i / C * 2 * C + i % C;
    pack<Element, COUNT> ds = load<COUNT>(dout + i);
    pack<Element, COUNT> g = load<COUNT>(inp + at), u = load<COUNT>(inp + at + C);
    for (int j = 0; j < COUNT; j++) {
        float x = value(g.at[j]), d = value(ds.at[j]);
        float e = exp_of(-x), s = 1 / (1 + e), silu = x * s;
        float dx = d * value(u.at[j]) * fmaf(silu, e * s, s);
        u.at[j] = rounded<Element>(d * silu);
        g.at[j] = rounded<Element>(dx);
    }
    store<COUNT>(dinp + at + C, u);
    store<COUNT>(dinp + at, g);
}

void cuda_swiglu_backward(SELF, element *dinp, const element *dout, const element *inp, int64_t N,
                          int64_t C)
{
    LAUNCH_EACH(k, packs_fit(k, C, dinp, dout, inp), N * C, backward, dinp, dout, inp, N * C, C);
}
