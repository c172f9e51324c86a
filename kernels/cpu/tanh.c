#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector_math.h"

void VARIANT(tanh_forward)(SELF, float *out, const float *inp, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES)
        vec_store(out + i, vec_tanh(vec_load(inp + i, n - i)), n - i);
}

/* d tanh = 1 - tanh^2 */
void VARIANT(tanh_backward)(SELF, float *dinp, const float *dout, const float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vec y = vec_load(out + i, n - i);
        vec d = vec_mul(vec_load(dout + i, n - i), vec_fnma(y, y, vec_set(1)));
        vec_store(dinp + i, d, n - i);
    }
}
