#include "worker/exchange_count.h"

#include "worker/exchange.h"

static struct collective_traffic count(struct exchange_count *x,
                                       const struct collective *collective, uint32_t element_bytes)
{
    const struct collective_traffic traffic =
        collective_bytes(collective, x->model->rank, element_bytes);
    x->counted.bytes += traffic.received_bytes;
    x->given_bytes[1] = x->given_bytes[0];
    x->given_bytes[0] = traffic.given_bytes;
    return traffic;
}

static void sum(void *context, element *array, int64_t n)
{
    struct exchange_count *x = context;
    const struct collective all = exchange_all_reduce(x->model, (uint64_t)n);
    (void)array;
    x->counted.sums++;
    x->counted.sum_messages += count(x, &all, x->element_bytes).sent_messages;
}

static void gather(struct exchange_count *x, int64_t rows, uint32_t numbers)
{
    const struct collective all = exchange_all_gather(x->model, (uint64_t)rows * numbers);
    x->counted.gathers++;
    x->counted.gather_messages += count(x, &all, sizeof(float)).sent_messages;
}

static void largest(void *context, float *by_piece, float *logit, int64_t rows)
{
    (void)by_piece;
    (void)logit;
    gather(context, rows, EXCHANGE_LARGEST_NUMBERS);
}

static void totals(void *context, float *by_piece, int32_t *correct, int64_t rows)
{
    (void)by_piece;
    (void)correct;
    gather(context, rows, EXCHANGE_TOTALS_NUMBERS);
}

void exchange_count_init(struct exchange_count *x, const struct kernels *k,
                         const struct model *model)
{
    *x = (struct exchange_count){.model = model,
                                 .element_bytes = (uint32_t)k->element_bytes,
                                 .calls = {x, sum, sum, largest, totals}};
}
