/* Memory that is carved front to back, 64-byte aligned. With base NULL nothing is given: what is
 * taken is counted, so that one function says how much there must be, and where it lies. */
#ifndef ROOST_WORKER_CARVE_H
#define ROOST_WORKER_CARVE_H

#include <stddef.h>
#include <stdint.h>

enum { CARVE_ALIGNMENT = 64 };

struct carve {
    uint8_t *base;  /* borrowed */
    uint64_t bytes; /* taken so far */
};

static inline uint64_t carve_align(uint64_t count)
{
    return (count + CARVE_ALIGNMENT - 1) / CARVE_ALIGNMENT * CARVE_ALIGNMENT;
}

static inline void *carve_take(struct carve *carve, uint64_t bytes)
{
    void *at = carve->base != NULL ? carve->base + carve->bytes : NULL;
    carve->bytes += carve_align(bytes);
    return at;
}

#endif
