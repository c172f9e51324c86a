/* roost-program SPEC, what `roost program` becomes: a schedule for the run's model, printed,
 * checked, played on a fake clock and drawn. Nothing is trained, and no cluster is asked. */
#include "common/file.h"
#include "common/scoped.h"
#include "common/settings/options.h"
#include "common/tree.h"
#include "worker/planned_print.h"
#include "worker/program/draw.h"

#include <errno.h>
#include <string.h>

struct arguments {
    struct planned_options plan;
    const char *svg;
    bool json;
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

static enum kernels_backend parse_backend(const char *value, const struct argp_state *state)
{
    if (strcmp(value, "cpu") != 0 && strcmp(value, "cuda") != 0)
        argp_error(state, "backend %s is neither cpu nor cuda", value);
    return strcmp(value, "cuda") == 0 ? KERNELS_CUDA : KERNELS_CPU;
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
     "who computes what when (mesh.schedule)", 0},
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
    {"backend", 'b', "cpu|cuda", 0, "what workers compute on: its memory and times (cpu)", 0},
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
        arguments->plan.residency.streamed = true;
        arguments->plan.residency.by_unit = strcmp(argument, "unit") == 0;
        return 0;
    case KEY_KEEP:
        arguments->plan.residency.keep_after_forward = true;
        return 0;
    case KEY_PREFETCH:
        arguments->plan.residency.prefetch =
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
        arguments->plan.stages = parse_count(argument, "--stages", 1, SPEC_STAGES_MAX, state);
        return 0;
    case 'v':
        arguments->plan.runs = parse_count(argument, "--units", 1, PROGRAM_UNITS_MAX, state);
        return 0;
    case 'm':
        arguments->plan.microbatches =
            parse_count(argument, "--microbatches", 1, PROGRAM_MICROBATCHES_MAX, state);
        return 0;
    case KEY_NODE_SLOTS:
        arguments->plan.node_slots =
            parse_count(argument, "--node-slots", 1, TREE_SLOTS_MAX, state);
        return 0;
    default:
        return parse_stream(key, argument, arguments, state);
    }
}

/* What says nothing without another flag, or against it. */
static void judge_flags(const struct arguments *arguments, const struct argp_state *state)
{
    if (!arguments->plan.residency.streamed &&
        (arguments->plan.residency.keep_after_forward || arguments->plan.residency.prefetch > 0))
        argp_error(state, "--keep-after-forward and --prefetch are about --stream");
    if (arguments->plan.uniform && arguments->plan.link_gbit > 0)
        argp_error(state, "--link is about measured times, --uniform is not");
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 's':
        flags_add_set(&arguments->plan.sets, argument, state);
        return 0;
    case 'S':
        arguments->plan.schedule = parse_schedule(argument, state);
        arguments->plan.schedule_given = true;
        return 0;
    case KEY_READ:
        arguments->plan.read = argument;
        return 0;
    case KEY_SVG:
        arguments->svg = argument;
        return 0;
    case KEY_OFFLOAD:
        arguments->plan.offload = true;
        return 0;
    case 'b':
        arguments->plan.backend = parse_backend(argument, state);
        return 0;
    case KEY_UNIFORM:
        arguments->plan.uniform = true;
        return 0;
    case KEY_LINK:
        arguments->plan.link_gbit = parse_link(argument, state);
        return 0;
    case 'j':
        arguments->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (arguments->plan.spec_path != NULL)
            argp_error(state, "more than one SPEC: %s", argument);
        arguments->plan.spec_path = argument;
        return 0;
    case ARGP_KEY_END:
        judge_flags(arguments, state);
        return 0;
    default:
        return parse_number(key, argument, arguments, state);
    }
}

static enum err draw(const struct arguments *arguments, const struct planned *planned,
                     struct reason *reason)
{
    scoped(buf_release) struct buf svg = {0};
    char caption[80];
    snprintf(caption, sizeof caption, "time %g%s, idle %.1f %%",
             planned_in_words(&arguments->plan, (double)planned_time(planned)),
             arguments->plan.uniform ? "" : " s", 100 * simulate_idle_share(&planned->result));
    TRY(draw_program(&planned->program, &planned->result, caption, &svg));
    return file_write_atomic(&file_ops_real, arguments->svg, 0644, buf_slice(&svg), reason);
}

static enum err run(const struct arguments *arguments, struct reason *reason)
{
    scoped(planned_release) struct planned planned = {0};
    TRY(planned_make(&arguments->plan, &planned, reason));
    if (arguments->svg != NULL)
        TRY(draw(arguments, &planned, reason));
    TRY((arguments->json ? planned_print_json : planned_print_text)(&arguments->plan, &planned));
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
    struct arguments arguments = {.plan.schedule = SCHEDULE_1F1B};
    struct reason reason = {.text = ""};
    file_standard_open();
    argp_err_exit_status = EXIT_USAGE;
    flags_parse(&argp, argc, argv, &arguments);
    if (arguments.plan.spec_path == NULL) {
        fprintf(stderr, "roost program: which SPEC?\n");
        return EXIT_USAGE;
    }
    enum err err = run(&arguments, &reason);
    if (err != ERR_OK)
        fprintf(stderr, "roost program: %s\n", reason_text(err, &reason));
    return options_exit_code(err);
}
