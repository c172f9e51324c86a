/* Who sits where in a line of places (S1, S7): members for the empty seats, so that no two that are
 * apart (unreachable.h) sit side by side: in one place, or with the same rank in places that hand
 * each other values; and nobody in a stage that it is too small for. A seat goes to a member that
 * has its weights, else to one that has none, else to one that has another seat's, else to one that
 * computes on that seat already, else to one that brought nothing; of equal ones to the first.
 * Where that leaves a later seat without anybody, the next one is tried.
 *
 * SEATING_TRIES_MAX bounds the search, which for few members tries all orders: when so many tries
 * were in vain, it says that there is no order. It finds one for certain where the candidates are
 * as many as the seats and UNREACHABLE_MAX together, and none is too small: somebody is left for
 * each stage.
 *
 * Pure; one owner. */
#ifndef ROOST_SERVER_COORDINATOR_SEATING_H
#define ROOST_SERVER_COORDINATOR_SEATING_H

#include "proto/wire.h"
#include "server/coordinator/unreachable.h"

enum {
    SEATING_CANDIDATES_MAX = 4 * WIRE_PLACES_MAX,
    SEATING_TRIES_MAX = 4096,
};

struct seating {
    const struct unreachable *unreachable;
    uint32_t seats, ranks;          /* of the line, and of each place */
    bool ring;                      /* the last place is beside the first as well */
    uint64_t line[WIRE_PLACES_MAX]; /* members by place, then by rank; 0: the seat is empty */
    uint32_t count;
    struct candidate {
        uint64_t member;
        uint32_t seat;  /* that it has the weights of; UINT32_MAX: none */
        bool bound;     /* it computes there already, and has no other seat meanwhile */
        uint64_t small; /* stages that it is too small for, a bit each */
        bool brings_nothing;
        bool seated;
    } candidates[SEATING_CANDIDATES_MAX];
    uint32_t tries; /* that are left */
};

/* Beyond SEATING_CANDIDATES_MAX nobody more is considered. */
bool seating_is_full(const struct seating *seating);
void seating_add(struct seating *seating, const struct candidate *candidate);
/* Whether who is too small for these stages is so for the seat's. */
bool seating_too_small(const struct seating *seating, uint32_t seat, uint64_t small);
/* Whether the member, on that seat, is apart from nobody beside it. */
bool seating_fits(const struct seating *seating, uint32_t seat, uint64_t member);
/* Whether the other sits beside that seat. */
bool seating_beside(const struct seating *seating, uint32_t seat, uint64_t other);
/* Fills the empty seats from `first` to below `end`. False: it cannot, and changed nothing. */
bool seating_fill(struct seating *seating, uint32_t first, uint32_t end);

#endif
