/* The last linear and its loss, block of rows by block of rows: logits are never whole.
 *
 * In pieces, each has the classes of its rows of the weight, and its own logits of the same rows of
 * predictions; three steps go over all pieces, and between two of them a row's numbers of all pieces
 * are brought together: the largest logit of each and the target's, then the sums of exponentials.
 * Last, the gradient of the input is a sum over pieces (piece_sum.h). Members tell each other three
 * numbers a row, never logits.
 *
 * What decides the bits: how many rows are computed at once, and the pieces. Rows follow from
 * logits_bytes_max and the whole Vp, so they are the same whoever holds how many pieces; together all
 * pieces' logits of a block are within it. */
#ifndef ROOST_WORKER_MODEL_CLASSIFIER_H
#define ROOST_WORKER_MODEL_CLASSIFIER_H

#include "worker/model/unit.h"

struct classifier {
    int64_t N;            /* predictions */
    int64_t C;            /* inputs of the linear */
    int64_t V;            /* classes */
    uint32_t pieces;      /* of the classes, Vp / pieces each */
    int64_t Vp;           /* rows of the weight; the padding has no probability and no gradient */
    uint32_t rank, ranks; /* whose pieces these are, pieces / ranks of them; 1: all are here, and
                              below Vp is what the member has */
    bool ranged;          /* of dinput each member gets its own range of the rows alone */
    const struct unit_exchange *exchange; /* between the members */
    const element *input;                 /* (N,C) */
    const element *weight;                /* (Vp,C) */
    const element *bias;                  /* (Vp) or NULL */
    float dloss;                          /* gradient of the sum of losses by each of them */
    element *dinput;                      /* (N,C) =, may be `input`; NULL: not wanted */
    float *dweight;                       /* (Vp,C) +=; NULL: only losses are wanted, no gradient */
    float *dbias;                         /* (Vp) += or NULL */
};

/* Bytes of `scratch` below: one block of logits, at most logits_bytes_max or one row; in pieces also
 * a few numbers a row and piece, and log2 pieces arrays as large as the input's rows of a block. Only
 * N to pieces are read. */
uint64_t classifier_scratch_bytes(const struct kernels *k, const struct classifier *c,
                                  uint64_t logits_bytes_max);

/* What the members exchange in classifier(), and nothing else; `has_dinput`: with a gradient of the
 * input. Only N to exchange are read. */
void classifier_exchange(const struct kernels *k, const struct classifier *c,
                         uint64_t logits_bytes_max, bool has_dinput);

/* losses (N), correct (N), and the gradients above. */
void classifier(const struct kernels *k, const struct classifier *c, uint64_t logits_bytes_max,
                const int32_t *targets, float *losses, int32_t *correct, element *scratch);

#endif
