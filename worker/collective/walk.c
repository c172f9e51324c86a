#include "worker/collective/walk.h"

enum { NO_ROUND = UINT32_MAX };

/* What comes and is added lies behind the scratch places, at most a range. */
static size_t incoming_bytes(const struct collective_schedule *schedule, uint32_t element_bytes)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < schedule->count; i++) {
        const struct collective_step *step = &schedule->steps[i];
        bool adds = step->act == COLLECTIVE_ADD_LEFT || step->act == COLLECTIVE_ADD_RIGHT;
        if (adds && step->range.count > most)
            most = step->range.count;
    }
    return (size_t)most * element_bytes;
}

size_t walk_bytes(const struct collective *collective, uint32_t rank, uint32_t element_bytes)
{
    struct collective_schedule schedule;
    collective_plan(collective, rank, &schedule);
    return collective_scratch_bytes(&schedule, element_bytes) +
           incoming_bytes(&schedule, element_bytes);
}

struct walk {
    const struct walk_work *work;
    const struct walk_carrier *carrier;
    struct collective_memory memory;
    struct collective_schedule schedule;
    uint8_t *incoming;
    uint32_t given; /* the newest round */
};

static void add(const struct walk *walk, const struct collective_step *step, bool left, void *ours,
                const void *theirs)
{
    const struct walk_work *work = walk->work;
    if (step->range.count > 0)
        work->add(work->context, ours, left ? theirs : ours, left ? ours : theirs,
                  (size_t)step->range.count);
}

static enum err take_to_add(const struct walk *walk, const struct collective_step *step,
                            size_t bytes, const void **ret_bytes)
{
    const struct walk_carrier *carrier = walk->carrier;
    if (carrier->lend != NULL)
        return carrier->lend(carrier->context, step->peer, step->round, walk->incoming, bytes,
                             ret_bytes);
    *ret_bytes = walk->incoming;
    return carrier->take(carrier->context, step->peer, step->round, walk->incoming, bytes);
}

static enum err do_step(struct walk *walk, const struct collective_step *step)
{
    const struct walk_carrier *carrier = walk->carrier;
    size_t bytes = (size_t)step->range.count * walk->work->element_bytes;
    void *ours = collective_at(&walk->memory, &walk->schedule, step, step->place);
    const void *theirs;
    switch (step->act) {
    case COLLECTIVE_SEND: /* rounds with the same bytes for all stand together */
        if (step->round != walk->given)
            TRY(carrier->give(carrier->context, step->round, ours, bytes));
        walk->given = step->round;
        return ERR_OK;
    case COLLECTIVE_COPY:
        return carrier->take(carrier->context, step->peer, step->round, ours, bytes);
    case COLLECTIVE_ADD_LEFT:
    case COLLECTIVE_ADD_RIGHT:
        TRY(take_to_add(walk, step, bytes, &theirs));
        add(walk, step, step->act == COLLECTIVE_ADD_LEFT, ours, theirs);
        return ERR_OK;
    case COLLECTIVE_FOLD_LEFT:
    case COLLECTIVE_FOLD_RIGHT:
        add(walk, step, step->act == COLLECTIVE_FOLD_LEFT,
            collective_at(&walk->memory, &walk->schedule, step, step->place - 1), ours);
        return ERR_OK;
    }
    check_unreachable("a step of no kind");
}

static void expect_all(const struct walk *walk)
{
    const struct walk_carrier *carrier = walk->carrier;
    for (uint32_t i = 0; i < walk->schedule.count && carrier->expect != NULL; i++) {
        const struct collective_step *step = &walk->schedule.steps[i];
        if (collective_receives(step))
            carrier->expect(carrier->context, step->peer, step->round,
                            (size_t)step->range.count * walk->work->element_bytes);
    }
}

enum err walk_collective(const struct walk_work *work, uint32_t rank,
                         const struct walk_carrier *carrier, void *memory)
{
    struct walk walk = {.work = work,
                        .carrier = carrier,
                        .memory = {work->array, work->output, memory, work->element_bytes},
                        .given = NO_ROUND};
    collective_plan(&work->collective, rank, &walk.schedule);
    walk.incoming =
        (uint8_t *)memory + collective_scratch_bytes(&walk.schedule, work->element_bytes);
    expect_all(&walk);
    for (uint32_t i = 0; i < walk.schedule.count; i++)
        TRY(do_step(&walk, &walk.schedule.steps[i]));
    return ERR_OK;
}
