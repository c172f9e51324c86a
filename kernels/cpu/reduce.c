#include "kernels/cpu/cpu.h"

/* 64 MiB in runs of 64 KiB that lie in a cache, 512 KiB L2, 32 MiB L3: 12 GiB/s; with ordinary
 * stores 9, with memcpy's `rep movsb` 7. */
void VARIANT(copy_in_uncached)(SELF, void *memory, const void *host, size_t bytes)
{
    const size_t line = sizeof(float[LANES]);
    char *to = memory;
    const char *from = host;
    size_t at = (line - (uintptr_t)to % line) % line;
    if (at > bytes)
        at = bytes;
    memcpy(to, from, at);
    for (; bytes - at >= line; at += line)
        vec_store_uncached(to + at, vec_load(from + at, LANES));
    memcpy(to + at, from + at, bytes - at);
    vec_stores_end();
}

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
