#include "deploy/roost/effort.h"

#include <math.h>

/* ---- counters ---- */

static void count(struct effort_counter *counter, uint64_t value)
{
    if (value < counter->newest)
        counter->before += counter->newest;
    counter->newest = value;
}

uint64_t effort_total(const struct effort_counter *counter)
{
    return counter->before + counter->newest;
}

void effort_see(struct effort *effort, const struct status_reply *status)
{
    count(&effort->joined, status->workers_joined);
    count(&effort->lost, status->workers_lost);
    count(&effort->redone, status->tickets_redone);
    count(&effort->duplicates, status->duplicates);
    count(&effort->member_ms, status->member_ms);
    count(&effort->wasted_ms, status->wasted_ms);
    count(&effort->useful_ms, status->useful_ms);
    count(&effort->audit_ms, status->audits.ms);
}

/* ---- shares ---- */

static double less(uint64_t whole, uint64_t part)
{
    return whole > part ? (double)(whole - part) : 0;
}

/* What hangs on the time of the steps that stayed. */
static double by_kept(const struct effort *effort, double share)
{
    return effort->has_kept ? share : (double)NAN;
}

struct effort_shares effort_shares(const struct effort *effort)
{
    uint64_t member_ms = effort_total(&effort->member_ms);
    uint64_t wasted_ms = effort_total(&effort->wasted_ms);
    uint64_t useful_ms = effort_total(&effort->useful_ms);
    uint64_t audit_ms = effort_total(&effort->audit_ms);
    double up_ms = (double)effort->up_ms;
    if (effort->up_ms == 0)
        return (struct effort_shares){0};
    return (struct effort_shares){
        .goodput = by_kept(effort, (double)effort->kept.slot_ms / up_ms),
        .starting = less(effort->up_ms, member_ms) / up_ms,
        .waiting = less(member_ms, useful_ms + wasted_ms + audit_ms) / up_ms,
        .redone =
            by_kept(effort, ((double)wasted_ms + less(useful_ms, effort->kept.slot_ms)) / up_ms),
        .audited = (double)audit_ms / up_ms,
    };
}
