/* roost-replay DIR: repeats the run of a checkpoint in one process, from its spec, its data and
 * what its order log says, and compares the bytes it ends in with the checkpoint's. */
#include "common/data/run_data.h"
#include "common/file.h"
#include "common/files/checkpoint.h"
#include "common/files/json.h"
#include "common/files/order.h"
#include "common/settings/config.h"
#include "common/settings/flags.h"
#include "common/settings/options.h"
#include "reference/async.h"
#include "reference/local.h"
#include "reference/reference.h"

#include <argp.h>
#include <inttypes.h>
#include <string.h>

enum { LOG_PATH_BYTES = CHECKPOINT_PATH_BYTES + 64 };
#define LOG_BYTES_MAX ((size_t)1 << 34)

struct replay_arguments {
    const char *path;
    bool json;
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct replay_arguments *arguments = state->input;
    if (key == 'j') {
        arguments->json = true;
        return 0;
    }
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    if (arguments->path != NULL)
        argp_error(state, "more than one DIR: %s", argument);
    arguments->path = argument;
    return 0;
}

/* ---- ssp: the coordinator's log ---- */

/* Reads on, step by step. */
struct log {
    char path[LOG_PATH_BYTES];
    struct buf bytes;
    size_t offset;
    uint32_t slots;
    uint32_t behind_max; /* of the steps read so far */
    struct reason *reason;
};

static void log_release(struct log *log)
{
    buf_release(&log->bytes);
}

static enum err log_open(struct log *log, const struct checkpoint *checkpoint,
                         const struct spec *spec, struct reason *reason)
{
    *log = (struct log){.slots = spec->train.slots, .reason = reason};
    if (spec->consistency.kind != SPEC_SSP)
        return ERR_OK;
    snprintf(log->path, sizeof log->path, "%s/../../" ORDER_FOLDER "/" ORDER_COORDINATOR,
             checkpoint_path(checkpoint));
    return file_read(log->path, LOG_BYTES_MAX, &log->bytes, reason);
}

static enum err log_behind(void *context, uint64_t step, const uint8_t **ret_behind)
{
    struct log *log = context;
    struct order_record record;
    struct order_step entry = {0};
    size_t begin = log->offset;
    enum err err =
        order_next(buf_slice(&log->bytes), log->path, &log->offset, &record, log->reason);
    if (err == ERR_NOT_FOUND)
        return reason_set(log->reason, ERR_CORRUPT,
                          "%s: offset %zu: the log ends before step %" PRIu64
                          ", which led to the checkpoint",
                          log->path, begin, step);
    TRY(err);
    if (order_step(&record, &entry) != ERR_OK || entry.step != step || entry.slots != log->slots)
        return reason_set(log->reason, ERR_CORRUPT,
                          "%s: offset %zu: not the order of step %" PRIu64, log->path, begin, step);
    for (uint32_t i = 0; i < entry.slots; i++)
        log->behind_max = entry.behind[i] > log->behind_max ? entry.behind[i] : log->behind_max;
    *ret_behind = entry.behind;
    return ERR_OK;
}

/* The run may have been resumed with tighter bounds than its tickets kept to before: what the logs
 * say holds. No bit follows from the bounds, but `staleness` is how many versions are kept. */
static enum err admit_order(struct log *log, uint64_t steps, struct spec *spec)
{
    struct spec_consistency *consistency = &spec->consistency;
    const uint8_t *behind;
    for (uint64_t step = 0; consistency->kind == SPEC_SSP && step < steps; step++)
        TRY(log_behind(log, step, &behind));
    log->offset = 0;
    if (log->behind_max > consistency->staleness)
        consistency->staleness = log->behind_max;
    consistency->staleness_max = UINT32_MAX;
    return ERR_OK;
}

/* ---- the run again ---- */

struct result {
    uint64_t steps;
    uint32_t behind_max; /* ssp */
    uint64_t attempts;   /* async: computed */
    struct digest stored, repeated;
};

