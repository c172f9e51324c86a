/* The digest of a run's state: two runs ended in the same bytes exactly when theirs are equal.
 *
 * SHA-256 over the parameters in the order of their names (strcmp), each one's fp32 weights and
 * then its optimizer state (momentum: m; adamw: m, v), every array whole, row-major, in storage
 * shape. The grid, the servers and the file format leave no trace in it. `loss` is not part of it.
 */
#ifndef ROOST_COMMON_FILES_STATE_DIGEST_H
#define ROOST_COMMON_FILES_STATE_DIGEST_H

#include "common/digest.h"
#include "common/model/model.h"

/* The source of the values: chunks of a shard, or of a checkpoint's files. */
struct state_digest_source {
    void *context;
    /* A chunk's values: array 0 the weights, 1 … the optimizer state. */
    enum err (*read)(void *context, uint32_t chunk, uint32_t array, float *ret_values);
    /* The same where all values lie in memory until the digest is made; NULL: they are read. */
    enum err (*borrow)(void *context, uint32_t chunk, uint32_t array, const float **ret_values);
    uint32_t arrays; /* 1 + the optimizer's states */
};

/* ERR_NOMEM (one parameter is assembled at a time) or what reading returned. */
enum err state_digest(const struct model *model, const struct state_digest_source *source,
                      struct digest *ret_digest) MUST_USE;

#endif
