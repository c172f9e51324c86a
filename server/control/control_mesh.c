#include "server/control/control_mesh.h"

#include "common/model/pieces.h"
#include "common/program/rows.h"
#include "common/program/values.h"

#include <stdlib.h>

/* Every node of a step needs a program: where the coordinator chooses, the smallest has one. */
static enum err judge(const struct spec *spec, const struct model *model, struct control_mesh *mesh,
                      struct reason *reason)
{
    uint32_t slots = spec->train.node_slots > 0 ? spec->train.node_slots : 1;
    struct schedule_shape shape = pipeline_shape(spec, model->units_count, slots);
    TRY(rows_judge(&shape, reason));
    if (spec->train.node_slots == 0)
        mesh->node_slots_max = schedule_slots_max(&shape, spec->train.slots);
    return rows_last_judge(&shape, &spec->train, reason);
}

/* In one stage a worker computes slot by slot; with what moves weights or activations beside that, its
 * program is made as a mesh's are (mesh_alone()). */
static enum err judge_slot(const struct spec *spec, const struct model *model,
                           struct reason *reason)
{
    bool passes = spec->train.offload || spec->train.residency.weights == SPEC_STREAMED;
    struct schedule_shape slot = pipeline_shape(spec, model->units_count, 1);
    slot.schedule = SCHEDULE_1F1B;
    slot.places = slot.runs = 1;
    return passes ? schedule_judge(&slot, reason) : ERR_OK;
}

/* Adds a part of a parameter's chunks; ranges before `first` stay as they are. False: there are too
 * many. */
static bool add_range(struct coordinator_place *place, uint32_t first,
                      const struct model_parameter *parameter, uint32_t part)
{
    bool any = place->range_count > first;
    struct grant_range *last = any ? &place->ranges[place->range_count - 1] : NULL;
    bool follows = any && last->chunks.first + last->chunks.count == parameter->chunk_first &&
                   last->parts.first == part;
    if (follows) {
        last->chunks.count += parameter->chunks_count;
        return true;
    }
    if (place->range_count == 1 + WIRE_RANGES_MAX)
        return false;
    place->ranges[place->range_count++] =
        (struct grant_range){{parameter->chunk_first, parameter->chunks_count}, {part, 1}};
    return true;
}

static enum err refuse_ranges(const struct schedule_shape *shape, uint32_t stage,
                              struct reason *reason)
{
    if (shape->rows != NULL && shape->rows[0] != 0)
        return reason_set(
            reason, ERR_INVALID,
            "%.200s place %u has more than %u ranges of chunks; fewer stages, or more "
            "places, would do",
            shape->program, stage, 1 + WIRE_RANGES_MAX);
    return reason_set(
        reason, ERR_INVALID,
        "a place of %u runs has more than %u ranges of chunks; fewer mesh.units would "
        "do",
        shape->runs, 1 + WIRE_RANGES_MAX);
}

/* What the units of the stage have. */
static enum err add_stage(const struct schedule_shape *shape, const struct pipeline_runs *runs,
                          const struct model *model, uint32_t stage,
                          struct coordinator_place *place, struct reason *reason)
{
    uint32_t first = place->range_count;
    for (uint32_t part = 0; part < MODEL_PARTS_MAX; part++)
        for (uint32_t i = 0; i < model->parameters_count; i++) {
            const struct model_parameter *parameter = &model->parameters[i];
            bool has = part < parameter->parts &&
                       schedule_has(shape, runs, stage, parameter->part_units[part]);
            if (has && !add_range(place, first, parameter, part))
                return refuse_ranges(shape, stage, reason);
        }
    check(place->range_count > first);
    return ERR_OK;
}

/* In chimera the place has a run of each direction: of each half of a node. */
static enum err fill(const struct schedule_shape *shape, const struct pipeline_runs *runs,
                     const struct model *model, uint32_t stage, struct coordinator_place *place,
                     struct reason *reason)
{
    struct schedule_shape down = *shape;
    if (shape->schedule != SCHEDULE_CHIMERA)
        return add_stage(shape, runs, model, stage, place, reason);
    down.schedule = SCHEDULE_NAIVE;
    TRY(add_stage(&down, runs, model, stage, place, reason));
    place->right_first = place->range_count;
    return add_stage(&down, runs, model, shape->places - 1 - stage, place, reason);
}

