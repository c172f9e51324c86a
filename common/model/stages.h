/* Cuts a model's units into runs of consecutive units, one for each stage of a pipeline. */
#ifndef ROOST_COMMON_MODEL_STAGES_H
#define ROOST_COMMON_MODEL_STAGES_H

#include "common/model/model.h"

/* Run r is units ret_cuts[r] to ret_cuts[r + 1] − 1; runs + 1 cuts; 1 ≤ runs ≤ units. The longest
 * run, in operations of its forward, is as short as it can be. Where several cuts do that, later
 * runs get more: in most schedules an earlier place keeps more activations. A function of the
 * model's shapes alone, in integers, so that everybody cuts alike. */
void stages_cut(const struct model *model, uint32_t runs, uint32_t *ret_cuts);

#endif
