/* A program as text. What parses prints to text that parses to the same rows; what is valid has
 * places that all end inside the arena. */
#include "tests/fuzz/fuzz.h"

#include "common/scoped.h"
#include "worker/program/memory.h"

#include <stdlib.h>
#include <string.h>

static void check_same(const struct program_place *a, const struct program_place *b)
{
    check(a->rows_count == b->rows_count);
    check(a->body_first == b->body_first && a->body_end == b->body_end);
    for (uint32_t i = 0; i < a->rows_count; i++) {
        check(a->rows[i].act == b->rows[i].act);
        check(a->rows[i].unit == b->rows[i].unit);
        check(a->rows[i].microbatch == b->rows[i].microbatch);
    }
}

static void check_printed(const struct program *program)
{
    scoped(buf_release) struct buf text = {0};
    scoped(program_release) struct program again = {0};
    check(program_print(program, &text) == ERR_OK);
    check(program_parse(buf_slice(&text), &again, NULL) == ERR_OK);
    check(again.units == program->units && again.microbatches == program->microbatches);
    check(again.local_steps == program->local_steps);
    check(again.places_count == program->places_count);
    for (uint32_t p = 0; p < again.places_count; p++)
        check_same(&again.places[p], &program->places[p]);
}

static void check_memory(const struct program *program)
{
    scoped(program_memory_release) struct program_memory memory = {0};
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
    check(program_memory_plan(program, program->places, sizes, &memory) == ERR_OK);
    check(memory.live_bytes_max <= memory.arena_bytes);
    for (uint32_t i = 0; i < program->places->rows_count; i++) {
        const struct program_offsets *at = &memory.rows[i];
        check(at->output == PROGRAM_NOWHERE || at->output < memory.arena_bytes);
        check(at->saved == PROGRAM_NOWHERE || at->saved < memory.arena_bytes);
        check(at->dinput == PROGRAM_NOWHERE || at->dinput < memory.arena_bytes);
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
        check_memory(&program);
    return 0;
}
