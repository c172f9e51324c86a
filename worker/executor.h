/* The executor: walks a place's rows of a program and computes a ticket's loss and gradients.
 *
 * Training is one program, with or without local steps, and validation another
 * (common/program/program.h). A worker that has the whole model walks a program of one slot, again
 * for each slot of a node. In a mesh of several places a program spans the node: there is one for
 * each number of slots that nodes have. The executor owns the device memory of its place: weights,
 * gradients and activations, taken once at the start and sized from the programs; a run allocates
 * nothing. It knows the protocol and its neighbours only through hooks.
 *
 * Numbers. A slot's gradient of a part is the sum over the slot's samples of the gradient of the
 * sample's mean loss, microbatch after microbatch (commit's scale divides by the samples). A node
 * of several slots is the sum of its slots in tree order (executor_sums.h): the bits are those of
 * slots pushed one by one. They are also those of one place, whatever the mesh. The `loss` chunk is
 * the last unit's: [sum over samples of the mean loss, samples, correct predictions, 0], the sum
 * taken in double in sample order, rounded once a slot.
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
 * its acknowledged hook's return, or the next run. Everything else is constant after executor_new.
 *
 * Overlap. On a GPU a hook is called when the device has been given the work, not when it has done
 * it: the run goes on with the units that follow, and waits for the device once a slot, for its
 * losses. Copies of weights and gradients have streams of their own. Marks order a copy after the
 * unit that it belongs to, so a unit's gradients leave while the next one's are computed. */
#ifndef ROOST_WORKER_EXECUTOR_H
#define ROOST_WORKER_EXECUTOR_H

#include "worker/blocks.h"
#include "worker/executor_hooks.h"
#include "worker/executor_options.h"

struct executor;

/* ERR_UNSUPPORTED, with the ledger of what needs what: it is more than the device has free;
 * ERR_NOMEM; ERR_INVALID: the program does not validate or does not fit the model. */
enum err executor_new(const struct executor_options *options, struct executor **ret_executor,
                      struct reason *reason) MUST_USE;
void executor_free(struct executor *executor); /* NULL is fine */

/* Computes the ticket: TICKET_TRAIN, or TICKET_VALIDATE: forward only, no push; its slot s covers
 * held-out samples [s × slot_samples, (s + 1) × slot_samples) as far as there are. The loss is that
 * of a place which has the model's last unit, else 0 of 0 samples; ret_loss may be NULL. Errors are those of hooks and
 * samples, and ERR_CANCELLED; after one the gradients are undefined. ERR_MALFORMED: the ticket's
 * node is none of the run's, larger than node_slots_max, or none that the mesh has a program for.
 * ERR_IO: the device failed (executor_failure). */
enum err executor_run(struct executor *executor, const struct ticket *ticket,
                      const struct executor_samples *samples, const struct executor_hooks *hooks,
                      struct executor_loss *ret_loss) MUST_USE;

/* The same in parts, for one thread that plays several places in turn: begin, advance until that
 * returns anything but ERR_BEHIND, end with what it returned. */
enum err executor_begin(struct executor *executor, const struct ticket *ticket,
                        const struct executor_samples *samples,
                        const struct executor_hooks *hooks) MUST_USE;
enum err executor_advance(struct executor *executor) MUST_USE;
enum err executor_end(struct executor *executor, enum err err,
                      struct executor_loss *ret_loss) MUST_USE;

/* A pulled chunk's bytes, blocks_bytes() of them, into its place. */
void executor_decode(struct executor *executor, uint32_t chunk, enum codec codec,
                     struct cursor *cursor);

/* Whether weights may lie elsewhere: on a CPU, resident, and nobody changes them. */
bool executor_may_point(const struct executor *executor);
/* A parameter's fp32 weights are those from now on, laid out as the executor's own, until it is called
 * again; NULL: they are the chunks that were decoded last. While nothing runs that uses them. */
void executor_point(struct executor *executor, uint32_t parameter, const float *weights);

/* The same, from another executor of the place that has the chunk's weights. */
void executor_copy(struct executor *executor, struct executor *from, uint32_t chunk);

/* The calling thread gives work to the executor's device from now on. executor_run() and what follows do
 * so themselves. */
void executor_use(const struct executor *executor);

/* The unit's gradients += those of another executor of the same model, whose part of a node follows this
 * one's (crew.h). Both push hooks of the unit were called, and nothing of it was encoded. The calling
 * thread then uses this one's device. */
void executor_add(struct executor *executor, const struct executor *from, uint32_t unit);

/* What the newest ticket's gradients have as its loss: of a place that has the last unit, resident.
 * ERR_IO: the device failed. */
enum err executor_node_loss(struct executor *executor, struct executor_loss *ret_loss) MUST_USE;

/* A chunk's gradient of one part into blocks_bytes() bytes at `ret_bytes`: pushed, and not
 * acknowledged yet. They are there when executor_encoded() has returned, and stay until then. */
void executor_encode(const struct executor *executor, uint32_t chunk, uint32_t part,
                     enum codec codec, void *ret_bytes);

/* Where those bytes lie as fp32 already: a chunk's rows, each `stride` bytes behind the one before.
 * The block is the executor's: who reads it after the next run has begun has a reference to it. */
struct executor_rows {
    struct counted *block;
    size_t offset, stride;
};
/* False: they must be encoded. */
bool executor_lend(const struct executor *executor, uint32_t chunk, uint32_t part,
                   struct executor_rows *ret_rows);

/* Waits for what was encoded. ERR_IO: the device has failed, and it must not be sent;
 * executor_run() ends with the same error. */
enum err executor_encoded(const struct executor *executor) MUST_USE;
/* What the device reported then; "" when it has not failed. By whoever may encode. */
const char *executor_encode_failure(const struct executor *executor);

/* The whole parameter's storage, for tests, sampling and loading without a server. Of a gradient
 * that is freed: the next unit's. Of one that is kept by rows (few_rows.h): a copy. */
element *executor_weights(struct executor *executor, uint32_t parameter);
const float *executor_gradient(const struct executor *executor, uint32_t parameter, uint32_t part);

/* What the device reported when a run ended in ERR_IO; "" before. */
const char *executor_failure(const struct executor *executor);

/* The device could not make a graph of a unit's work: each act is given by itself since (graphs.h).
 */
bool executor_refused_graphs(const struct executor *executor);

/* Of the fewest slots that a ticket may have. */
const struct program *executor_program(const struct executor *executor);
/* Of the ticket that was begun last. */
const struct program *executor_ticket_program(const struct executor *executor);
struct executor_memory executor_memory(const struct executor *executor);

#endif
