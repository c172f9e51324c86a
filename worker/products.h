/* The products of a run whose spec has train.products: timed: this worker times them, and the
 * coordinator says which are the run's: its own, or those that another worker offered before. */
#ifndef ROOST_WORKER_PRODUCTS_H
#define ROOST_WORKER_PRODUCTS_H

#include "common/log.h"
#include "common/rpc/rpc.h"
#include "common/settings/spec.h"
#include "kernels/kernels.h"

struct products_run {
    uint64_t number;
    struct rpc_channel *channel; /* to the coordinator */
    const struct logger *logger;
};

/* Times what `k` has computed so far, which takes seconds and the memory of the largest product, and
 * asks. A table that is opened with *ret_products (SPEC_PRODUCTS_BYTES) computes as the run does.
 * ERR_IO: the device failed. Else the errors of a call. */
enum err products_settle(const struct kernels *k, const struct products_run *run,
                         char *ret_products, struct reason *reason) MUST_USE;

#endif
