/* Programs as text: the CSV of torch.distributed.pipelining's schedules
 * (torch/distributed/pipelining/schedules.py, _Action). */
#include "common/program/program.h"

#include <stdlib.h>
#include <string.h>

static bool names_unit(enum act_scope scope)
{
    return scope != ACT_OF_ALL && scope != ACT_OF_SLOT;
}

static bool names_slot(enum act_scope scope)
{
    return scope == ACT_OF_SLOT || scope == ACT_OF_UNIT_SLOT;
}

static enum err print_row(struct program_row row, struct buf *buf)
{
    const struct act_facts *act = act_facts(row.act);
    if (names_unit(act->scope))
        TRY(buf_printf(buf, "%u", row.unit));
    TRY(buf_printf(buf, "%s", act->text));
    if (act->scope == ACT_OF_MICROBATCH || (names_slot(act->scope) && row.microbatch > 0))
        TRY(buf_printf(buf, "%u", row.microbatch));
    return ERR_OK;
}

static enum err print_place(const struct program *program, const struct program_place *place,
                            struct buf *buf)
{
    bool body = place->body_first < place->body_end;
    for (uint32_t i = 0; i < place->rows_count; i++) {
        if (i > 0)
            TRY(buf_append(buf, ",", 1));
        if (body && i == place->body_first)
            TRY(buf_printf(buf, "%u(,", program->local_steps));
        TRY(print_row(place->rows[i], buf));
        if (body && i + 1 == place->body_end)
            TRY(buf_printf(buf, ",)"));
    }
    return buf_append(buf, "\n", 1);
}

enum err program_print(const struct program *program, struct buf *buf)
{
    for (uint32_t i = 0; i < program->places_count; i++)
        TRY(print_place(program, &program->places[i], buf));
    return ERR_OK;
}

struct text_cursor {
    const char *at, *end;
    const char *line_start;
    uint32_t line;
};

static enum err malformed(const struct text_cursor *cursor, const char *at, const char *what,
                          struct reason *reason)
{
    return reason_set(reason, ERR_MALFORMED, "program line %u, column %u: %s", cursor->line,
                      (unsigned)(at - cursor->line_start) + 1, what);
}

/* Digits below `limit`; false when there are none or the number is not below it. */
static bool read_number(struct text_cursor *cursor, uint32_t limit, uint32_t *ret_number)
{
    const char *start = cursor->at;
    uint32_t number = 0;
    while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9') {
        number = number * 10 + (uint32_t)(*cursor->at++ - '0');
        if (number >= limit)
            return false;
    }
    *ret_number = number;
    return cursor->at > start;
}

static bool read_act(struct text_cursor *cursor, enum act *ret_act)
{
    const char *start = cursor->at;
    while (cursor->at < cursor->end &&
           ((*cursor->at >= 'A' && *cursor->at <= 'Z') || *cursor->at == '_'))
        cursor->at++;
    size_t length = (size_t)(cursor->at - start);
    for (int act = 0; act < ACT_COUNT; act++) {
        const char *text = act_facts((enum act)act)->text;
        if (strlen(text) == length && memcmp(text, start, length) == 0) {
            *ret_act = (enum act)act;
            return true;
        }
    }
    return false;
}

