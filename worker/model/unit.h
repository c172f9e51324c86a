/* A model's units as code: what carries out a unit's operations (common/model/model.h), forward and
 * backward, on any backend.
 *
 * The executor gives a unit its arrays for one act on one microbatch; the unit calls kernels and
 * keeps nothing of its own. Activations flow as (N, width) arrays, N predictions = samples ×
 * model->sample_tokens, of elements. `saved` is laid out by the unit itself, as is `scratch`. */
#ifndef ROOST_WORKER_MODEL_UNIT_H
#define ROOST_WORKER_MODEL_UNIT_H

#include "common/model/model.h"
#include "kernels/kernels.h"

/* What a unit needs for a microbatch of so many samples, in bytes: as in program_sizes, and what it
 * needs within one act. */
struct unit_sizes {
    uint64_t output; /* its result, the next unit's input; 0 for the last unit */
    uint32_t ranges; /* equal parts of the whole result, of which this is one: the members */
    uint64_t saved;  /* from forward to backward */
    uint64_t dinput; /* 0 for unit 0 and when it is computed in doutput's place */
    bool in_place;
    uint64_t left; /* from unit_backward_input() to unit_backward_weights() */
    uint64_t scratch;
};

/* What the members of a place do together (pieces_share): all of them call the same function at the
 * same point of the same act, each with its own arrays of the device. When a member is lost, the
 * arrays are undefined, and whoever made this struct returns the error after the act. */
struct unit_exchange {
    void *context;
    /* array (n) = its sum over the members, in the tree over ranks. Of a model that has ranges
     * (pieces_ranged) the member gets its own ranges of the sum, and the rest is undefined */
    void (*sum)(void *context, element *array, int64_t n);
    /* array (n): each element is set in one member, and has zero bits in the others; all get it, or
     * likewise their own ranges */
    void (*merge)(void *context, element *array, int64_t n);
    /* array (n): each member has its own ranges, all get all */
    void (*gather)(void *context, element *array, int64_t n);
    /* numbers (n) = their sum over the members, in the tree over ranks */
    void (*add)(void *context, float *numbers, int64_t n);
    /* largest (pieces, rows): the member has the rows of its own pieces. For each other member one row
     * of its pieces is set to the largest of them, its other rows to -infinity: the largest of all
     * pieces is what it would be. logit (rows) is merged. */
    void (*largest)(void *context, float *largest, float *logit, int64_t rows);
    /* sums (pieces, rows) likewise: one row is the sum of the other member's pieces, the rest are 0,
     * so that the tree over pieces gives the bits of all. correct (rows), 0 or 1, is merged. */
    void (*totals)(void *context, float *sums, int32_t *correct, int64_t rows);
};

struct few_rows;

/* One act. All arrays are device memory, 64-byte aligned. */
struct unit_call {
    const struct kernels *k;
    const struct model *model;            /* or a member's */
    const struct unit_exchange *exchange; /* NULL: no other member */
    uint32_t unit;
    uint32_t samples;          /* in this microbatch */
    uint64_t logits_bytes_max; /* how many rows of logits there are at once */
    bool training;             /* the last unit's forward computes its gradients as well */

    element *const *weights; /* parameters, as far as the model has them; by the unit's uses */
    float *const *gradients; /* likewise; += */
    struct few_rows *few;    /* unit 0's table's, which is NULL there; NULL: all are whole */

    const void *input;      /* the previous unit's output; unit 0: the samples' inputs */
    const int32_t *targets; /* (N); read by the last unit's forward */
    element *output;
    void *saved;
    void *left;
    void *scratch;
    element *doutput; /* gradient of output; none for the last unit */
    element *dinput;  /* gradient of input; none for unit 0 */

    float *losses;    /* (N), written by the last unit's forward */
    int32_t *correct; /* (N), likewise */
};

void unit_size(const struct kernels *k, const struct model *model, uint32_t unit, uint32_t samples,
               uint64_t logits_bytes_max, struct unit_sizes *ret_sizes);

/* The last unit's forward is fused with the classifier's backward, block of rows by block of rows
 * (never all logits at once): when training, it adds the head's weight gradients and keeps the
 * gradient of the head's input, in `saved` or already in dinput; its backward goes on from there.
 * dloss is 1 / sample_tokens: gradients are sums over samples of the mean loss. */
void unit_forward(const struct unit_call *call);
void unit_backward(const struct unit_call *call);

/* The two halves of unit_backward(): the same bits. The first computes dinput, and what comes with
 * it, the gradients of norms' few weights; it leaves in `left` what the second needs for the
 * gradients of the other weights. */
void unit_backward_input(const struct unit_call *call);
void unit_backward_weights(const struct unit_call *call);

/* What the members of a place exchange in those acts (backward: also in its first half), in their
 * order: the calls of `exchange`, and nothing else. Of the call k to training are read; who counts
 * needs no arrays. */
void unit_exchange_forward(const struct unit_call *call);
void unit_exchange_backward(const struct unit_call *call);

/* The unit's result, or the gradient of it, becomes whole before it passes to another place: `value`
 * has the member's own ranges, where it has no more. Of the call the same is read. */
void unit_exchange_value(const struct unit_call *call, element *value);

/* logits (N, unit_logits_count()) of the last unit, instead of losses. */
uint32_t unit_logits_count(const struct model *model); /* the vocabulary and its padding */
void unit_logits(const struct unit_call *call, element *logits);

#endif