static enum err repeat(struct reference *reference, struct log *log, struct result *result)
{
    struct seal_metrics metrics;
    for (uint64_t step = 0; step < result->steps; step++)
        TRY(reference_step(reference, &metrics));
    result->behind_max = log->behind_max;
    return reference_digest(reference, &result->repeated);
}

/* Async: from what the servers' logs say, up to the version that each chunk has in the cut. */
static enum err repeat_async(const struct reference_options *options,
                             const struct checkpoint *checkpoint, struct result *result,
                             struct reason *reason)
{
    char folder[LOG_PATH_BYTES];
    uint32_t count = options->model->chunks_count;
    struct checkpoint_arrays arrays = checkpoint_arrays(checkpoint);
    struct reference_async_result again;
    scoped(free_scoped) uint64_t *versions = calloc(count, sizeof *versions);
    if (versions == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to repeat the run");
    for (uint32_t chunk = 0; chunk < count; chunk++) {
        struct checkpoint_chunk stored;
        TRY(checkpoint_read(checkpoint, chunk, &stored, reason));
        size_t floats = (size_t)stored.n * (1 + arrays.states + arrays.versions);
        if (arrays.extra_bytes < sizeof *versions)
            return reason_set(reason, ERR_CORRUPT, "%s: does not say what chunks took",
                              checkpoint_path(checkpoint));
        memcpy(&versions[chunk], stored.values + floats, sizeof *versions);
    }
    snprintf(folder, sizeof folder, "%s/../../" ORDER_FOLDER, checkpoint_path(checkpoint));
    const struct reference_async async = {.options = options,
                                          .folder = folder,
                                          .generation =
                                              checkpoint_about(checkpoint)->name.generation,
                                          .versions = versions};
    TRY(reference_async_run(&async, &again, reason));
    result->attempts = again.attempts;
    result->repeated = again.digest;
    return ERR_OK;
}

static enum err repeat_steps(const struct reference_options *options, struct log *log,
                             struct result *result, struct reason *reason)
{
    struct reference *reference = NULL;
    TRY(reference_new(options, &reference, reason));
    enum err err = repeat(reference, log, result);
    reference_free(reference);
    return err;
}

static enum err repeat_with(const struct checkpoint *checkpoint, const struct spec *spec,
                            const struct model *model, const struct kernels *kernels,
                            struct log *log, struct result *result, struct reason *reason)
{
    scoped(data_free_scoped) struct data *data = NULL;
    struct reference_local local;
    TRY(run_data_open(spec, NULL, &data, reason));
    const struct executor_samples samples = local_samples(&local, spec, data);
    const struct reference_order order = {log, log_behind};
    const struct reference_options options = {
        .spec = spec,
        .model = model,
        .kernels = kernels,
        .samples = &samples,
        .order = spec->consistency.kind == SPEC_SSP ? &order : NULL,
    };
    enum err err = spec->consistency.kind == SPEC_ASYNC
                       ? repeat_async(&options, checkpoint, result, reason)
                       : repeat_steps(&options, log, result, reason);
    if (err == ERR_DATA_SET)
        *reason = local.failure;
    return err;
}

static enum err replay(const struct checkpoint *checkpoint, struct result *result,
                       struct reason *reason)
{
    scoped(model_release) struct model model = {0};
    scoped(log_release) struct log log = {0};
    const struct checkpoint_record *about = checkpoint_about(checkpoint);
    struct slice text = {(const uint8_t *)about->spec, strlen(about->spec)};
    struct spec spec;
    TRY(spec_parse(text, checkpoint_path(checkpoint), NULL, &spec, reason));
    TRY(model_init(&model, &spec.model, reason));
    TRY(checkpoint_fits(checkpoint, &model, checkpoint_arrays(checkpoint).states, reason));
    TRY(checkpoint_verify(checkpoint, reason));
    TRY(checkpoint_digest(checkpoint, &model, &result->stored, reason));
    TRY(log_open(&log, checkpoint, &spec, reason));
    result->steps = about->name.version;
    TRY(admit_order(&log, result->steps, &spec));
    const struct kernels_options options = {.gemm_core = spec.train.gemm_core,
                                            .gemm_threads = (int)spec.train.threads};
    const struct kernels *kernels = NULL;
    if (!kernels_new(&options, &kernels, reason->text, sizeof reason->text))
        return ERR_UNSUPPORTED;
    enum err err = repeat_with(checkpoint, &spec, &model, kernels, &log, result, reason);
    kernels_free(kernels);
    return err;
}

/* ---- saying it ---- */

static bool same(const struct result *result)
{
    return memcmp(&result->stored, &result->repeated, sizeof result->stored) == 0;
}

static enum err print_json(const struct result *result)
{
    scoped(buf_release) struct buf buf = {0};
    struct json_writer writer = json_writer(&buf);
    json_put_object(&writer);
    json_member_uint(&writer, "steps", result->steps);
    json_member_uint(&writer, "behind_max", result->behind_max);
    json_member_uint(&writer, "attempts", result->attempts);
    json_member_text(&writer, "digest", digest_to_hex(&result->repeated).text);
    json_member_text(&writer, "stored", digest_to_hex(&result->stored).text);
    json_member_bool(&writer, "equal", same(result));
    json_put_end(&writer);
    TRY(json_writer_finish(&writer));
    printf("%.*s\n", (int)buf.bytes, (const char *)buf.data);
    return ERR_OK;
}

static void print_text(const struct result *result, const struct checkpoint *checkpoint)
{
    printf("%s  %" PRIu64 " step%s repeated\n%s  %s\n", digest_to_hex(&result->repeated).text,
           result->steps, plural(result->steps), digest_to_hex(&result->stored).text,
           checkpoint_path(checkpoint));
    fprintf(stderr, "roost replay: %s\n",
            same(result) ? "equal"
                         : "the bytes differ; runs on GPUs, from a file's weights, or resumed with "
                           "settings that change their bits are not repeated "
                           "(docs/reproducibility.md)");
}

static enum err run(const struct replay_arguments *arguments, struct result *result,
                    struct reason *reason)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    TRY(config_path_error(checkpoint_open_any(arguments->path, &checkpoint, reason)));
    TRY(replay(checkpoint, result, reason));
    if (arguments->json)
        return print_json(result);
    print_text(result, checkpoint);
    return ERR_OK;
}

