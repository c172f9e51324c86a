#include "kernels/cpu/cpu.h"

void VARIANT(sum_squares)(SELF, double *sum, const float *x, int64_t n)
{
    dvec acc = dvec_zero();
    for (int64_t i = 0; i < n; i += LANES)
        acc = dvec_add_square(acc, vec_load(x + i, n - i));
    *sum = dvec_sum(acc);
}
