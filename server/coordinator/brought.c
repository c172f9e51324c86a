/* The steps of which a member had tickets. */
#include "server/coordinator/brought.h"

#include "common/check.h"

#include <string.h>

/* Range i and the one behind it become one. */
static void join_next(struct brought *brought, uint32_t i)
{
    check(i + 1 < brought->count);
    brought->ranges[i].last = brought->ranges[i + 1].last;
    brought->count--;
    memmove(&brought->ranges[i + 1], &brought->ranges[i + 2],
            (brought->count - i - 1) * sizeof brought->ranges[0]);
}

static void insert(struct brought *brought, uint32_t at, uint64_t step)
{
    memmove(&brought->ranges[at + 1], &brought->ranges[at],
            (brought->count - at) * sizeof brought->ranges[0]);
    brought->ranges[at] = (struct brought_range){step, step};
    brought->count++;
}

static uint64_t gap_behind(const struct brought *brought, uint32_t i)
{
    return brought->ranges[i + 1].first - brought->ranges[i].last;
}

static void close_smallest_gap(struct brought *brought)
{
    uint32_t smallest = 0;
    for (uint32_t i = 1; i + 1 < brought->count; i++)
        if (gap_behind(brought, i) < gap_behind(brought, smallest))
            smallest = i;
    join_next(brought, smallest);
}

void brought_note(struct brought *brought, uint64_t step)
{
    uint32_t at = brought->count; /* of the first range that begins behind the step */
    while (at > 0 && brought->ranges[at - 1].first > step)
        at--;
    if (at > 0 && step <= brought->ranges[at - 1].last)
        return;
    insert(brought, at, step);
    if (at + 1 < brought->count && gap_behind(brought, at) == 1)
        join_next(brought, at);
    if (at > 0 && gap_behind(brought, at - 1) == 1)
        join_next(brought, at - 1);
    if (brought->count > BROUGHT_RANGES_MAX)
        close_smallest_gap(brought);
}

uint64_t brought_from(const struct brought *brought, uint64_t from)
{
    for (uint32_t i = 0; i < brought->count; i++)
        if (brought->ranges[i].last >= from)
            return brought->ranges[i].first > from ? brought->ranges[i].first : from;
    return UINT64_MAX;
}
