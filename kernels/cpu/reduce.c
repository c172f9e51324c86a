#include "kernels/cpu/cpu.h"

void VARIANT(add_f32)(SELF, float *acc, const void *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vec a = vec_load((const char *)bytes + 4 * i, n - i);
        vec_store(acc + i, vec_add(vec_load(acc + i, n - i), a), n - i);
    }
}

void VARIANT(add_bf16)(SELF, float *acc, const void *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vec a = vec_load_bf16((const char *)bytes + 2 * i, n - i);
        vec_store(acc + i, vec_add(vec_load(acc + i, n - i), a), n - i);
    }
}
