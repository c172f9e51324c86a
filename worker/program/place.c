/* Where activations lie: plays the rows with a first-fit allocator over one arena.
 *
 * Memory is decided before the run, so a step allocates nothing and its peak is known from the
 * program alone. The allocator is the simplest one: the live places in ascending order, a new one
 * goes into the lowest gap that holds it. One-stage programs free in reverse order, so there the
 * gaps always fit. */
#include "common/scoped.h"
#include "worker/program/program.h"

#include <stdlib.h>
#include <string.h>

enum { PLACE_ALIGNMENT = 64 };

struct interval {
    uint64_t offset, bytes;
};

/* What is alive of one (unit, microbatch). */
struct cell {
    uint64_t output, saved, dinput;
};

struct place {
    const struct program *program;
    const struct program_sizes *sizes;
    struct program_places *places;
    struct cell *cells;
    struct interval *live; /* ascending */
    size_t live_count, live_max;
    uint64_t live_bytes;
};

static struct cell *cell(struct place *place, uint32_t unit, uint32_t microbatch)
{
    return &place->cells[(size_t)unit * place->program->microbatches + microbatch];
}

static uint64_t align(uint64_t bytes)
{
    return (bytes + PLACE_ALIGNMENT - 1) / PLACE_ALIGNMENT * PLACE_ALIGNMENT;
}

/* The lowest gap of at least `bytes`; *ret_before: how many live places lie below it. */
static uint64_t find_gap(const struct place *place, uint64_t bytes, size_t *ret_before)
{
    uint64_t end = 0;
    size_t i = 0;
    for (; i < place->live_count; i++) {
        if (place->live[i].offset - end >= bytes)
            break;
        end = place->live[i].offset + place->live[i].bytes;
    }
    *ret_before = i;
    return end;
}

static uint64_t take(struct place *place, uint64_t bytes)
{
    if (bytes == 0)
        return PROGRAM_NOWHERE;
    bytes = align(bytes);
    size_t i;
    uint64_t offset = find_gap(place, bytes, &i);
    check(place->live_count < place->live_max);
    memmove(place->live + i + 1, place->live + i, (place->live_count - i) * sizeof *place->live);
    place->live[i] = (struct interval){offset, bytes};
    place->live_count++;
    place->live_bytes += bytes;
    if (place->live_bytes > place->places->live_bytes_max)
        place->places->live_bytes_max = place->live_bytes;
    if (offset + bytes > place->places->arena_bytes)
        place->places->arena_bytes = offset + bytes;
    return offset;
}

static void give(struct place *place, uint64_t *offset)
{
    if (*offset == PROGRAM_NOWHERE)
        return;
    size_t i = 0;
    while (place->live[i].offset != *offset)
        i++;
    place->live_bytes -= place->live[i].bytes;
    place->live_count--;
    memmove(place->live + i, place->live + i + 1, (place->live_count - i) * sizeof *place->live);
    *offset = PROGRAM_NOWHERE;
}

static void take_before(struct place *place, struct row row)
{
    struct cell *own = cell(place, row.unit, row.microbatch);
    const struct program_sizes *sizes = &place->sizes[row.unit];
    bool last = row.unit + 1 == place->program->units;
    switch (row.act) {
    case ACT_F:
        own->output = take(place, sizes->output);
        if (last) /* first what lives longer */
            own->dinput = take(place, sizes->dinput);
        own->saved = take(place, sizes->saved);
        break;
    case ACT_RC:
        own->saved = take(place, sizes->saved);
        break;
    case ACT_B:
        if (!last && !sizes->in_place)
            own->dinput = take(place, sizes->dinput);
        break;
    default:
        break;
    }
}

static void give_after(struct place *place, struct row row)
{
    struct cell *own = cell(place, row.unit, row.microbatch);
    bool last = row.unit + 1 == place->program->units;
    switch (row.act) {
    case ACT_DROP:
        give(place, &own->saved);
        break;
    case ACT_B:
        give(place, &own->saved);
        give(place, &own->output);
        if (!last)
            give(place, &cell(place, row.unit + 1, row.microbatch)->dinput);
        if (row.unit == 0)
            give(place, &own->dinput);
        break;
    default:
        break;
    }
}

static void place_row(struct place *place, uint32_t i)
{
    struct row row = place->program->rows[i];
    if (!act_names_microbatch(row.act))
        return;
    take_before(place, row);
    struct cell *own = cell(place, row.unit, row.microbatch);
    struct cell *next =
        row.unit + 1 < place->program->units ? cell(place, row.unit + 1, row.microbatch) : NULL;
    struct program_place *at = &place->places->rows[i];
    at->input = row.unit > 0 ? cell(place, row.unit - 1, row.microbatch)->output : PROGRAM_NOWHERE;
    at->output = own->output;
    at->saved = own->saved;
    at->doutput = next != NULL ? next->dinput : PROGRAM_NOWHERE;
    if (row.act == ACT_B && next != NULL && place->sizes[row.unit].in_place) {
        own->dinput = next->dinput; /* handed on: the same place changes its owner */
        next->dinput = PROGRAM_NOWHERE;
    }
    at->dinput = own->dinput;
    give_after(place, row);
}

enum err program_place(const struct program *program, const struct program_sizes *sizes,
                       struct program_places *ret_places)
{
    size_t cells = (size_t)program->units * program->microbatches;
    struct program_places places = {.rows = malloc(program->rows_count * sizeof *places.rows)};
    scoped(free_scoped) struct cell *cell_memory = malloc(cells * sizeof *cell_memory);
    scoped(free_scoped) struct interval *live = malloc(3 * cells * sizeof *live);
    if (places.rows == NULL || cell_memory == NULL || live == NULL) {
        program_places_release(&places);
        return ERR_NOMEM;
    }
    memset(places.rows, 0xff, program->rows_count * sizeof *places.rows); /* PROGRAM_NOWHERE */
    memset(cell_memory, 0xff, cells * sizeof *cell_memory);
    struct place place = {.program = program,
                          .sizes = sizes,
                          .places = &places,
                          .cells = cell_memory,
                          .live = live,
                          .live_max = 3 * cells};
    for (uint32_t i = 0; i < program->rows_count; i++)
        place_row(&place, i);
    check(place.live_count == 0);
    *ret_places = places;
    return ERR_OK;
}

void program_places_release(struct program_places *places)
{
    free(places->rows);
    *places = (struct program_places){0};
}
