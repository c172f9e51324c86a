/* The chunks of a shard as memory and arithmetic: weights and optimizer state, the sums of the open
 * steps, the published copies. Which push or commit may happen is decided in shard*.c; here it is
 * done. One owner thread; a chunk's memory is taken when it is added, at the beginning or by a
 * move; after that only sums on first use and published copies while peers hold the older ones. */
#ifndef ROOST_SERVER_SHARD_CHUNK_H
#define ROOST_SERVER_SHARD_CHUNK_H

#include "server/shard/names.h"
#include "server/shard/parked.h"
#include "server/shard/published.h"
#include "server/shard/reduce.h"
#include "server/shard/shard.h"

/* One contribution to a chunk: its trees of the open steps, step t at t % open_steps. */
struct chunk_part {
    struct reduce_buffers buffers;
    struct reduce *trees;
    struct names names; /* of the open steps and the one before */
};

struct chunk {
    struct shard_chunk spec;
    struct shard_state state;
    enum codec codec; /* of published copies: the run's, but the loss is always fp32 */
    struct published published;
    struct chunk_part *parts;
    bool *summed; /* step t at t % open_steps: parts are added, the sum is part 0's root */
    struct chunk_seal *seals;    /* of the open steps, where summed */
    struct parked_pull *waiting; /* pulls of which this is the last chunk, or not arrived yet */

    /* Moving (P11): */
    uint64_t since;     /* the version that it came with, or that of the shard's beginning */
    uint64_t first_cut; /* the first version whose cut it is in here: the next, when it came */
    bool awaited;       /* it has not arrived: there is no version to read yet */
    bool leaving;       /* it is another server's now; here until that one has it */
    bool sent;          /* … and on its way */
    uint32_t to;        /* … to this one, by the caller's name for it */

    /* What the rest points into: */
    float *values;
    struct reduce *trees;
    struct reduce_sum *sums;
    float **free;
    struct name *names;
};

struct chunk_store {
    const struct kernels *kernels;
    struct spec_optimizer optimizer;
    uint32_t slots;
    uint32_t ahead_max;
    enum codec weights_codec;
    uint32_t states;     /* optimizer_states() */
    uint32_t open_steps; /* delay + 1 */
    bool uncached;       /* reduce_buffers' */
    uint32_t cut_versions;
    uint32_t count, room;
    struct chunk *chunks;     /* ascending numbers */
    uint64_t open_nodes;      /* sums held now, over all chunks and parts */
    uint64_t open_nodes_most; /* ever */
};

/* ERR_NOMEM. Release it in any case; {0} is fine. */
enum err chunk_store_init(struct chunk_store *store, const struct shard_config *config) MUST_USE;
void chunk_store_release(struct chunk_store *store);

/* Adds a chunk that the store does not have, zeros, at its place in the order; those behind it move
 * by one. ERR_NOMEM: nothing changed. */
enum err chunk_add(struct chunk_store *store, const struct shard_chunk *spec,
                   uint32_t *ret_index) MUST_USE;
/* Nobody waits for it any more. */
void chunk_remove(struct chunk_store *store, uint32_t index);

/* Index of the run's chunk `number`, or store->count. */
uint32_t chunk_find(const struct chunk_store *store, uint32_t number);

/* The name's place is taken already, by itself or by a node around it. */
bool chunk_holds(const struct chunk_store *store, const struct chunk *chunk, uint64_t step,
                 uint32_t part, struct node node);
/* Counts a name that is not held. */
enum reduce_result chunk_push(struct chunk_store *store, struct chunk *chunk, uint64_t step,
                              uint32_t part, struct node node, enum codec codec,
                              struct cursor *payload);
/* When all parts of `step` are complete and not yet summed: adds their roots in part order and
 * returns the sum. Otherwise NULL. */
const float *chunk_sum(struct chunk_store *store, struct chunk *chunk, uint64_t step);

/* Version commit->step + 1: weights, state and published copy in one pass; the step's sum is given
 * back. ERR_NOMEM: nothing changed. */
enum err chunk_apply(struct chunk_store *store, struct chunk *chunk,
                     const struct commit *commit) MUST_USE;
/* Version `version`, made by `commit` from a sum that lies elsewhere. ERR_NOMEM: nothing changed.
 */
enum err chunk_apply_sum(struct chunk_store *store, struct chunk *chunk, uint64_t version,
                         const struct commit *commit, const float *sum) MUST_USE;
/* Publishes n values as a version of the beginning: the weights, or one before. */
enum err chunk_publish(const struct chunk_store *store, struct chunk *chunk, uint64_t version,
                       const float *values) MUST_USE;

/* Bytes of a snapshot's copy of the largest chunk; the copy of `version`: weights, each state, then
 * the published versions before it, newest first, cut_versions of them (below 0: version 0's
 * again); and back. */
size_t chunk_copy_bytes(const struct chunk_store *store);
void chunk_copy(const struct chunk_store *store, const struct chunk *chunk, uint64_t version,
                float *out);
/* Arrays of n values in the copy. */
uint32_t chunk_copy_arrays(const struct chunk_store *store);
/* The chunk as it was copied at `version`, published. ERR_NOMEM: it is as if it had not come. */
enum err chunk_restore(const struct chunk_store *store, struct chunk *chunk, uint64_t version,
                       struct cursor *payload) MUST_USE;

/* Invariants 3 (of open steps in [from, to]) and 6 of shard.h. */
void chunk_check(const struct chunk_store *store, const struct chunk *chunk, uint64_t from,
                 uint64_t to);

#endif
