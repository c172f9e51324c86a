/* A program as text. What parses prints to text that parses to the same rows; what is valid has
 * places that all end inside the arena. */
#include "tests/fuzz/fuzz.h"

#include "common/scoped.h"
#include "worker/program/program.h"

#include <stdlib.h>
#include <string.h>

static void check_printed(const struct program *program)
{
    scoped(buf_release) struct buf text = {0};
    scoped(program_release) struct program again = {0};
    check(program_print(program, &text) == ERR_OK);
    check(program_parse(buf_slice(&text), &again, NULL) == ERR_OK);
    check(again.units == program->units && again.microbatches == program->microbatches);
    check(again.rows_count == program->rows_count);
    for (uint32_t i = 0; i < again.rows_count; i++) {
        check(again.rows[i].act == program->rows[i].act);
        check(again.rows[i].unit == program->rows[i].unit);
        check(again.rows[i].microbatch == program->rows[i].microbatch);
    }
}

static void check_places(const struct program *program)
{
    scoped(program_places_release) struct program_places places = {0};
    scoped(free_scoped) struct program_sizes *sizes = calloc(program->units, sizeof *sizes);
    check(sizes != NULL);
    for (uint32_t unit = 0; unit < program->units; unit++) {
        bool first = unit == 0, last = unit + 1 == program->units;
        bool in_place = unit % 3 == 1 && !last;
        sizes[unit] = (struct program_sizes){.output = last ? 0 : 100 + unit,
                                             .saved = unit % 2 * 1000,
                                             .dinput = first || in_place ? 0 : 200,
                                             .in_place = in_place};
    }
    check(program_place(program, sizes, &places) == ERR_OK);
    check(places.live_bytes_max <= places.arena_bytes);
    for (uint32_t i = 0; i < program->rows_count; i++) {
        const struct program_place *place = &places.rows[i];
        check(place->output == PROGRAM_NOWHERE || place->output < places.arena_bytes);
        check(place->saved == PROGRAM_NOWHERE || place->saved < places.arena_bytes);
        check(place->dinput == PROGRAM_NOWHERE || place->dinput < places.arena_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    scoped(program_release) struct program program = {0};
    struct reason reason;
    if (program_parse((struct slice){data, bytes}, &program, &reason) != ERR_OK)
        return 0;
    check_printed(&program);
    if (program_validate(&program, &reason) == ERR_OK)
        check_places(&program);
    return 0;
}
