#include "common/program/play.h"

#include <stdlib.h>

/* What is wrong when an array should be there, when it should not, and (after "unit 3") when it is
 * left at the end. */
static const struct {
    const char *missing, *present, *left;
} words[ARRAY_COUNT] = {
    [ARRAY_OUTPUT] = {"its forward has not run, or its backward has",
                      "this forward has run already", "has a forward without a backward"},
    [ARRAY_ARRIVED] = {"the unit's input has not arrived", "the unit's input has arrived already",
                       "has an input that no forward takes"},
    [ARRAY_DINPUT] = {"the gradient of its input is not there",
                      "the gradient of its input is there already",
                      "has a gradient that no backward takes"},
    [ARRAY_RETURNED] = {"the gradient of its result has not arrived",
                        "the gradient of its result has arrived already",
                        "has a received gradient that no backward takes"},
    [ARRAY_SAVED] = {"there are no activations", "the activations are there already",
                     "has activations that no backward takes"},
    [ARRAY_LEFT] = {"the gradient of its input was not computed",
                    "the gradient of its input was computed already",
                    "has a weight gradient that is not computed"},
    [ARRAY_HOSTED] = {"no activations are in the host's memory",
                      "activations are in the host's memory already",
                      "has activations in the host's memory that do not come back"},
    [ARRAY_SENT_OUTPUT] = {NULL, "it is sent already", "has a result that nobody receives"},
    [ARRAY_SENT_DINPUT] = {NULL, "it is sent already", "has a gradient that nobody receives"},
    [ARRAY_SAMPLES] = {"no samples are loaded", "samples are loaded already", NULL},
    [ARRAY_ASKED] = {NULL, "the unit is asked for already", "is asked for, and not pulled"},
    [ARRAY_PULLED] = {"the unit is not pulled yet", "the unit is pulled already", NULL},
    [ARRAY_OWN] = {"the slot has no weights of its own", "the slot has weights of its own already",
                   "has weights of the slot's own that are not pushed"},
    [ARRAY_GRADIENTS] = {"the gradients were not begun", "the gradients before were not used",
                         "is not pushed"},
    [ARRAY_NORMS] = {"the gradients were not begun", "the gradients before were not used",
                     "is not pushed"},
    [ARRAY_HEAD] = {"the gradients were not begun", "the gradients before were not used",
                    "is not pushed"},
    [ARRAY_LOSSES] = {"the losses were not begun", "the losses before were not summed",
                      "has losses that are not summed"},
    [ARRAY_SLOT_LOSS] = {"no losses are summed", NULL, NULL},
    [ARRAY_LOSS] = {"the loss is not there", "the loss is there already", "has a loss unpushed"},
    [ARRAY_PUSHED] = {"the unit is not pushed yet", "the unit is pushed already", NULL},
    [ARRAY_FREED] = {NULL, "the unit's gradients are freed already", NULL},
    [ARRAY_INPUT] = {"the previous unit's forward has not run", NULL, NULL},
    [ARRAY_DOUTPUT] = {"the next unit's backward has not run", NULL, NULL},
    [ARRAY_WEIGHTS] = {"the unit is not pulled yet", NULL, NULL},
};

void play_release(struct play *play)
{
    free(play->owners);
    free(play->cells);
    free(play->slots);
    free(play->held);
    free(play->added);
    free(play->next);
}

enum err play_init(struct play *play, const struct program *program)
{
    size_t cells = (size_t)program->units * program->microbatches;
    size_t slots = (size_t)program->units * program->slots;
    size_t held = (size_t)program->units * program->places_count;
    *play = (struct play){
        .program = program,
        .slot_microbatches = program->microbatches / program->slots,
        .cells = calloc(cells, sizeof *play->cells),
        .slots = calloc(slots, sizeof *play->slots),
        .held = calloc(held, sizeof *play->held),
        .added = calloc(slots, sizeof *play->added),
        .next = calloc(program->places_count, sizeof *play->next),
    };
    if (play->cells == NULL || play->slots == NULL || play->held == NULL || play->added == NULL ||
        play->next == NULL)
        return ERR_NOMEM;
    return program_owners(program, &play->owners);
}

uint32_t play_owner(const struct play *play, uint32_t unit, uint32_t slot)
{
    return play->owners[(size_t)unit * play->program->slots + slot];
}

