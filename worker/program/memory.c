/* Plays the rows with a first-fit allocator over an arena of the device, and one of the host.
 *
 * The allocator is the simplest one: the live arrays in ascending order, a new one goes into the
 * lowest gap that holds it. Programs of one place and one slot free in reverse order, so there the
 * gaps always fit. */
#include "worker/program/memory.h"

#include "common/scoped.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

struct interval {
    uint64_t offset, bytes;
};

/* Where the activations of one (unit, microbatch) lie. */
struct cell {
    uint64_t at[ARRAY_ACTIVATIONS];
};

struct arena {
    struct interval *live; /* ascending */
    size_t live_count, live_max;
    uint64_t live_bytes, live_bytes_max;
    uint64_t bytes; /* to the highest end so far */
};

/* What a place holds of a few units at a time: their weights, or their gradients. */
struct stream {
    uint64_t takes, gives; /* a bit for each act */
    uint64_t (*bytes_of)(const struct program_sizes *unit);
    struct arena arena;
    uint64_t *held;  /* (units) where it lies */
    uint32_t placed; /* units so far */
    uint64_t most;   /* bytes that are held at once; 0: those of all units stay */
};

struct planner {
    const struct program *program;
    const struct program_sizes *sizes;
    struct cell *cells;
    struct arena device, host;
    struct stream weights, gradients;
};

static void planner_release(struct planner *planner)
{
    free(planner->cells);
    free(planner->device.live);
    free(planner->host.live);
    free(planner->weights.arena.live);
    free(planner->weights.held);
    free(planner->gradients.arena.live);
    free(planner->gradients.held);
}

static struct arena *arena_of(struct planner *planner, int array)
{
    return array == ARRAY_HOSTED ? &planner->host : &planner->device;
}

static struct cell *cell(struct planner *planner, uint32_t unit, uint32_t microbatch)
{
    return &planner->cells[(size_t)unit * planner->program->microbatches + microbatch];
}

