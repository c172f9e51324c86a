/* A search with a bound. */
#include "server/coordinator/seating.h"

enum { BOUND = 3, BRINGS_NOTHING, PRICES, NEVER = PRICES };

bool seating_is_full(const struct seating *seating)
{
    return seating->count == SEATING_CANDIDATES_MAX;
}

void seating_add(struct seating *seating, const struct candidate *candidate)
{
    if (!seating_is_full(seating))
        seating->candidates[seating->count++] = *candidate;
}

bool seating_too_small(const struct seating *seating, uint32_t seat, uint64_t small)
{
    return small >> seat / seating->ranks & 1;
}

/* The i-th seat that is beside the seat: the other ranks of its place, and its own rank before and
 * behind; SEATING_NONE: there is none. */
#define SEATING_NONE UINT32_MAX
static uint32_t seat_beside(const struct seating *seating, uint32_t seat, uint32_t i)
{
    uint32_t ranks = seating->ranks, rank = seat % ranks, first = seat - rank;
    bool is_last = first + ranks == seating->seats;
    if (i < ranks)
        return i != rank ? first + i : SEATING_NONE;
    if (i == ranks)
        return first > 0       ? seat - ranks
               : seating->ring ? seating->seats - ranks + rank
                               : SEATING_NONE;
    return !is_last ? seat + ranks : seating->ring ? rank : SEATING_NONE;
}

/* Who sits there; 0: nobody does. */
static uint64_t neighbour(const struct seating *seating, uint32_t seat, uint32_t i)
{
    uint32_t beside = seat_beside(seating, seat, i);
    return beside != SEATING_NONE ? seating->line[beside] : 0;
}

bool seating_fits(const struct seating *seating, uint32_t seat, uint64_t member)
{
    for (uint32_t i = 0; i < seating->ranks + 2; i++) {
        uint64_t other = neighbour(seating, seat, i);
        if (other != 0 && unreachable_apart(seating->unreachable, other, member))
            return false;
    }
    return true;
}

bool seating_beside(const struct seating *seating, uint32_t seat, uint64_t other)
{
    for (uint32_t i = 0; i < seating->ranks + 2; i++)
        if (neighbour(seating, seat, i) == other)
            return true;
    return false;
}

/* How much is lost when it takes the seat: work is spread before weights are spared. */
static uint32_t price_of(const struct seating *seating, const struct candidate *candidate,
                         uint32_t seat)
{
    if (seating_too_small(seating, seat, candidate->small) ||
        (candidate->bound && candidate->seat != seat))
        return NEVER;
    if (candidate->brings_nothing)
        return BRINGS_NOTHING;
    if (candidate->bound)
        return BOUND;
    return candidate->seat == seat ? 0 : candidate->seat == UINT32_MAX ? 1 : 2;
}

static bool fill_from(struct seating *seating, uint32_t seat, uint32_t end);

/* The candidate takes the empty seat, and others those behind it. */
static bool try_with(struct seating *seating, struct candidate *candidate, uint32_t seat,
                     uint32_t end)
{
    seating->tries--;
    if (!seating_fits(seating, seat, candidate->member))
        return false;
    seating->line[seat] = candidate->member;
    candidate->seated = true;
    if (fill_from(seating, seat + 1, end))
        return true;
    seating->line[seat] = 0;
    candidate->seated = false;
    return false;
}

static bool fill_from(struct seating *seating, uint32_t seat, uint32_t end)
{
    while (seat < end && seating->line[seat] != 0)
        seat++;
    if (seat == end)
        return true;
    for (uint32_t price = 0; price < PRICES; price++)
        for (uint32_t i = 0; i < seating->count && seating->tries > 0; i++) {
            struct candidate *candidate = &seating->candidates[i];
            if (!candidate->seated && price_of(seating, candidate, seat) == price &&
                try_with(seating, candidate, seat, end))
                return true;
        }
    return false;
}

bool seating_fill(struct seating *seating, uint32_t first, uint32_t end)
{
    uint32_t empty = 0, there = 0;
    for (uint32_t seat = first; seat < end; seat++)
        empty += seating->line[seat] == 0 ? 1 : 0;
    for (uint32_t i = 0; i < seating->count; i++)
        there += seating->candidates[i].seated ? 0 : 1;
    seating->tries = SEATING_TRIES_MAX;
    return empty <= there && fill_from(seating, first, end);
}
