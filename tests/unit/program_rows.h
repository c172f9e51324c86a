/* What a program is made of, counted. */
#ifndef ROOST_TESTS_UNIT_PROGRAM_ROWS_H
#define ROOST_TESTS_UNIT_PROGRAM_ROWS_H

#include "common/program/program.h"

/* Rows of an act, in all places. */
static inline uint32_t rows_of(const struct program *program, enum act act)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < program->places_count; p++)
        for (uint32_t i = 0; i < program->places[p].rows_count; i++)
            count += program->places[p].rows[i].act == act;
    return count;
}

#endif
