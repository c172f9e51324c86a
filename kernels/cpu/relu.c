#include "kernels/cpu/cpu.h"

/* NaN stays NaN: max returns its second operand then. */
void VARIANT(relu_forward)(SELF, float *out, const float *inp, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES)
        vec_store(out + i, vec_max(vec_zero(), vec_load(inp + i, n - i)), n - i);
}

void VARIANT(relu_backward)(SELF, float *dinp, const float *dout, const float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vec d = vec_if_less(vec_zero(), vec_load(out + i, n - i), vec_load(dout + i, n - i),
                            vec_zero());
        vec_store(dinp + i, d, n - i);
    }
}
