#include "worker/program/residency.h"

#include "common/program/writer.h"
#include "common/scoped.h"

#include <stdlib.h>

/* ---- order ---- */

static bool goes_upwards(enum act act)
{
    return act == ACT_F || act == ACT_E;
}

static int compare_rows(const void *a, const void *b)
{
    const struct program_row *left = a, *right = b;
    if (left->unit != right->unit)
        return (left->unit < right->unit) == goes_upwards(left->act) ? -1 : 1;
    return left->microbatch < right->microbatch ? -1 : left->microbatch > right->microbatch;
}

void residency_order(struct program *compute)
{
    for (uint32_t p = 0; p < compute->places_count; p++) {
        struct program_place *place = &compute->places[p];
        for (uint32_t first = 0, end; first < place->rows_count; first = end) {
            enum act act = place->rows[first].act;
            for (end = first + 1; end < place->rows_count && place->rows[end].act == act;)
                end++;
            qsort(place->rows + first, end - first, sizeof *place->rows, compare_rows);
        }
    }
}

/* ---- streams ---- */

/* Consecutive rows of a place that compute on the weights of one unit. */
struct use {
    uint32_t unit;
    uint32_t first, last; /* rows */
    bool backward;        /* one of them is */
    bool pulls, forgets;
};

struct stream {
    const struct program *program;
    const struct residency *residency;
    struct writer writer;
    uint32_t place;
    struct use *uses; /* in order */
    uint32_t count;
    bool *held;                 /* (units) asked for, or in place */
    uint32_t next, ask;         /* uses: the one that is computed next, the one to ask for next */
    struct program_row *pushed; /* PUSH rows so far, in order; */
    uint32_t pushed_count, freed;
};

static void stream_release(struct stream *stream)
{
    free(stream->uses);
    free(stream->held);
    free(stream->pushed);
}

static bool needs_weights(const struct program *program, struct program_row row)
{
    bool of_unit = act_facts(row.act)->scope == ACT_OF_MICROBATCH;
    return of_unit && (act_arrays(row.act, program_unit(program, row.unit)).reads & ARRAY(WEIGHTS));
}

static void find_uses(struct stream *stream)
{
    const struct program_place *place = &stream->program->places[stream->place];
    stream->count = 0;
    for (uint32_t i = 0; i < place->rows_count; i++) {
        struct program_row row = place->rows[i];
        if (!needs_weights(stream->program, row))
            continue;
        struct use *last = stream->count > 0 ? &stream->uses[stream->count - 1] : NULL;
        if (last == NULL || last->unit != row.unit) {
            last = &stream->uses[stream->count++];
            *last = (struct use){.unit = row.unit, .first = i};
        }
        last->last = i;
        last->backward |= row.act == ACT_B || row.act == ACT_I;
    }
}

/* Whether the unit is computed again behind use i. */
static bool is_used_again(const struct stream *stream, uint32_t i)
{
    for (uint32_t j = i + 1; j < stream->count; j++)
        if (stream->uses[j].unit == stream->uses[i].unit)
            return true;
    return false;
}

static void decide_pulls(struct stream *stream)
{
    bool keeps = stream->residency->keep_after_forward;
    for (uint32_t unit = 0; unit < stream->program->units; unit++)
        stream->held[unit] = false;
    for (uint32_t i = 0; i < stream->count; i++) {
        struct use *use = &stream->uses[i];
        bool kept = keeps && !use->backward && is_used_again(stream, i);
        use->pulls = !stream->held[use->unit];
        use->forgets = !kept;
        stream->held[use->unit] = kept;
    }
}

static void add(struct stream *stream, enum act act, uint32_t unit)
{
    writer_add(&stream->writer, stream->place, (struct program_row){.act = act, .unit = unit});
}

/* The model's first and last unit may share weights: one of them is not asked for before the other
 * one, which was, is in place. */
static bool waits_for_tied(const struct stream *stream, uint32_t unit)
{
    uint32_t last = stream->program->units - 1;
    uint32_t other = unit == 0 ? last : unit == last ? 0 : unit;
    for (uint32_t i = stream->next; i < stream->ask; i++)
        if (other != unit && stream->uses[i].unit == other && stream->uses[i].pulls)
            return true;
    return false;
}

