/* The validator: plays the rows of the table of acts and keeps which arrays are there. */
#include "common/scoped.h"
#include "worker/program/program.h"

#include <stdlib.h>

/* What is wrong when an array should be there, when it should not, and (after "unit 3") when it is
 * left at the end. */
static const struct {
    const char *missing, *present, *left;
} words[ARRAY_COUNT] = {
    [ARRAY_OUTPUT] = {"its forward has not run, or its backward has",
                      "this forward has run already", "has a forward without a backward"},
    [ARRAY_DINPUT] = {"the gradient of its input is not there",
                      "the gradient of its input is there already",
                      "has a gradient that no backward takes"},
    [ARRAY_SAVED] = {"there are no activations", "the activations are there already",
                     "has activations that no backward takes"},
    [ARRAY_SAMPLES] = {"no samples are loaded", "samples are loaded already", NULL},
    [ARRAY_PULLED] = {"the unit is not pulled yet", "the unit is pulled already", NULL},
    [ARRAY_OWN] = {"the slot has no weights of its own", "the slot has weights of its own already",
                   "has weights of the slot's own that are not pushed"},
    [ARRAY_GRADIENTS] = {"the gradients were not begun", "the gradients before were not used",
                         "is not pushed"},
    [ARRAY_HEAD] = {"the gradients were not begun", "the gradients before were not used",
                    "is not pushed"},
    [ARRAY_LOSSES] = {"the losses were not begun", "the losses before were not summed",
                      "has losses that are not summed"},
    [ARRAY_SLOT_LOSS] = {"no losses are summed", NULL, NULL},
    [ARRAY_LOSS] = {"the loss is not there", "the loss is there already", "has a loss unpushed"},
    [ARRAY_PUSHED] = {NULL, "the unit is pushed already", NULL},
    [ARRAY_INPUT] = {"the previous unit's forward has not run", NULL, NULL},
    [ARRAY_DOUTPUT] = {"the next unit's backward has not run", NULL, NULL},
    [ARRAY_WEIGHTS] = {"the unit is not pulled yet", NULL, NULL},
};

/* Sets of arrays. */
struct state {
    uint32_t there;
    uint32_t whole; /* of them: nothing is missing */
};

struct play {
    const struct program *program;
    const struct program_place *place;
    struct state *units;            /* what exists once for each unit */
    struct state *cells;            /* what exists for each (unit, microbatch) */
    uint32_t (*added)[ARRAY_COUNT]; /* (units) microbatches in each sum */
};

static struct state *cell_state(struct play *play, uint32_t unit, uint32_t microbatch)
{
    return &play->cells[(size_t)unit * play->program->microbatches + microbatch];
}

static bool is_sum(enum array array)
{
    return array == ARRAY_GRADIENTS || array == ARRAY_HEAD || array == ARRAY_LOSSES;
}

/* ---- one array of a row ---- */

/* An array by its own name, and by the act's. */
struct spot {
    enum array array, called;
    uint32_t unit, microbatch;
};

/* False: the unit at the model's end has no such array. */
static bool find_spot(const struct program *program, struct program_row row, enum array array,
                      struct spot *ret_spot)
{
    struct spot spot = {array, array, row.unit, row.microbatch};
    if (array == ARRAY_INPUT) {
        if (row.unit == 0)
            return false;
        spot.array = ARRAY_OUTPUT;
        spot.unit = row.unit - 1;
    } else if (array == ARRAY_DOUTPUT) {
        if (row.unit + 1 == program->units)
            return false;
        spot.array = ARRAY_DINPUT;
        spot.unit = row.unit + 1;
    } else if (array == ARRAY_WEIGHTS) {
        spot.array = program->local_steps > 0 ? ARRAY_OWN : ARRAY_PULLED;
    }
    *ret_spot = spot;
    return true;
}

static struct state *spot_state(struct play *play, struct spot spot)
{
    bool activation = spot.array < ARRAY_ACTIVATIONS;
    return activation ? cell_state(play, spot.unit, spot.microbatch) : &play->units[spot.unit];
}

static uint32_t spot_bit(struct spot spot)
{
    return UINT32_C(1) << spot.array;
}

/* Each of the functions below returns NULL or what is wrong with the row. */

