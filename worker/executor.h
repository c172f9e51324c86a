/* The executor: walks a program's rows and computes a ticket's loss and gradients.
 *
 * Training is one program, with or without local steps, and validation another
 * (worker/program/program.h). The executor owns the device memory: weights, gradients and
 * activations, taken once at the start and sized from the programs; a run allocates nothing. It
 * knows the protocol only through three hooks.
 *
 * Numbers. A slot's gradient of a part is the sum over the slot's samples of the gradient of the
 * sample's mean loss, microbatch after microbatch (commit's scale divides by the samples). A node
 * of several slots is the sum of its slots in tree order (common/tree.h): each slot computed like a
 * ticket of its own, at most log2(slots) + 1 gradient sets alive, the bits those of slots pushed
 * one by one. The `loss` chunk is the last unit's: [sum over samples of the mean loss, samples,
 * correct predictions, 0], the sum taken in double in sample order, rounded once a slot.
 *
 * Local steps (consistency `local`). A slot then brings a difference of weights. It begins with the
 * pulled weights and new optimizer state, and makes so many steps of an optimizer of its own, each
 * on slot_samples samples. Pulled minus reached weights take the place of the gradient (part 0;
 * other parts are zero), and the loss chunk holds all samples of the slot. Local step h of ticket n
 * takes the samples at (n × steps + h) × slot_samples. The learning rate follows the samples that
 * the run has seen when every slot is as far. Clipping is of the slot's own gradient. The pulled
 * weights stay for the next slot.
 *
 * Threads. One thread calls executor_run and executor_validate, and hooks are called on it.
 * executor_decode may be called by one other thread for chunks of units whose pull hook has not
 * returned (or between runs); executor_encode by one thread at a time from a part's push hook to
 * the next run. Everything else is constant after executor_new.
 *
 * Overlap. On a GPU a hook is called when the device has been given the work, not when it has done
 * it: the run goes on with the units that follow, and waits for the device once a slot, for its
 * losses. Copies of weights and gradients have streams of their own. Marks order a copy after the
 * unit that it belongs to, so a unit's gradients leave while the next one's are computed. */
#ifndef ROOST_WORKER_EXECUTOR_H
#define ROOST_WORKER_EXECUTOR_H

#include "proto/wire.h"
#include "worker/blocks.h"
#include "worker/executor_options.h"

struct executor;

/* The source of samples: `count` samples at `first`, a place in the training stream (ticket ×
 * slot_samples, …) or in the held-out set. Inputs and targets of one after another: gpt: int32
 * tokens, sample_tokens each of both; mlp: sizes[0] floats and one int32 class each. */
struct executor_samples {
    void *context;
    enum err (*read)(void *context, enum ticket_kind kind, uint64_t first, uint32_t count,
                     void *ret_inputs, int32_t *ret_targets);
    uint64_t held_out; /* samples to validate on */
};

/* Each may be NULL: then there is nothing to do. */
struct executor_hooks {
    void *context;
    /* Returns when all weights of the unit are in place (executor_decode), or with the error.
     * Called once a unit and run, in forward order. */
    enum err (*pull)(void *context, uint32_t unit);
    /* The gradients of the unit's uses (model->uses) are final for the ticket's node, as
     * executor_encode sees them, and stay until the next executor_run. Called once a unit and run,
     * in the program's order: last unit first. An error ends the run. */
    enum err (*push)(void *context, uint32_t unit);
    /* Asked between rows; true ends the run with ERR_CANCELLED. */
    bool (*cancelled)(void *context);
};

struct executor_loss {
    double loss_sum; /* over samples, of the mean loss of the sample's predictions */
    uint64_t samples;
    uint64_t correct; /* predictions; samples × model->sample_tokens were made */
};

/* ERR_NOMEM, with the ledger of what needs what when it is more than the device has free;
 * ERR_INVALID: the program does not validate or does not fit the model. */
enum err executor_new(const struct executor_options *options, struct executor **ret_executor,
                      struct reason *reason) MUST_USE;
void executor_free(struct executor *executor); /* NULL is fine */

/* Computes the ticket (TICKET_TRAIN). Errors are those of hooks and samples, and ERR_CANCELLED;
 * after one the gradients are undefined. ERR_MALFORMED: the ticket's node is none of the run's or
 * larger than node_slots_max. ERR_IO: the device failed (executor_failure). */
enum err executor_run(struct executor *executor, const struct ticket *ticket,
                      const struct executor_samples *samples, const struct executor_hooks *hooks,
                      struct executor_loss *ret_loss) MUST_USE;

/* Computes a TICKET_VALIDATE: forward only, no push. Slot s covers held-out samples
 * [s × slot_samples, (s + 1) × slot_samples) as far as there are. */
enum err executor_validate(struct executor *executor, const struct ticket *ticket,
                           const struct executor_samples *samples,
                           const struct executor_hooks *hooks,
                           struct executor_loss *ret_loss) MUST_USE;

/* A pulled chunk's bytes, blocks_bytes() of them, into its place. */
void executor_decode(struct executor *executor, uint32_t chunk, enum codec codec,
                     struct cursor *cursor);

/* A chunk's gradient of one part into blocks_bytes() bytes at `ret_bytes`. */
void executor_encode(const struct executor *executor, uint32_t chunk, uint32_t part,
                     enum codec codec, void *ret_bytes);

/* ERR_IO: the device has failed, and what was encoded must not be sent; executor_run() ends with
 * the same error. */
enum err executor_encoded(const struct executor *executor) MUST_USE;

/* The whole parameter's storage, for tests, sampling and loading without a server. */
element *executor_weights(struct executor *executor, uint32_t parameter);
const float *executor_gradient(const struct executor *executor, uint32_t parameter, uint32_t part);

/* What the device reported when a run ended in ERR_IO; "" before. */
const char *executor_failure(const struct executor *executor);

/* The device could not make a graph of a unit's work: each act is given by itself since (graphs.h).
 */
bool executor_refused_graphs(const struct executor *executor);

/* Its rows: for tests, which count the acts of a kind. */
const struct program *executor_program(const struct executor *executor);
struct executor_memory executor_memory(const struct executor *executor);

#endif
