/* The chunks of a shard as memory and arithmetic: weights and optimizer state, the sums of the open
 * steps, the published copies. shard*.c decide which push or commit may happen; this file carries
 * it out. One owner thread. A chunk's memory is taken when the chunk is added, at the beginning or
 * by a move. Later memory is taken only for sums on their first use, and for published copies while
 * peers hold the older ones. */
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
    enum codec codec; /* of published copies: the run's, but the loss is always fp32. In fp32 the
                         newest one has the weights */
    struct published published;
    struct chunk_part *parts;
    uint32_t *
        summed; /* step t at t % open_steps: 1 + the part whose root is the sum of all; 0: not yet */
    struct chunk_seal *seals;    /* of the open steps, where summed */
    struct parked_pull *waiting; /* pulls whose last chunk this is, or which wait for its arrival */

    /* Moving (P11): */
    uint64_t since; /* the version with which it came, or with which the shard began */
    /* The first version whose cut has it in this server's file: the one after `since`, when it came
     * by a move. */
    uint64_t first_cut;
    bool awaited; /* it has not arrived: no version can be read yet */
    bool leaving; /* it belongs to another server, and stays here until that server has it */
    bool sent;    /* it is on its way to that server */
    uint32_t to;  /* the caller's number of that server */

    /* Memory that the fields above point into: */
    struct counted *values; /* weights, but in fp32, then each state, as a cut has them */
    bool large;             /* more than half as large as the run's largest */
    bool lends;             /* the writer of a cut gets `values` themselves, no copy */
    struct reduce *trees;
    struct reduce_sum *sums;
    float **free;
    struct name *names;
};

struct chunk_store {
    const struct kernels *kernels;
    struct shared_blocks *blocks; /* a reference; NULL: copies are on the heap */
    struct spec_optimizer optimizer;
    uint32_t slots;
    uint32_t name_places; /* names_places() */
    uint32_t ahead_max;
    enum codec weights_codec;
    uint32_t states;     /* optimizer_states() */
    uint32_t open_steps; /* delay + 1 */
    bool uncached;       /* reduce_buffers' */
    uint32_t cut_versions;
    uint32_t weights_max; /* of a chunk */
    bool lends;           /* large chunks do: a cut has nothing beside their values */
    uint32_t count, room;
    uint32_t large_count;
    struct chunk *chunks;     /* ascending numbers */
    uint64_t open_nodes;      /* sums held now, over all chunks and parts */
    uint64_t open_nodes_most; /* ever */
};

/* ERR_NOMEM. Release it in any case; {0} is fine. */
enum err chunk_store_init(struct chunk_store *store, const struct shard_config *config,
                          uint32_t weights_max) MUST_USE;
void chunk_store_release(struct chunk_store *store);

/* Adds a chunk that the store does not have, zeros, at its place in the order; those behind it move
 * by one. ERR_NOMEM: nothing changed. */
enum err chunk_add(struct chunk_store *store, const struct shard_chunk *spec,
                   uint32_t *ret_index) MUST_USE;
/* Nobody may wait for the chunk any more. */
void chunk_remove(struct chunk_store *store, uint32_t index);

/* Index of the run's chunk `number`, or store->count. */
uint32_t chunk_find(const struct chunk_store *store, uint32_t number);

/* Whether an entry of a push names one of the chunk's parts and brings as many bytes as that takes,
 * of all its rows or of those that it names, which ascend (proto/wire.h). */
bool chunk_takes(const struct chunk *chunk, const struct push_entry *entry, enum codec codec);
/* The rows that come with such an entry, in *ret_rows; NULL: all do. */
const struct reduce_rows *chunk_rows(const struct chunk *chunk, const struct push_entry *entry,
                                     struct reduce_rows *ret_rows);
/* Whether a loss that is pushed counts so many samples, which the ledger relies on; 0: any. */
bool chunk_loss_counts(float count, uint64_t samples);
/* Counts such an entry's bytes. */
void chunk_count_bytes(const struct chunk *chunk, const struct push_entry *entry, enum codec codec,
                       struct shard_statistics *statistics);
/* Whether the name is counted already, itself or by a node around it. */
bool chunk_holds(const struct chunk_store *store, const struct chunk *chunk, uint64_t step,
                 uint32_t part, struct node node);
/* Counts a name that is not held. */
enum reduce_result chunk_push(struct chunk_store *store, struct chunk *chunk, uint64_t step,
                              uint32_t part, struct node node, const struct reduce_values *values);
/* When all parts of `step` are complete and not yet summed: adds their roots in part order and
 * returns the sum. Otherwise NULL. */
const float *chunk_sum(struct chunk_store *store, struct chunk *chunk, uint64_t step);

/* Whether the writer of a cut holds the chunk's values, which do not change then. */
bool chunk_is_lent(const struct chunk *chunk);
/* Whether the commit changes them. */
bool chunk_needs_spare(const struct chunk *chunk, const struct commit *commit);
/* Makes version commit->step + 1: weights, state and published copy in one pass. The step's sum is
 * given back. `spare`, for a chunk that needs one: a buffer of chunk_copy_bytes() that becomes the
 * chunk's, and afterwards the one that the writer holds; else NULL. ERR_NOMEM: nothing changed. */
enum err chunk_apply(struct chunk_store *store, struct chunk *chunk, const struct commit *commit,
                     struct counted **spare) MUST_USE;
/* Makes `version` by `commit` from a sum that lies elsewhere. ERR_NOMEM: nothing changed. */
enum err chunk_apply_sum(struct chunk_store *store, struct chunk *chunk, uint64_t version,
                         const struct commit *commit, const float *sum) MUST_USE;
/* Publishes n values as a version before the one with which the shard begins, and the weights that
 * were filled in as that one. */
enum err chunk_publish(const struct chunk_store *store, struct chunk *chunk, uint64_t version,
                       const float *values) MUST_USE;
enum err chunk_publish_own(const struct chunk_store *store, struct chunk *chunk,
                           uint64_t version) MUST_USE;
/* Touches the memory in which its next versions will lie while others are read. A chunk that has not
 * arrived has none yet. */
void chunk_touch(const struct chunk *chunk);
/* The copy that has the chunk's weights of its newest version, borrowed; NULL: its values have them. */
struct counted *chunk_published_weights(const struct chunk *chunk, uint64_t version);

/* Bytes of a snapshot's copy of the largest chunk; the copy of `version`: weights, each state, then
 * the published versions before it, newest first, cut_versions of them (below 0: version 0's
 * again); and back. */
size_t chunk_copy_bytes(const struct chunk_store *store);
void chunk_copy(const struct chunk_store *store, const struct chunk *chunk, uint64_t version,
                float *out);
/* Arrays of n values in the copy. */
uint32_t chunk_copy_arrays(const struct chunk_store *store);
/* Takes over the copy of a chunk at `version`, and publishes it. ERR_NOMEM: nothing changed. */
enum err chunk_restore(const struct chunk_store *store, struct chunk *chunk, uint64_t version,
                       struct cursor *payload) MUST_USE;

/* Invariants 3 (of open steps in [from, to]), 4 (of the weights) and 6 of shard.h. */
void chunk_check(const struct chunk_store *store, const struct chunk *chunk, uint64_t from,
                 uint64_t to);

#endif
