/* What the places of one process hand each other: values by their names (worker/executor.h). A
 * value stays until the node is done, as at a worker that sent it. */
#ifndef ROOST_REFERENCE_VALUES_H
#define ROOST_REFERENCE_VALUES_H

#include "worker/executor.h"

struct values {
    const struct kernels *kernels;            /* borrowed */
    uint32_t boundaries, slots, microbatches; /* of the model, of a node, of a slot */
    uint8_t **items;                          /* (ways, boundaries, slots, microbatches); owned */
    uint64_t bytes;                           /* received so far */
};

/* For nodes of at most so many slots. ERR_NOMEM. */
enum err values_init(struct values *values, const struct kernels *kernels,
                     const struct model *model, const struct spec_train *train,
                     uint32_t slots) MUST_USE;
void values_release(struct values *values); /* {0} is fine */
void values_clear(struct values *values);   /* the node is done */

/* What the executors' hooks do. ERR_NOMEM; ERR_BEHIND: it was not sent yet. */
enum err values_send(struct values *values, const struct executor_value *value,
                     const void *memory) MUST_USE;
enum err values_receive(struct values *values, const struct executor_value *value,
                        void *memory) MUST_USE;

#endif
