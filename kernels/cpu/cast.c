#include "kernels/cpu/cpu.h"

void VARIANT(cast_from_f32)(SELF, float *dst, const void *bytes, int64_t n)
{
    memcpy(dst, bytes, (size_t)n * sizeof *dst);
}

void VARIANT(cast_to_bf16)(SELF, void *bytes, const float *src, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES)
        vec_store_bf16((char *)bytes + 2 * i, vec_load(src + i, n - i), n - i);
}

void VARIANT(cast_from_bf16)(SELF, float *dst, const void *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES)
        vec_store(dst + i, vec_load_bf16((const char *)bytes + 2 * i, n - i), n - i);
}
