/* A ring of links that lie inside the items: an item is in as many rings as it has links, and is
 * taken out in one step. A ring's head is a link of no item; a link that is in no ring is a ring of
 * its own. */
#ifndef ROOST_COMMON_RING_H
#define ROOST_COMMON_RING_H

#include <stdbool.h>
#include <stddef.h>

struct ring {
    struct ring *before, *behind;
};

/* The item whose member `link` the link is. */
#define RING_ITEM(pointer, type, link) ((type *)((char *)(pointer)-offsetof(type, link)))

static inline void ring_init(struct ring *ring)
{
    ring->before = ring->behind = ring;
}

static inline bool ring_is_empty(const struct ring *ring)
{
    return ring->behind == ring;
}

/* Puts the link before the head: it is the last of the ring. */
static inline void ring_add(struct ring *head, struct ring *link)
{
    link->before = head->before;
    link->behind = head;
    link->before->behind = link;
    head->before = link;
}

static inline void ring_take(struct ring *link)
{
    link->before->behind = link->behind;
    link->behind->before = link->before;
    ring_init(link);
}

#endif
