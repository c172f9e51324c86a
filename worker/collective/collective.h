/* What the members of a place do to sum or exchange an array: a schedule as data. A pure core.
 *
 * For one member a schedule is a list of steps, done in their order: send a range of the array to a
 * rank, or receive one and copy it or add it. Who carries the bytes walks the same list (walk.h) as
 * who counts them. A receive waits; sends wait for nobody. A message is named by its sender and its round: two messages of one sender and round
 * have the same bytes.
 *
 * The order of sums. Direct and halving add sum(left) + sum(right) of the tree over ranks
 * (common/tree.h), as the single process adds its pieces: the same bits for every number of members
 * that hold subtrees. The ring adds range c as ((x[c+1] + x[c+2]) + …) + x[c], ranks modulo their
 * number: an order of its own, with its own bits.
 *
 * Whoever has finished a collective knows that every member has begun it: all receive something that
 * depends on each, a broadcast after its root has heard from all. So a member is ahead of another by
 * less than two collectives, and what comes early is bounded by one. */
#ifndef ROOST_WORKER_COLLECTIVE_COLLECTIVE_H
#define ROOST_WORKER_COLLECTIVE_COLLECTIVE_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    COLLECTIVE_RANKS_MAX = 64,
    COLLECTIVE_ALIGN = 16,                           /* elements: ranges begin at multiples */
    COLLECTIVE_STEPS_MAX = 5 * COLLECTIVE_RANKS_MAX, /* of one member */
};
#define COLLECTIVE_ELEMENTS_MAX (UINT64_C(1) << 40)

enum collective_kind {
    COLLECTIVE_ALL_REDUCE,     /* everybody gets the sum */
    COLLECTIVE_REDUCE_SCATTER, /* rank r gets range r of the sum; the other ranges are undefined */
    COLLECTIVE_ALL_GATHER,     /* rank r has range r; everybody gets all */
    COLLECTIVE_ALL_TO_ALL,     /* range q of rank r's input becomes range r of rank q's output; its
                                  own range each member copies itself */
    COLLECTIVE_BROADCAST,      /* everybody gets the root's array */
    COLLECTIVE_KIND_COUNT
};

enum collective_way {
    COLLECTIVE_DIRECT,  /* every kind; each sends to each */
    COLLECTIVE_HALVING, /* all-reduce of a power of two of ranks, in 2 log2(ranks) messages */
    COLLECTIVE_RING,    /* all-reduce, reduce-scatter, all-gather: only to the next rank */
    COLLECTIVE_WAY_COUNT
};

struct collective {
    enum collective_kind kind;
    enum collective_way way;
    uint32_t ranks;
    uint32_t root;     /* broadcast only */
    uint64_t elements; /* of the whole array, the same at each member */
    uint64_t each;     /* of each range: ranks * each are all; not with halving. 0: even, multiples
                          of COLLECTIVE_ALIGN but for the last, perhaps empty */
};

struct collective_range {
    uint64_t first, count; /* elements */
};

enum collective_act {
    COLLECTIVE_SEND,       /* the range of the array, to the peer */
    COLLECTIVE_COPY,       /* the range comes from the peer */
    COLLECTIVE_ADD_LEFT,   /* ours = received + ours */
    COLLECTIVE_ADD_RIGHT,  /* ours = ours + received */
    COLLECTIVE_FOLD_LEFT,  /* that of `place` - 1 = that of `place` + that of `place` - 1 */
    COLLECTIVE_FOLD_RIGHT, /* … = that of `place` - 1 + that of `place`; nobody sends these two */
};

/* Where a step's range lies: place 0 is the array; others are scratch memory for one range each, one
 * behind another. */
struct collective_step {
    enum collective_act act;
    uint32_t peer;
    uint32_t round;
    uint32_t place;
    struct collective_range range; /* of the array, also of a scratch place */
};

struct collective_schedule {
    uint32_t count;
    uint32_t scratch_places;
    uint64_t scratch_elements; /* of each of them */
    struct collective_step steps[COLLECTIVE_STEPS_MAX];
};

/* ERR_INVALID: there is no such collective; `reason` says why. */
enum err collective_check(const struct collective *collective, struct reason *reason) MUST_USE;

/* What that rank does of a checked collective. */
void collective_plan(const struct collective *collective, uint32_t rank,
                     struct collective_schedule *ret_schedule);

/* The range that is that rank's. */
struct collective_range collective_range(const struct collective *collective, uint32_t rank);

/* What a schedule works on. */
struct collective_memory {
    void *array;
    void *output;     /* of an all-to-all; else NULL */
    uint8_t *scratch; /* collective_scratch_bytes(), from a multiple of 64 on */
    uint32_t element_bytes;
};
size_t collective_scratch_bytes(const struct collective_schedule *schedule, uint32_t element_bytes);
/* Where the step's range lies, in the array or in that scratch place. */
uint8_t *collective_at(const struct collective_memory *memory,
                       const struct collective_schedule *schedule,
                       const struct collective_step *step, uint32_t place);

static inline bool collective_receives(const struct collective_step *step)
{
    return step->act == COLLECTIVE_COPY || step->act == COLLECTIVE_ADD_LEFT ||
           step->act == COLLECTIVE_ADD_RIGHT;
}

/* Payload bytes and messages of that rank. */
struct collective_traffic {
    uint64_t sent_bytes, received_bytes;
    uint32_t sent_messages, received_messages;
    uint64_t given_bytes; /* sent, but what all others get in one round is counted once */
};
struct collective_traffic collective_bytes(const struct collective *collective, uint32_t rank,
                                           uint32_t element_bytes);

#endif
