/* The steps of which a member had tickets. */
#include "server/coordinator/brought.h"

#include "common/check.h"

#include <stdbool.h>
#include <string.h>

/* Range i and the one behind it become one. */
static void join_next(struct brought *brought, uint32_t i)
{
    check(i + 1 < brought->count);
    if (brought->ranges[i + 1].last > brought->ranges[i].last)
        brought->ranges[i].last = brought->ranges[i + 1].last;
    brought->count--;
    memmove(&brought->ranges[i + 1], &brought->ranges[i + 2],
            (brought->count - i - 1) * sizeof brought->ranges[0]);
}

static void insert(struct brought *brought, uint32_t at, struct brought_range range)
{
    memmove(&brought->ranges[at + 1], &brought->ranges[at],
            (brought->count - at) * sizeof brought->ranges[0]);
    brought->ranges[at] = range;
    brought->count++;
}

static uint64_t gap_behind(const struct brought *brought, uint32_t i)
{
    return brought->ranges[i + 1].first - brought->ranges[i].last;
}

/* Of those that may be of decided steps alone. */
static void close_smallest_gap(struct brought *brought)
{
    uint32_t smallest = 0;
    for (uint32_t i = 1; i + 1 + BROUGHT_GAPS_OPEN < brought->count; i++)
        if (gap_behind(brought, i) < gap_behind(brought, smallest))
            smallest = i;
    join_next(brought, smallest);
}

/* Whether the range reaches, or lies directly before, the one behind it. */
static bool touches_next(const struct brought *brought, uint32_t i)
{
    return i + 1 < brought->count && brought->ranges[i + 1].first <= brought->ranges[i].last + 1;
}

static void note_range(struct brought *brought, struct brought_range range)
{
    uint32_t at = brought->count; /* of the first range that begins behind it */
    while (at > 0 && brought->ranges[at - 1].first > range.first)
        at--;
    if (at > 0 && range.last <= brought->ranges[at - 1].last)
        return;
    insert(brought, at, range);
    if (at > 0 && touches_next(brought, at - 1))
        join_next(brought, --at);
    while (touches_next(brought, at))
        join_next(brought, at);
    if (brought->count > BROUGHT_RANGES_MAX)
        close_smallest_gap(brought);
}

void brought_note(struct brought *brought, uint64_t step)
{
    note_range(brought, (struct brought_range){step, step});
}

void brought_merge(struct brought *brought, const struct brought *other)
{
    for (uint32_t i = 0; i < other->count; i++)
        note_range(brought, other->ranges[i]);
}

void brought_rewound(struct brought *brought, uint64_t version)
{
    while (brought->count > 0 && brought->ranges[brought->count - 1].first >= version)
        brought->count--;
    if (brought->count > 0 && brought->ranges[brought->count - 1].last >= version)
        brought->ranges[brought->count - 1].last = version - 1;
}

uint64_t brought_from(const struct brought *brought, uint64_t from)
{
    for (uint32_t i = 0; i < brought->count; i++)
        if (brought->ranges[i].last >= from)
            return brought->ranges[i].first > from ? brought->ranges[i].first : from;
    return UINT64_MAX;
}
