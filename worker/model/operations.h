/* The kinds of operations as code: a row of functions each, on the arrays of one act. */
#ifndef ROOST_WORKER_MODEL_OPERATIONS_H
#define ROOST_WORKER_MODEL_OPERATIONS_H

#include "worker/model/act_arrays.h"

/* NULL: nothing to do. Backward of an operation is its weights' part and then its input's; the two
 * are apart because only the second has a successor that waits for it. The weights' part reads the
 * gradient of the operation's output and its input, which both still stand when it runs. */
struct operation_code {
    void (*forward)(const struct act_arrays *act, const struct model_operation *operation);
    /* Adds to the gradients of the operation's uses. */
    void (*backward_weights)(const struct act_arrays *act, const struct model_operation *operation);
    /* The gradient of `in`; of a norm, that of its few weights comes with it. */
    void (*backward_input)(const struct act_arrays *act, const struct model_operation *operation);
    /* Floats a prediction that forward keeps for backward. */
    uint32_t (*statistics)(const struct model_operation *operation);
    uint64_t (*scratch_bytes)(const struct act_arrays *act,
                              const struct model_operation *operation);
    /* What forward and backward_input exchange with the other members of the place, and nothing else;
     * who only counts has no arrays. */
    void (*exchange_forward)(const struct act_arrays *act, const struct model_operation *operation);
    void (*exchange_backward)(const struct act_arrays *act,
                              const struct model_operation *operation);
};

extern const struct operation_code operation_codes[MODEL_OPERATIONS_COUNT];

/* logits = the classifier's linear alone. */
void operation_logits(const struct act_arrays *act, const struct model_operation *operation,
                      element *logits);

#endif
