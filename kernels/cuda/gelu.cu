/* Two runs are equal: an element has one thread. The formulas are explained in kernels/cpu/gelu.c.
 */
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/math.cuh"

#define SQRT_2_OVER_PI 0.7978845608028654
#define CUBIC 0.044715

/* e^(-2u), u = sqrt(2/pi) (x + 0.044715 x^3) */
static __device__ float exp_minus_2u(float x, float square)
{
    float inner = fmaf((float)(-2 * SQRT_2_OVER_PI * CUBIC), square, (float)(-2 * SQRT_2_OVER_PI));
    return exp_of(x * inner);
}

template <typename Element, int COUNT>
static __global__ void forward(Element *out, const Element *inp, int64_t n)
{
    int64_t i = first_element<COUNT>();
    pack<float, COUNT> x = values(load_at<COUNT>(inp, i, n));
    for (int j = 0; j < COUNT; j++)
        x.at[j] = x.at[j] / (1 + exp_minus_2u(x.at[j], x.at[j] * x.at[j]));
    store_at(out, i, n, rounded<Element>(x));
}

void cuda_gelu_forward(SELF, element *out, const element *inp, int64_t n)
{
    LAUNCH_EACH(k, are_aligned(out, inp), n, forward, out, inp, n);
}

/* With s = 1 / (1 + e), e = e^(-2u): d(x s) = s + x s (1 - s) 2u', and 1 - s = e s. */
template <typename Element, int COUNT>
static __global__ void backward(Element *dinp, const Element *dout, const Element *inp, int64_t n)
{
    const float linear = (float)(2 * SQRT_2_OVER_PI), cubic = (float)(6 * SQRT_2_OVER_PI * CUBIC);
    int64_t i = first_element<COUNT>();
    pack<float, COUNT> d = values(load_at<COUNT>(dout, i, n));
    pack<float, COUNT> in = values(load_at<COUNT>(inp, i, n));
    for (int j = 0; j < COUNT; j++) {
        float x = in.at[j], square = x * x;
        float e = exp_minus_2u(x, square);
        float s = 1 / (1 + e);
        float slope = x * fmaf(cubic, square, linear); /* x 2u' */
        d.at[j] *= fmaf(slope * s, e * s, s);
    }
    store_at(dinp, i, n, rounded<Element>(d));
}

void cuda_gelu_backward(SELF, element *dinp, const element *dout, const element *inp, int64_t n)
{
    LAUNCH_EACH(k, are_aligned(dinp, dout, inp), n, backward, dinp, dout, inp, n);
}
