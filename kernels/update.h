/* One update of weights by any optimizer: its scalars, derived once, into its kernel. Servers apply
 * a commit with it, workers their local steps. */
#ifndef ROOST_KERNELS_UPDATE_H
#define ROOST_KERNELS_UPDATE_H

#include "kernels/kernels.h"

enum update_kind { UPDATE_SGD, UPDATE_MOMENTUM, UPDATE_ADAMW };
enum { UPDATE_STATES_MAX = 2 };

/* Arrays of optimizer state beside the weights: 0, 1 (momentum) or 2 (adamw: m, v). */
uint32_t update_states(enum update_kind kind);

struct update_scalars {
    enum update_kind kind;
    float scale; /* of the gradient */
    float lr;
    float bias1, bias2; /* adamw: 1 - beta^t */
    double betas[2];    /* adamw */
    double eps;         /* adamw */
    double momentum;    /* momentum */
    bool nesterov;      /* momentum */
    double weight_decay;
};

/* n of each, in the backend's memory. */
struct update_arrays {
    float *weights;
    float *state[UPDATE_STATES_MAX];
    struct kernels_apart apart; /* NULL: weights and state are updated in place */
    const float *gradient;
    void *published; /* in `format`; NULL with KERNELS_NONE */
    enum kernels_format format;
    int64_t n;
};

void update_apply(const struct kernels *k, const struct update_scalars *scalars,
                  const struct update_arrays *arrays);

#endif
