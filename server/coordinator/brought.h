/* The steps of which a member had tickets: what it may have brought. As ranges, ascending and
 * apart; a fixed number of them, so that the smallest of the older gaps is closed when there are more:
 * the list then names steps that the member had nothing of, and never lacks one. Of steps that are open
 * it names no other: with a delay as many are granted before the oldest is decided. Pure. */
#ifndef ROOST_SERVER_COORDINATOR_BROUGHT_H
#define ROOST_SERVER_COORDINATOR_BROUGHT_H

#include <stdint.h>

/* Of the newest gaps none is closed: 32 steps behind one (the largest delay) are 16 ranges at most. */
enum { BROUGHT_RANGES_MAX = 32, BROUGHT_GAPS_OPEN = 16 };

struct brought {
    uint32_t count;
    struct brought_range {
        uint64_t first, last;
    } ranges[BROUGHT_RANGES_MAX + 1]; /* one more while a gap is chosen */
};

void brought_note(struct brought *brought, uint64_t step);
/* What the other one has is noted as well. */
void brought_merge(struct brought *brought, const struct brought *other);
/* A rewind to that version: what was brought from it on is undone. */
void brought_rewound(struct brought *brought, uint64_t version);
/* The first step of the list from `from` on; UINT64_MAX: there is none. */
uint64_t brought_from(const struct brought *brought, uint64_t from);

#endif
