/* The numerics fingerprint: which bits this machine computes.
 *
 * SHA-256 over the name of the matrix library, its core type, version and threads, and the results
 * of the model's own operations on fixed inputs at the run's shapes: every linear forward and
 * backward, attention, layernorm, activations, the classifier. Machines whose fingerprints are
 * equal compute equal gradients; a machine with another one may not join an `exact` run. */
#ifndef ROOST_WORKER_FINGERPRINT_H
#define ROOST_WORKER_FINGERPRINT_H

#include "common/digest.h"
#include "common/model/model.h"
#include "kernels/kernels.h"

/* ERR_NOMEM; ERR_IO: the device failed. Takes about one microbatch's time. */
enum err fingerprint_probe(const struct kernels *k, const struct model *model,
                           const struct spec_train *train, struct digest *ret_digest,
                           struct reason *reason) MUST_USE;

#endif
