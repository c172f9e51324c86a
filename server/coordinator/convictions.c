/* The convictions of a run. */
#include "server/coordinator/convictions.h"

#include <string.h>

static bool is_of_certificate(const struct conviction *conviction)
{
    return conviction->certificate != 0 && conviction->by_certificate;
}

/* Whether whom the one keeps out is who the other one is about. */
static bool is_of_one_worker(const struct conviction *a, const struct conviction *b)
{
    if (a->certificate != b->certificate)
        return false;
    return is_of_certificate(a) || is_of_certificate(b) ||
           (strcmp(a->name, b->name) == 0 && strcmp(a->host, b->host) == 0);
}

/* The run goes back for `into` as far as for the other one. */
static void carry(struct conviction *into, const struct conviction *from)
{
    if (!from->undo)
        return;
    if (!into->undo || from->undo_from < into->undo_from)
        into->undo_from = from->undo_from;
    into->undo = true;
}

static void take_out(struct convictions *convictions, uint32_t i)
{
    convictions->count--;
    memmove(&convictions->list[i], &convictions->list[i + 1],
            (convictions->count - i) * sizeof convictions->list[0]);
}

static void merge(struct convictions *convictions, uint32_t i, struct conviction *into)
{
    const struct conviction *from = &convictions->list[i];
    into->by_certificate = into->by_certificate || is_of_certificate(from);
    carry(into, from);
    take_out(convictions, i);
}

/* When the run is to go back for all of them, it does so for the newest as far as for the oldest. */
static void forget_one(struct convictions *convictions, struct conviction *newest)
{
    uint32_t i = 0;
    while (i < convictions->count && convictions->list[i].undo)
        i++;
    i = i < convictions->count ? i : 0;
    carry(newest, &convictions->list[i]);
    take_out(convictions, i);
}

const struct conviction *convictions_add(struct convictions *convictions,
                                         const struct conviction *conviction)
{
    struct conviction newest = *conviction;
    for (uint32_t i = convictions->count; i-- > 0;)
        if (is_of_one_worker(&convictions->list[i], &newest))
            merge(convictions, i, &newest);
    if (convictions->count == CONVICTIONS_MAX)
        forget_one(convictions, &newest);
    convictions->list[convictions->count] = newest;
    return &convictions->list[convictions->count++];
}

static bool keeps_out(const struct conviction *conviction, const struct join_request *request)
{
    if (conviction->certificate != request->certificate)
        return false;
    return is_of_certificate(conviction) || (strcmp(conviction->name, request->name) == 0 &&
                                             strcmp(conviction->host, request->host) == 0);
}

const struct conviction *convictions_find(const struct convictions *convictions,
                                          const struct join_request *request)
{
    for (uint32_t i = 0; i < convictions->count; i++)
        if (keeps_out(&convictions->list[i], request))
            return &convictions->list[i];
    return NULL;
}

bool convictions_undo(const struct convictions *convictions, uint64_t *ret_from)
{
    uint64_t from = UINT64_MAX;
    bool any = false;
    for (uint32_t i = 0; i < convictions->count; i++) {
        const struct conviction *conviction = &convictions->list[i];
        any = any || conviction->undo;
        from = conviction->undo && conviction->undo_from < from ? conviction->undo_from : from;
    }
    *ret_from = any ? from : *ret_from;
    return any;
}

void convictions_undone(struct convictions *convictions)
{
    for (uint32_t i = 0; i < convictions->count; i++)
        convictions->list[i].undo = false;
}