int main(int argc, char **argv)
{
    static const struct argp_option rows[] = {
        {"json", 'j', NULL, 0, "one JSON object on stdout", 0},
        {0},
    };
    static const struct argp argp = {
        rows,
        parse_option,
        "DIR",
        "Repeats a run up to the newest checkpoint in its directory, or to one checkpoint, in one "
        "process: from the spec, the data, and for ssp and async what the run's order logs say. "
        "Prints the digest it ends in and the checkpoint's; exit code 1: they differ. It "
        "computes on the CPU: a run on GPUs has other bits. A run that began from a file's weights "
        "(`roost restore`, --from) cannot be repeated: they are not in the spec. Nor can one that "
        "was resumed with settings that change its bits: the spec has the last ones.",
        NULL,
        NULL,
        NULL};
    struct replay_arguments arguments = {0};
    struct result result = {0};
    struct reason reason = {.text = ""};
    argp_err_exit_status = EXIT_USAGE;
    file_standard_open();
    file_faults_explain();
    flags_parse(&argp, argc, argv, &arguments);
    if (arguments.path == NULL) {
        fprintf(stderr, "roost replay: which DIR?\n");
        return EXIT_USAGE;
    }
    enum err err = run(&arguments, &result, &reason);
    if (err == ERR_OK)
        err = options_printed(&reason);
    if (err != ERR_OK) {
        fprintf(stderr, "roost replay: %s\n", reason_text(err, &reason));
        return options_exit_code(err);
    }
    return same(&result) ? EXIT_SUCCESS : EXIT_FAILURE;
}
