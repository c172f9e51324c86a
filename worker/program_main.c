/* roost-program SPEC, what `roost program` becomes: a schedule for the run's model, printed,
 * checked, played on a fake clock and drawn. Nothing is trained, and no cluster is asked. */
#include "common/file.h"
#include "common/files/json.h"
#include "common/model/pieces.h"
#include "common/program/rows.h"
#include "common/program/spec_file.h"
#include "common/scoped.h"
#include "common/settings/flags.h"
#include "common/settings/options.h"
#include "common/tree.h"
#include "worker/plan.h"
#include "worker/program/draw.h"
#include "worker/program/mesh.h"
#include "worker/stream.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { PROGRAM_FILE_BYTES_MAX = 1 << 26 };

struct arguments {
    const char *spec_path;
    struct flags_sets sets;
    enum schedule_kind schedule;
    bool schedule_given; /* else the one that a worker has */
    uint32_t stages, runs;
    uint32_t microbatches; /* of a slot; 0: the spec's */
    uint32_t node_slots;   /* 0: the spec's */
    const char *read;      /* a program's file; NULL: the schedule makes it */
    const char *svg;
    double link_gbit; /* a second; 0: values are there at once */
    struct residency residency;
    bool offload, uniform, json;
};

/* ---- the command line ---- */

static uint32_t parse_count(const char *value, const char *what, uint32_t min, uint32_t max,
                            const struct argp_state *state)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (errno != 0 || *end != 0 || *value < '0' || *value > '9' || number < min || number > max)
        argp_error(state, "%s is a number from %u to %u, not %s", what, min, max, value);
    return (uint32_t)number;
}

static enum schedule_kind parse_schedule(const char *value, const struct argp_state *state)
{
    for (int schedule = 0; schedule < SCHEDULE_COUNT; schedule++)
        if (strcmp(schedule_name((enum schedule_kind)schedule), value) == 0)
            return (enum schedule_kind)schedule;
    argp_error(state, "no schedule %s; there are naive, gpipe, 1f1b, interleaved, zb-h1, chimera",
               value);
    return SCHEDULE_COUNT;
}

static double parse_link(const char *value, const struct argp_state *state)
{
    char *end;
    double gbit = strtod(value, &end);
    if (end == value || *end != 0 || !(gbit >= 0.001 && gbit <= 1e6))
        argp_error(state, "--link is a number from 0.001 to 1000000, not %s", value);
    return gbit;
}

enum {
    KEY_NODE_SLOTS = 256,
    KEY_SVG,
    KEY_READ,
    KEY_OFFLOAD,
    KEY_UNIFORM,
    KEY_LINK,
    KEY_STREAM,
    KEY_KEEP,
    KEY_PREFETCH
};

static const struct argp_option option_rows[] = {
    FLAGS_SET_ROW,
    {"stages", 'P', "P", 0, "places that the model is cut into (mesh.stage)", 0},
    {"schedule", 'S', "naive|gpipe|1f1b|interleaved|zb-h1|chimera", 0,
     "who computes what when (1f1b)", 0},
    {"units", 'v', "V", 0, "interleaved: runs of units that a place holds (1)", 0},
    {"microbatches", 'm', "M", 0, "of a slot, instead of slot_samples / microbatch", 0},
    {"node-slots", KEY_NODE_SLOTS, "N", 0,
     "slots that the program spans, instead of train.node_slots", 0},
    {"offload", KEY_OFFLOAD, NULL, 0, "activations wait in the host's memory for their backward",
     0},
    {"stream", KEY_STREAM, "unit|microbatch", 0,
     "weights are in the device's memory only while they are used: pulled again for each unit of a "
     "slot, "
     "or for each microbatch too",
     0},
    {"keep-after-forward", KEY_KEEP, NULL, 0, "of --stream: until the unit's backward", 0},
    {"prefetch", KEY_PREFETCH, "K", 0, "of --stream: units that are asked for ahead (0)", 0},
    {"link", KEY_LINK, "GBIT", 0,
     "gigabits a second that a value between places has for itself; without it values are there at "
     "once",
     0},
    {"read", KEY_READ, "FILE.csv", 0, "check this program instead of a schedule's", 0},
    {"uniform", KEY_UNIFORM, NULL, 0,
     "every forward of a place takes 1, every backward 2, instead of what is measured here", 0},
    {"svg", KEY_SVG, "FILE.svg", 0, "draw it: places down, time across", 0},
    {"json", 'j', NULL, 0, "one JSON object on stdout instead of the program", 0},
    {0},
};

