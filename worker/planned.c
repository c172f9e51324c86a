#include "worker/planned.h"

#include "common/file.h"
#include "common/model/pieces.h"
#include "common/program/rows.h"
#include "common/program/spec_file.h"
#include "common/program/values.h"
#include "common/scoped.h"
#include "common/settings/options.h"
#include "worker/stream.h"

enum { PROGRAM_FILE_BYTES_MAX = 1 << 26 };

void planned_release(struct planned *planned)
{
    free(planned->members);
    for (uint32_t rank = 0; planned->shares != NULL && rank < planned->ranks; rank++)
        model_release(&planned->shares[rank]);
    free(planned->shares);
    buf_release(&planned->rows);
    simulate_release(&planned->result);
    program_release(&planned->program);
    kernels_free(planned->kernels);
    model_release(&planned->model);
}

/* --stages is a setting like any other, so that the spec's rules are about the mesh that is planned. */
static enum err read_spec(const struct planned_options *options, struct planned *planned,
                          struct reason *reason)
{
    struct flags_sets sets = options->sets;
    char stages[32];
    snprintf(stages, sizeof stages, "mesh.stage=%u", options->stages);
    if (options->stages > 0)
        sets.list[sets.count++] = stages;
    TRY(spec_file_read(options->spec_path, &sets, false, &planned->spec, reason));
    if (planned->spec.mesh.program[0] != 0 && (options->schedule_given || options->runs > 0))
        return reason_set(reason, ERR_INVALID,
                          "mesh.program (%.100s) says who computes what when: without --schedule "
                          "and --units it would do",
                          planned->spec.mesh.program);
    return model_init(&planned->model, &planned->spec.model, reason);
}

static bool offloads(const struct planned_options *options, const struct spec *spec)
{
    return options->offload || spec->train.offload;
}

/* What is not planned, and nodes that the run's slots do not have. */
static enum err judge_spec(const struct planned_options *options, struct planned *planned,
                           struct reason *reason)
{
    const struct spec *spec = &planned->spec;
    uint32_t of_spec = spec->train.node_slots > 0 ? spec->train.node_slots : 1;
    uint32_t slots = options->node_slots > 0 ? options->node_slots : of_spec;
    if (offloads(options, spec) && spec->train.recompute != SPEC_RECOMPUTE_NONE)
        return reason_set(reason, ERR_INVALID,
                          "activations are offloaded or computed again, not both: --set "
                          "train.recompute=false would do");
    if (spec->consistency.kind == SPEC_LOCAL)
        return reason_set(reason, ERR_INVALID,
                          "programs with local steps are not planned: they have one place");
    if ((slots & (slots - 1)) != 0 || slots > spec->train.slots)
        return reason_set(reason, ERR_INVALID,
                          "a node is a power of two of slots up to the step's %u, not %u",
                          spec->train.slots, slots);
    if (spec->train.precision == SPEC_BF16 && slots != of_spec)
        return reason_set(reason, ERR_INVALID,
                          "with train.precision bf16 the node is a setting of the run: --set "
                          "train.node_slots=%u would do",
                          slots);
    planned->slots = slots;
    return ERR_OK;
}

static struct mesh mesh_of_options(const struct planned_options *options, const struct spec *spec)
{
    struct mesh mesh = mesh_of(spec);
    mesh.offload |= options->offload;
    if (options->runs > 0)
        mesh.runs = options->runs;
    if (options->schedule_given)
        mesh.schedule = options->schedule;
    if (options->residency.streamed)
        mesh.residency = options->residency;
    return mesh;
}

static enum err generate(const struct planned_options *options, struct planned *planned,
                         struct reason *reason)
{
    const struct spec_train *train = &planned->spec.train;
    planned->of_slot =
        options->microbatches > 0 ? options->microbatches : train->slot_samples / train->microbatch;
    planned->walks = planned->mesh.places > 1 ? 1 : planned->slots;
    const struct mesh_node node = {planned->slots / planned->walks, planned->of_slot};
    const struct schedule_shape shape = mesh_shape(&planned->mesh, &planned->model, node);
    TRY(rows_judge(&shape, reason));
    TRY(rows_last_judge(&shape, train, reason));
    TRY(rows_memory_judge(&shape, &planned->model, reason));
    TRY(mesh_training(&planned->mesh, &planned->model, node, &planned->program, reason));
    return values_judge(&shape, &planned->spec, &planned->model, reason);
}

static bool computes_alone(const struct program *program)
{
    for (uint32_t p = 0; p < program->places_count; p++)
        for (uint32_t i = 0; i < program->places[p].rows_count; i++)
            if (!rows_has(program->places[p].rows[i].act))
                return false;
    return program->places_count > 1;
}

