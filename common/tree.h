/* The fixed binary tree over the slots of a step: how gradients are summed whatever the arrival.
 *
 * A node is an aligned power-of-two run of slots: (level, index) covers the slots
 * [index << level, (index + 1) << level). A step of a number of slots that is no power of two has
 * missing leaves; they are skipped: a node without a right half is its left half. So every run has
 * one tree, and the sum of a node is sum(left) + sum(right) always, by definition. */
#ifndef ROOST_COMMON_TREE_H
#define ROOST_COMMON_TREE_H

#include "common/check.h"

#include <stdbool.h>
#include <stdint.h>

enum { TREE_SLOTS_MAX = 65536, TREE_LEVEL_MAX = 16 };

struct node {
    uint32_t level;
    uint32_t index;
};

static inline bool node_equal(struct node a, struct node b)
{
    return a.level == b.level && a.index == b.index;
}

/* First slot of the node, and the first one after it, as if no leaf were missing. */
static inline uint32_t node_first(struct node node)
{
    return node.index << node.level;
}

static inline uint32_t node_end(struct node node)
{
    return (node.index + 1) << node.level;
}

/* Slots that the node really has in a step of `slots`. */
static inline uint32_t node_slots(struct node node, uint32_t slots)
{
    uint32_t first = node_first(node);
    uint32_t end = node_end(node);
    return first >= slots ? 0 : (end < slots ? end : slots) - first;
}

static inline bool node_contains(struct node outer, struct node inner)
{
    return inner.level <= outer.level && inner.index >> (outer.level - inner.level) == outer.index;
}

static inline struct node node_parent(struct node node)
{
    return (struct node){node.level + 1, node.index / 2};
}

static inline struct node node_sibling(struct node node)
{
    return (struct node){node.level, node.index ^ 1};
}

/* The root's level: the smallest one whose node 0 covers all slots. */
static inline uint32_t tree_level(uint32_t slots)
{
    uint32_t level = 0;
    while (UINT32_C(1) << level < slots)
        level++;
    return level;
}

/* Whether the node names slots of a step of `slots`: what a peer may send. */
static inline bool node_valid(struct node node, uint32_t slots)
{
    return node.level <= tree_level(slots) && node.index < slots &&
           (uint64_t)node.index << node.level < slots;
}

#endif
