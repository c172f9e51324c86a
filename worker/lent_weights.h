/* Weights that are used where their server published them.
 *
 * A chunk that comes through shared memory may stay in its sender's pool (common/shared/shared_link.h).
 * Servers publish the chunks of a parameter one after another (common/shared/shared_blocks.h): when
 * all of a parameter's have come so, the executor computes on them there, and nothing was copied. Where
 * they do not fit together, they are decoded into the executor's own memory.
 *
 * The other process may change what it lent: what is computed then is wrong, as if it had published
 * other weights. Agent's thread, while nothing runs that uses the weights. */
#ifndef ROOST_WORKER_LENT_WEIGHTS_H
#define ROOST_WORKER_LENT_WEIGHTS_H

#include "common/rpc/rpc.h"
#include "worker/executor.h"

struct lent_chunk {
    struct rpc_message *message; /* a reference; NULL: the chunk is in the executor's memory */
    const uint8_t *bytes;
};

/* {0}: none is kept. */
struct lent_weights {
    struct executor *executor; /* borrowed */
    const struct model *model; /* borrowed */
    struct lent_chunk *chunks; /* of the model */
};

/* Without an executor that may point elsewhere nothing is kept. ERR_NOMEM. */
enum err lent_weights_init(struct lent_weights *lent, struct executor *executor,
                           const struct model *model) MUST_USE;
/* Before the executor is freed. */
void lent_weights_release(struct lent_weights *lent);

/* The chunk's fp32 bytes are next at the cursor. True: they are kept where they lie, until the chunk
 * comes again, and the cursor is behind them. False: decode them. */
bool lent_weights_keep(struct lent_weights *lent, uint32_t chunk, struct cursor *cursor,
                       struct rpc_message *message);
/* Whether the chunk lies there. */
bool lent_weights_has(const struct lent_weights *lent, uint32_t chunk);
/* Those that are kept are nowhere here then. */
void lent_weights_give_back(struct lent_weights *lent);
/* All chunks of the unit have come: its parameters are used where they lie, or decoded. */
void lent_weights_settle(struct lent_weights *lent, uint32_t unit);

#endif
