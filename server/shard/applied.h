/* Which tickets a chunk has taken (async): all below a low-water mark, and a bitmap of the `window`
 * tickets from there. Tickets are granted only inside the window (P12), so the bitmap never grows.
 * Pure data; one owner.
 *
 * Invariants (applied_check): the ticket at the low-water mark is not taken; `window` is a multiple
 * of 64. */
#ifndef ROOST_SERVER_SHARD_APPLIED_H
#define ROOST_SERVER_SHARD_APPLIED_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { APPLIED_WINDOW_MAX = 1 << 16 };

struct applied {
    uint64_t low;
    uint32_t window;
    uint64_t *words; /* applied_words(window), the caller's; ticket n is bit n % window */
};

enum applied_place { APPLIED_NEW, APPLIED_TAKEN, APPLIED_BEYOND };

/* The window of a run that grants `tickets` at a time, and its words. */
static inline uint32_t applied_window(uint32_t tickets)
{
    return (tickets + 63) / 64 * 64;
}
static inline uint32_t applied_words(uint32_t window)
{
    return window / 64;
}

enum applied_place applied_find(const struct applied *applied, uint64_t ticket);
/* Takes a ticket that is APPLIED_NEW. */
void applied_add(struct applied *applied, uint64_t ticket);
/* The ticket is not taken after all. Later ones that the window has no room for then are not
 * either. */
void applied_undo(struct applied *applied, uint64_t ticket);
/* Nothing below `low` is missing, nothing from there on is taken. */
void applied_reset(struct applied *applied, uint64_t low);
/* Keeps the tickets that `other`, of the same window, has as well. */
void applied_meet(struct applied *applied, const struct applied *other);
/* Takes over a stored or received state: a low-water mark and `count` words of the tickets from
 * there, the first one bit 0. ERR_MALFORMED: more than the window, or the first one is taken. */
enum err applied_load(struct applied *applied, uint64_t low, const uint64_t *words,
                      uint32_t count) MUST_USE;
/* The same words for sending or storing: applied_words(window) of them. */
void applied_store(const struct applied *applied, uint64_t *ret_words);
void applied_check(const struct applied *applied);

#endif
