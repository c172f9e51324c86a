/* Storing updated weights, in place or apart, and, in the same pass, their published copy. */
#ifndef ROOST_KERNELS_CPU_PUBLISH_H
#define ROOST_KERNELS_CPU_PUBLISH_H

#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"

/* Where new values go. */
struct target {
    float *to;
    bool uncached;
};

/* Loops that load from one place and store around the caches to another let memory do both at once:
 * 30 bytes a weight at 14.9 GiB/s, where a piece of 2,048 values at a time was copied, updated in
 * the nearest cache and copied again at 11.9, and an update in place has 21.5 (AVX-512, 480 MiB of
 * L3). */
static inline struct target target_of(float *place, float *apart, bool cached)
{
    bool whole_lines = (uintptr_t)apart % sizeof(float[LANES]) == 0;
    return (struct target){apart != NULL ? apart : place, apart != NULL && whole_lines && !cached};
}

static inline void target_store(struct target target, vec a, int64_t i, int64_t n)
{
    if (target.uncached && n - i >= LANES)
        vec_store_uncached(target.to + i, a);
    else
        vec_store(target.to + i, a, n - i);
}

/* w (n) and published (n values of `format`) at i = w_new. The loops are bound by memory: asking
 * for the format at every vector costs nothing that can be measured. */
static inline void publish(struct target w, void *published, enum kernels_format format, vec w_new,
                           int64_t i, int64_t n)
{
    target_store(w, w_new, i, n);
    if (format == KERNELS_F32)
        vec_store((char *)published + 4 * i, w_new, n - i);
    else if (format == KERNELS_BF16)
        vec_store_bf16((char *)published + 2 * i, w_new, n - i);
}

#endif
