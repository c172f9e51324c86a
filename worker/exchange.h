/* What a member exchanges with the others of its place while it computes: the sums of
 * worker/model/unit.h as collectives (worker/collective/), whose parts an executor's hooks carry.
 *
 * Arrays are the device's; what passes is the host's. Sums of elements are halved and doubled: the
 * bits of the tree, 2 log2(ranks) messages. Where each member has ranges of the tokens
 * (common/model/pieces.h), they are scattered, and what is made of them is gathered: the same bits, and
 * as many bytes. Each member makes the same collectives in the same order, which number them from 1 on
 * in each ticket. Memory grows to what the largest collective needs. One thread: the executor's. */
#ifndef ROOST_WORKER_EXCHANGE_H
#define ROOST_WORKER_EXCHANGE_H

#include "worker/collective/collective.h"
#include "worker/executor_hooks.h"
#include "worker/model/unit.h"

struct exchange {
    const struct kernels *k; /* borrowed, like all below */
    const struct model *model;
    const struct executor_hooks *hooks;
    struct unit_exchange calls; /* whose context is this; it must not be moved */
    uint32_t sequence;          /* of the newest collective */
    enum err err;               /* the first, since the ticket began */
    uint8_t *memory;            /* owned, and so many bytes */
    size_t bytes;
};

/* Floats of each row that a member tells the others. */
enum { EXCHANGE_LARGEST_NUMBERS = 2, EXCHANGE_TOTALS_NUMBERS = 1 };

/* The collectives between those who have that model's pieces: of n elements, whose sum all get, or,
 * when the model has ranges, each its own equal part of it; of `each` elements that a member has
 * alone. */
struct collective exchange_reduction(const struct model *model, uint64_t n);
struct collective exchange_all_gather(const struct model *model, uint64_t each);

void exchange_init(struct exchange *exchange, const struct kernels *k, const struct model *model);
void exchange_release(struct exchange *exchange); /* {0} is fine */

/* A ticket begins, whose hooks carry. */
void exchange_begin(struct exchange *exchange, const struct executor_hooks *hooks);

#endif