static uint64_t align(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The lowest gap of at least `bytes`; *ret_before: how many live arrays lie below it. */
static uint64_t find_gap(const struct arena *arena, uint64_t bytes, size_t *ret_before)
{
    uint64_t end = 0;
    size_t i = 0;
    for (; i < arena->live_count; i++) {
        if (arena->live[i].offset - end >= bytes)
            break;
        end = arena->live[i].offset + arena->live[i].bytes;
    }
    *ret_before = i;
    return end;
}

/* `before` live arrays lie below it. */
static uint64_t take_at(struct arena *arena, uint64_t offset, uint64_t bytes, size_t before)
{
    size_t i = before;
    check(arena->live_count < arena->live_max);
    memmove(arena->live + i + 1, arena->live + i, (arena->live_count - i) * sizeof *arena->live);
    arena->live[i] = (struct interval){offset, bytes};
    arena->live_count++;
    arena->live_bytes += bytes;
    if (arena->live_bytes > arena->live_bytes_max)
        arena->live_bytes_max = arena->live_bytes;
    if (offset + bytes > arena->bytes)
        arena->bytes = offset + bytes;
    return offset;
}

static uint64_t take_bytes(struct arena *arena, uint64_t bytes)
{
    size_t before;
    if (bytes == 0)
        return PROGRAM_NOWHERE;
    bytes = align(bytes);
    uint64_t offset = find_gap(arena, bytes, &before);
    return take_at(arena, offset, bytes, before);
}

static void give_bytes(struct arena *arena, uint64_t *offset)
{
    if (offset == NULL || *offset == PROGRAM_NOWHERE)
        return;
    size_t i = 0;
    while (arena->live[i].offset != *offset)
        i++;
    arena->live_bytes -= arena->live[i].bytes;
    arena->live_count--;
    memmove(arena->live + i, arena->live + i + 1, (arena->live_count - i) * sizeof *arena->live);
    *offset = PROGRAM_NOWHERE;
}

/* The cells that a row's arrays belong to; NULL at the model's ends. */
struct cells {
    struct cell *previous, *own, *next;
};

static struct cells cells_of(struct planner *planner, struct program_row row)
{
    bool last = row.unit + 1 == planner->program->units;
    return (struct cells){
        .previous = row.unit > 0 ? cell(planner, row.unit - 1, row.microbatch) : NULL,
        .own = cell(planner, row.unit, row.microbatch),
        .next = last ? NULL : cell(planner, row.unit + 1, row.microbatch),
    };
}

/* What another place has sent lies in the own cell. NULL at the model's ends. */
static uint64_t *input_of(const struct cells *cells)
{
    if (cells->own->at[ARRAY_ARRIVED] != PROGRAM_NOWHERE)
        return &cells->own->at[ARRAY_ARRIVED];
    return cells->previous != NULL ? &cells->previous->at[ARRAY_OUTPUT] : NULL;
}

static uint64_t *doutput_of(const struct cells *cells)
{
    if (cells->own->at[ARRAY_RETURNED] != PROGRAM_NOWHERE)
        return &cells->own->at[ARRAY_RETURNED];
    return cells->next != NULL ? &cells->next->at[ARRAY_DINPUT] : NULL;
}

/* Arrays that live longer are taken first (act.h). What is changed in place is there already. */
static void take_written(struct planner *planner, const struct program_sizes *sizes,
                         const struct cells *cells, uint32_t written)
{
    const uint64_t bytes[ARRAY_ACTIVATIONS] = {
        [ARRAY_OUTPUT] = sizes->output,
        [ARRAY_ARRIVED] = cells->previous != NULL ? sizes[-1].output : 0,
        [ARRAY_DINPUT] = sizes->in_place && cells->next != NULL ? 0 : sizes->dinput,
        [ARRAY_RETURNED] = sizes->output,
        [ARRAY_SAVED] = sizes->saved,
        [ARRAY_LEFT] = sizes->left,
        [ARRAY_HOSTED] = sizes->saved,
    };
    for (int array = 0; array < ARRAY_ACTIVATIONS; array++)
        if (written & UINT32_C(1) << array && cells->own->at[array] == PROGRAM_NOWHERE)
            cells->own->at[array] = take_bytes(arena_of(planner, array), bytes[array]);
}

static void give_ended(struct planner *planner, const struct cells *cells, uint32_t ended)
{
    for (int array = 0; array < ARRAY_ACTIVATIONS; array++)
        if (ended & UINT32_C(1) << array)
            give_bytes(arena_of(planner, array), &cells->own->at[array]);
    if (ended & ARRAY(INPUT))
        give_bytes(&planner->device, input_of(cells));
    if (ended & ARRAY(DOUTPUT))
        give_bytes(&planner->device, doutput_of(cells));
}

/* Units come alternately from below and from above, so that two that follow each other never need
 * more than both of them together. */
static uint64_t take_unit(struct stream *stream, uint64_t bytes)
{
    struct arena *arena = &stream->arena;
    uint64_t above = stream->most - align(bytes);
    size_t i = arena->live_count;
    bool fits = i == 0 || arena->live[i - 1].offset + arena->live[i - 1].bytes <= above;
    if (stream->placed++ % 2 == 0 || align(bytes) > stream->most || !fits)
        return take_bytes(arena, bytes);
    return take_at(arena, above, align(bytes), i);
}

static bool is_in(uint64_t acts, enum act act)
{
    return acts >> act & 1;
}

/* From the first act that takes to the one that gives: weights from ASK, or PULL without it, to
 * FORGET, gradients from CLEAR to FREE. */
static void plan_unit(const struct planner *planner, struct stream *stream, struct program_row row,
                      uint64_t *ret_at)
{
    uint64_t *held = &stream->held[row.unit];
    if (stream->most == 0)
        return;
    if (is_in(stream->gives, row.act))
        give_bytes(&stream->arena, held);
    else if (is_in(stream->takes, row.act) && *held == PROGRAM_NOWHERE)
        *ret_at = *held = take_unit(stream, stream->bytes_of(&planner->sizes[row.unit]));
}

static void plan_row(struct planner *planner, struct program_row row,
                     struct program_offsets *ret_at)
{
    plan_unit(planner, &planner->weights, row, &ret_at->weights);
    plan_unit(planner, &planner->gradients, row, &ret_at->gradients);
    if (act_facts(row.act)->scope != ACT_OF_MICROBATCH)
        return;
    const struct program_sizes *sizes = &planner->sizes[row.unit];
    struct act_arrays arrays = act_arrays(row.act, program_unit(planner->program, row.unit));
    struct cells cells = cells_of(planner, row);
    take_written(planner, sizes, &cells, arrays.writes | arrays.begins);
    uint64_t *input = input_of(&cells), *doutput = doutput_of(&cells);
    ret_at->input = input != NULL ? *input : PROGRAM_NOWHERE;
    ret_at->output = cells.own->at[ARRAY_OUTPUT];
    ret_at->saved = cells.own->at[ARRAY_SAVED];
    ret_at->left = cells.own->at[ARRAY_LEFT];
    ret_at->hosted = cells.own->at[ARRAY_HOSTED];
    ret_at->doutput = doutput != NULL ? *doutput : PROGRAM_NOWHERE;
    if (arrays.writes & ARRAY(DINPUT) && sizes->in_place && doutput != NULL) {
        cells.own->at[ARRAY_DINPUT] = *doutput; /* it changes its owner */
        *doutput = PROGRAM_NOWHERE;
    }
    ret_at->dinput = cells.own->at[ARRAY_DINPUT];
    give_ended(planner, &cells, arrays.ends);
}

/* The most bytes of the stream that the place holds at once; 0: nothing is given back. */
static uint64_t most_held(const struct stream *stream, const struct program_place *place,
                          const struct program_sizes *sizes)
{
    uint64_t bytes = 0, most = 0;
    bool gives = false;
    for (uint32_t i = 0; i < place->rows_count; i++) {
        struct program_row row = place->rows[i];
        uint64_t *held = &stream->held[row.unit], own = align(stream->bytes_of(&sizes[row.unit]));
        if (is_in(stream->takes, row.act) && *held == PROGRAM_NOWHERE) {
            *held = 0;
            bytes += own;
            most = bytes > most ? bytes : most;
        } else if (is_in(stream->gives, row.act) && *held != PROGRAM_NOWHERE) {
            *held = PROGRAM_NOWHERE;
            bytes -= own;
            gives = true;
        }
    }
    return gives ? most : 0;
}

/* Sums of slots stay: gradients are freed where each unit has one slot. */
static bool has_sums(const struct program_place *place, uint64_t *begun)
{
    for (uint32_t i = 0; i < place->rows_count; i++) {
        struct program_row row = place->rows[i];
        if (row.act == ACT_ZERO || (row.act == ACT_CLEAR && begun[row.unit] == 0))
            return true;
        if (row.act == ACT_CLEAR)
            begun[row.unit] = 0;
    }
    return false;
}

static void forget_all(struct stream *stream, uint32_t units)
{
    memset(stream->held, 0xff, units * sizeof *stream->held); /* PROGRAM_NOWHERE */
}

static void measure_streams(struct planner *planner, const struct program_place *place)
{
    struct stream *weights = &planner->weights, *gradients = &planner->gradients;
    uint32_t units = planner->program->units;
    weights->most = most_held(weights, place, planner->sizes);
    if (!has_sums(place, gradients->held)) {
        forget_all(gradients, units);
        gradients->most = most_held(gradients, place, planner->sizes);
    }
    forget_all(weights, units);
    forget_all(gradients, units);
}

static uint64_t sent_bytes(const struct program_place *place, const struct program_sizes *sizes)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < place->rows_count; i++) {
        struct program_row row = place->rows[i];
        if (row.act == ACT_SEND_F || row.act == ACT_SEND_E)
            bytes += program_value_bytes(&sizes[row.unit]);
        if (row.act == ACT_SEND_B)
            bytes += program_value_bytes(&sizes[row.unit - 1]);
    }
    return bytes;
}

