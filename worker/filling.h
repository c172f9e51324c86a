/* How much of a device a run's products of weights keep busy: with few samples a microbatch most of
 * its multiprocessors wait, and the user wants to know. Pure. */
#ifndef ROOST_WORKER_FILLING_H
#define ROOST_WORKER_FILLING_H

#include "common/model/model.h"

/* Of a forward pass of so many samples, by floating-point operations: the share of the device's
 * multiprocessors that have a tile of 128 × 128 results (cuBLAS and CUTLASS take such, or larger
 * ones), at most 1 for each product. 1: the model has none. */
double filling_share(const struct model *model, uint32_t samples, uint32_t multiprocessors);

#endif