static const char *play_read(struct play *play, struct program_row row, struct spot spot)
{
    (void)row;
    if (is_sum(spot.array) &&
        spot_state(play, spot)->there & ~spot_state(play, spot)->whole & spot_bit(spot))
        return "not all microbatches are in";
    return spot_state(play, spot)->whole & spot_bit(spot) ? NULL : words[spot.called].missing;
}

static const char *play_absent(struct play *play, struct program_row row, struct spot spot)
{
    (void)row;
    return spot_state(play, spot)->there & spot_bit(spot) ? words[spot.array].present : NULL;
}

static const char *play_begin(struct play *play, struct program_row row, struct spot spot)
{
    (void)row;
    spot_state(play, spot)->there |= spot_bit(spot);
    spot_state(play, spot)->whole &= ~spot_bit(spot);
    play->added[spot.unit][spot.array] = 0;
    return NULL;
}

static const char *play_write(struct play *play, struct program_row row, struct spot spot)
{
    (void)row;
    spot_state(play, spot)->there |= spot_bit(spot);
    spot_state(play, spot)->whole |= spot_bit(spot);
    return NULL;
}

static const char *play_add(struct play *play, struct program_row row, struct spot spot)
{
    if (spot.array != ARRAY_SLOT_LOSS && !(spot_state(play, spot)->there & spot_bit(spot)))
        return words[spot.called].missing;
    if (!is_sum(spot.array))
        return play_write(play, row, spot);
    if (row.microbatch != play->added[spot.unit][spot.array])
        return "microbatches add up in order, and this is not the next one";
    if (++play->added[spot.unit][spot.array] == play->program->microbatches)
        return play_write(play, row, spot);
    return NULL;
}

static const char *play_end(struct play *play, struct program_row row, struct spot spot)
{
    (void)row;
    spot_state(play, spot)->there &= ~spot_bit(spot);
    spot_state(play, spot)->whole &= ~spot_bit(spot);
    return NULL;
}

/* ---- one row ---- */

typedef const char *play_array(struct play *play, struct program_row row, struct spot spot);

