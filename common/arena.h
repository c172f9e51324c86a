/* Memory of one request: taken piece by piece, given back at once, bounded by a cap. */
#ifndef ROOST_COMMON_ARENA_H
#define ROOST_COMMON_ARENA_H

#include "common/check.h"

#include <stddef.h>

enum { ARENA_FIRST_BYTES = 4096 };

/* {.bytes_max = N} is an empty arena that gives at most N bytes. Pieces are 16-byte aligned. The
 * first ARENA_FIRST_BYTES come from the struct itself, so small requests allocate nothing; hence an
 * arena must not be copied once used. */
struct arena {
    size_t bytes_max;
    size_t bytes; /* given so far, alignment included */
    struct arena_block *blocks;
    _Alignas(16) unsigned char first[ARENA_FIRST_BYTES];
    size_t first_used;
};

/* The same without zeroing the first piece: for a struct that is declared where time counts. */
static inline void arena_init(struct arena *arena, size_t bytes_max)
{
    arena->bytes_max = bytes_max;
    arena->bytes = 0;
    arena->blocks = NULL;
    arena->first_used = 0;
}

/* `bytes` bytes until arena_release(); NULL: past the cap or out of memory. */
void *arena_take(struct arena *arena, size_t bytes) MUST_USE;
/* `count` zeroed elements of `bytes` each; checked multiply. */
void *arena_array(struct arena *arena, size_t count, size_t bytes) MUST_USE;
void arena_release(struct arena *arena); /* everything; the arena is empty and usable again */

#endif
