/* The work of a worker's device in the simulator: gradients of a node and losses of held-out
 * pieces, computed from weights and names alone. Either the worker's real executor, or made-up
 * numbers that depend on every bit of the weights and cost next to nothing: a wrong version or sum
 * changes all that follows. One for the process: workers bring their weights and take the gradients
 * away. */
#ifndef ROOST_TESTS_SIM_COMPUTE_H
#define ROOST_TESTS_SIM_COMPUTE_H

#include "tests/sim/scenario.h"
#include "worker/executor.h"

/* Values of all chunks lie one after another, chunk c's at weights_first[c]; so do gradients, those
 * of part p of chunk c (a piece) at gradient_first[piece_first[c] + p]. */
struct compute {
    const struct scenario *scenario;
    const struct kernels *kernels;
    struct model model;
    struct executor *executor; /* NULL: made-up gradients */
    uint32_t piece_count;
    uint32_t *piece_first;    /* one a chunk */
    uint32_t *weights_first;  /* one a chunk, and one behind the last */
    uint32_t *gradient_first; /* one a piece, and one behind the last */
    float *scratch;           /* gradients, one for each level of the tree */
};

/* `kernels` with a GEMM when the scenario says executor. */
void compute_init(struct compute *compute, const struct scenario *scenario,
                  const struct kernels *kernels);
void compute_release(struct compute *compute);

/* The executor's samples, made up from their numbers; borrows `compute`. */
struct executor_samples compute_samples(const struct compute *compute);

uint32_t compute_weights_count(const struct compute *compute);
uint32_t compute_gradients_count(const struct compute *compute);

/* The node's gradients, its slots added in tree order. */
void compute_train(struct compute *compute, uint64_t step, struct node node, const float *weights,
                   float *ret_gradients);

/* The loss chunk's place among the gradients. */
float *compute_loss_of(const struct compute *compute, float *gradients);

/* async: adds the parts of each chunk into part 0. Returns the scale that a server multiplies by
 * (worker/whole.h does the same with an executor's gradients). */
float compute_whole(const struct compute *compute, float *gradients);

struct compute_loss {
    double loss_sum;
    uint64_t sample_count, correct_count;
};
struct compute_loss compute_validate(struct compute *compute, uint32_t piece, const float *weights);

/* Writes one piece as it goes over the wire; returns its bytes. */
uint32_t compute_encode(const struct compute *compute, uint32_t chunk, uint32_t part,
                        enum codec codec, const float *gradients, void *ret_bytes);
/* Reads a published chunk into its place in `weights`. */
void compute_decode(const struct compute *compute, uint32_t chunk, const uint8_t *bytes,
                    float *weights);
enum codec compute_codec(const struct compute *compute); /* of the run */

#endif
