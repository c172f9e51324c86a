/* See tickets.h. */
#include "common/data/tickets.h"

#include "common/rand.h"

uint64_t tickets_first(const struct tickets *tickets, uint64_t ticket)
{
    uint64_t first;
    check(!__builtin_mul_overflow(ticket, tickets->slot_samples, &first));
    return first;
}

uint64_t tickets_epoch(const struct tickets *tickets, uint64_t position)
{
    return position / tickets->sample_count;
}

uint64_t tickets_sample(const struct tickets *tickets, uint64_t position)
{
    struct rand_key order = rand_key(tickets->seed, RAND_ORDER, tickets_epoch(tickets, position));
    return rand_permute(order, tickets->sample_count, position % tickets->sample_count);
}
