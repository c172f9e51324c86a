/* The sum of one chunk's gradients over the slots of a step, in the fixed tree's order.
 *
 * The reduction holds sums of disjoint nodes, never both halves of a node: a pair is added as soon
 * as both are there, and a node whose other half has no slots stands for its parent at once. So the
 * result has the same bits for every order of arrival (IEEE addition commutes, and which sums are
 * added is the tree's alone).
 *
 * Nesting (P4): a node inside a held one is a duplicate; one around held ones takes their place.
 *
 * Memory: each sum is a buffer of `n` floats, or, where that is wanted, the rows that came of it. At most `ahead_max` sums are held besides those of
 * the unbroken run of slots from slot 0; a node that needs one more buffer is answered BUSY. Only
 * for the lowest missing slot there is always room, because an unbroken run is never more than
 * tree_level sums. So a full tree can always go on.
 *
 * Not here: parts, steps, names (shard_push.c). */
#ifndef ROOST_SERVER_SHARD_REDUCE_H
#define ROOST_SERVER_SHARD_REDUCE_H

#include "common/cursor.h"
#include "common/digest.h"
#include "common/tree.h"
#include "kernels/kernels.h"
#include "proto/wire.h"
#include "server/shard/sparse.h"

/* out (n) = the next n values; acc (n) += the next n values. They are there. */
void cursor_copy(struct cursor *cursor, const struct kernels *kernels, enum codec codec, float *out,
                 uint32_t n);
void cursor_add(struct cursor *cursor, const struct kernels *kernels, enum codec codec, float *acc,
                uint32_t n);

/* Which rows of `cols` values come. */
struct reduce_rows {
    uint32_t cols, count;
    const uint32_t *rows; /* ascending */
};

/* Values as they come: next in the cursor. With `rows` (NULL: all come) those of these rows do, and
 * all others are zeros: they are added, and in the digest, as if they had come, so that nothing but
 * the way here depends on it. What is read is added to `digest` in the same pass; NULL: to none. */
struct reduce_values {
    struct cursor *cursor;
    enum codec codec;
    struct digest_keyed *digest;
    const struct reduce_rows *rows;
};

/* out (n) = the values; or they are read for their digest alone. */
void reduce_copy(const struct reduce_values *values, const struct kernels *kernels, float *out,
                 uint32_t n);
void reduce_read(const struct reduce_values *values, uint32_t n);

struct reduce_sum {
    struct node node;
    float *sum;           /* NULL: the sum is sparse */
    struct sparse sparse; /* {0}: it is not */
};

/* Buffers of one chunk and part, shared by the trees of its open steps. Each is taken from the
 * system when it is first needed and kept until the release. */
struct reduce_buffers {
    uint32_t n;        /* floats in each */
    bool sparse;       /* of rows that come alone nothing else is kept */
    bool uncached;     /* all chunks' buffers together are more than a cache holds */
    uint32_t made_max; /* reduce_sums_max() for each open step */
    uint32_t made_count;
    uint32_t free_count;
    float **free; /* made_max fit */
};

/* To be called when all buffers were given back. */
void reduce_buffers_release(struct reduce_buffers *buffers, const struct kernels *kernels);

struct reduce {
    uint32_t slots;
    uint32_t ahead_max;
    uint32_t held_count;
    struct reduce_sum *held; /* by slot; reduce_sums_max() of them fit */
};

enum reduce_result { REDUCE_COUNTED, REDUCE_DUPLICATE, REDUCE_BUSY };

/* The most sums that a tree ever holds: what `held` and its share of the buffers are sized by. */
uint32_t reduce_sums_max(uint32_t slots, uint32_t ahead_max);

/* Whether the node is inside a held one. */
bool reduce_holds(const struct reduce *reduce, struct node node);

/* Counts a valid node with its values; they are read only when counted. BUSY also when the system
 * has no memory for a buffer. */
enum reduce_result reduce_push(struct reduce *reduce, struct reduce_buffers *buffers,
                               const struct kernels *kernels, struct node node,
                               const struct reduce_values *values);

/* The sum of all slots, borrowed until the next change; NULL while some are missing. */
const struct reduce_sum *reduce_root(const struct reduce *reduce);
/* Sums that lie in buffers. */
uint32_t reduce_buffers_held(const struct reduce *reduce);
/* Gives all buffers back; nothing is held then. */
void reduce_clear(struct reduce *reduce, struct reduce_buffers *buffers);
/* Invariants: order, disjoint nodes, no complete pair, counts within their limits. */
void reduce_check(const struct reduce *reduce);

#endif
