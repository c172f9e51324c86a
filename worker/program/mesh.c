#include "worker/program/mesh.h"

#include "common/program/passes.h"
#include "common/program/rows.h"
#include "common/scoped.h"

/* gpipe computes all microbatches forward first: so streamed weights are pulled twice a slot. */
struct mesh mesh_alone(const struct spec_train *train)
{
    const struct spec_residency *residency = &train->residency;
    bool streamed = residency->weights == SPEC_STREAMED;
    bool by_unit = streamed && residency->order == SPEC_BY_UNIT;
    return (struct mesh){.schedule = by_unit ? SCHEDULE_GPIPE : SCHEDULE_1F1B,
                         .places = 1,
                         .runs = 1,
                         .recompute = spec_recompute(train),
                         .offload = train->offload,
                         .residency = {.streamed = streamed,
                                       .keep_after_forward = residency->keep_after_forward,
                                       .by_unit = by_unit,
                                       .prefetch = residency->prefetch}};
}

struct mesh mesh_of(const struct spec *spec)
{
    struct mesh mesh = mesh_alone(&spec->train);
    if (spec->mesh.stages <= 1)
        return mesh;
    mesh.schedule = spec->mesh.schedule;
    mesh.places = spec->mesh.stages;
    mesh.runs = spec->mesh.runs;
    mesh.memory = spec->mesh.memory;
    mesh.program = spec->mesh.program;
    mesh.rows = spec->mesh.rows;
    return mesh;
}

struct schedule_shape mesh_shape(const struct mesh *mesh, const struct model *model,
                                 struct mesh_node node)
{
    return (struct schedule_shape){.schedule = mesh->schedule,
                                   .places = mesh->places,
                                   .runs = mesh->runs,
                                   .units = model->units_count,
                                   .microbatches =
                                       pipeline_microbatches(node.slots, node.microbatches),
                                   .slots = node.slots,
                                   .memory = mesh->memory,
                                   .program = mesh->program,
                                   .rows = mesh->rows};
}

/* Whose order the user has chosen. */
static bool is_written(const struct mesh *mesh)
{
    return mesh->rows != NULL && mesh->rows[0] != 0;
}

static enum err complete(const struct mesh *mesh, struct program *compute,
                         const struct passes_options *passes, struct program *ret_program)
{
    scoped(program_release) struct program resident = {0};
    if (!mesh->residency.streamed)
        return passes_complete(compute, passes, ret_program);
    if (mesh->residency.by_unit && !is_written(mesh))
        residency_order(compute);
    TRY(passes_complete(compute, passes, &resident));
    return residency_stream(&resident, &mesh->residency, ret_program);
}

enum err mesh_training(const struct mesh *mesh, const struct model *model, struct mesh_node node,
                       struct program *ret_program, struct reason *reason)
{
    const struct schedule_shape shape = mesh_shape(mesh, model, node);
    const struct passes_options passes = {.recompute = mesh->recompute, .offload = mesh->offload};
    scoped(program_release) struct program compute = {0};
    scoped(pipeline_runs_release) struct pipeline_runs runs = {0};
    TRY(rows_judge(&shape, reason));
    TRY(rows_runs(&shape, model, &runs));
    if (is_written(mesh))
        TRY(rows_compute(&shape, &runs, &compute));
    else
        TRY(schedule_generate(&shape, runs.cuts, &compute));
    return complete(mesh, &compute, &passes, ret_program);
}

enum err mesh_validation(const struct mesh *mesh, const struct model *model, struct mesh_node node,
                         struct program *ret_program)
{
    const struct schedule_shape shape = mesh_shape(mesh, model, node);
    scoped(program_release) struct program compute = {0};
    scoped(pipeline_runs_release) struct pipeline_runs runs = {0};
    TRY(rows_runs(&shape, model, &runs));
    TRY(schedule_validation(&shape, &runs, &compute));
    return complete(mesh, &compute, &(struct passes_options){0}, ret_program);
}

uint32_t mesh_behind(const struct mesh *mesh, uint32_t place)
{
    const struct schedule_shape shape = {
        .schedule = mesh->schedule, .places = mesh->places, .runs = mesh->runs, .rows = mesh->rows};
    return pipeline_behind(&shape, place);
}

uint32_t mesh_lanes(const struct mesh *mesh, uint32_t place, uint32_t microbatches, uint32_t leases)
{
    uint32_t lanes = 1 + (mesh_behind(mesh, place) + microbatches - 1) / microbatches;
    return lanes < leases ? lanes : leases;
}
