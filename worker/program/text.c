/* Programs as text: the CSV of torch.distributed.pipelining's schedules
 * (torch/distributed/pipelining/schedules.py, _Action). */
#include "worker/program/program.h"

#include <stdlib.h>
#include <string.h>

static const char *const words[ACT_COUNT] = {
    [ACT_F] = "F",       [ACT_B] = "B",          [ACT_RC] = "RC",
    [ACT_DROP] = "DROP", [ACT_PULL] = "UNSHARD", [ACT_PUSH] = "REDUCE_GRAD",
};

enum err program_print(const struct program *program, struct buf *buf)
{
    for (uint32_t i = 0; i < program->rows_count; i++) {
        struct row row = program->rows[i];
        TRY(buf_printf(buf, "%s%u%s", i ? "," : "", row.unit, words[row.act]));
        if (act_names_microbatch(row.act))
            TRY(buf_printf(buf, "%u", row.microbatch));
    }
    return buf_append(buf, "\n", 1);
}

struct cursor {
    const char *at, *end;
    const char *line_start;
    uint32_t line;
};

static enum err malformed(const struct cursor *cursor, const char *at, const char *what,
                          struct reason *reason)
{
    return reason_set(reason, ERR_MALFORMED, "program line %u, column %u: %s", cursor->line,
                      (unsigned)(at - cursor->line_start) + 1, what);
}

/* Digits below `limit`; false when there are none or the number is not below it. */
static bool read_number(struct cursor *cursor, uint32_t limit, uint32_t *ret_number)
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

static bool read_act(struct cursor *cursor, enum act *ret_act)
{
    const char *start = cursor->at;
    while (cursor->at < cursor->end &&
           ((*cursor->at >= 'A' && *cursor->at <= 'Z') || *cursor->at == '_'))
        cursor->at++;
    size_t length = (size_t)(cursor->at - start);
    for (int act = 0; act < ACT_COUNT; act++) {
        if (strlen(words[act]) == length && memcmp(words[act], start, length) == 0) {
            *ret_act = (enum act)act;
            return true;
        }
    }
    return false;
}

static void skip_blanks(struct cursor *cursor)
{
    while (cursor->at < cursor->end &&
           (*cursor->at == ' ' || *cursor->at == '\t' || *cursor->at == '\r'))
        cursor->at++;
}

static enum err read_cell(struct cursor *cursor, struct row *ret_row, struct reason *reason)
{
    const char *start = cursor->at;
    struct row row = {0};
    if (!read_number(cursor, PROGRAM_UNITS_MAX, &row.unit))
        return malformed(cursor, start, "a cell begins with a unit's number below 4096", reason);
    start = cursor->at;
    if (!read_act(cursor, &row.act))
        return malformed(cursor, start, "no such act", reason);
    start = cursor->at;
    if (act_names_microbatch(row.act) &&
        !read_number(cursor, PROGRAM_MICROBATCHES_MAX, &row.microbatch))
        return malformed(cursor, start, "this act ends with a microbatch's number below 65536",
                         reason);
    *ret_row = row;
    return ERR_OK;
}

/* Appends the row; `buf` holds an array of rows. */
static enum err take_row(struct program *program, struct buf *buf, struct row row)
{
    if (row.unit >= program->units)
        program->units = row.unit + 1;
    if (row.microbatch >= program->microbatches)
        program->microbatches = row.microbatch + 1;
    program->rows_count++;
    return buf_append(buf, &row, sizeof row);
}

static enum err read_rows(struct cursor *cursor, struct program *program, struct buf *buf,
                          struct reason *reason)
{
    for (bool separated = true;;) {
        skip_blanks(cursor);
        if (cursor->at == cursor->end)
            return ERR_OK;
        if (*cursor->at == ',' || *cursor->at == '\n') {
            separated = true;
            if (*cursor->at++ == '\n') {
                cursor->line++;
                cursor->line_start = cursor->at;
            }
            continue;
        }
        if (!separated)
            return malformed(cursor, cursor->at, "a comma should be here", reason);
        if (cursor->line > 1 && program->rows_count > 0)
            return malformed(cursor, cursor->at, "a second rank, and this program has one", reason);
        if (program->rows_count == PROGRAM_ROWS_MAX)
            return malformed(cursor, cursor->at, "too many rows", reason);
        struct row row;
        TRY(read_cell(cursor, &row, reason));
        TRY(take_row(program, buf, row));
        separated = false;
    }
}

enum err program_parse(struct slice text, struct program *ret_program, struct reason *reason)
{
    const char *start = (const char *)text.data;
    struct cursor cursor = {.at = start, .end = start + text.bytes, .line_start = start, .line = 1};
    struct program program = {0};
    struct buf buf = {0};
    enum err err = read_rows(&cursor, &program, &buf, reason);
    if (err != ERR_OK) {
        buf_release(&buf);
        return err;
    }
    program.rows = (struct row *)(void *)buf_detach(&buf).data;
    *ret_program = program;
    return ERR_OK;
}
