#include "common/model/stages.h"

static uint64_t operations(const struct model *model, uint32_t unit)
{
    return (uint64_t)model->units[unit].flops_forward;
}

/* Fills runs of at most `limit` operations from the last one on, a unit at least for each. False:
 * the first run has more. */
static bool cut_within(const struct model *model, uint32_t runs, uint64_t limit, uint32_t *ret_cuts)
{
    uint32_t unit = model->units_count;
    uint64_t sum = 0;
    for (uint32_t run = runs; run-- > 0;) {
        ret_cuts[run + 1] = unit;
        sum = operations(model, --unit);
        while (unit > run && (run == 0 || sum + operations(model, unit - 1) <= limit))
            sum += operations(model, --unit);
        ret_cuts[run] = unit;
    }
    return sum <= limit;
}

void stages_cut(const struct model *model, uint32_t runs, uint32_t *ret_cuts)
{
    uint64_t low = 0, high = 0;
    check(runs > 0 && runs <= model->units_count);
    for (uint32_t unit = 0; unit < model->units_count; unit++) {
        uint64_t of_unit = operations(model, unit);
        low = of_unit > low ? of_unit : low;
        high += of_unit;
    }
    while (low < high) { /* the least limit that holds; `high` always does */
        uint64_t middle = low + (high - low) / 2;
        if (cut_within(model, runs, middle, ret_cuts))
            high = middle;
        else
            low = middle + 1;
    }
    check(cut_within(model, runs, high, ret_cuts));
}
