#include "reference/values.h"

#include <stdlib.h>

static size_t count_of(const struct values *values)
{
    return (size_t)2 * values->boundaries * values->slots * values->microbatches;
}

enum err values_init(struct values *values, const struct kernels *kernels,
                     const struct model *model, const struct spec_train *train, uint32_t slots)
{
    *values = (struct values){.kernels = kernels,
                              .boundaries = model->units_count,
                              .slots = slots,
                              .microbatches = train->slot_samples / train->microbatch};
    values->items = calloc(count_of(values), sizeof *values->items);
    return values->items != NULL ? ERR_OK : ERR_NOMEM;
}

void values_clear(struct values *values)
{
    for (size_t i = 0; i < count_of(values); i++) {
        free(values->items[i]);
        values->items[i] = NULL;
    }
}

void values_release(struct values *values)
{
    values_clear(values);
    free(values->items);
    *values = (struct values){0};
}

static uint8_t **item_of(struct values *values, const struct executor_value *value)
{
    size_t at = value->way == EXECUTOR_FORWARD ? 0 : values->boundaries;
    check(value->boundary < values->boundaries && value->slot < values->slots &&
          value->microbatch < values->microbatches);
    at = (at + value->boundary) * values->slots + value->slot;
    return &values->items[at * values->microbatches + value->microbatch];
}

enum err values_send(struct values *values, const struct executor_value *value, const void *memory)
{
    uint8_t **item = item_of(values, value);
    check(*item == NULL); /* a program sends a value once */
    *item = malloc(value->bytes);
    if (*item == NULL)
        return ERR_NOMEM;
    values->kernels->copy_out(values->kernels, *item, memory, value->bytes);
    return ERR_OK;
}

enum err values_receive(struct values *values, const struct executor_value *value, void *memory)
{
    const uint8_t *item = *item_of(values, value);
    if (item == NULL)
        return ERR_BEHIND;
    values->kernels->copy_in(values->kernels, memory, item, value->bytes);
    values->bytes += value->bytes;
    return ERR_OK;
}
