/* Two runs are equal: an element has one thread. */
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/math.cuh"

template <typename Element, int COUNT>
static __global__ void forward(Element *out, const Element *inp, int64_t n)
{
    int64_t i = first_element<COUNT>();
    pack<float, COUNT> x = values(load_at<COUNT>(inp, i, n));
    for (int j = 0; j < COUNT; j++)
        x.at[j] = tanh_of(x.at[j]);
    store_at(out, i, n, rounded<Element>(x));
}

void cuda_tanh_forward(SELF, element *out, const element *inp, int64_t n)
{
    LAUNCH_EACH(k, are_aligned(out, inp), n, forward, out, inp, n);
}

/* d tanh = 1 - tanh^2 */
template <typename Element, int COUNT>
static __global__ void backward(Element *dinp, const Element *dout, const Element *out, int64_t n)
{
    int64_t i = first_element<COUNT>();
    pack<float, COUNT> d = values(load_at<COUNT>(dout, i, n));
    pack<float, COUNT> x = values(load_at<COUNT>(out, i, n));
    for (int j = 0; j < COUNT; j++)
        d.at[j] *= fmaf(-x.at[j], x.at[j], 1);
    store_at(dinp, i, n, rounded<Element>(d));
}

void cuda_tanh_backward(SELF, element *dinp, const element *dout, const element *out, int64_t n)
{
    LAUNCH_EACH(k, are_aligned(dinp, dout, out), n, backward, dinp, dout, out, n);
}