static uint64_t weights_of(const struct program_sizes *unit)
{
    return unit->weights;
}

static uint64_t gradients_of(const struct program_sizes *unit)
{
    return unit->gradients;
}

/* All units' that the place computes gradients of. */
static uint64_t whole_gradients(const struct program_place *place,
                                const struct program_sizes *sizes)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < place->rows_count; i++)
        if (place->rows[i].act == ACT_CLEAR)
            bytes += align(sizes[place->rows[i].unit].gradients);
    return bytes;
}

static bool init_arena(struct arena *arena, size_t live_max)
{
    arena->live_max = live_max;
    arena->live = malloc(live_max * sizeof *arena->live);
    return arena->live != NULL;
}

static bool init_stream(struct stream *stream, uint32_t units)
{
    stream->held = malloc(units * sizeof *stream->held);
    if (stream->held == NULL || !init_arena(&stream->arena, units))
        return false;
    forget_all(stream, units);
    return true;
}

static bool init_planner(struct planner *planner)
{
    uint32_t units = planner->program->units;
    size_t cells = (size_t)units * planner->program->microbatches;
    planner->cells = malloc(cells * sizeof *planner->cells);
    if (planner->cells == NULL)
        return false;
    memset(planner->cells, 0xff, cells * sizeof *planner->cells);
    return init_arena(&planner->device, ARRAY_ACTIVATIONS * cells) &&
           init_arena(&planner->host, cells) && init_stream(&planner->weights, units) &&
           init_stream(&planner->gradients, units);
}

#define BIT(name) (UINT64_C(1) << ACT_##name)

enum err program_memory_plan(const struct program *program, const struct program_place *place,
                             const struct program_sizes *sizes, struct program_memory *ret_memory)
{
    struct program_memory memory = {.rows = malloc((place->rows_count + 1) * sizeof *memory.rows)};
    scoped(planner_release) struct planner planner = {
        .program = program,
        .sizes = sizes,
        .weights = {.takes = BIT(ASK) | BIT(PULL), .gives = BIT(FORGET), .bytes_of = weights_of},
        .gradients = {.takes = BIT(CLEAR), .gives = BIT(FREE), .bytes_of = gradients_of}};
    if (memory.rows == NULL || !init_planner(&planner)) {
        program_memory_release(&memory);
        return ERR_NOMEM;
    }
    memset(memory.rows, 0xff, place->rows_count * sizeof *memory.rows); /* PROGRAM_NOWHERE */
    measure_streams(&planner, place);
    for (uint32_t i = 0; i < place->rows_count; i++)
        plan_row(&planner, place->rows[i], &memory.rows[i]);
    check(planner.device.live_count == 0 && planner.host.live_count == 0);
    memory.arena_bytes = planner.device.bytes;
    memory.live_bytes_max = planner.device.live_bytes_max;
    memory.hosted_bytes = planner.host.bytes;
    memory.sent_bytes = sent_bytes(place, sizes);
    memory.weights_bytes = planner.weights.arena.bytes;
    if (planner.gradients.arena.bytes < whole_gradients(place, sizes))
        memory.gradients_bytes = planner.gradients.arena.bytes;
    *ret_memory = memory;
    return ERR_OK;
}

#undef BIT

void program_memory_release(struct program_memory *memory)
{
    free(memory->rows);
    *memory = (struct program_memory){0};
}
