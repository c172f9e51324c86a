/* The single process: what every run is compared with.
 *
 * The worker's executor and the server's shard core, linked; between them the same structs as on
 * the wire, the same bytes in the payloads, the same arithmetic of seal and commit. No sockets, no
 * threads, one shard, slots in order. With a mesh there is an executor for each place; they hand
 * each other values in memory. What it ends in, every cluster must end in. */
#ifndef ROOST_REFERENCE_REFERENCE_H
#define ROOST_REFERENCE_REFERENCE_H

#include "common/digest.h"
#include "server/shard/seal.h"
#include "worker/executor.h"
#include "worker/program/mesh.h"

struct reference;

/* What a run did that its spec does not say (common/files/order.h). */
struct reference_order {
    void *context;
    /* How many versions behind `step` the weights of each of its slots were; borrowed until the
     * next call. */
    enum err (*behind)(void *context, uint64_t step, const uint8_t **ret_behind);
};

struct reference_options {
    const struct spec *spec; /* all borrowed as long as the reference lives */
    const struct model *model;
    const struct kernels *kernels;          /* of the shard */
    const struct kernels *executor_kernels; /* NULL: the same */
    const struct executor_samples *samples;
    const struct reference_order *order; /* ssp: NULL: nobody was behind; else ignored */
    const struct mesh
        *mesh;           /* NULL: one place; its places are played in turn, in the same thread */
    uint32_t node_level; /* a push sums 2^node_level slots; a lossy push codec takes its own (P4) */
};

/* ERR_NOMEM, or what executor and shard return; initial weights are the spec's seed's. */
enum err reference_new(const struct reference_options *options, struct reference **ret_reference,
                       struct reason *reason) MUST_USE;
void reference_free(struct reference *reference); /* NULL is fine */

/* One step: all its nodes, then the commit. ERR_NON_FINITE: too many skipped in a row; errors of
 * the order. */
enum err reference_step(struct reference *reference, struct seal_metrics *ret_metrics) MUST_USE;

/* On the held-out samples, with the weights of the present version. */
enum err reference_validate(struct reference *reference, struct executor_loss *ret_loss) MUST_USE;

enum err reference_digest(struct reference *reference, struct digest *ret_digest) MUST_USE;

/* Array 0: a chunk's weights, fp32; 1 …: its optimizer state. `values` (weights of the chunk). */
void reference_read(struct reference *reference, uint32_t chunk, uint32_t array, float *ret_values);

uint64_t reference_version(const struct reference *reference);
uint64_t reference_samples(const struct reference *reference); /* of all steps so far */
/* Payloads so far. */
uint64_t reference_pulled_bytes(const struct reference *reference);
uint64_t reference_pushed_bytes(const struct reference *reference);
uint64_t reference_peer_bytes(const struct reference *reference); /* from place to place */
struct executor *reference_executor(struct reference *reference, uint32_t place);

#endif
