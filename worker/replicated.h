/* What each member of a place has of the gradients (mesh.tensor): those of parameters that are not in
 * pieces (common/model/pieces.h). Rank 0 pushes them. The others compute the same bits, and say a
 * digest of them when they complete, so that the coordinator finds who computes others
 * (server/coordinator/said.h). */
#ifndef ROOST_WORKER_REPLICATED_H
#define ROOST_WORKER_REPLICATED_H

#include "common/digest.h"
#include "worker/executor.h"

struct replicated {
    const struct model *model; /* borrowed; whole */
    struct digest_fast digest;
    float *values; /* (MODEL_CHUNK_WEIGHTS_MAX), owned */
};

enum err replicated_init(struct replicated *replicated, const struct model *model) MUST_USE;
void replicated_release(struct replicated *replicated); /* {0} is fine */

/* Adds the digest of the unit's to *sum, modulo 2^64: of which unit and node they are is in it. They
 * may be read as for push_send(). ERR_IO: the device has failed, and nothing was added. One thread
 * at a time. */
enum err replicated_add(struct replicated *replicated, const struct executor *executor,
                        uint32_t unit, struct node node, uint64_t *sum) MUST_USE;

#endif
