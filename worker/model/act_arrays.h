/* The arrays of one act on a unit, at their places: what operations work on. */
#ifndef ROOST_WORKER_MODEL_ACT_ARRAYS_H
#define ROOST_WORKER_MODEL_ACT_ARRAYS_H

#include "worker/model/unit.h"

struct act_arrays {
    const struct unit_call *call;
    const struct model_unit *unit;
    int64_t N;                                    /* predictions */
    element *arrays[MODEL_UNIT_ARRAYS_MAX];       /* NULL: not there in this act */
    float *statistics[MODEL_UNIT_OPERATIONS_MAX]; /* kept from forward to backward */
    float *norm_sums;                             /* of backward (norms.h) */
    void *scratch;                                /* of the operation that runs */
};

static inline uint32_t act_width(const struct act_arrays *act, uint8_t array)
{
    return act->unit->arrays[array].width;
}

/* Where the gradient of an array is; NULL: nobody wants it. */
static inline element *act_gradient(const struct act_arrays *act, uint8_t array)
{
    return act->arrays[act->unit->arrays[array].gradient];
}

/* Of the operation's use; NULL: it has none. */
static inline element *act_weights(const struct act_arrays *act,
                                   const struct model_operation *operation, uint8_t use)
{
    return use < operation->uses_count ? act->call->weights[operation->use + use] : NULL;
}

static inline float *act_gradients(const struct act_arrays *act,
                                   const struct model_operation *operation, uint8_t use)
{
    return use < operation->uses_count ? act->call->gradients[operation->use + use] : NULL;
}

static inline float *act_statistics(const struct act_arrays *act,
                                    const struct model_operation *operation)
{
    return act->statistics[operation - act->unit->operations];
}

#endif