/* A file with compute acts alone is completed, as for a run; any other is taken as it is. */
static enum err read_program(const struct planned_options *options, struct planned *planned,
                             struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    scoped(program_release) struct program read = {0};
    struct mesh *mesh = &planned->mesh;
    enum err err = file_read(options->read, PROGRAM_FILE_BYTES_MAX, &text, reason);
    TRY(err == ERR_NOT_FOUND || err == ERR_MALFORMED ? ERR_INVALID : err);
    err = program_parse(buf_slice(&text), &read, reason);
    TRY(err == ERR_MALFORMED ? ERR_INVALID : err);
    if (!computes_alone(&read)) {
        planned->walks = 1;
        planned->program = read;
        read = (struct program){0};
        return ERR_OK;
    }
    TRY(rows_of_file(options->read, buf_slice(&text), &planned->rows, reason));
    mesh->program = options->read;
    mesh->rows = (const char *)planned->rows.data;
    mesh->places = read.places_count;
    mesh->runs = 1;
    mesh->schedule = SCHEDULE_1F1B;
    return generate(options, planned, reason);
}

static enum err make_program(const struct planned_options *options, struct planned *planned,
                             struct reason *reason)
{
    planned->mesh = mesh_of_options(options, &planned->spec);
    if (options->read != NULL)
        TRY(read_program(options, planned, reason));
    else
        TRY(generate(options, planned, reason));
    TRY(program_validate(&planned->program, reason));
    if (planned->program.units != planned->model.units_count)
        return reason_set(reason, ERR_INVALID, "program has %u units, and the model has %u",
                          planned->program.units, planned->model.units_count);
    if (planned->program.local_steps > 0)
        return reason_set(reason, ERR_INVALID,
                          "programs with local steps are not planned: they have one place");
    return ERR_OK;
}

/* With a delay a worker has so many executors. */
uint32_t planned_lanes(const struct planned *planned, uint32_t place)
{
    const struct program *program = &planned->program;
    return program->places_count > 1 ? mesh_lanes(&planned->mesh, place, program->microbatches,
                                                  spec_place_leases(&planned->spec))
                                     : 1;
}

static void multiply(struct plan_bytes *bytes, uint32_t lanes, uint32_t leases)
{
    bytes->weights *= lanes;
    bytes->gradients *= lanes;
    bytes->activations *= lanes;
    bytes->scratch *= lanes;
    bytes->device *= lanes;
    bytes->hosted *= lanes;
    bytes->kept *= leases; /* at most: what was sent for each */
    bytes->host = bytes->hosted + bytes->kept;
}

/* Of the later half of steps, which the beginning is far from; the ideal is that of the busiest
 * place. */
static enum err simulate_stream(const struct simulate_options *simulate, struct planned *planned)
{
    enum { STEPS = 16 };
    const struct program *program = &planned->program;
    uint32_t lanes[PROGRAM_UNITS_MAX];
    uint64_t ends[STEPS], busiest = 0;
    const struct stream_options stream = {
        .simulate = simulate,
        .mesh = &planned->mesh,
        .lanes = lanes,
        .delay = spec_place_leases(&planned->spec) - 1,
        .nodes = (planned->spec.train.slots + planned->slots - 1) / planned->slots,
        .steps = STEPS};
    for (uint32_t p = 0; p < program->places_count; p++) {
        const struct simulate_place *place = &planned->result.places[p];
        lanes[p] = planned_lanes(planned, p);
        busiest = place->busy > busiest ? place->busy : busiest;
    }
    TRY(stream_simulate(program, &stream, ends));
    planned->step = (double)(ends[STEPS - 1] - ends[STEPS / 2 - 1]) / (STEPS / 2);
    planned->step_ideal = (double)busiest * stream.nodes;
    return ERR_OK;
}

const struct plan_bytes *planned_member(const struct planned *planned, uint32_t place,
                                        uint32_t rank)
{
    return &planned->members[(size_t)place * planned->ranks + rank];
}

/* A worker with all units has one program for all nodes. */
static bool has_all(const struct planned *planned)
{
    return planned->program.places_count == 1 && planned->of_slot > 0;
}

/* A worker takes memory for the largest node that it may be given: where the coordinator chooses, of
 * all slots, or of as many as there is a program for. */
static uint32_t slots_max(const struct planned_options *options, const struct planned *planned)
{
    const struct spec_train *train = &planned->spec.train;
    bool chosen = train->node_slots == 0 && options->node_slots == 0 && planned->of_slot > 0;
    const struct mesh_node slot = {1, planned->of_slot};
    if (!chosen || has_all(planned))
        return chosen ? train->slots : planned->slots;
    const struct schedule_shape shape = mesh_shape(&planned->mesh, &planned->model, slot);
    return schedule_slots_max(&shape, train->slots);
}

/* Bytes on the wire stay those of the planned program. */
static enum err take_memory_of(const struct plan *plan, const struct program *program,
                               const struct simulate_result *result, uint32_t place,
                               struct plan_bytes *bytes)
{
    struct plan_bytes largest;
    TRY(plan_place(plan, program, result, place, &largest));
    bytes->gradients = largest.gradients;
    bytes->activations = largest.activations;
    bytes->scratch = largest.scratch;
    bytes->hosted = largest.hosted;
    bytes->kept = largest.kept;
    bytes->device = bytes->weights + bytes->gradients + bytes->activations + bytes->scratch;
    return ERR_OK;
}

