/* An async run again, in one process, from the servers' order logs (common/files/order.h).
 *
 * What a chunk becomes follows from the order in which it took tickets, and from what each of them
 * was computed on; both are in the logs. So chunks are advanced, each by itself, as far as what
 * they take next can be computed; a ticket is computed when every version that its attempt pulled
 * is there. Executor and shard core do it, one shard a chunk.
 *
 * A server that started again began each chunk with a version it had before: from there the chunk
 * has a second branch. Attempts may have pulled from the first one beyond that, so both are
 * advanced. */
#ifndef ROOST_REFERENCE_ASYNC_H
#define ROOST_REFERENCE_ASYNC_H

#include "reference/reference.h"

struct reference_async {
    const struct reference_options *options; /* its order is ignored */
    const char *folder;                      /* of the logs */
    uint64_t generation;                     /* of the cut that the run is repeated up to */
    const uint64_t *versions;                /* and what each chunk had in it */
};

struct reference_async_result {
    uint64_t attempts; /* computed */
    uint64_t branches; /* beginnings of chunks after the first */
    struct digest digest;
};

/* ERR_CORRUPT: the logs miss something; the reason says what. */
enum err reference_async_run(const struct reference_async *async,
                             struct reference_async_result *ret_result,
                             struct reason *reason) MUST_USE;

#endif
