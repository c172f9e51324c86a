/* What a server reports to a new coordinator. */
#include "server/member/holdings.h"

#include "common/digest.h"

#include <stdlib.h>
#include <string.h>

void holdings_release(struct holdings *holdings)
{
    free(holdings->owned);
    free(holdings->ranges);
    *holdings = (struct holdings){0};
}

static uint64_t digest_of(const char *text)
{
    return digest_fast64((struct slice){(const uint8_t *)text, strlen(text)});
}

uint64_t holdings_spec(const char *spec, const char *checkpoint_dir)
{
    const uint64_t both[] = {digest_of(spec), digest_of(checkpoint_dir)};
    return digest_fast64((struct slice){(const uint8_t *)both, sizeof both});
}

/* ---- chunks ---- */

/* Makes room for chunks below `end`. */
static bool reserve(struct holdings *holdings, uint32_t end)
{
    if (end <= holdings->end)
        return true;
    bool *owned = realloc(holdings->owned, end * sizeof *owned);
    if (owned == NULL)
        return false;
    memset(owned + holdings->end, 0, (end - holdings->end) * sizeof *owned);
    holdings->owned = owned;
    holdings->end = end;
    return true;
}

static bool set_owned(struct holdings *holdings, struct chunk_range range, bool owned)
{
    if (!reserve(holdings, range.first + range.count))
        return false;
    for (uint32_t i = 0; i < range.count; i++)
        holdings->owned[range.first + i] = owned;
    return true;
}

/* Fills in the report's ranges again. */
static bool name_chunks(struct holdings *holdings)
{
    struct chunk_range *ranges = calloc(holdings->end + 1, sizeof *ranges);
    uint32_t count = 0;
    if (ranges == NULL)
        return false;
    for (uint32_t c = 0; c < holdings->end; c++) {
        if (holdings->owned[c] && c > 0 && holdings->owned[c - 1])
            ranges[count - 1].count++;
        else if (holdings->owned[c])
            ranges[count++] = (struct chunk_range){.first = c, .count = 1};
    }
    free(holdings->ranges);
    holdings->told.ranges = holdings->ranges = ranges;
    holdings->told.range_count = count;
    return true;
}

/* ---- commands ---- */

void holdings_prepare(struct holdings *holdings, const struct server_command *command)
{
    bool goes_on = command->prepare.from_cut || command->prepare.joins;
    holdings_release(holdings);
    for (uint32_t i = 0; i < command->prepare.range_count && !command->prepare.joins; i++)
        if (command->prepare.ranges[i].server == command->prepare.server &&
            !set_owned(holdings, command->prepare.ranges[i], true))
            return;
    if (!name_chunks(holdings))
        return;
    holdings->told.run = command->prepare.run;
    holdings->told.generation = command->prepare.generation;
    holdings->told.version = goes_on ? command->prepare.cut.version : 0;
    holdings->told.spec = holdings_spec(command->prepare.spec, command->prepare.checkpoint_dir);
}

static bool move_chunks(struct holdings *holdings, const struct server_command *command)
{
    for (uint32_t i = 0; i < command->move_count; i++) {
        const struct server_move *move = &command->moves[i];
        const struct chunk_range range = {.first = move->first, .count = move->count};
        bool comes = move->to[0] == 0;
        if (!set_owned(holdings, range, comes))
            return false;
        holdings->takes = holdings->takes || comes;
    }
    return name_chunks(holdings);
}

/* The same decision again: there was no room for its cut. */
static void note_attempt(struct server_held *told, const struct server_command *command)
{
    if (!command->commit.cut || command->attempt <= told->attempt)
        return;
    told->file = command->file;
    told->attempt = command->attempt;
}

void holdings_commit(struct holdings *holdings, const struct server_command *command)
{
    struct server_held *told = &holdings->told;
    const struct commit *commit = &command->commit;
    if (commit->generation != told->generation || told->generation == 0)
        return;
    if (told->has_decision && commit->step == told->decision.step)
        note_attempt(told, command);
    if (told->has_decision && commit->step <= told->decision.step)
        return;
    told->has_decision = true;
    told->decision = *commit;
    told->file = commit->cut ? command->file : WIRE_FILE_NONE;
    told->attempt = command->attempt;
    holdings->takes = false;
    if (command->move_count > 0 && !move_chunks(holdings, command))
        holdings_release(holdings);
}

void holdings_end(struct holdings *holdings)
{
    holdings_release(holdings);
}

struct server_held holdings_answer(const struct holdings *holdings, uint64_t committed)
{
    bool awaits = holdings->takes && committed <= holdings->told.decision.step;
    return awaits ? (struct server_held){0} : holdings->told;
}
