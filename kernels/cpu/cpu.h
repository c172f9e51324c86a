/* Declarations that the CPU operations share. Each operation's file is compiled once per variant
 * with -DKERNELS_VARIANT=scalar|avx2|avx512 and that variant's instruction flags; VARIANT(add) is
 * then add_scalar and so on. cpu.c picks the variant's table. */
#ifndef ROOST_KERNELS_CPU_CPU_H
#define ROOST_KERNELS_CPU_CPU_H

#include "kernels/cpu/gemm.h"
#include "kernels/kernels.h"

struct kernels_state {
    struct gemm gemm;
    char name[32];
};

/* Every member of struct kernels that is compiled per variant. */
#define CPU_OPERATIONS(X)                                                                          \
    X(linear_forward)                                                                              \
    X(linear_add_forward)                                                                          \
    X(linear_gelu_forward)                                                                         \
    X(linear_finish)                                                                               \
    X(linear_backward_input)                                                                       \
    X(linear_gelu_backward_input)                                                                  \
    X(linear_backward_weight)                                                                      \
    X(embedding_forward)                                                                           \
    X(embedding_backward)                                                                          \
    X(layernorm_forward)                                                                           \
    X(layernorm_backward)                                                                          \
    X(rmsnorm_forward)                                                                             \
    X(rmsnorm_backward)                                                                            \
    X(rope_forward)                                                                                \
    X(rope_backward)                                                                               \
    X(attention_scratch_bytes)                                                                     \
    X(attention_forward)                                                                           \
    X(attention_backward)                                                                          \
    X(add)                                                                                         \
    X(subtract)                                                                                    \
    X(gelu_forward)                                                                                \
    X(gelu_backward)                                                                               \
    X(relu_forward)                                                                                \
    X(relu_backward)                                                                               \
    X(tanh_forward)                                                                                \
    X(tanh_backward)                                                                               \
    X(swiglu_forward)                                                                              \
    X(swiglu_backward)                                                                             \
    X(classifier_forward)                                                                          \
    X(classifier_forward_backward)                                                                 \
    X(pieces_largest)                                                                              \
    X(pieces_exponentials)                                                                         \
    X(pieces_gradient)                                                                             \
    X(cast_from_f32)                                                                               \
    X(cast_from_bf16)                                                                              \
    X(cast_to_bf16)                                                                                \
    X(copy_in_uncached)                                                                            \
    X(add_f32)                                                                                     \
    X(add_bf16)                                                                                    \
    X(sum_squares)                                                                                 \
    X(sgd)                                                                                         \
    X(momentum)                                                                                    \
    X(adamw)                                                                                       \
    X(mean)

#define SELF const struct kernels *k __attribute__((unused))

#ifdef KERNELS_VARIANT

#include "kernels/cpu/vector.h"

#define JOIN_EXPANDED(a, b) a##_##b
#define JOIN(a, b) JOIN_EXPANDED(a, b)
#define VARIANT(operation) JOIN(operation, KERNELS_VARIANT)

/* A prototype for each, with its type in the table. */
#define OPERATION_PROTOTYPE(operation)                                                             \
    __typeof__(*((struct kernels *)0)->operation) VARIANT(operation);
CPU_OPERATIONS(OPERATION_PROTOTYPE)

#endif

/* The variants' tables, without state and memory operations. */
extern const struct kernels table_scalar, table_avx2, table_avx512;

bool cpu_new(const struct kernels_options *options, const struct kernels **ret_kernels,
             char *reason, size_t reason_bytes) MUST_USE;

#endif