/* --stream and what is about it. */
static error_t parse_stream(int key, const char *argument, struct arguments *arguments,
                            const struct argp_state *state)
{
    switch (key) {
    case KEY_STREAM:
        if (strcmp(argument, "unit") != 0 && strcmp(argument, "microbatch") != 0)
            argp_error(state, "--stream is unit or microbatch, not %s", argument);
        arguments->residency.streamed = true;
        arguments->residency.by_unit = strcmp(argument, "unit") == 0;
        return 0;
    case KEY_KEEP:
        arguments->residency.keep_after_forward = true;
        return 0;
    case KEY_PREFETCH:
        arguments->residency.prefetch =
            parse_count(argument, "--prefetch", 0, PROGRAM_UNITS_MAX, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_number(int key, const char *argument, struct arguments *arguments,
                            const struct argp_state *state)
{
    switch (key) {
    case 'P':
        arguments->stages = parse_count(argument, "--stages", 1, PROGRAM_UNITS_MAX, state);
        return 0;
    case 'v':
        arguments->runs = parse_count(argument, "--units", 1, PROGRAM_UNITS_MAX, state);
        return 0;
    case 'm':
        arguments->microbatches =
            parse_count(argument, "--microbatches", 1, PROGRAM_MICROBATCHES_MAX, state);
        return 0;
    case KEY_NODE_SLOTS:
        arguments->node_slots = parse_count(argument, "--node-slots", 1, TREE_SLOTS_MAX, state);
        return 0;
    default:
        return parse_stream(key, argument, arguments, state);
    }
}

/* What says nothing without another flag, or against it. */
static void judge_flags(const struct arguments *arguments, const struct argp_state *state)
{
    if (!arguments->residency.streamed &&
        (arguments->residency.keep_after_forward || arguments->residency.prefetch > 0))
        argp_error(state, "--keep-after-forward and --prefetch are about --stream");
    if (arguments->uniform && arguments->link_gbit > 0)
        argp_error(state, "--link is about measured times, --uniform is not");
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 's':
        flags_add_set(&arguments->sets, argument, state);
        return 0;
    case 'S':
        arguments->schedule = parse_schedule(argument, state);
        arguments->schedule_given = true;
        return 0;
    case KEY_READ:
        arguments->read = argument;
        return 0;
    case KEY_SVG:
        arguments->svg = argument;
        return 0;
    case KEY_OFFLOAD:
        arguments->offload = true;
        return 0;
    case KEY_UNIFORM:
        arguments->uniform = true;
        return 0;
    case KEY_LINK:
        arguments->link_gbit = parse_link(argument, state);
        return 0;
    case 'j':
        arguments->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (arguments->spec_path != NULL)
            argp_error(state, "more than one SPEC: %s", argument);
        arguments->spec_path = argument;
        return 0;
    case ARGP_KEY_END:
        judge_flags(arguments, state);
        return 0;
    default:
        return parse_number(key, argument, arguments, state);
    }
}

/* ---- the program ---- */

struct planned {
    struct spec spec;
    struct model model;
    const struct kernels *kernels;
    struct plan plan;
    struct mesh mesh; /* borrows the rows, or the spec's */
    struct buf rows;  /* of --read; none: the spec's or a schedule's */
    struct program program;
    struct simulate_result result;
    uint32_t ranks;             /* of each place */
    struct model *shares;       /* (ranks) */
    struct plan_bytes *members; /* (places, ranks) of all their lanes */
    double step, step_ideal;    /* ticks of a step, in a stream of them */
    uint32_t slots;             /* of the node */
};

static void planned_release(struct planned *planned)
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

static enum err read_spec(const struct arguments *arguments, struct planned *planned,
                          struct reason *reason)
{
    TRY(spec_file_read(arguments->spec_path, &arguments->sets, false, &planned->spec, reason));
    return model_init(&planned->model, &planned->spec.model, reason);
}

static bool offloads(const struct arguments *arguments, const struct spec *spec)
{
    return arguments->offload || spec->train.offload;
}

/* What several places cannot do, and nodes that the run's slots do not have. */
static enum err judge_spec(const struct arguments *arguments, struct planned *planned,
                           struct reason *reason)
{
    static const char *const kinds[] = {[SPEC_ASYNC] = "async", [SPEC_LOCAL] = "local"};
    const struct spec *spec = &planned->spec;
    enum spec_consistency_kind kind = spec->consistency.kind;
    uint32_t of_spec = spec->train.node_slots > 0 ? spec->train.node_slots : 1;
    uint32_t slots = arguments->node_slots > 0 ? arguments->node_slots : of_spec;
    if (offloads(arguments, spec) && spec->train.recompute != SPEC_RECOMPUTE_NONE)
        return reason_set(reason, ERR_INVALID,
                          "activations are offloaded or computed again, not both: --set "
                          "train.recompute=false would do");
    if ((kind == SPEC_LOCAL || kind == SPEC_ASYNC) && arguments->stages > 1)
        return reason_set(
            reason, ERR_INVALID,
            "consistency %s needs the norm of the whole gradient inside a slot, which "
            "no stage has; sync and delay have stages",
            kinds[kind]);
    if (kind == SPEC_LOCAL)
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

static struct mesh mesh_of_arguments(const struct arguments *arguments, const struct spec *spec)
{
    struct mesh mesh = mesh_of(spec);
    mesh.offload |= arguments->offload;
    if (arguments->stages > 0 || arguments->runs > 0 || arguments->schedule_given)
        mesh.rows = NULL;
    if (arguments->stages > 0)
        mesh.places = arguments->stages;
    if (arguments->runs > 0)
        mesh.runs = arguments->runs;
    if (arguments->schedule_given)
        mesh.schedule = arguments->schedule;
    if (arguments->residency.streamed)
        mesh.residency = arguments->residency;
    return mesh;
}

static enum err generate(const struct arguments *arguments, struct planned *planned,
                         struct reason *reason)
{
    const struct spec_train *train = &planned->spec.train;
    uint32_t of_slot = arguments->microbatches > 0 ? arguments->microbatches
                                                   : train->slot_samples / train->microbatch;
    const struct mesh_node node = {planned->slots, of_slot};
    return mesh_training(&planned->mesh, &planned->model, node, &planned->program, reason);
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
static enum err read_program(const struct arguments *arguments, struct planned *planned,
                             struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    scoped(program_release) struct program read = {0};
    struct mesh *mesh = &planned->mesh;
    enum err err = file_read(arguments->read, PROGRAM_FILE_BYTES_MAX, &text, reason);
    TRY(err == ERR_NOT_FOUND || err == ERR_MALFORMED ? ERR_INVALID : err);
    err = program_parse(buf_slice(&text), &read, reason);
    TRY(err == ERR_MALFORMED ? ERR_INVALID : err);
    if (!computes_alone(&read)) {
        planned->program = read;
        read = (struct program){0};
        return ERR_OK;
    }
    TRY(rows_of_file(arguments->read, buf_slice(&text), &planned->rows, reason));
    mesh->program = arguments->read;
    mesh->rows = (const char *)planned->rows.data;
    mesh->places = read.places_count;
    mesh->runs = 1;
    mesh->schedule = SCHEDULE_1F1B;
    return generate(arguments, planned, reason);
}

static enum err make_program(const struct arguments *arguments, struct planned *planned,
                             struct reason *reason)
{
    planned->mesh = mesh_of_arguments(arguments, &planned->spec);
    if (arguments->read != NULL)
        TRY(read_program(arguments, planned, reason));
    else
        TRY(generate(arguments, planned, reason));
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
static uint32_t lanes_of(const struct planned *planned, uint32_t place)
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
    bytes->host *= leases; /* at most: what was sent for each */
}

/* Of the later half of steps, which the beginning is far from; the ideal is that of the busiest
 * place. */
static enum err simulate_stream(const struct simulate_options *simulate, struct planned *planned)
{
    enum { STEPS = 16 };
    const struct program *program = &planned->program;
    uint32_t lanes[PROGRAM_UNITS_MAX];
    uint64_t ends[STEPS], busiest = 0;
    const struct stream_options options = {
        .simulate = simulate,
        .mesh = &planned->mesh,
        .lanes = lanes,
        .delay = spec_place_leases(&planned->spec) - 1,
        .nodes = (planned->spec.train.slots + planned->slots - 1) / planned->slots,
        .steps = STEPS};
    for (uint32_t p = 0; p < program->places_count; p++) {
        const struct simulate_place *place = &planned->result.places[p];
        lanes[p] = lanes_of(planned, p);
        busiest = place->busy > busiest ? place->busy : busiest;
    }
    TRY(stream_simulate(program, &options, ends));
    planned->step = (double)(ends[STEPS - 1] - ends[STEPS / 2 - 1]) / (STEPS / 2);
    planned->step_ideal = (double)busiest * options.nodes;
    return ERR_OK;
}

static struct plan_bytes *member_of(const struct planned *planned, uint32_t place, uint32_t rank)
{
    return &planned->members[(size_t)place * planned->ranks + rank];
}

static enum err plan_members(struct planned *planned)
{
    const struct program *program = &planned->program;
    planned->members =
        calloc((size_t)program->places_count * planned->ranks, sizeof *planned->members);
    if (planned->members == NULL)
        return ERR_NOMEM;
    for (uint32_t rank = 0; rank < planned->ranks; rank++) {
        struct plan plan = planned->plan;
        plan.model = &planned->shares[rank];
        for (uint32_t p = 0; p < program->places_count; p++) {
            struct plan_bytes *member = member_of(planned, p, rank);
            TRY(plan_place(&plan, program, &planned->result, p, member));
            multiply(member, lanes_of(planned, p), spec_place_leases(&planned->spec));
        }
    }
    return ERR_OK;
}

static enum err simulate(const struct arguments *arguments, struct planned *planned)
{
    uint32_t units = planned->model.units_count;
    scoped(free_scoped) struct simulate_cost *costs = calloc(units, sizeof *costs);
    scoped(free_scoped) struct program_sizes *sizes = calloc(units, sizeof *sizes);
    if (costs == NULL || sizes == NULL)
        return ERR_NOMEM;
    /* In a millisecond, so that sizes times ticks stay far below 2^64. */
    const struct simulate_options options = {.costs = costs,
                                             .sizes = sizes,
                                             .link_bytes = (uint64_t)(arguments->link_gbit * 125e3),
                                             .link_ticks = 1000000};
    plan_sizes(&planned->plan, sizes);
    if (arguments->uniform)
        TRY(plan_uniform(&planned->program, costs));
    else
        TRY(plan_measure(&planned->plan, costs));
    TRY(simulate_program(&planned->program, &options, &planned->result));
    planned->mesh.places = planned->program.places_count;
    if (spec_place_leases(&planned->spec) > 1 && planned->program.places_count > 1)
        TRY(simulate_stream(&options, planned));
    return plan_members(planned);
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

static enum err make_plan(const struct arguments *arguments, struct planned *planned,
                          struct reason *reason)
{
    TRY(read_spec(arguments, planned, reason));
    TRY(judge_spec(arguments, planned, reason));
    TRY(make_program(arguments, planned, reason));
    const struct kernels_options options = {.gemm_core = planned->spec.train.gemm_core,
                                            .gemm_threads = (int)planned->spec.train.threads};
    if (!kernels_new(&options, &planned->kernels, reason->text, sizeof reason->text))
        return ERR_UNSUPPORTED;
    TRY(share_model(planned));
    planned->plan = (struct plan){planned->kernels, &planned->shares[0], &planned->spec.train};
    return simulate(arguments, planned);
}

/* ---- saying it ---- */

/* Forwards of a place, or seconds. */
static double in_words(const struct arguments *arguments, double ticks)
{
    return ticks / (arguments->uniform ? PLAN_FORWARD_TICKS : 1e9);
}

static uint64_t number_of(const struct plan_bytes *member, size_t offset)
{
    return *(const uint64_t *)((const char *)member + offset);
}

static uint64_t sum_of(const struct planned *planned, size_t offset)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < planned->program.places_count * planned->ranks; i++)
        sum += number_of(&planned->members[i], offset);
    return sum;
}

/* Over boundaries a rank hands values to its like. */
static uint64_t boundary_bytes(const struct planned *planned)
{
    return simulate_peer_bytes(&planned->result) * planned->ranks;
}

static uint64_t sum_bytes(const struct planned *planned)
{
    return sum_of(planned, offsetof(struct plan_bytes, exchanged.bytes));
}

/* Of each place, whose members have the same. */
static void put_places(struct json_writer *writer, const struct planned *planned, const char *key,
                       size_t offset)
{
    json_put_key(writer, key);
    json_put_array(writer);
    for (uint32_t p = 0; p < planned->program.places_count; p++)
        json_put_uint(writer, number_of(member_of(planned, p, 0), offset));
    json_put_end(writer);
}

/* Of each place a list: of each rank. */
static void put_members(struct json_writer *writer, const struct planned *planned, const char *key,
                        size_t offset)
{
    json_put_key(writer, key);
    json_put_array(writer);
    for (uint32_t p = 0; p < planned->program.places_count; p++) {
        json_put_array(writer);
        for (uint32_t rank = 0; rank < planned->ranks; rank++)
            json_put_uint(writer, number_of(member_of(planned, p, rank), offset));
        json_put_end(writer);
    }
    json_put_end(writer);
}

/* What members of places exchange: all of them together, and each. */
static void put_exchanged(struct json_writer *writer, const struct planned *planned)
{
    static const struct {
        const char *key;
        size_t offset;
    } rows[] = {
        {"sums", offsetof(struct plan_bytes, exchanged.sums)},
        {"sum_messages", offsetof(struct plan_bytes, exchanged.sum_messages)},
        {"gathers", offsetof(struct plan_bytes, exchanged.gathers)},
        {"gather_messages", offsetof(struct plan_bytes, exchanged.gather_messages)},
    };
    json_member_uint(writer, "sum_bytes", sum_bytes(planned));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        json_member_uint(writer, rows[i].key, sum_of(planned, rows[i].offset));
}

static void put_bytes(struct json_writer *writer, const struct planned *planned)
{
    json_member_uint(writer, "peer_bytes", boundary_bytes(planned) + sum_bytes(planned));
    put_exchanged(writer, planned);
    json_member_uint(writer, "pulled_bytes", sum_of(planned, offsetof(struct plan_bytes, pulled)));
    json_member_uint(writer, "pushed_bytes", sum_of(planned, offsetof(struct plan_bytes, pushed)));
    json_put_key(writer, "member_bytes");
    json_put_object(writer);
    put_members(writer, planned, "pulled", offsetof(struct plan_bytes, pulled));
    put_members(writer, planned, "pushed", offsetof(struct plan_bytes, pushed));
    put_members(writer, planned, "sums", offsetof(struct plan_bytes, exchanged.bytes));
    json_put_end(writer);
    json_put_key(writer, "peak_bytes");
    json_put_object(writer);
    put_places(writer, planned, "device", offsetof(struct plan_bytes, device));
    put_places(writer, planned, "weights", offsetof(struct plan_bytes, weights));
    put_places(writer, planned, "host", offsetof(struct plan_bytes, host));
    json_put_end(writer);
}

struct schedule_text {
    char text[SPEC_PATH_BYTES + 16];
};

/* "1f1b", or "program my.csv". */
static struct schedule_text schedule_text(const struct arguments *arguments,
                                          const struct planned *planned)
{
    struct schedule_text out;
    const struct mesh *mesh = &planned->mesh;
    bool written = mesh->rows != NULL && mesh->rows[0] != 0;
    const char *name = written ? mesh->program : arguments->read;
    if (name != NULL)
        snprintf(out.text, sizeof out.text, "program %s", name);
    else
        snprintf(out.text, sizeof out.text, "%s", schedule_name(mesh->schedule));
    return out;
}

static enum err print_json(const struct arguments *arguments, const struct planned *planned)
{
    scoped(buf_release) struct buf buf = {0};
    struct json_writer writer = json_writer(&buf);
    json_put_object(&writer);
    json_member_uint(&writer, "stages", planned->program.places_count);
    json_member_uint(&writer, "tensor", planned->ranks);
    json_member_text(&writer, "schedule", schedule_text(arguments, planned).text);
    json_member_uint(&writer, "slots", planned->program.slots);
    json_member_uint(&writer, "microbatches", planned->program.microbatches);
    json_member_real(&writer, "time", in_words(arguments, (double)planned->result.time));
    json_member_real(&writer, "idle_share", simulate_idle_share(&planned->result));
    json_put_key(&writer, "stored");
    json_put_array(&writer);
    for (uint32_t p = 0; p < planned->program.places_count; p++)
        json_put_uint(&writer, planned->result.places[p].stored);
    json_put_end(&writer);
    json_put_key(&writer, "lanes");
    json_put_array(&writer);
    for (uint32_t p = 0; p < planned->program.places_count; p++)
        json_put_uint(&writer, lanes_of(planned, p));
    json_put_end(&writer);
    if (planned->step > 0) {
        json_member_real(&writer, "step_time", in_words(arguments, planned->step));
        json_member_real(&writer, "step_ideal", in_words(arguments, planned->step_ideal));
    }
    put_bytes(&writer, planned);
    json_put_end(&writer);
    TRY(json_writer_finish(&writer));
    printf("%.*s\n", (int)buf.bytes, (const char *)buf.data);
    return ERR_OK;
}

static void print_exchanged(const struct planned *planned)
{
    uint64_t sums = sum_of(planned, offsetof(struct plan_bytes, exchanged.sums));
    uint64_t messages = sum_of(planned, offsetof(struct plan_bytes, exchanged.sum_messages));
    if (planned->ranks == 1)
        return;
    fprintf(stderr, "%u members a place: %" PRIu64 " bytes between them", planned->ranks,
            sum_bytes(planned));
    if (sums > 0)
        fprintf(stderr, ", %" PRIu64 " sums of %" PRIu64 " messages each", sums / planned->ranks,
                messages / sums);
    fprintf(stderr, "\n");
}

static void print_place(const struct planned *planned, uint32_t place)
{
    const struct plan_bytes *bytes = member_of(planned, place, 0);
    uint32_t stored = planned->result.places[place].stored;
    fprintf(stderr,
            "place %u: keeps %u microbatch%s; device %" PRIu64 " bytes (weights %" PRIu64
            ", gradients %" PRIu64 ", activations %" PRIu64 ", scratch %" PRIu64 "), host %" PRIu64
            "%s\n",
            place, stored, stored == 1 ? "" : "es", bytes->device, bytes->weights, bytes->gradients,
            bytes->activations, bytes->scratch, bytes->host,
            planned->ranks > 1 ? ", of each member" : "");
}

/* The program on stdout, what it costs on stderr. */
static enum err print_text(const struct arguments *arguments, const struct planned *planned)
{
    scoped(buf_release) struct buf text = {0};
    TRY(program_print(&planned->program, &text));
    fwrite(text.data, 1, text.bytes, stdout);
    fprintf(stderr, "%s: time %g%s, idle share %.3f, %" PRIu64 " bytes between places\n",
            schedule_text(arguments, planned).text,
            in_words(arguments, (double)planned->result.time), arguments->uniform ? "" : " s",
            simulate_idle_share(&planned->result), boundary_bytes(planned));
    print_exchanged(planned);
    if (planned->step > 0)
        fprintf(stderr, "without a flush: a step takes %g%s, %g if no place waited\n",
                in_words(arguments, planned->step), arguments->uniform ? "" : " s",
                in_words(arguments, planned->step_ideal));
    for (uint32_t p = 0; p < planned->program.places_count; p++)
        print_place(planned, p);
    return ERR_OK;
}

static enum err draw(const struct arguments *arguments, const struct planned *planned,
                     struct reason *reason)
{
    scoped(buf_release) struct buf svg = {0};
    char caption[80];
    snprintf(caption, sizeof caption, "time %g%s, idle %.1f %%",
             in_words(arguments, (double)planned->result.time), arguments->uniform ? "" : " s",
             100 * simulate_idle_share(&planned->result));
    TRY(draw_program(&planned->program, &planned->result, caption, &svg));
    return file_write_atomic(&file_ops_real, arguments->svg, 0644, buf_slice(&svg), reason);
}

static enum err run(const struct arguments *arguments, struct reason *reason)
{
    scoped(planned_release) struct planned planned = {0};
    TRY(make_plan(arguments, &planned, reason));
    if (arguments->svg != NULL)
        TRY(draw(arguments, &planned, reason));
    TRY((arguments->json ? print_json : print_text)(arguments, &planned));
    return options_printed(reason);
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        option_rows,
        parse_option,
        "SPEC",
        "Prints the program of a schedule for the run's model as CSV, a line for each place, "
        "checks it and says what it costs: time, idle share, microbatches kept, bytes. It trains "
        "nothing; without --stages the mesh is the run's.",
        NULL,
        NULL,
        NULL};
    struct arguments arguments = {.schedule = SCHEDULE_1F1B};
    struct reason reason = {.text = ""};
    argp_err_exit_status = EXIT_USAGE;
    flags_parse(&argp, argc, argv, &arguments);
    if (arguments.spec_path == NULL) {
        fprintf(stderr, "roost program: which SPEC?\n");
        return EXIT_USAGE;
    }
    enum err err = run(&arguments, &reason);
    if (err != ERR_OK)
        fprintf(stderr, "roost program: %s\n", reason_text(err, &reason));
    return options_exit_code(err);
}
