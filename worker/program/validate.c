/* The validator: plays the rows and keeps, for each (unit, microbatch), what has happened to it. */
#include "common/scoped.h"
#include "worker/program/program.h"

#include <stdlib.h>

enum { DONE_F = 1, DONE_B = 2, DROPPED = 4 };

struct unit_state {
    bool pulled, pushed;
    uint32_t forwarded, accumulated; /* microbatches after F and after B */
};

struct play {
    const struct program *program;
    struct unit_state *units;
    uint8_t *done; /* unit * microbatches + microbatch */
};

static uint8_t *done(struct play *play, uint32_t unit, uint32_t microbatch)
{
    return &play->done[(size_t)unit * play->program->microbatches + microbatch];
}

/* Each of the functions below returns NULL or what is wrong with the row. */

static const char *play_pull(struct play *play, struct row row)
{
    struct unit_state *unit = &play->units[row.unit];
    if (unit->pulled)
        return "the unit is pulled already";
    unit->pulled = true;
    return NULL;
}

static const char *play_forward(struct play *play, struct row row)
{
    struct unit_state *unit = &play->units[row.unit];
    uint8_t *state = done(play, row.unit, row.microbatch);
    if (!unit->pulled)
        return "the unit is not pulled yet";
    if (*state & DONE_F)
        return "this forward has run already";
    if (row.unit > 0 && !(*done(play, row.unit - 1, row.microbatch) & DONE_F))
        return "the previous unit's forward has not run";
    if (row.unit + 1 == play->program->units && row.microbatch != unit->forwarded)
        return "the last unit's forward adds gradients, and this is not the next microbatch";
    *state |= DONE_F;
    unit->forwarded++;
    return NULL;
}

static const char *play_drop(struct play *play, struct row row)
{
    uint8_t *state = done(play, row.unit, row.microbatch);
    if (!(*state & DONE_F) || *state & (DROPPED | DONE_B))
        return "there are no activations to drop";
    *state |= DROPPED;
    return NULL;
}

static const char *play_recompute(struct play *play, struct row row)
{
    uint8_t *state = done(play, row.unit, row.microbatch);
    if (!(*state & DROPPED))
        return "the activations were not dropped";
    if (row.unit + 1 == play->program->units)
        return "the last unit's forward adds gradients and cannot run again";
    *state &= (uint8_t)~DROPPED;
    return NULL;
}

static const char *play_backward(struct play *play, struct row row)
{
    struct unit_state *unit = &play->units[row.unit];
    uint8_t *state = done(play, row.unit, row.microbatch);
    uint32_t last = play->program->units - 1;
    if (!(*done(play, last, row.microbatch) & DONE_F))
        return "the forward of this microbatch has not ended";
    if (row.unit < last && !(*done(play, row.unit + 1, row.microbatch) & DONE_B))
        return "the next unit's backward has not run";
    if (*state & DONE_B)
        return "this backward has run already";
    if (*state & DROPPED)
        return "the activations were dropped and not recomputed";
    if (row.microbatch != unit->accumulated)
        return "microbatches add up in order, and this is not the next one";
    *state |= DONE_B;
    unit->accumulated++;
    return NULL;
}

static const char *play_push(struct play *play, struct row row)
{
    struct unit_state *unit = &play->units[row.unit];
    if (unit->pushed)
        return "the unit is pushed already";
    if (unit->accumulated != play->program->microbatches)
        return "not all microbatches' gradients are in";
    unit->pushed = true;
    return NULL;
}

static const char *(*const plays[ACT_COUNT])(struct play *play, struct row row) = {
    [ACT_F] = play_forward, [ACT_B] = play_backward, [ACT_RC] = play_recompute,
    [ACT_DROP] = play_drop, [ACT_PULL] = play_pull,  [ACT_PUSH] = play_push,
};

static enum err row_wrong(const struct program *program, uint32_t i, const char *wrong,
                          struct reason *reason)
{
    struct row row = program->rows[i];
    if (row.act < ACT_COUNT && !act_names_microbatch(row.act))
        return reason_set(reason, ERR_INVALID, "program row %u (%s of unit %u): %s", i + 1,
                          act_name(row.act), row.unit, wrong);
    return reason_set(reason, ERR_INVALID, "program row %u (%s of unit %u, microbatch %u): %s",
                      i + 1, row.act < ACT_COUNT ? act_name(row.act) : "?", row.unit,
                      row.microbatch, wrong);
}

static enum err play_rows(struct play *play, struct reason *reason)
{
    const struct program *program = play->program;
    for (uint32_t i = 0; i < program->rows_count; i++) {
        struct row row = program->rows[i];
        const char *wrong = NULL;
        if (row.act >= ACT_COUNT)
            wrong = "no such act";
        else if (row.unit >= program->units)
            wrong = "no such unit";
        else if (row.microbatch >= program->microbatches)
            wrong = "no such microbatch";
        else
            wrong = plays[row.act](play, row);
        if (wrong != NULL)
            return row_wrong(program, i, wrong, reason);
    }
    for (uint32_t unit = 0; unit < program->units; unit++)
        if (!play->units[unit].pushed)
            return reason_set(reason, ERR_INVALID,
                              "program ends after row %u: unit %u is not pushed",
                              program->rows_count, unit);
    return ERR_OK;
}

enum err program_validate(const struct program *program, struct reason *reason)
{
    uint64_t cells = (uint64_t)program->units * program->microbatches;
    if (cells == 0)
        return reason_set(reason, ERR_INVALID, "program has no units or no microbatches");
    /* Each cell needs its F and a backward: this bounds the memory below by the rows. */
    if (cells > program->rows_count / 2)
        return reason_set(reason, ERR_INVALID,
                          "program has %u rows, too few for %u units and %u microbatches",
                          program->rows_count, program->units, program->microbatches);
    scoped(free_scoped) struct unit_state *units = calloc(program->units, sizeof *units);
    scoped(free_scoped) uint8_t *cell = calloc(cells, 1);
    if (units == NULL || cell == NULL)
        return ERR_NOMEM;
    struct play play = {.program = program, .units = units, .done = cell};
    return play_rows(&play, reason);
}
