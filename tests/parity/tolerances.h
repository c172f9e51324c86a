/* The named tolerances of the kernels' comparisons. */
#ifndef ROOST_TESTS_PARITY_TOLERANCES_H
#define ROOST_TESTS_PARITY_TOLERANCES_H

#include "tests/unit/unit.h"

#include <string.h>

/* How far an output may be from the reference's (PyTorch's for the CPU, the CPU's for CUDA), in the
 * L2 norm, as a share of the reference's norm: 1e-6 where many terms are summed, 5e-7 where an
 * element depends on few, 0 where nothing is rounded. */
static const struct {
    const char *output;
    double limit;
} tolerances[] = {
    {"linear.out", 1e-6},
    {"linear.dinp", 1e-6},
    {"linear.dweight", 1e-6},
    {"linear.dbias", 1e-6},
    {"embedding.out", 1e-7},
    {"embedding.dwte", 5e-7},
    {"embedding.dwpe", 5e-7},
    {"layernorm.out", 1e-6},
    {"layernorm.mean", 1e-5}, /* near 0 itself */
    {"layernorm.rstd", 1e-6},
    {"layernorm.dinp", 1e-6},
    {"layernorm.dgamma", 1e-6},
    {"layernorm.dbeta", 1e-6},
    {"rmsnorm.out", 1e-6},
    {"rmsnorm.rstd", 1e-6},
    {"rmsnorm.dinp", 1e-6},
    {"rmsnorm.dgamma", 1e-6},
    {"rope.out", 5e-7},
    {"rope.dqkv", 5e-7},
    {"swiglu.out", 5e-7},
    {"swiglu.dgate", 5e-7},
    {"swiglu.dup", 5e-7},
    {"attention.out", 1e-6},
    {"attention.lse", 5e-7},
    {"attention.dqkv", 1e-6},
    {"gelu.out", 5e-7},
    {"gelu.dinp", 5e-7},
    {"relu.out", 0},
    {"relu.dinp", 0},
    {"tanh.out", 5e-7},
    {"tanh.dinp", 5e-7},
    {"classifier.losses", 5e-7},
    {"classifier.dlogits", 1e-6},
    {"bf16.value", 0},
    {"sgd.w", 5e-7},
    {"momentum.w", 5e-7},
    {"momentum.m", 5e-7},
    {"nesterov.w", 5e-7},
    {"nesterov.m", 5e-7},
    {"adamw.w", 5e-7},
    {"adamw.m", 5e-7},
    {"adamw.v", 5e-7},
};

/* By what stands before the slash. */
static inline double tolerance(const char *name)
{
    size_t length = strcspn(name, "/");
    for (size_t i = 0; i < sizeof tolerances / sizeof *tolerances; i++) {
        const char *output = tolerances[i].output;
        if (strlen(output) == length && strncmp(output, name, length) == 0)
            return tolerances[i].limit;
    }
    fail_msg("no tolerance for %s", name);
    return 0;
}

#endif