static bool is_sum(enum array array)
{
    return array >= ARRAY_GRADIENTS && array < ARRAY_GRADIENTS + ARRAY_SUMS;
}

/* ---- one array of a row ---- */

/* An array by its own name, and by the act's. */
struct spot {
    enum array array, called;
    uint32_t unit, microbatch, slot;
};

/* The unit before (or after) and what this place has of it, or gets from its place. */
struct neighbour {
    enum array called, array; /* array: of the neighbour, when it is at this place too */
    enum array received;      /* of the own unit, when it is not */
    bool next;
};

static const struct neighbour neighbours[] = {
    {ARRAY_INPUT, ARRAY_OUTPUT, ARRAY_ARRIVED, false},
    {ARRAY_DOUTPUT, ARRAY_DINPUT, ARRAY_RETURNED, true},
    {ARRAY_SENT_INPUT, ARRAY_SENT_OUTPUT, ARRAY_SENT_OUTPUT, false},
    {ARRAY_SENT_DOUTPUT, ARRAY_SENT_DINPUT, ARRAY_SENT_DINPUT, true},
};

static bool at_border(const struct play *play, struct spot spot, bool next)
{
    return next ? spot.unit + 1 == play->program->units : spot.unit == 0;
}

/* Whether the unit before (or after) is another place's. At the model's ends there is none. */
static bool elsewhere(const struct play *play, struct spot spot, bool next)
{
    uint32_t unit = next ? spot.unit + 1 : spot.unit - 1;
    return !at_border(play, spot, next) && play_owner(play, unit, spot.slot) != play->place;
}

/* False: the unit at the model's end has no such array. */
static bool find_neighbour(const struct play *play, const struct neighbour *neighbour,
                           struct spot *spot)
{
    bool of_own =
        neighbour->array != neighbour->received && elsewhere(play, *spot, neighbour->next);
    if (at_border(play, *spot, neighbour->next))
        return false;
    spot->array = of_own ? neighbour->received : neighbour->array;
    if (!of_own)
        spot->unit += neighbour->next ? 1 : -1U;
    return true;
}

static bool find_spot(const struct play *play, struct program_row row, enum array array,
                      struct spot *ret_spot)
{
    struct spot spot = {array, array, row.unit, row.microbatch, program_slot(play->program, row)};
    bool found = true;
    for (size_t i = 0; i < sizeof neighbours / sizeof *neighbours; i++)
        if (neighbours[i].called == array)
            found = find_neighbour(play, &neighbours[i], &spot);
    if (array == ARRAY_WEIGHTS)
        spot.array = play->program->local_steps > 0 ? ARRAY_OWN : ARRAY_PULLED;
    *ret_spot = spot;
    return found;
}

static struct state *spot_state(const struct play *play, struct spot spot)
{
    const struct program *program = play->program;
    if (spot.array < ARRAY_ACTIVATIONS)
        return &play->cells[(size_t)spot.unit * program->microbatches + spot.microbatch];
    if (spot.array >= ARRAY_ASKED && spot.array <= ARRAY_OWN)
        return &play->held[(size_t)play->place * program->units + spot.unit];
    return &play->slots[(size_t)spot.unit * program->slots + spot.slot];
}

static uint32_t *spot_added(struct play *play, struct spot spot)
{
    size_t at = (size_t)spot.unit * play->program->slots + spot.slot;
    return &play->added[at][spot.array - ARRAY_GRADIENTS];
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
    if (spot_state(play, spot)->whole & spot_bit(spot))
        return NULL;
    return words[spot.array == ARRAY_ARRIVED || spot.array == ARRAY_RETURNED ? spot.array
                                                                             : spot.called]
        .missing;
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
    if (is_sum(spot.array))
        *spot_added(play, spot) = 0;
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
    uint32_t *added = spot_added(play, spot);
    if (row.microbatch != spot.slot * play->slot_microbatches + *added)
        return "microbatches add up in order, and this is not the next one";
    if (++*added == play->slot_microbatches)
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
        if (!(set & UINT32_C(1) << array) || !find_spot(play, row, (enum array)array, &spot))
            continue;
        const char *wrong = one(play, row, spot);
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}

