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

/* The made-up numbers of the two before, unit by unit, for who has some units (sim_place.c). An
 * activation is 64 bits that depend on the sample and on every bit of the weights of all units
 * below it, its gradient on those of all units; a unit's gradient of a slot on the activations and
 * gradients of its microbatches, in order. */
uint64_t compute_unit_weights(const struct compute *compute, uint32_t unit, const float *weights);
/* What a member of a place has of these bits, whose weights `share` says (pieces_share); those of
 * all members are added, and then finished. */
uint64_t compute_unit_share(const struct compute *compute, uint32_t unit, const struct model *share,
                            const float *weights);
uint64_t compute_unit_of_shares(uint32_t unit, uint64_t sum);
/* `slot`: of the run; of a validation the piece. */
uint64_t compute_sample(enum ticket_kind kind, uint64_t slot, uint32_t microbatch);
uint64_t compute_forward(uint64_t weights, uint64_t input);
uint64_t compute_backward(uint64_t weights, uint64_t input, uint64_t doutput);
uint64_t compute_add(uint64_t sum, uint64_t input, uint64_t doutput); /* the sum begins with 0 */
/* The unit's part of compute_train(), from the sums of the node's slots. */
struct compute_slots {
    uint32_t first;
    const uint64_t *bits; /* (slots from the first on, units) */
};
void compute_unit(const struct compute *compute, uint32_t unit, uint64_t step, struct node node,
                  const struct compute_slots *slots, float *ret_gradients);
/* compute_validate(), from the sum of what came out, with gradient 0. */
struct compute_loss compute_loss_of_piece(const struct compute *compute, uint32_t piece,
                                          uint64_t bits);
uint64_t compute_piece_samples(const struct compute *compute, uint32_t piece);

/* Writes one piece as it goes over the wire; returns its bytes. */
uint32_t compute_encode(const struct compute *compute, uint32_t chunk, uint32_t part,
                        enum codec codec, const float *gradients, void *ret_bytes);
/* Reads a published chunk into its place in `weights`. */
void compute_copy(const struct compute *compute, uint32_t chunk, const float *from, float *weights);
void compute_decode(const struct compute *compute, uint32_t chunk, const uint8_t *bytes,
                    float *weights);
enum codec compute_codec(const struct compute *compute); /* of the run */

#endif
