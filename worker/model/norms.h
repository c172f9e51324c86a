/* Norms of rows: layer and root mean square, of the predictions that a member has; their results it
 * hands on whole (ranges.h).
 *
 * Where the model has ranges, the gradients of a unit's norms are summed apart in each range: in an
 * array (ranges that are here, floats of the unit's norms) of the act. The end of the unit's backward
 * adds the ranges in the tree of common/tree.h, those of other members too, in one exchange for all
 * norms of the unit, and then the sum to the gradients: a microbatch is final in itself, so the bits
 * do not depend on who has how many ranges, nor on how many slots a node has. */
#ifndef ROOST_WORKER_MODEL_NORMS_H
#define ROOST_WORKER_MODEL_NORMS_H

#include "worker/model/act_arrays.h"

/* Of act->norm_sums; 0: there is none, and the two below do nothing. */
uint64_t norms_sums_bytes(const struct act_arrays *act);
void norms_begin(const struct act_arrays *act);
void norms_end(const struct act_arrays *act);

/* What members exchange in the forward of a norm, and in norms_end(), and nothing else. */
void norms_exchange_forward(const struct act_arrays *act, const struct model_operation *operation);
void norms_exchange_end(const struct act_arrays *act);

/* Statistics are the means, and from the next whole line on the rstds. */
uint32_t norms_layer_statistics(const struct model_operation *operation);
void norms_layer_forward(const struct act_arrays *act, const struct model_operation *operation);
void norms_layer_backward(const struct act_arrays *act, const struct model_operation *operation);

/* Statistics are the rstds. */
uint32_t norms_rms_statistics(const struct model_operation *operation);
void norms_rms_forward(const struct act_arrays *act, const struct model_operation *operation);
void norms_rms_backward(const struct act_arrays *act, const struct model_operation *operation);

#endif
