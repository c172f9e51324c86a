/* Norms of rows: layer and root mean square. */
#ifndef ROOST_WORKER_MODEL_NORMS_H
#define ROOST_WORKER_MODEL_NORMS_H

#include "worker/model/act_arrays.h"

/* Statistics are the means, and from the next whole line on the rstds. */
uint32_t norms_layer_statistics(const struct model_operation *operation);
void norms_layer_forward(const struct act_arrays *act, const struct model_operation *operation);
void norms_layer_backward(const struct act_arrays *act, const struct model_operation *operation);

/* Statistics are the rstds. */
uint32_t norms_rms_statistics(const struct model_operation *operation);
void norms_rms_forward(const struct act_arrays *act, const struct model_operation *operation);
void norms_rms_backward(const struct act_arrays *act, const struct model_operation *operation);

#endif
