#include "worker/boundary_sums.h"

#include "common/check.h"
#include "common/model/pipeline.h"

_Static_assert(2 * PIPELINE_BOUNDARIES_MAX == WIRE_BOUNDARIES_MAX, "a boundary has two ways");

static bool same_boundary(const struct boundary_sum *a, const struct boundary_sum *b)
{
    return a->boundary == b->boundary && a->way == b->way && a->given == b->given &&
           a->stage == b->stage;
}

void boundary_sums_add(struct boundary_sums *sums, const struct boundary_sum *value)
{
    for (uint32_t i = 0; i < sums->count; i++) {
        if (!same_boundary(&sums->list[i], value))
            continue;
        sums->list[i].sum += value->sum;
        return;
    }
    check(sums->count < WIRE_BOUNDARIES_MAX); /* rows_judge() */
    sums->list[sums->count++] = *value;
}
