/* Counts what a member exchanges with the others of its place, and exchanges nothing: the collectives
 * of worker/exchange.h, whose schedules say who sends what. Pure. */
#ifndef ROOST_WORKER_EXCHANGE_COUNT_H
#define ROOST_WORKER_EXCHANGE_COUNT_H

#include "worker/model/unit.h"

/* Of one member. */
struct exchange_counted {
    uint64_t bytes;              /* received */
    uint64_t sums, sum_messages; /* all-reduces, or reduce-scatters, and what it sends in them */
    uint64_t gathers, gather_messages; /* of ranges, gradients of norms, numbers of the loss */
};

struct exchange_count {
    const struct model *model; /* the member's; borrowed */
    uint32_t element_bytes;
    struct unit_exchange
        calls; /* whose context is this; it must not be moved. Arrays may be NULL */
    struct exchange_counted counted;
    uint64_t
        given_bytes[2]; /* in the newest collective, and in the one before: others may still ask
                                for these (worker/outbox.h) */
};

void exchange_count_init(struct exchange_count *count, const struct kernels *k,
                         const struct model *model);

#endif
