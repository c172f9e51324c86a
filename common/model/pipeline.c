#include "common/model/pipeline.h"

#include "common/tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_OF_CELL = 8 }; /* of a unit with a microbatch, at most */

static uint32_t quotient_up(uint32_t number, uint32_t divisor)
{
    return number / divisor + (number % divisor > 0);
}

uint32_t pipeline_microbatches(uint32_t slots, uint32_t of_slot)
{
    uint64_t microbatches = (uint64_t)slots * of_slot;
    return microbatches < UINT32_MAX ? (uint32_t)microbatches : UINT32_MAX;
}

struct schedule_shape pipeline_cut_shape(const struct spec_mesh *mesh, uint32_t units)
{
    return (struct schedule_shape){.schedule = mesh->schedule,
                                   .places = mesh->stages,
                                   .runs = mesh->runs,
                                   .units = units,
                                   .memory = mesh->memory,
                                   .program = mesh->program,
                                   .rows = mesh->rows};
}

struct schedule_shape pipeline_shape(const struct spec *spec, uint32_t units, uint32_t slots)
{
    const struct spec_train *train = &spec->train;
    struct schedule_shape shape = pipeline_cut_shape(&spec->mesh, units);
    shape.slots = slots > 0 ? slots : 1;
    shape.microbatches =
        pipeline_microbatches(shape.slots, train->slot_samples / train->microbatch);
    return shape;
}

static enum err judge_runs(const struct schedule_shape *shape, struct reason *reason)
{
    uint64_t runs = (uint64_t)shape->places * shape->runs;
    if (shape->runs > 1 && shape->schedule != SCHEDULE_INTERLEAVED)
        return reason_set(
            reason, ERR_INVALID,
            "%s has one run of units in a place, not %u; schedule interleaved has more",
            schedule_name(shape->schedule), shape->runs);
    uint32_t stages = shape->units < SPEC_STAGES_MAX ? shape->units : SPEC_STAGES_MAX;
    if (shape->places > shape->units)
        return reason_set(reason, ERR_INVALID,
                          "%u stages need as many units, and the model has %u; %u stage%s would do",
                          shape->places, shape->units, stages, plural(stages));
    uint32_t most = shape->units / shape->places;
    if (runs > shape->units)
        return reason_set(reason, ERR_INVALID,
                          "%u stage%s of %u runs need %" PRIu64
                          " units, and the model has %u; at most %u run%s would do",
                          shape->places, plural(shape->places), shape->runs, runs, shape->units,
                          most, plural(most));
    return ERR_OK;
}

/* Rows of the finished program, about: acts, and as many around them. */
static enum err judge_rows(const struct schedule_shape *shape, struct reason *reason)
{
    uint32_t most = PROGRAM_ROWS_MAX / ROWS_OF_CELL / shape->units;
    most = most < PROGRAM_MICROBATCHES_MAX ? most : PROGRAM_MICROBATCHES_MAX;
    uint32_t of_slot = shape->microbatches / shape->slots;
    if (shape->microbatches <= most)
        return ERR_OK;
    if (of_slot <= most)
        return reason_set(reason, ERR_INVALID,
                          "%u units with %u microbatches in a node are more than a program of %u "
                          "rows holds; nodes of %u slots (train.node_slots) would do",
                          shape->units, shape->microbatches, PROGRAM_ROWS_MAX,
                          UINT32_C(1) << tree_level(most / of_slot / 2 + 1));
    return reason_set(reason, ERR_INVALID,
                      "%u units with %u microbatches in a slot are more than a program of %u rows "
                      "holds; train.microbatch %u times as large would do",
                      shape->units, of_slot, PROGRAM_ROWS_MAX, quotient_up(of_slot, most));
}

/* As many as that or more, of which each place and each slot of the node has equally many. */
static uint32_t multiple_above(uint32_t microbatches, uint32_t places, uint32_t slots)
{
    uint32_t multiple = places;
    while (multiple % slots != 0)
        multiple += places;
    return (microbatches / multiple + 1) * multiple;
}

enum err schedule_judge(const struct schedule_shape *shape, struct reason *reason)
{
    uint32_t places = shape->places, microbatches = shape->microbatches;
    check(places > 0 && shape->runs > 0 && shape->slots > 0 && microbatches > 0);
    TRY(judge_runs(shape, reason));
    TRY(judge_rows(shape, reason));
    if (shape->schedule == SCHEDULE_INTERLEAVED && microbatches % places != 0)
        return reason_set(
            reason, ERR_INVALID,
            "interleaved needs a multiple of the %u stages as microbatches in a node "
            "(train.node_slots times train.slot_samples / train.microbatch), not %u; %u would do",
            places, microbatches, multiple_above(microbatches, places, shape->slots));
    if (shape->schedule == SCHEDULE_CHIMERA && shape->units == 1)
        return reason_set(reason, ERR_INVALID,
                          "chimera needs an even number of stages, and the model has one unit");
    if (shape->schedule == SCHEDULE_CHIMERA && places % 2 != 0)
        return reason_set(reason, ERR_INVALID,
                          "chimera needs an even number of stages, not %u; %u would do", places,
                          places + 1 <= shape->units ? places + 1 : places - 1);
    uint32_t level = tree_level(shape->slots);
    bool halves =
        level > 0 && UINT32_C(1) << level == shape->slots; /* which are nodes of the tree */
    if (shape->schedule == SCHEDULE_CHIMERA && !halves)
        return reason_set(reason, ERR_INVALID,
                          "chimera sends half of a node each way, and a node of %u slot%s has no "
                          "halves; nodes of %u slots (train.node_slots, and train.slots a multiple "
                          "of it) would do",
                          shape->slots, plural(shape->slots),
                          UINT32_C(1) << (level > 0 ? level : 1));
    return ERR_OK;
}

