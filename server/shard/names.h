/* The digest of the first push of each name, and who sent it. A duplicate is compared with it: when
 * the two digests differ, one of the two workers computes wrongly. The shard makes the digests,
 * with a key of its own: so nobody can send other values that have the same digest. One chunk and
 * part; the open steps and the one before. A fixed number of places for each step: with more nodes
 * than places a newer name takes the place of an older one, and the older name is not compared any
 * more. Where tickets are audited, names keep their places (SPEC_AUDITED_SLOTS_MAX slots at most),
 * because the second push is compared however many nodes come between. */
#ifndef ROOST_SERVER_SHARD_NAMES_H
#define ROOST_SERVER_SHARD_NAMES_H

#include "common/err.h"
#include "common/settings/spec.h"
#include "proto/wire.h"

struct name {
    uint64_t digest;
    uint64_t member; /* who sent the first push */
    uint32_t node;   /* its number in the tree, 1 the root; 0: the place is empty */
    uint32_t step;   /* the low half */
};

enum { NAMES_PLACES_MAX = 64, NAMES_AUDITED_PLACES_MAX = 2 * SPEC_AUDITED_SLOTS_MAX };

struct names {
    uint32_t steps;  /* remembered at a time */
    uint32_t places; /* for each */
    uint32_t root_level;
    struct name *names; /* steps * places, the caller's */
};

/* Places a run of `slots` needs for one step. */
static inline uint32_t names_places(uint32_t slots, bool audited)
{
    uint32_t nodes = UINT32_C(2) << tree_level(slots);
    uint32_t max = audited ? NAMES_AUDITED_PLACES_MAX : NAMES_PLACES_MAX;
    return nodes < max ? nodes : max;
}

static inline struct name *names_place(const struct names *names, uint64_t step, struct node node,
                                       uint32_t *ret_number)
{
    *ret_number = (UINT32_C(1) << (names->root_level - node.level)) + node.index;
    return &names->names[step % names->steps * names->places + *ret_number % names->places];
}

static inline void names_remember(struct names *names, const struct push *push, uint64_t digest)
{
    uint32_t number;
    struct name *name = names_place(names, push->step, push->node, &number);
    *name = (struct name){digest, push->member, number, (uint32_t)push->step};
}

/* The first push of this name; NULL: it is not remembered. */
static inline const struct name *names_first(const struct names *names, const struct push *push)
{
    uint32_t number;
    const struct name *name = names_place(names, push->step, push->node, &number);
    bool known = name->node == number && name->step == (uint32_t)push->step;
    return known ? name : NULL;
}

#endif
