/* A search with a bound. */
#include "server/coordinator/seating.h"

enum { RANKS = 4, NEVER = RANKS };

void seating_add(struct seating *seating, uint64_t member, uint32_t stage, bool bound)
{
    if (seating->count < SEATING_CANDIDATES_MAX)
        seating->candidates[seating->count++] =
            (struct candidate){.member = member, .stage = stage, .bound = bound};
}

/* Who sits beside the stage on either side; 0: nobody does. */
struct neighbours {
    uint64_t members[2];
};

static struct neighbours neighbours_of(const struct seating *seating, uint32_t stage)
{
    const uint64_t *line = seating->line;
    uint32_t last = seating->places - 1;
    return (struct neighbours){{stage > 0       ? line[stage - 1]
                                : seating->ring ? line[last]
                                                : 0,
                                stage < last    ? line[stage + 1]
                                : seating->ring ? line[0]
                                                : 0}};
}

bool seating_fits(const struct seating *seating, uint32_t stage, uint64_t member)
{
    const struct neighbours beside = neighbours_of(seating, stage);
    for (uint32_t i = 0; i < 2; i++)
        if (beside.members[i] != 0 &&
            unreachable_apart(seating->unreachable, beside.members[i], member))
            return false;
    return true;
}

bool seating_beside(const struct seating *seating, uint32_t stage, uint64_t other)
{
    const struct neighbours beside = neighbours_of(seating, stage);
    return beside.members[0] == other || beside.members[1] == other;
}

/* How much is lost when it takes the stage: work is spread before weights are spared. */
static uint32_t rank_for(const struct candidate *candidate, uint32_t stage)
{
    if (candidate->bound)
        return candidate->stage == stage ? 3 : NEVER;
    return candidate->stage == stage ? 0 : candidate->stage == UINT32_MAX ? 1 : 2;
}

static bool fill_from(struct seating *seating, uint32_t stage, uint32_t end);

/* The candidate takes the empty stage, and others those behind it. */
static bool try_with(struct seating *seating, struct candidate *candidate, uint32_t stage,
                     uint32_t end)
{
    seating->tries--;
    if (!seating_fits(seating, stage, candidate->member))
        return false;
    seating->line[stage] = candidate->member;
    candidate->seated = true;
    if (fill_from(seating, stage + 1, end))
        return true;
    seating->line[stage] = 0;
    candidate->seated = false;
    return false;
}

static bool fill_from(struct seating *seating, uint32_t stage, uint32_t end)
{
    while (stage < end && seating->line[stage] != 0)
        stage++;
    if (stage == end)
        return true;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (uint32_t i = 0; i < seating->count && seating->tries > 0; i++) {
            struct candidate *candidate = &seating->candidates[i];
            if (!candidate->seated && rank_for(candidate, stage) == rank &&
                try_with(seating, candidate, stage, end))
                return true;
        }
    return false;
}

bool seating_fill(struct seating *seating, uint32_t first, uint32_t end)
{
    uint32_t empty = 0, there = 0;
    for (uint32_t stage = first; stage < end; stage++)
        empty += seating->line[stage] == 0 ? 1 : 0;
    for (uint32_t i = 0; i < seating->count; i++)
        there += seating->candidates[i].seated ? 0 : 1;
    seating->tries = SEATING_TRIES_MAX;
    return empty <= there && fill_from(seating, first, end);
}
