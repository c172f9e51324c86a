/* A program as text. What parses prints to text that parses to the same rows; what is valid runs to
 * its end on a fake clock, and its activations lie inside the arenas. */
#include "tests/fuzz/fuzz.h"

#include "common/scoped.h"
#include "worker/program/simulate.h"

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
    check(again.places_count == program->places_count && again.slots == program->slots);
    for (uint32_t p = 0; p < again.places_count; p++)
        check_same(&again.places[p], &program->places[p]);
}

static void check_memory(const struct program *program, const struct program_place *place,
                         const struct program_sizes *sizes)
{
    scoped(program_memory_release) struct program_memory memory = {0};
    check(program_memory_plan(program, place, sizes, &memory) == ERR_OK);
    check(memory.live_bytes_max <= memory.arena_bytes);
    for (uint32_t i = 0; i < place->rows_count; i++) {
        const struct program_offsets *at = &memory.rows[i];
        check(at->output == PROGRAM_NOWHERE || at->output < memory.arena_bytes);
        check(at->saved == PROGRAM_NOWHERE || at->saved < memory.arena_bytes);
        check(at->dinput == PROGRAM_NOWHERE || at->dinput < memory.arena_bytes);
    }
}

static void check_valid(const struct program *program)
{
    scoped(simulate_release) struct simulate_result result = {0};
    scoped(free_scoped) struct program_sizes *sizes = calloc(program->units, sizeof *sizes);
    scoped(free_scoped) struct simulate_cost *costs = calloc(program->units, sizeof *costs);
    check(sizes != NULL && costs != NULL);
    for (uint32_t unit = 0; unit < program->units; unit++) {
        bool first = unit == 0, last = unit + 1 == program->units;
        bool in_place = unit % 3 == 1 && !last;
        sizes[unit] = (struct program_sizes){.output = last ? 0 : 100 + unit,
                                             .saved = unit % 2 * 1000,
                                             .dinput = first || in_place ? 0 : 200,
                                             .in_place = in_place,
                                             .left = 300,
                                             .weights = 500 + unit};
        costs[unit] = (struct simulate_cost){unit + 1, unit % 5, 1};
    }
    for (uint32_t p = 0; p < program->places_count; p++)
        check_memory(program, &program->places[p], sizes);
    const struct simulate_options options = {.costs = costs, .sizes = sizes};
    check(simulate_program(program, &options, &result) == ERR_OK);
    check(simulate_idle_share(&result) >= 0 && simulate_idle_share(&result) < 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    scoped(program_release) struct program program = {0};
    struct reason reason;
    if (program_parse((struct slice){data, bytes}, &program, &reason) != ERR_OK)
        return 0;
    check_printed(&program);
    if (program_validate(&program, &reason) == ERR_OK)
        check_valid(&program);
    return 0;
}
