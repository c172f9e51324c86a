/* The convictions of a run. */
#include "server/coordinator/convictions.h"

#include <string.h>

void convictions_add(struct convictions *convictions, const struct conviction *conviction)
{
    if (convictions->count == CONVICTIONS_MAX)
        memmove(&convictions->list[0], &convictions->list[1],
                --convictions->count * sizeof convictions->list[0]);
    convictions->list[convictions->count++] = *conviction;
}

static bool is_of(const struct conviction *conviction, const struct join_request *request,
                  bool several)
{
    if (conviction->certificate != request->certificate)
        return false;
    if (conviction->certificate != 0 && (conviction->several || several))
        return true;
    return strcmp(conviction->name, request->name) == 0 &&
           strcmp(conviction->host, request->host) == 0;
}

const struct conviction *convictions_find(const struct convictions *convictions,
                                          const struct join_request *request, bool several)
{
    for (uint32_t i = 0; i < convictions->count; i++)
        if (is_of(&convictions->list[i], request, several))
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
