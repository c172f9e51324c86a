/* Which gradient set each slot of a unit is computed into, and in which order a node's slots are
 * added: bookkeeping alone.
 *
 * A unit's slots are final one after another, and are summed like a binary counter counts: after
 * slot i of a node, every trailing 1 of i means that a sum of the same size waits, and the two are
 * added there. Slots that a step does not have (no power of two) are simply missing at the end: the
 * last slot adds all that waits. That is the tree of common/tree.h. Slots that are computed one by
 * one have executor_sums_sets() sets; a slot that begins before earlier ones are final has a set
 * more. */
#ifndef ROOST_WORKER_EXECUTOR_SUMS_H
#define ROOST_WORKER_EXECUTOR_SUMS_H

#include "common/err.h"
#include "common/tree.h"

enum { EXECUTOR_SETS_MAX = 64 };

struct executor_unit_sums {
    uint64_t taken;    /* a bit for each set */
    uint32_t finished; /* slots */
    uint32_t waiting_count;
    uint8_t waiting[TREE_LEVEL_MAX + 2]; /* sets of sums, the largest sum first */
};

struct executor_sums {
    uint32_t units_count, slots;      /* that are under way at once, at most */
    struct executor_unit_sums *units; /* owned, like the one below */
    uint8_t *sets;                    /* (units, slots) + 1; 0: none */
};

/* left += right, set by set. */
struct executor_addition {
    uint32_t left, right;
};

/* ERR_NOMEM. */
enum err executor_sums_init(struct executor_sums *sums, uint32_t units, uint32_t slots) MUST_USE;
void executor_sums_release(struct executor_sums *sums);
/* The sets that a node of up to so many slots has at once, when they are computed one by one: that of
 * slot i, beside a sum that waits for each 1 of i. */
static inline uint32_t executor_sums_sets(uint32_t slots)
{
    uint32_t sets = 0;
    for (; slots > 0; slots /= 2)
        sets++;
    return sets;
}

/* No slot is under way, no sum waits: a new node. */
void executor_sums_restart(struct executor_sums *sums);

/* The set of the unit's slot. One that has none gets the lowest that is free. */
uint32_t executor_sums_set(struct executor_sums *sums, uint32_t unit, uint32_t slot);

/* Where the node's sum is, once its last slot is final. */
static inline uint32_t executor_sums_node(const struct executor_sums *sums, uint32_t unit)
{
    check(unit < sums->units_count);
    return sums->units[unit].waiting[0];
}

/* The slot is final; `last`: none follows in the node. The additions to make in order, and their
 * number. */
uint32_t executor_sums_finish(struct executor_sums *sums, uint32_t unit, uint32_t slot, bool last,
                              struct executor_addition ret[static TREE_LEVEL_MAX + 2]);

#endif