static void skip_blanks(struct text_cursor *cursor)
{
    while (cursor->at < cursor->end &&
           (*cursor->at == ' ' || *cursor->at == '\t' || *cursor->at == '\r'))
        cursor->at++;
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* `numbered`: the cell begins with `unit`. */
static enum err read_row(struct text_cursor *cursor, bool numbered, uint32_t unit,
                         struct program_row *ret_row, struct reason *reason)
{
    const char *start = cursor->at;
    struct program_row row = {.unit = unit};
    if (!read_act(cursor, &row.act))
        return malformed(cursor, start, "no such act", reason);
    enum act_scope scope = act_facts(row.act)->scope;
    if (numbered != names_unit(scope))
        return malformed(cursor, start,
                         numbered ? "this act names no unit" : "this act names a unit", reason);
    if (unit >= PROGRAM_UNITS_MAX)
        return malformed(cursor, start, "a unit's number is below 4096", reason);
    start = cursor->at;
    if (scope == ACT_OF_MICROBATCH &&
        !read_number(cursor, PROGRAM_MICROBATCHES_MAX, &row.microbatch))
        return malformed(cursor, start, "this act ends with a microbatch's number below 65536",
                         reason);
    if (names_slot(scope) && cursor->at < cursor->end && is_digit(*cursor->at) &&
        !read_number(cursor, PROGRAM_MICROBATCHES_MAX, &row.microbatch))
        return malformed(cursor, start, "a slot's number is below 65536", reason);
    *ret_row = row;
    return ERR_OK;
}

/* ---- places ---- */

/* What is read so far: whole places, and the one under way with an array of rows in `rows`. */
struct text_reader {
    struct text_cursor cursor;
    struct program program;
    struct program_place place;
    struct buf rows;
    bool in_body;
    uint32_t rows_count; /* of all places */
};

static enum err take_row(struct text_reader *reader, struct program_row row, struct reason *reason)
{
    struct program *program = &reader->program;
    enum act_scope scope = act_facts(row.act)->scope;
    uint32_t *named = names_slot(scope) ? &program->slots : &program->microbatches;
    if (++reader->rows_count > PROGRAM_ROWS_MAX)
        return malformed(&reader->cursor, reader->cursor.at, "too many rows", reason);
    if (row.unit >= program->units)
        program->units = row.unit + 1;
    if (row.microbatch >= *named)
        *named = row.microbatch + 1;
    reader->place.rows_count++;
    return buf_append(&reader->rows, &row, sizeof row);
}

static enum err begin_body(struct text_reader *reader, uint32_t steps, struct reason *reason)
{
    struct program *program = &reader->program;
    const char *at = reader->cursor.at++;
    if (steps == 0 || reader->in_body || reader->place.body_end > 0)
        return malformed(&reader->cursor, at, "a place has one body, walked once or more", reason);
    if (program->local_steps > 0 && program->local_steps != steps)
        return malformed(&reader->cursor, at, "bodies are walked equally often", reason);
    program->local_steps = steps;
    reader->place.body_first = reader->place.rows_count;
    reader->in_body = true;
    return ERR_OK;
}

static enum err end_body(struct text_reader *reader, struct reason *reason)
{
    const char *at = reader->cursor.at++;
    if (!reader->in_body || reader->place.body_first == reader->place.rows_count)
        return malformed(&reader->cursor, at, "there is no body to end", reason);
    reader->place.body_end = reader->place.rows_count;
    reader->in_body = false;
    return ERR_OK;
}

static enum err read_cell(struct text_reader *reader, struct reason *reason)
{
    struct text_cursor *cursor = &reader->cursor;
    const char *start = cursor->at;
    bool numbered = is_digit(*start);
    uint32_t number = 0;
    struct program_row row;
    if (*start == ')')
        return end_body(reader, reason);
    if (numbered && !read_number(cursor, PROGRAM_LOCAL_STEPS_MAX + 1, &number))
        return malformed(cursor, start, "a cell begins with a number up to 65536", reason);
    if (numbered && cursor->at < cursor->end && *cursor->at == '(')
        return begin_body(reader, number, reason);
    TRY(read_row(cursor, numbered, number, &row, reason));
    return take_row(reader, row, reason);
}

/* A line is over: its rows, if there are any, are a place. */
static enum err end_place(struct text_reader *reader, struct reason *reason)
{
    if (reader->in_body)
        return malformed(&reader->cursor, reader->cursor.at, "the body does not end", reason);
    if (reader->place.rows_count == 0)
        return ERR_OK;
    struct program *program = &reader->program;
    struct program_place *places =
        realloc(program->places, (program->places_count + 1) * sizeof *places);
    if (places == NULL)
        return ERR_NOMEM;
    program->places = places;
    reader->place.rows = (struct program_row *)(void *)buf_detach(&reader->rows).data;
    places[program->places_count++] = reader->place;
    reader->place = (struct program_place){0};
    return ERR_OK;
}

static enum err read_places(struct text_reader *reader, struct reason *reason)
{
    struct text_cursor *cursor = &reader->cursor;
    for (bool separated = true;;) {
        skip_blanks(cursor);
        if (cursor->at == cursor->end)
            return end_place(reader, reason);
        bool ends = *cursor->at == '\n' || *cursor->at == ';';
        if (ends) {
            TRY(end_place(reader, reason));
            cursor->line++;
            cursor->line_start = cursor->at + 1;
        }
        if (*cursor->at == ',' || ends) {
            cursor->at++;
            separated = true;
            continue;
        }
        if (!separated)
            return malformed(cursor, cursor->at, "a comma should be here", reason);
        TRY(read_cell(reader, reason));
        separated = false;
    }
}

enum err program_parse(struct slice text, struct program *ret_program, struct reason *reason)
{
    const char *start = text.bytes > 0 ? (const char *)text.data : "";
    struct text_reader reader = {
        .cursor = {.at = start, .end = start + text.bytes, .line_start = start, .line = 1},
        .program = {.slots = 1}};
    enum err err = read_places(&reader, reason);
    buf_release(&reader.rows);
    if (err != ERR_OK) {
        program_release(&reader.program);
        return err;
    }
    *ret_program = reader.program;
    return ERR_OK;
}
