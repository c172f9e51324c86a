/* Memory that is given out piece by piece, 64-byte aligned, front to back. With base NULL nothing
 * is given: the pieces are counted, so that one function says how much there must be, and where it
 * lies. */
#ifndef ROOST_WORKER_PIECES_H
#define ROOST_WORKER_PIECES_H

#include <stddef.h>
#include <stdint.h>

enum { PIECES_ALIGNMENT = 64 };

struct pieces {
    uint8_t *base;  /* borrowed */
    uint64_t bytes; /* of the pieces so far */
};

static inline uint64_t pieces_align(uint64_t count)
{
    return (count + PIECES_ALIGNMENT - 1) / PIECES_ALIGNMENT * PIECES_ALIGNMENT;
}

static inline void *pieces_take(struct pieces *pieces, uint64_t bytes)
{
    void *at = pieces->base != NULL ? pieces->base + pieces->bytes : NULL;
    pieces->bytes += pieces_align(bytes);
    return at;
}

#endif