static const char *play_set(struct play *play, struct program_row row, uint32_t set,
                            play_array *one)
{
    for (int array = 0; array < ARRAY_COUNT; array++) {
        struct spot spot;
        if (!(set & UINT32_C(1) << array) ||
            !find_spot(play->program, row, (enum array)array, &spot))
            continue;
        const char *wrong = one(play, row, spot);
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}

static const char *play_unit(struct play *play, struct program_row row)
{
    struct act_arrays arrays = act_arrays(row.act, program_unit(play->program, row.unit));
    uint32_t all = arrays.reads | arrays.writes | arrays.begins | arrays.adds | arrays.ends;
    if (all == 0)
        return "this act is the last unit's";
    if (all & ARRAY(OWN) && play->program->local_steps == 0)
        return "the program has no local steps";
    const struct {
        uint32_t set;
        play_array *one;
    } parts[] = {
        {(arrays.writes | arrays.begins) & ~(arrays.reads | arrays.adds), play_absent},
        {arrays.reads, play_read},
        {arrays.begins, play_begin},
        {arrays.adds, play_add},
        {arrays.writes, play_write},
        {arrays.ends, play_end},
    };
    const char *wrong = NULL;
    for (size_t i = 0; wrong == NULL && i < sizeof parts / sizeof *parts; i++)
        wrong = play_set(play, row, parts[i].set, parts[i].one);
    return wrong;
}

static const char *play_row(struct play *play, struct program_row row)
{
    if (row.act >= ACT_COUNT)
        return "no such act";
    if (row.unit >= play->program->units)
        return "no such unit";
    if (row.microbatch >= play->program->microbatches)
        return "no such microbatch";
    if (act_facts(row.act)->scope != ACT_OF_ALL)
        return play_unit(play, row);
    const char *wrong = NULL;
    for (row.unit = 0; wrong == NULL && row.unit < play->program->units; row.unit++)
        wrong = play_unit(play, row);
    return wrong;
}

static enum err row_wrong(struct program_row row, uint32_t i, const char *wrong,
                          struct reason *reason)
{
    if (row.act >= ACT_COUNT || act_facts(row.act)->scope == ACT_OF_MICROBATCH)
        return reason_set(reason, ERR_INVALID, "program row %u (%s of unit %u, microbatch %u): %s",
                          i + 1, row.act < ACT_COUNT ? act_facts(row.act)->name : "?", row.unit,
                          row.microbatch, wrong);
    if (act_facts(row.act)->scope == ACT_OF_UNIT)
        return reason_set(reason, ERR_INVALID, "program row %u (%s of unit %u): %s", i + 1,
                          act_facts(row.act)->name, row.unit, wrong);
    return reason_set(reason, ERR_INVALID, "program row %u (%s): %s", i + 1,
                      act_facts(row.act)->name, wrong);
}

/* ---- all rows ---- */

static enum err play_rows(struct play *play, uint32_t first, uint32_t end, struct reason *reason)
{
    for (uint32_t i = first; i < end; i++) {
        const char *wrong = play_row(play, play->place->rows[i]);
        if (wrong != NULL)
            return row_wrong(play->place->rows[i], i, wrong, reason);
    }
    return ERR_OK;
}

/* Nothing of a microbatch is under way after `rows` rows. */
static enum err play_border(struct play *play, uint32_t rows, struct reason *reason)
{
    for (uint32_t unit = 0; unit < play->program->units; unit++)
        for (uint32_t microbatch = 0; microbatch < play->program->microbatches; microbatch++)
            if (cell_state(play, unit, microbatch)->there != 0)
                return reason_set(reason, ERR_INVALID,
                                  "program row %u: the body begins or ends while unit %u, "
                                  "microbatch %u is under way",
                                  rows, unit, microbatch);
    return ERR_OK;
}

/* What is walked twice can be walked as often as one likes. */
static enum err play_body(struct play *play, struct reason *reason)
{
    const struct program_place *place = play->place;
    if (place->body_first > place->body_end || place->body_end > place->rows_count ||
        (place->body_first < place->body_end) != (play->program->local_steps > 0))
        return reason_set(reason, ERR_INVALID,
                          "program has %u local steps, and its body is rows %u to %u",
                          play->program->local_steps, place->body_first + 1, place->body_end);
    TRY(play_rows(play, 0, place->body_first, reason));
    TRY(play_border(play, place->body_first, reason));
    for (uint32_t step = 0; step < play->program->local_steps && step < 2; step++) {
        TRY(play_rows(play, place->body_first, place->body_end, reason));
        TRY(play_border(play, place->body_end, reason));
    }
    return play_rows(play, place->body_end, place->rows_count, reason);
}

/* The first array of `set` that must not be left. */
static const char *left_words(uint32_t set)
{
    for (int array = 0; array < ARRAY_COUNT; array++)
        if (set & UINT32_C(1) << array && words[array].left != NULL)
            return words[array].left;
    return NULL;
}

static enum err play_ending(struct play *play, struct reason *reason)
{
    uint32_t units = play->program->units, rows = play->place->rows_count;
    for (uint32_t unit = 0; unit < units; unit++) {
        uint32_t set = play->units[unit].there;
        for (uint32_t m = 0; m < play->program->microbatches; m++)
            set |= cell_state(play, unit, m)->there;
        if (left_words(set) != NULL)
            return reason_set(reason, ERR_INVALID, "program ends after row %u: unit %u %s", rows,
                              unit, left_words(set));
    }
    if (!(play->units[units - 1].there & ARRAY(SLOT_LOSS)))
        return reason_set(reason, ERR_INVALID, "program ends after row %u: no losses are summed",
                          rows);
    return ERR_OK;
}

enum err program_validate(const struct program *program, struct reason *reason)
{
    uint64_t cells = (uint64_t)program->units * program->microbatches;
    if (cells == 0)
        return reason_set(reason, ERR_INVALID, "program has no units or no microbatches");
    if (program->places_count != 1)
        return reason_set(reason, ERR_INVALID, "program has %u places, and a run has one",
                          program->places_count);
    /* Each cell needs its forward: this bounds the memory below by the rows. */
    if (cells > program->places->rows_count)
        return reason_set(reason, ERR_INVALID,
                          "program has %u rows, too few for %u units and %u microbatches",
                          program->places->rows_count, program->units, program->microbatches);
    struct play play = {.program = program, .place = program->places};
    scoped(free_scoped) void *units = play.units = calloc(program->units, sizeof *play.units);
    scoped(free_scoped) void *states = play.cells = calloc(cells, sizeof *play.cells);
    scoped(free_scoped) void *added = play.added = calloc(program->units, sizeof *play.added);
    if (units == NULL || states == NULL || added == NULL)
        return ERR_NOMEM;
    TRY(play_body(&play, reason));
    return play_ending(&play, reason);
}
