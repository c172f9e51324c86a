/* What a server tells a new coordinator. */
#include "server/member/held.h"

#include "common/digest.h"

#include <stdlib.h>
#include <string.h>

void held_release(struct held *held)
{
    free(held->owned);
    free(held->ranges);
    *held = (struct held){0};
}

static uint64_t digest_of(const char *text)
{
    return digest_fast64((struct slice){(const uint8_t *)text, strlen(text)});
}

uint64_t held_spec(const char *spec, const char *checkpoint_dir)
{
    const uint64_t both[] = {digest_of(spec), digest_of(checkpoint_dir)};
    return digest_fast64((struct slice){(const uint8_t *)both, sizeof both});
}

/* ---- chunks ---- */

/* There is room for chunks below `end`. */
static bool reserve(struct held *held, uint32_t end)
{
    if (end <= held->end)
        return true;
    bool *owned = realloc(held->owned, end * sizeof *owned);
    if (owned == NULL)
        return false;
    memset(owned + held->end, 0, (end - held->end) * sizeof *owned);
    held->owned = owned;
    held->end = end;
    return true;
}

static bool set_owned(struct held *held, struct chunk_range range, bool owned)
{
    if (!reserve(held, range.first + range.count))
        return false;
    for (uint32_t i = 0; i < range.count; i++)
        held->owned[range.first + i] = owned;
    return true;
}

/* The answer's ranges anew. */
static bool name_chunks(struct held *held)
{
    struct chunk_range *ranges = calloc(held->end + 1, sizeof *ranges);
    uint32_t count = 0;
    if (ranges == NULL)
        return false;
    for (uint32_t c = 0; c < held->end; c++) {
        if (held->owned[c] && c > 0 && held->owned[c - 1])
            ranges[count - 1].count++;
        else if (held->owned[c])
            ranges[count++] = (struct chunk_range){.first = c, .count = 1};
    }
    free(held->ranges);
    held->told.ranges = held->ranges = ranges;
    held->told.range_count = count;
    return true;
}

/* ---- commands ---- */

void held_prepare(struct held *held, const struct server_command *command)
{
    bool goes_on = command->prepare.from_cut || command->prepare.joins;
    held_release(held);
    for (uint32_t i = 0; i < command->prepare.range_count && !command->prepare.joins; i++)
        if (command->prepare.ranges[i].server == command->prepare.server &&
            !set_owned(held, command->prepare.ranges[i], true))
            return;
    if (!name_chunks(held))
        return;
    held->told.run = command->prepare.run;
    held->told.generation = command->prepare.generation;
    held->told.version = goes_on ? command->prepare.cut.version : 0;
    held->told.spec = held_spec(command->prepare.spec, command->prepare.checkpoint_dir);
}

static bool move_chunks(struct held *held, const struct server_command *command)
{
    for (uint32_t i = 0; i < command->move_count; i++) {
        const struct server_move *move = &command->moves[i];
        const struct chunk_range range = {.first = move->first, .count = move->count};
        bool comes = move->to[0] == 0;
        if (!set_owned(held, range, comes))
            return false;
        held->takes = held->takes || comes;
    }
    return name_chunks(held);
}

void held_commit(struct held *held, const struct server_command *command)
{
    struct server_held *told = &held->told;
    const struct commit *commit = &command->commit;
    if (commit->generation != told->generation || told->generation == 0 ||
        (told->has_decision && commit->step <= told->decision.step))
        return;
    told->has_decision = true;
    told->decision = *commit;
    held->takes = false;
    if (command->move_count > 0 && !move_chunks(held, command))
        held_release(held);
}

void held_end(struct held *held)
{
    held_release(held);
}

struct server_held held_answer(const struct held *held, uint64_t committed)
{
    bool awaits = held->takes && committed <= held->told.decision.step;
    return awaits ? (struct server_held){0} : held->told;
}
