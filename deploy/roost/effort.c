#include "deploy/roost/effort.h"

#include "common/files/json.h"
#include "common/scoped.h"

#include <string.h>

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

/* ---- the steps that stayed ---- */

static enum err read_row(struct effort *effort, struct effort_rows *rows, const struct json *row,
                         struct reason *reason)
{
    uint64_t step, slot_ms;
    double time_s;
    bool is_step = json_has(row, "step");
    TRY(json_get_uint(row, is_step ? "step" : "version", &step, reason));
    if (step < rows->first_step)
        return ERR_OK;
    TRY(json_get_uint(row, "slot_ms", &slot_ms, reason));
    TRY(json_get_real(row, "time", &time_s, reason));
    effort->kept_ms += slot_ms;
    if (!is_step)
        return ERR_OK;
    if (rows->newest_s > 0 && time_s - rows->newest_s > effort->gap_s)
        effort->gap_s = time_s - rows->newest_s;
    rows->newest_s = time_s;
    return ERR_OK;
}

enum err effort_read_steps(struct effort *effort, struct effort_rows *so_far, const char *name,
                           struct slice rows, struct reason *reason)
{
    const uint8_t *at = rows.data, *all_end = rows.data + rows.bytes, *end;
    for (; (end = memchr(at, '\n', (size_t)(all_end - at))) != NULL; at = end + 1) {
        scoped(json_free_scoped) struct json *row = NULL;
        TRY(json_parse(name, (struct slice){at, (size_t)(end - at)}, &row, reason));
        TRY(read_row(effort, so_far, row, reason));
    }
    return ERR_OK;
}

/* ---- shares ---- */

static double less(uint64_t whole, uint64_t part)
{
    return whole > part ? (double)(whole - part) : 0;
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
        .goodput = (double)effort->kept_ms / up_ms,
        .starting = less(effort->up_ms, member_ms) / up_ms,
        .waiting = less(member_ms, useful_ms + wasted_ms + audit_ms) / up_ms,
        .redone = ((double)wasted_ms + less(useful_ms, effort->kept_ms)) / up_ms,
        .audited = (double)audit_ms / up_ms,
    };
}
