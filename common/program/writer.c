#include "common/program/writer.h"

#include <stdlib.h>

static void writer_clear(struct writer *writer)
{
    for (uint32_t p = 0; writer->rows != NULL && p < writer->program.places_count; p++)
        buf_release(&writer->rows[p]);
    free(writer->rows);
    program_release(&writer->program);
    *writer = (struct writer){0};
}

enum err writer_init(struct writer *writer, const struct program *about)
{
    *writer = (struct writer){.program = *about};
    writer->program.places = calloc(about->places_count, sizeof *writer->program.places);
    writer->rows = calloc(about->places_count, sizeof *writer->rows);
    if (writer->program.places != NULL && writer->rows != NULL)
        return ERR_OK;
    free(writer->program.places);
    free(writer->rows);
    *writer = (struct writer){0};
    return ERR_NOMEM;
}

void writer_add(struct writer *writer, uint32_t place, struct program_row row)
{
    check(place < writer->program.places_count);
    if (writer->err == ERR_OK)
        writer->err = buf_append(&writer->rows[place], &row, sizeof row);
    if (writer->err == ERR_OK)
        writer->program.places[place].rows_count++;
}

void writer_add_run(struct writer *writer, uint32_t place, const uint32_t *cuts,
                    struct program_row row)
{
    uint32_t first = cuts[row.unit], end = cuts[row.unit + 1];
    bool upwards = row.act == ACT_F || row.act == ACT_E;
    for (uint32_t i = first; i < end; i++) {
        row.unit = upwards ? i : first + end - 1 - i;
        writer_add(writer, place, row);
    }
}

enum err writer_finish(struct writer *writer, struct program *ret_program)
{
    enum err err = writer->err;
    if (err == ERR_OK) {
        for (uint32_t p = 0; p < writer->program.places_count; p++)
            writer->program.places[p].rows =
                (struct program_row *)(void *)buf_detach(&writer->rows[p]).data;
        *ret_program = writer->program;
        writer->program = (struct program){0};
    }
    writer_clear(writer);
    return err;
}