/* As far ahead as there may be. A unit that is still in place is asked for when it is forgotten. */
static void ask_ahead(struct stream *stream)
{
    uint32_t end = stream->next + stream->residency->prefetch;
    for (; stream->ask < stream->count && stream->ask < end; stream->ask++) {
        const struct use *use = &stream->uses[stream->ask];
        if (!use->pulls)
            continue;
        if (stream->held[use->unit] || waits_for_tied(stream, use->unit))
            return;
        add(stream, ACT_ASK, use->unit);
        stream->held[use->unit] = true;
    }
}

static void begin_use(struct stream *stream)
{
    const struct use *use = &stream->uses[stream->next++];
    if (use->pulls)
        add(stream, ACT_PULL, use->unit);
    stream->held[use->unit] = true;
    if (stream->ask < stream->next)
        stream->ask = stream->next;
    ask_ahead(stream);
}

static void end_use(struct stream *stream)
{
    const struct use *use = &stream->uses[stream->next - 1];
    if (!use->forgets)
        return;
    add(stream, ACT_FORGET, use->unit);
    stream->held[use->unit] = false;
    ask_ahead(stream);
}

/* ---- gradients ---- */

/* Slots of a unit are summed here. */
static bool has_sums(const struct stream *stream)
{
    const struct program_place *place = &stream->program->places[stream->place];
    bool *pushed = stream->held;
    bool sums = false;
    for (uint32_t unit = 0; unit < stream->program->units; unit++)
        pushed[unit] = false;
    for (uint32_t i = 0; i < place->rows_count; i++) {
        struct program_row row = place->rows[i];
        sums |= row.act == ACT_PUSH && pushed[row.unit];
        pushed[row.unit] |= row.act == ACT_PUSH;
    }
    return sums;
}

/* Before gradients begin, as many units' as there may be are pushed and not freed. */
static void free_behind(struct stream *stream)
{
    for (; stream->freed + stream->residency->prefetch < stream->pushed_count; stream->freed++) {
        struct program_row row = stream->pushed[stream->freed];
        row.act = ACT_FREE;
        writer_add(&stream->writer, stream->place, row);
    }
}

/* ---- all of it ---- */

static void stream_place(struct stream *stream)
{
    const struct program_place *place = &stream->program->places[stream->place];
    bool sums = has_sums(stream);
    find_uses(stream);
    decide_pulls(stream);
    for (uint32_t unit = 0; unit < stream->program->units; unit++)
        stream->held[unit] = false;
    stream->next = stream->ask = stream->pushed_count = stream->freed = 0;
    for (uint32_t i = 0; i < place->rows_count; i++) {
        if (place->rows[i].act == ACT_CLEAR)
            free_behind(stream);
        if (stream->next < stream->count && stream->uses[stream->next].first == i)
            begin_use(stream);
        if (place->rows[i].act != ACT_PULL)
            writer_add(&stream->writer, stream->place, place->rows[i]);
        if (place->rows[i].act == ACT_PUSH && !sums)
            stream->pushed[stream->pushed_count++] = place->rows[i];
        if (stream->next > 0 && stream->uses[stream->next - 1].last == i)
            end_use(stream);
    }
}

enum err residency_stream(const struct program *program, const struct residency *residency,
                          struct program *ret_program)
{
    scoped(stream_release) struct stream stream = {.program = program, .residency = residency};
    uint32_t rows = 1;
    for (uint32_t p = 0; p < program->places_count; p++)
        rows = program->places[p].rows_count > rows ? program->places[p].rows_count : rows;
    stream.uses = calloc(rows, sizeof *stream.uses);
    stream.held = calloc(program->units, sizeof *stream.held);
    stream.pushed = calloc(rows, sizeof *stream.pushed);
    if (stream.uses == NULL || stream.held == NULL || stream.pushed == NULL)
        return ERR_NOMEM;
    TRY(writer_init(&stream.writer, program));
    for (stream.place = 0; stream.place < program->places_count; stream.place++)
        stream_place(&stream);
    return writer_finish(&stream.writer, ret_program);
}
