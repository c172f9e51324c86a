#include "kernels/cpu/cpu.h"

void VARIANT(add)(SELF, float *out, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES)
        vec_store(out + i, vec_add(vec_load(a + i, n - i), vec_load(b + i, n - i)), n - i);
}

void VARIANT(subtract)(SELF, float *out, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES)
        vec_store(out + i, vec_sub(vec_load(a + i, n - i), vec_load(b + i, n - i)), n - i);
}