uint32_t schedule_slots_max(const struct schedule_shape *slot, uint32_t slots)
{
    struct schedule_shape node = *slot;
    struct reason too_many;
    while (slots > 1) {
        node.slots = slots;
        node.microbatches = pipeline_microbatches(slots, slot->microbatches);
        if (schedule_judge(&node, &too_many) == ERR_OK)
            break;
        slots = UINT32_C(1) << tree_level(quotient_up(slots, 2)); /* of the larger half */
    }
    return slots;
}

/* A cell of the rows begins with its stage, a place ends with a semicolon (common/program/rows.h). */
static uint32_t behind_in_rows(const char *rows, uint32_t place)
{
    uint32_t last = 0, first = UINT32_MAX, line = 0;
    for (const char *cell = rows; *cell != 0; cell += *cell != 0) {
        uint32_t stage = (uint32_t)strtoul(cell, NULL, 10);
        last = stage > last ? stage : last;
        first = line == place && stage < first ? stage : first;
        cell += strcspn(cell, ",;");
        line += *cell == ';' ? 1 : 0;
    }
    return first < last ? last - first : 0;
}

uint32_t pipeline_behind(const struct schedule_shape *shape, uint32_t place)
{
    uint32_t first = place;
    if (shape->rows != NULL && shape->rows[0] != 0)
        return behind_in_rows(shape->rows, place);
    if (shape->schedule == SCHEDULE_CHIMERA && shape->places - 1 - place < place)
        first = shape->places - 1 - place; /* where the other direction has it earlier */
    return shape->places * shape->runs - 1 - first;
}

/* Behind the first one. */
static uint32_t most_behind(const struct schedule_shape *shape)
{
    uint32_t most = 0;
    for (uint32_t place = 0; place < shape->places; place++) {
        uint32_t behind = pipeline_behind(shape, place);
        most = behind > most ? behind : most;
    }
    return most;
}

bool pipeline_waits(const struct schedule_shape *shape, const struct spec *spec,
                    struct reason *ret_sentence)
{
    const uint32_t most = SPEC_PLACE_LEASES_MAX - 1, delay = spec_place_leases(spec) - 1;
    uint32_t behind = most_behind(shape), microbatches = shape->microbatches;
    uint32_t enough = quotient_up(behind, microbatches);
    if (delay == 0 || delay >= enough)
        return false;
    char need[128];
    snprintf(need, sizeof need, "%u stages%s with %u microbatch%s a ticket", shape->places,
             behind >= shape->places ? " of several runs" : "", microbatches,
             microbatches == 1 ? "" : "es");
    if (enough <= most)
        snprintf(ret_sentence->text, sizeof ret_sentence->text,
                 "%s wait between steps: a delay of %u would do", need, enough);
    else
        snprintf(ret_sentence->text, sizeof ret_sentence->text,
                 "%s wait between steps, since a worker shares at most %d tickets, whatever the "
                 "delay: %u microbatches a ticket and a delay of %u would do",
                 need, SPEC_PLACE_LEASES_MAX, quotient_up(behind, most), most);
    return true;
}

enum err pipeline_runs_new(uint32_t count, struct pipeline_runs *ret_runs)
{
    uint32_t *cuts = calloc(2 * (size_t)count + 1, sizeof *cuts);
    if (cuts == NULL)
        return ERR_NOMEM;
    *ret_runs = (struct pipeline_runs){count, cuts, cuts + count + 1};
    return ERR_OK;
}

void pipeline_runs_release(struct pipeline_runs *runs)
{
    free(runs->cuts);
    *runs = (struct pipeline_runs){0};
}

uint32_t pipeline_place(const struct pipeline_runs *runs, uint32_t unit)
{
    uint32_t run = 0;
    check(unit < runs->cuts[runs->count]);
    while (unit >= runs->cuts[run + 1])
        run++;
    return runs->places[run];
}

bool schedule_has(const struct schedule_shape *shape, const struct pipeline_runs *runs,
                  uint32_t place, uint32_t unit)
{
    uint32_t down = pipeline_place(runs, unit);
    check(place < shape->places);
    return down == place ||
           (shape->schedule == SCHEDULE_CHIMERA && shape->places - 1 - down == place);
}
