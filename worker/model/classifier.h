/* The last linear and its loss, block of rows by block of rows: logits are never whole. */
#ifndef ROOST_WORKER_MODEL_CLASSIFIER_H
#define ROOST_WORKER_MODEL_CLASSIFIER_H

#include "worker/model/unit.h"

struct classifier {
    int64_t N;             /* predictions */
    int64_t C;             /* inputs of the linear */
    int64_t V;             /* classes */
    int64_t Vp;            /* rows of the weight; the padding has no probability and no gradient */
    const element *input;  /* (N,C) */
    const element *weight; /* (Vp,C) */
    const element *bias;   /* (Vp) or NULL */
    float dloss;           /* gradient of the sum of losses by each of them */
    element *dinput;       /* (N,C) =, may be `input`; NULL: not wanted */
    float *dweight;        /* (Vp,C) +=; NULL: only losses are wanted, no gradient */
    float *dbias;          /* (Vp) += or NULL */
};

/* Bytes of one block of logits, `scratch` below: at most logits_bytes_max or one row. */
uint64_t classifier_scratch_bytes(const struct kernels *k, int64_t N, int64_t Vp,
                                  uint64_t logits_bytes_max);

/* losses (N), correct (N), and the gradients above. */
void classifier(const struct kernels *k, const struct classifier *c, uint64_t logits_bytes_max,
                const int32_t *targets, float *losses, int32_t *correct, element *scratch);

#endif