/* What acts between places need, beside arrays. */
static const char *play_border_act(const struct play *play, struct program_row row, uint32_t all)
{
    struct spot spot = {.unit = row.unit, .slot = program_slot(play->program, row)};
    bool before = (all & (ARRAY(SENT_INPUT) | ARRAY(SENT_DINPUT))) != 0;
    bool after = (all & (ARRAY(SENT_OUTPUT) | ARRAY(SENT_DOUTPUT))) != 0;
    if (before && !elsewhere(play, spot, false))
        return "no other place has the unit before";
    if (after && !elsewhere(play, spot, true))
        return "no other place has the next unit";
    return NULL;
}

/* Slots are added like microbatches: in order. */
static const char *play_slot_order(const struct play *play, struct program_row row)
{
    uint32_t slot = program_slot(play->program, row);
    struct spot before = {.array = ARRAY_PUSHED, .unit = row.unit, .slot = slot - 1};
    if (slot == 0 || play_owner(play, row.unit, slot - 1) != play->place ||
        spot_state(play, before)->there & spot_bit(before))
        return NULL;
    return "slots add up in order, and this is not the next one";
}

static const char *play_unit(struct play *play, struct program_row row)
{
    struct act_arrays arrays = act_arrays(row.act, program_unit(play->program, row.unit));
    uint32_t all = arrays.reads | arrays.writes | arrays.begins | arrays.adds | arrays.ends;
    if (all == 0)
        return "this act is the last unit's";
    if (all & ARRAY(OWN) && play->program->local_steps == 0)
        return "the program has no local steps";
    const char *wrong = play_border_act(play, row, all);
    if (wrong == NULL && all & ARRAY(PUSHED))
        wrong = play_slot_order(play, row);
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
    for (size_t i = 0; wrong == NULL && i < sizeof parts / sizeof *parts; i++)
        wrong = play_set(play, row, parts[i].set, parts[i].one);
    return wrong;
}

/* What the row names is there, and this place's. */
static const char *judge_names(const struct play *play, struct program_row row)
{
    const struct program *program = play->program;
    if (row.act >= ACT_COUNT)
        return "no such act";
    enum act_scope scope = act_facts(row.act)->scope;
    if (row.unit >= program->units)
        return "no such unit";
    if (scope == ACT_OF_MICROBATCH && row.microbatch >= program->microbatches)
        return "no such microbatch";
    if ((scope == ACT_OF_SLOT || scope == ACT_OF_UNIT_SLOT) && row.microbatch >= program->slots)
        return "no such slot";
    if ((scope == ACT_OF_MICROBATCH || scope == ACT_OF_UNIT_SLOT) &&
        play_owner(play, row.unit, program_slot(program, row)) != play->place)
        return "another place has this unit";
    return NULL;
}

static const char *play_units(struct play *play, struct program_row row)
{
    enum act_scope scope = act_facts(row.act)->scope;
    if (scope != ACT_OF_ALL && scope != ACT_OF_SLOT)
        return play_unit(play, row);
    const char *wrong = NULL;
    uint32_t slot = program_slot(play->program, row);
    for (row.unit = 0; wrong == NULL && row.unit < play->program->units; row.unit++)
        if (play_owner(play, row.unit, slot) == play->place)
            wrong = play_unit(play, row);
    return wrong;
}

const char *play_row(struct play *play, struct program_row row)
{
    const char *wrong = judge_names(play, row);
    return wrong != NULL ? wrong : play_units(play, row);
}

/* The row receives what is not sent yet. */
bool play_waits(const struct play *play, struct program_row row)
{
    if (judge_names(play, row) != NULL ||
        play_border_act(play, row, act_facts(row.act)->each.reads) != NULL)
        return false;
    uint32_t received = act_facts(row.act)->each.reads & (ARRAY(SENT_INPUT) | ARRAY(SENT_DOUTPUT));
    struct spot spot;
    for (int array = ARRAY_SENT_INPUT; array <= ARRAY_SENT_DOUTPUT; array++)
        if (received & UINT32_C(1) << array && find_spot(play, row, (enum array)array, &spot) &&
            !(spot_state(play, spot)->there & spot_bit(spot)))
            return true;
    return false;
}

/* The first array of `set` that must not be left. */
const char *play_left(uint32_t set)
{
    for (int array = 0; array < ARRAY_COUNT; array++)
        if (set & UINT32_C(1) << array && words[array].left != NULL)
            return words[array].left;
    return NULL;
}
