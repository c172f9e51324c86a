/* The published copies of one chunk: for each readable version the weights in wire format,
 * immutable and counted, so that a pull sends them as they are.
 *
 * A copy that nobody else holds any more is overwritten with the version that takes its place. While
 * somebody does, that version gets memory of its own, and the copy is freed with its last
 * reference. */
#ifndef ROOST_SERVER_SHARD_PUBLISHED_H
#define ROOST_SERVER_SHARD_PUBLISHED_H

#include "common/shared/shared_blocks.h"

#include <stdint.h>

struct published {
    struct shared_blocks *blocks; /* borrowed; NULL: copies are on the heap */
    uint32_t chunk;               /* its number in the run */
    uint32_t versions;            /* readable at a time: delay + 1 */
    size_t bytes;                 /* of a copy */
    struct counted **ring;        /* version v at v % versions; NULL: not there */
};

/* ERR_NOMEM. */
enum err published_init(struct published *published, struct shared_blocks *blocks, uint32_t chunk,
                        uint32_t versions, size_t bytes) MUST_USE;
void published_release(struct published *published); /* {0} is fine */

/* The memory for `version`, which takes the place of `version - versions`. *ret_before: that one's
 * copy if it is another, a reference; else NULL. ERR_NOMEM: nothing changed. The version is readable
 * at once, so the caller writes it before anybody may ask for it. */
enum err published_next(struct published *published, uint64_t version, void **ret_data,
                        struct counted **ret_before) MUST_USE;
/* `version` has the weights of the one before. */
void published_same(struct published *published, uint64_t version);
/* Borrowed; the version must be one of the readable. */
struct counted *published_get(const struct published *published, uint64_t version);
/* Whether a readable version lies there. */
bool published_is_at(const struct published *published, const void *data);

#endif
