/* Memory of a pool for arrays whose parts are made one by one and lie one after another, so that a
 * process that maps the pool finds the whole array.
 *
 * Of each array there are some blocks: the next version is made in one while those before are read. A
 * part whose places in all are held gets memory of its own. An array's memory is there as long as one
 * of its places is held. Any thread. */
#ifndef ROOST_COMMON_SHARED_SHARED_BLOCKS_H
#define ROOST_COMMON_SHARED_SHARED_BLOCKS_H

#include "common/shared/shared_pool.h"

struct shared_blocks;

struct shared_part {
    uint32_t array; /* from 0; an array's parts are neighbours */
    uint32_t bytes;
};

/* `count`: blocks of an array. `pool` is borrowed until the last place is free and the last reference
 * gone; NULL: blocks are on the heap. ERR_NOMEM. */
enum err shared_blocks_new(const struct shared_part *parts, uint32_t part_count, uint32_t count,
                           struct shared_pool *pool, struct shared_blocks **ret_blocks) MUST_USE;
struct shared_blocks *shared_blocks_ref(struct shared_blocks *blocks);
void shared_blocks_unref(struct shared_blocks *blocks); /* NULL is fine */

/* A place for the part with one reference, in the block that has other parts of that version, else in
 * one of which nobody holds a place, so that the whole version comes to lie in it, else in any; NULL:
 * no memory. One thread takes all places of a part. */
struct counted *shared_blocks_take(struct shared_blocks *blocks, uint32_t part,
                                   uint64_t version) MUST_USE;
/* The system gives memory only when it is touched: touches what the part has in blocks where nobody
 * holds its place, so that who takes them later need not wait for it. Call it on the thread that takes
 * the part's places, while it holds one of them: else the memory could go away meanwhile. */
void shared_blocks_touch(struct shared_blocks *blocks, uint32_t part);

#endif