/* Whether the first place and the last hand each other values. */
static bool is_ring(const struct pipeline_runs *runs, uint32_t last)
{
    for (uint32_t run = 1; run < runs->count; run++) {
        uint32_t before = runs->places[run - 1], here = runs->places[run];
        if ((before == last && here == 0) || (before == 0 && here == last))
            return true;
    }
    return false;
}

static enum err fill_all(const struct schedule_shape *shape, const struct model *model,
                         struct control_mesh *mesh, struct reason *reason)
{
    struct pipeline_runs runs;
    TRY(rows_runs(shape, model, &runs));
    enum err err = ERR_OK;
    for (uint32_t stage = 0; stage < shape->places && err == ERR_OK; stage++)
        err = fill(shape, &runs, model, stage, &mesh->places[stage], reason);
    mesh->ring = is_ring(&runs, shape->places - 1);
    pipeline_runs_release(&runs);
    return err;
}

static enum err fill_ranks(uint32_t ranks, const struct model *model, struct control_mesh *mesh)
{
    if (ranks == 1)
        return ERR_OK;
    mesh->chunk_ranks = malloc(model->chunks_count);
    mesh->boundary_pieces = malloc(model->units_count * sizeof *mesh->boundary_pieces);
    if (mesh->chunk_ranks == NULL || mesh->boundary_pieces == NULL)
        return ERR_NOMEM;
    for (uint32_t unit = 0; unit < model->units_count; unit++)
        mesh->boundary_pieces[unit] = model->units[unit].arrays[MODEL_IN].split;
    for (uint32_t chunk = 0; chunk < model->chunks_count; chunk++)
        mesh->chunk_ranks[chunk] = (uint8_t)pieces_chunk_rank(model, chunk, ranks);
    return ERR_OK;
}

enum err control_mesh_new(const struct spec *spec, const struct model *model,
                          struct control_mesh *ret_mesh, struct reason *reason)
{
    struct control_mesh mesh = {0};
    bool written = spec->mesh.program[0] != 0;
    *ret_mesh = mesh;
    if (written && spec->mesh.rows[0] == 0)
        return reason_set(reason, ERR_INVALID,
                          "mesh.program: %.200s is not there, nor does the run have its acts from "
                          "before",
                          spec->mesh.program);
    if (spec->mesh.stages > 1)
        TRY(judge(spec, model, &mesh, reason));
    else
        TRY(judge_slot(spec, model, reason));
    if (!spec_mesh_is_shared(&spec->mesh))
        return ERR_OK;
    const struct schedule_shape shape = pipeline_shape(spec, model->units_count, 1);
    const struct schedule_shape node =
        pipeline_shape(spec, model->units_count, spec->train.node_slots);
    TRY(rows_memory_judge(&node, model, reason));
    TRY(values_judge(&node, spec, model, reason));
    mesh.places = calloc(shape.places, sizeof *mesh.places);
    enum err err = mesh.places == NULL ? ERR_NOMEM : fill_all(&shape, model, &mesh, reason);
    if (err == ERR_OK)
        err = fill_ranks(spec_mesh_ranks(&spec->mesh), model, &mesh);
    if (err != ERR_OK)
        control_mesh_release(&mesh);
    *ret_mesh = mesh;
    return err;
}

void control_mesh_release(struct control_mesh *mesh)
{
    free(mesh->places);
    free(mesh->chunk_ranks);
    free(mesh->boundary_pieces);
    *mesh = (struct control_mesh){0};
}

bool control_mesh_shares(const struct control_mesh *mesh, const struct model *model)
{
    for (uint32_t chunk = 0; mesh->chunk_ranks != NULL && chunk < model->chunks_count; chunk++)
        if (mesh->chunk_ranks[chunk] > 0)
            return true;
    return false;
}
