/* Storing updated weights and, in the same pass, their published copy. */
#ifndef ROOST_KERNELS_CPU_PUBLISH_H
#define ROOST_KERNELS_CPU_PUBLISH_H

#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"

/* w (n) and published (n values of `format`) at i = w_new. The loops are bound by memory: asking
 * for the format at every vector costs nothing that can be measured. */
static inline void publish(float *w, void *published, enum kernels_format format, vec w_new,
                           int64_t i, int64_t n)
{
    vec_store(w + i, w_new, n - i);
    if (format == KERNELS_F32)
        vec_store((char *)published + 4 * i, w_new, n - i);
    else if (format == KERNELS_BF16)
        vec_store_bf16((char *)published + 2 * i, w_new, n - i);
}

#endif
