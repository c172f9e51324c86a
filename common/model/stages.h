/* Cuts a model's units into runs of consecutive units, one for each stage of a pipeline. */
#ifndef ROOST_COMMON_MODEL_STAGES_H
#define ROOST_COMMON_MODEL_STAGES_H

#include "common/model/model.h"

/* Run r is units ret_cuts[r] to ret_cuts[r + 1] − 1; runs + 1 cuts; 1 ≤ runs ≤ units. The longest
 * run, in operations of its forward, is as short as it can be, where none has more than so many weights
 * (0: any). Where several cuts do that, later runs get more: in most schedules an earlier place keeps
 * more activations. A function of the model's shapes and that number alone, in integers, so that
 * everybody cuts alike. False: each cut has a run of more weights. */
bool stages_cut(const struct model *model, uint32_t runs, uint64_t weights_max, uint32_t *ret_cuts);
/* The least weights_max for which there is a cut; `cuts` is room for one. */
uint64_t stages_weights(const struct model *model, uint32_t runs, uint32_t *cuts);

#endif
