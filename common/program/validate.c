/* The validator: plays the rows of the table of acts. Places are played in turn, each until it waits
 * for another one: what is sent is in no order beside that. */
#include "common/program/play.h"
#include "common/scoped.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- the rows of one place ---- */

/* The number of row i of a place. */
static uint32_t number_of(const struct program_place *place, uint32_t i)
{
    return place->rows[i].number > 0 ? place->rows[i].number : i + 1;
}

/* "program row 3", or with several places "program place 1, row 3". */
struct where {
    char text[64];
};

static struct where where_of(const struct play *play, uint32_t i)
{
    struct where where;
    uint32_t number = number_of(&play->program->places[play->place], i);
    if (play->program->places_count > 1)
        snprintf(where.text, sizeof where.text, "program place %u, row %u", play->place, number);
    else
        snprintf(where.text, sizeof where.text, "program row %u", number);
    return where;
}

static enum err row_wrong(const struct play *play, struct program_row row, uint32_t i,
                          const char *wrong, struct reason *reason)
{
    return reason_set(reason, ERR_INVALID, "%s (%s): %s", where_of(play, i).text,
                      program_row_text(play->program, row).text, wrong);
}

/* From the next row of the place to `end`, or to a row that waits. */
static enum err play_rows(struct play *play, uint32_t end, struct reason *reason)
{
    const struct program_place *place = &play->program->places[play->place];
    uint32_t *next = &play->next[play->place];
    for (; *next < end; ++*next) {
        struct program_row row = place->rows[*next];
        if (play_waits(play, row))
            return ERR_OK;
        const char *wrong = play_row(play, row);
        if (wrong != NULL)
            return row_wrong(play, row, *next, wrong, reason);
    }
    return ERR_OK;
}

/* Nothing of a microbatch is under way after `rows` rows. */
static enum err play_border(struct play *play, uint32_t rows, struct reason *reason)
{
    for (uint32_t unit = 0; unit < play->program->units; unit++)
        for (uint32_t microbatch = 0; microbatch < play->program->microbatches; microbatch++)
            if (play->cells[(size_t)unit * play->program->microbatches + microbatch].there != 0)
                return reason_set(reason, ERR_INVALID,
                                  "program row %u: the body begins or ends while unit %u, "
                                  "microbatch %u is under way",
                                  rows, unit, microbatch);
    return ERR_OK;
}

/* What is walked twice can be walked as often as one likes. */
static enum err play_local_steps(struct play *play, struct reason *reason)
{
    const struct program_place *place = play->program->places;
    TRY(play_rows(play, place->body_first, reason));
    TRY(play_border(play, place->body_first, reason));
    for (uint32_t step = 0; step < 2 && step < play->program->local_steps; step++) {
        play->next[0] = place->body_first;
        TRY(play_rows(play, place->body_end, reason));
        TRY(play_border(play, place->body_end, reason));
    }
    return play_rows(play, place->rows_count, reason);
}

/* ---- all places ---- */

/* The row that sends what a waiting row wants, of the place that has the neighbour; false: none
 * comes. */
static bool find_sender(const struct play *play, struct program_row row, uint32_t *ret_place,
                        uint32_t *ret_row)
{
    bool forward = row.act == ACT_RECV_F;
    uint32_t unit = forward ? row.unit - 1 : row.unit + 1;
    uint32_t sent = forward ? ARRAY(SENT_OUTPUT) : ARRAY(SENT_DINPUT);
    uint32_t sender = play_owner(play, unit, program_slot(play->program, row));
    const struct program_place *place = &play->program->places[sender];
    for (uint32_t i = play->next[sender]; i < place->rows_count; i++) {
        struct program_row sends = place->rows[i];
        if (act_facts(sends.act)->each.writes & sent && sends.unit == unit &&
            sends.microbatch == row.microbatch) {
            *ret_place = sender;
            *ret_row = i;
            return true;
        }
    }
    return false;
}

/* Nobody goes on. To blame is who waits for what nobody sends; without one they wait in a circle.
 */
static enum err play_stuck(struct play *play, struct reason *reason)
{
    uint32_t sender = 0, sends = 0, waiting = 0;
    struct program_row row = {0};
    for (uint32_t p = play->program->places_count; p-- > 0;) {
        const struct program_place *place = &play->program->places[p];
        uint32_t i = play->next[p];
        if (i == place->rows_count)
            continue;
        play->place = waiting = p;
        row = place->rows[i];
        if (!find_sender(play, row, &sender, &sends))
            return row_wrong(play, row, i, "nobody sends it, or not once more", reason);
    }
    play->place = waiting;
    return reason_set(reason, ERR_INVALID,
                      "%s (%s): place %u sends it in row %u, but waits itself in row %u: the "
                      "places wait for each other",
                      where_of(play, play->next[waiting]).text,
                      program_row_text(play->program, row).text, sender,
                      number_of(&play->program->places[sender], sends),
                      number_of(&play->program->places[sender], play->next[sender]));
}

