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
    pack<float, COUNT> g = values(load<COUNT>(gate)), u = values(load<COUNT>(gate + C));
    for (int j = 0; j < COUNT; j++)
        g.at[j] = g.at[j] / (1 + exp_of(-g.at[j])) * u.at[j];
    store(out + i, rounded<Element>(g));
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
    pack<float, COUNT> ds = values(load<COUNT>(dout + i));
    pack<float, COUNT> g = values(load<COUNT>(inp + at)), u = values(load<COUNT>(inp + at + C));
    for (int j = 0; j < COUNT; j++) {
        float x = g.at[j], d = ds.at[j];
        float e = exp_of(-x), s = 1 / (1 + e), silu = x * s;
        g.at[j] = d * u.at[j] * fmaf(silu, e * s, s);
        u.at[j] = d * silu;
    }
    store(dinp + at + C, rounded<Element>(u));
    store(dinp + at, rounded<Element>(g));
}

void cuda_swiglu_backward(SELF, element *dinp, const element *dout, const element *inp, int64_t N,
                          int64_t C)
{
    LAUNCH_EACH(k, packs_fit(k, C, dinp, dout, inp), N * C, backward, dinp, dout, inp, N * C, C);
}
