/* A ticket's gradient as async pushes it: whole chunks, the parts of tied weights already added,
 * and one scale for all of it. A server applies such a push by itself, so parts of different
 * attempts must not meet there, and the clip factor cannot wait for a step's sum.
 *
 * Owns room for a chunk twice. One thread; after the executor's run, like executor_encode(). */
#ifndef ROOST_WORKER_WHOLE_H
#define ROOST_WORKER_WHOLE_H

#include "worker/executor.h"

struct whole {
    const struct executor *executor; /* borrowed, like the model */
    const struct model *model;
    float *sum, *part;
};

enum err whole_init(struct whole *whole, const struct executor *executor,
                    const struct model *model) MUST_USE; /* ERR_NOMEM */
void whole_release(struct whole *whole);                 /* {0} is fine */

/* The chunk's gradient, parts added in their order, into blocks_bytes() bytes at `ret_bytes`: there
 * when executor_encoded() has returned. Errors are that one's, as of the next. */
enum err whole_encode(const struct whole *whole, uint32_t chunk, enum codec codec,
                      void *ret_bytes) MUST_USE;
/* By what the server multiplies: clip_factor() of the mean over `samples`; 0: it is not finite. The
 * sum of squares is taken in 16 lanes, chunk after chunk, in double: the same bits everywhere. */
enum err whole_scale(const struct whole *whole, double clip_norm, uint64_t samples,
                     float *ret_scale) MUST_USE;

#endif