static enum err play_places(struct play *play, struct reason *reason)
{
    const struct program *program = play->program;
    for (bool all = false, moved = true; !all; moved = false) {
        all = true;
        for (play->place = 0; play->place < program->places_count; play->place++) {
            uint32_t before = play->next[play->place];
            uint32_t end = program->places[play->place].rows_count;
            TRY(play_rows(play, end, reason));
            moved |= play->next[play->place] > before;
            all &= play->next[play->place] == end;
        }
        if (!all && !moved)
            return play_stuck(play, reason);
    }
    return ERR_OK;
}

/* What there is of a unit in a slot. */
static uint32_t left_of(const struct play *play, uint32_t unit, uint32_t slot)
{
    const struct program *program = play->program;
    uint32_t place = play_owner(play, unit, slot), count = play->slot_microbatches;
    uint32_t set = play->slots[(size_t)unit * program->slots + slot].there |
                   play->held[(size_t)place * program->units + unit].there;
    for (uint32_t m = slot * count; m < (slot + 1) * count; m++)
        set |= play->cells[(size_t)unit * program->microbatches + m].there;
    return set;
}

static enum err play_ending(struct play *play, struct reason *reason)
{
    const struct program *program = play->program;
    uint32_t last = program->units - 1;
    for (uint32_t i = 0; i < program->units * program->slots; i++) {
        uint32_t unit = i / program->slots, slot = i % program->slots;
        const char *left = play_left(left_of(play, unit, slot));
        bool lossless = unit == last && !(left_of(play, unit, slot) & ARRAY(SLOT_LOSS));
        play->place = play_owner(play, unit, slot);
        const struct program_place *own = &program->places[play->place];
        uint32_t rows = own->rows_count > 0 ? number_of(own, own->rows_count - 1) : 0;
        const char *place = program->places_count > 1 ? "program place" : "program";
        char number[16] = "";
        if (program->places_count > 1)
            snprintf(number, sizeof number, " %u", play->place);
        if (left != NULL)
            return reason_set(reason, ERR_INVALID, "%s%s ends after row %u: unit %u %s", place,
                              number, rows, unit, left);
        if (lossless)
            return reason_set(reason, ERR_INVALID, "%s%s ends after row %u: no losses are summed",
                              place, number, rows);
    }
    return ERR_OK;
}

/* ---- a program as such ---- */

static enum err judge_body(const struct program *program, struct reason *reason)
{
    for (uint32_t p = 0; p < program->places_count; p++) {
        const struct program_place *place = &program->places[p];
        if (place->body_first > place->body_end || place->body_end > place->rows_count ||
            (place->body_first < place->body_end) != (program->local_steps > 0))
            return reason_set(reason, ERR_INVALID,
                              "program has %u local steps, and its body is rows %u to %u",
                              program->local_steps, place->body_first + 1, place->body_end);
    }
    if (program->local_steps > 0 && program->places_count > 1)
        return reason_set(reason, ERR_INVALID,
                          "program has local steps and %u places: a step needs the whole gradient",
                          program->places_count);
    return ERR_OK;
}

/* Each cell needs its forward: this bounds the memory of a play by the rows. */
static enum err judge_size(const struct program *program, struct reason *reason)
{
    uint64_t rows = 0;
    uint64_t cells = (uint64_t)program->units * program->microbatches;
    for (uint32_t p = 0; p < program->places_count; p++)
        rows += program->places[p].rows_count;
    if (cells == 0)
        return reason_set(reason, ERR_INVALID, "program has no units or no microbatches");
    if (cells > rows)
        return reason_set(reason, ERR_INVALID,
                          "program has %" PRIu64
                          " row%s, too few for %u unit%s and %u microbatch%s",
                          rows, plural(rows), program->units, plural(program->units),
                          program->microbatches, program->microbatches == 1 ? "" : "es");
    if (program->places_count > program->units)
        return reason_set(reason, ERR_INVALID, "program has %u places, more than its %u unit%s",
                          program->places_count, program->units, plural(program->units));
    if (program->slots == 0 || program->microbatches % program->slots != 0)
        return reason_set(reason, ERR_INVALID,
                          "program's microbatches, %u, do not divide into %u slot%s",
                          program->microbatches, program->slots, plural(program->slots));
    return ERR_OK;
}

enum err program_validate(const struct program *program, struct reason *reason)
{
    scoped(play_release) struct play play = {0};
    TRY(judge_size(program, reason));
    TRY(judge_body(program, reason));
    TRY(play_init(&play, program));
    if (program->local_steps > 0)
        TRY(play_local_steps(&play, reason));
    else
        TRY(play_places(&play, reason));
    return play_ending(&play, reason);
}
