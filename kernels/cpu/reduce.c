#include "kernels/cpu/cpu.h"

enum { LINE_BYTES = sizeof(float[LANES]), STREAMS = 4, STREAM_BYTES = 4096 };

/* Whole lines, and where they end: in STREAMS runs of a page beside each other, as long as there are
 * as many, because memory gives more when it is asked at several places. */
static size_t copy_lines(char *lines, const char *from, size_t bytes)
{
    size_t at = 0;
    for (; bytes - at >= STREAMS * STREAM_BYTES; at += STREAMS * STREAM_BYTES)
        for (size_t line = at; line < at + STREAM_BYTES; line += LINE_BYTES)
            for (size_t i = line; i < line + STREAMS * STREAM_BYTES; i += STREAM_BYTES)
                vec_store_uncached(lines + i, vec_load(from + i, LANES));
    for (; bytes - at >= LINE_BYTES; at += LINE_BYTES)
        vec_store_uncached(lines + at, vec_load(from + at, LANES));
    return at;
}

void VARIANT(copy_in_uncached)(SELF, void *memory, const void *host, size_t bytes)
{
    char *to = memory;
    const char *from = host;
    size_t at = (LINE_BYTES - (uintptr_t)to % LINE_BYTES) % LINE_BYTES;
    if (at > bytes)
        at = bytes;
    memcpy(to, from, at);
    at += copy_lines(to + at, from + at, bytes - at);
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
