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
    const struct collective all = exchange_reduction(x->model, (uint64_t)n);
    (void)array;
    x->counted.sums++;
    x->counted.sum_messages += count(x, &all, x->element_bytes).sent_messages;
}

static void count_gather(struct exchange_count *x, int64_t each, uint32_t element_bytes)
{
    const struct collective all = exchange_all_gather(x->model, (uint64_t)each);
    x->counted.gathers++;
    x->counted.gather_messages += count(x, &all, element_bytes).sent_messages;
}

static void gather(void *context, element *array, int64_t n)
{
    struct exchange_count *x = context;
    (void)array;
    count_gather(x, n / x->model->ranks, x->element_bytes);
}

static void add(void *context, float *numbers, int64_t n)
{
    (void)numbers;
    count_gather(context, n, sizeof *numbers);
}

static void largest(void *context, float *by_piece, float *logit, int64_t rows)
{
    (void)by_piece;
    (void)logit;
    count_gather(context, rows * EXCHANGE_LARGEST_NUMBERS, sizeof *by_piece);
}

static void totals(void *context, float *by_piece, int32_t *correct, int64_t rows)
{
    (void)by_piece;
    (void)correct;
    count_gather(context, rows * EXCHANGE_TOTALS_NUMBERS, sizeof *by_piece);
}

void exchange_count_init(struct exchange_count *x, const struct kernels *k,
                         const struct model *model)
{
    *x = (struct exchange_count){.model = model,
                                 .element_bytes = (uint32_t)k->element_bytes,
                                 .calls = {x, sum, sum, gather, add, largest, totals}};
}