/* The largest node's program, where it is not the one that is planned. */
static enum err plan_largest(const struct planned_options *options,
                             const struct simulate_options *clock, const struct planned *planned,
                             struct program *ret_program, struct simulate_result *ret_result,
                             struct reason *reason)
{
    const struct mesh_node node = {slots_max(options, planned), planned->of_slot};
    if (node.slots == planned->slots || has_all(planned))
        return ERR_OK;
    TRY(mesh_training(&planned->mesh, &planned->model, node, ret_program, reason));
    return simulate_program(ret_program, clock, ret_result);
}

static enum err plan_members(const struct planned_options *options,
                             const struct simulate_options *clock, struct planned *planned,
                             struct reason *reason)
{
    const struct program *program = &planned->program;
    const struct plan_walks walks = {planned->slots, slots_max(options, planned)};
    scoped(program_release) struct program largest = {0};
    scoped(simulate_release) struct simulate_result largest_result = {0};
    TRY(plan_largest(options, clock, planned, &largest, &largest_result, reason));
    planned->members =
        calloc((size_t)program->places_count * planned->ranks, sizeof *planned->members);
    if (planned->members == NULL)
        return ERR_NOMEM;
    for (uint32_t rank = 0; rank < planned->ranks; rank++) {
        struct plan plan = planned->plan;
        plan.model = &planned->shares[rank];
        for (uint32_t p = 0; p < program->places_count; p++) {
            struct plan_bytes *member = &planned->members[(size_t)p * planned->ranks + rank];
            if (has_all(planned))
                TRY(plan_alone(&plan, program, &planned->result, walks, member));
            else
                TRY(plan_place(&plan, program, &planned->result, p, member));
            if (largest.places_count > 0)
                TRY(take_memory_of(&plan, &largest, &largest_result, p, member));
            multiply(member, planned_lanes(planned, p), spec_place_leases(&planned->spec));
        }
    }
    return ERR_OK;
}

static enum err walk(const struct planned_options *options, struct planned *planned,
                     struct reason *reason)
{
    uint32_t units = planned->model.units_count;
    scoped(free_scoped) struct simulate_cost *costs = calloc(units, sizeof *costs);
    scoped(free_scoped) struct program_sizes *sizes = calloc(units, sizeof *sizes);
    if (costs == NULL || sizes == NULL)
        return ERR_NOMEM;
    /* In a millisecond, so that sizes times ticks stay far below 2^64. */
    const struct simulate_options clock = {.costs = costs,
                                           .sizes = sizes,
                                           .link_bytes = (uint64_t)(options->link_gbit * 125e3),
                                           .link_ticks = 1000000};
    plan_sizes(&planned->plan, sizes);
    if (options->uniform)
        TRY(plan_uniform(&planned->program, costs));
    else
        TRY(plan_measure(&planned->plan, costs, reason));
    TRY(simulate_program(&planned->program, &clock, &planned->result));
    planned->mesh.places = planned->program.places_count;
    if (spec_place_leases(&planned->spec) > 1 && planned->program.places_count > 1)
        TRY(simulate_stream(&clock, planned));
    return plan_members(options, &clock, planned, reason);
}

static enum err share_model(struct planned *planned)
{
    uint32_t ranks = spec_mesh_ranks(&planned->spec.mesh);
    planned->shares = calloc(ranks, sizeof *planned->shares);
    if (planned->shares == NULL)
        return ERR_NOMEM;
    for (; planned->ranks < ranks; planned->ranks++)
        TRY(pieces_share(&planned->model, planned->ranks, ranks, &planned->shares[planned->ranks]));
    return ERR_OK;
}

/* On a CPU all computes in fp32. */
static enum err open_kernels(const struct planned_options *options, struct planned *planned,
                             struct reason *reason)
{
    const struct spec_train *train = &planned->spec.train;
    bool cuda = options->backend == KERNELS_CUDA;
    const struct kernels_options kernels = {
        .backend = options->backend,
        .compute = cuda ? (enum kernels_compute)train->compute : KERNELS_COMPUTE_FP32,
        .gemm_core = train->gemm_core,
        .gemm_threads = (int)train->threads,
        .python_path = options_environment("PATH", NULL),
    };
    if (!kernels_new(&kernels, &planned->kernels, reason->text, sizeof reason->text))
        return ERR_UNSUPPORTED;
    kernels_use(planned->kernels);
    return ERR_OK;
}

enum err planned_make(const struct planned_options *options, struct planned *planned,
                      struct reason *reason)
{
    TRY(read_spec(options, planned, reason));
    TRY(judge_spec(options, planned, reason));
    TRY(make_program(options, planned, reason));
    TRY(open_kernels(options, planned, reason));
    TRY(share_model(planned));
    planned->plan = (struct plan){planned->kernels, &planned->shares[0], &planned->spec.train};
    return walk(options, planned, reason);
}

uint64_t planned_time(const struct planned *planned)
{
    return planned->result.time * planned->walks;
}

double planned_in_words(const struct planned_options *options, double ticks)
{
    return ticks / (options->uniform ? PLAN_FORWARD_TICKS : 1e9);
}
