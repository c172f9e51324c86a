/* The numerics fingerprint: which bits this machine computes.
 *
 * The digest of one tiny ticket. Each unit of the model computes one microbatch at the run's
 * shapes, forward and backward, and one of validation, as many samples as the last of the held-out
 * set; on weights, inputs and gradients that are made up, each unit for itself. All kernels that a
 * step calls run, through the code that a ticket runs (worker/model/unit.h), the short last block
 * of logits included. Units of the same shape are computed once. By pieces (common/model/pieces.h)
 * the first piece of each is computed, and of ranges the first, whatever the tensor degree: the others are of its shape, and
 * who shares a layer that no worker has room for can be probed. The matrix library's name, core type,
 * version and threads are part of the digest.
 *
 * Machines whose fingerprints are equal compute equal gradients; a machine with another one may not
 * join an `exact` run. A run keeps its fingerprint as long as it lives: what is digested here, and
 * in which order, does not change any more. */
#ifndef ROOST_WORKER_FINGERPRINT_H
#define ROOST_WORKER_FINGERPRINT_H

#include "common/digest.h"
#include "common/model/model.h"
#include "kernels/kernels.h"

struct fingerprint_options {
    const struct kernels *kernels;
    const struct model *model;
    const struct spec_train *train;
    uint64_t held_out; /* samples to validate on */
};

/* Needs the device memory of the largest unit, or of a piece of it, which is free again afterwards: call it before the
 * executor takes the run's. Takes as long as a microbatch of the units that differ.
 * ERR_NOMEM; ERR_IO: the device failed. */
enum err fingerprint_probe(const struct fingerprint_options *options, struct digest *ret_digest,
                           struct reason *reason) MUST_USE;

#endif
