#include "common/model/stages.h"

/* What a run may have. */
struct limits {
    uint64_t operations, weights;
};

static uint64_t operations(const struct model *model, uint32_t unit)
{
    return (uint64_t)model->units[unit].flops_forward;
}

/* Of the parameters that it uses: those of a tied one are each unit's. */
static uint64_t weights(const struct model *model, uint32_t unit)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < model->parameters_count; i++) {
        const struct model_parameter *parameter = &model->parameters[i];
        uint32_t part = 0;
        while (part < parameter->parts && parameter->part_units[part] != unit)
            part++;
        sum += part < parameter->parts ? (uint64_t)parameter->rows * parameter->cols : 0;
    }
    return sum;
}

/* Its weights are not counted where any number will do. */
static struct limits of_unit(const struct model *model, uint32_t unit, struct limits limits)
{
    return (struct limits){operations(model, unit),
                           limits.weights < UINT64_MAX ? weights(model, unit) : 0};
}

static struct limits sum_of(struct limits a, struct limits b)
{
    return (struct limits){a.operations + b.operations, a.weights + b.weights};
}

static bool is_within(struct limits sum, struct limits limits)
{
    return sum.operations <= limits.operations && sum.weights <= limits.weights;
}

/* Fills runs within the limits from the last one on, a unit at least for each. False: one has more. */
static bool cut_within(const struct model *model, uint32_t runs, struct limits limits,
                       uint32_t *ret_cuts)
{
    uint32_t unit = model->units_count;
    bool within = true;
    for (uint32_t run = runs; run-- > 0;) {
        ret_cuts[run + 1] = unit;
        struct limits sum = of_unit(model, --unit, limits);
        while (unit > run) {
            struct limits more = sum_of(sum, of_unit(model, unit - 1, limits));
            if (run > 0 && !is_within(more, limits))
                break;
            sum = more;
            unit--;
        }
        ret_cuts[run] = unit;
        within = within && is_within(sum, limits);
    }
    return within;
}

bool stages_cut(const struct model *model, uint32_t runs, uint64_t weights_max, uint32_t *ret_cuts)
{
    uint64_t low = 0, high = 0;
    struct limits limits = {.weights = weights_max > 0 ? weights_max : UINT64_MAX};
    check(runs > 0 && runs <= model->units_count);
    for (uint32_t unit = 0; unit < model->units_count; unit++) {
        uint64_t of = operations(model, unit);
        low = of > low ? of : low;
        high += of;
    }
    while (low < high) { /* the least limit that holds; `high` does, where one does */
        limits.operations = low + (high - low) / 2;
        if (cut_within(model, runs, limits, ret_cuts))
            high = limits.operations;
        else
            low = limits.operations + 1;
    }
    limits.operations = high;
    return cut_within(model, runs, limits, ret_cuts);
}

uint64_t stages_weights(const struct model *model, uint32_t runs, uint32_t *cuts)
{
    uint64_t low = 0, high = 0;
    for (uint32_t unit = 0; unit < model->units_count; unit++) {
        uint64_t of = weights(model, unit);
        low = of > low ? of : low;
        high += of;
    }
    while (low < high) {
        const struct limits limits = {UINT64_MAX, low + (high - low) / 2};
        if (cut_within(model, runs, limits, cuts))
            high = limits.weights;
        else
            low = limits.weights + 1;
    }
    return high;
}
