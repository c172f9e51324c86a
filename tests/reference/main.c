/* reference SPEC [--set key=value]… [--level N] [--losses] [--json] [--dump DIR]
 *                [--stages P [--schedule NAME] [--units V] [--offload]
 *                 [--stream unit|microbatch [--keep-after-forward] [--prefetch K]]]
 *
 * Runs a spec to its end in one process. Prints the digest, or one JSON object with the fields that
 * `roost up --json` has as well; --losses prints a line for each step before it. --level N pushes
 * nodes of 2^N slots instead of single slots: the digest stays the same. So it does with --stages,
 * which cuts the model into places that are played in turn. --dump DIR only writes the initial
 * weights and the samples of all steps there (dump.h). */
#include "common/data/run_data.h"
#include "common/files/json.h"
#include "common/time.h"
#include "reference/local.h"
#include "reference/reference.h"
#include "tests/reference/dump.h"

#include <inttypes.h>
#include <string.h>

enum { SETS_MAX = 64, EXIT_USAGE = 2 };

struct arguments {
    const char *spec;
    const char *dump;
    const char *sets[SETS_MAX];
    size_t sets_count;
    uint32_t level;
    struct mesh mesh; /* places 0: none */
    bool losses, json;
};

static enum schedule_kind schedule_of_name(const char *name)
{
    int schedule = 0;
    while (schedule < SCHEDULE_COUNT &&
           strcmp(schedule_name((enum schedule_kind)schedule), name) != 0)
        schedule++;
    return (enum schedule_kind)schedule;
}

static bool parse_arguments(int count, char **words, struct arguments *ret_arguments)
{
    struct arguments arguments = {.mesh = {.schedule = SCHEDULE_1F1B, .runs = 1}};
    for (int i = 1; i < count; i++) {
        bool more = i + 1 < count;
        if (strcmp(words[i], "--set") == 0 && more && arguments.sets_count < SETS_MAX)
            arguments.sets[arguments.sets_count++] = words[++i];
        else if (strcmp(words[i], "--level") == 0 && more)
            arguments.level = (uint32_t)strtoul(words[++i], NULL, 10);
        else if (strcmp(words[i], "--stages") == 0 && more)
            arguments.mesh.places = (uint32_t)strtoul(words[++i], NULL, 10);
        else if (strcmp(words[i], "--units") == 0 && more)
            arguments.mesh.runs = (uint32_t)strtoul(words[++i], NULL, 10);
        else if (strcmp(words[i], "--schedule") == 0 && more)
            arguments.mesh.schedule = schedule_of_name(words[++i]);
        else if (strcmp(words[i], "--stream") == 0 && more)
            arguments.mesh.residency = (struct residency){
                .streamed = true,
                .keep_after_forward = arguments.mesh.residency.keep_after_forward,
                .by_unit = strcmp(words[++i], "unit") == 0,
                .prefetch = arguments.mesh.residency.prefetch};
        else if (strcmp(words[i], "--keep-after-forward") == 0)
            arguments.mesh.residency.keep_after_forward = true;
        else if (strcmp(words[i], "--prefetch") == 0 && more)
            arguments.mesh.residency.prefetch = (uint32_t)strtoul(words[++i], NULL, 10);
        else if (strcmp(words[i], "--offload") == 0)
            arguments.mesh.offload = true;
        else if (strcmp(words[i], "--dump") == 0 && more)
            arguments.dump = words[++i];
        else if (strcmp(words[i], "--losses") == 0)
            arguments.losses = true;
        else if (strcmp(words[i], "--json") == 0)
            arguments.json = true;
        else if (words[i][0] != '-' && !arguments.spec)
            arguments.spec = words[i];
        else
            return false;
    }
    *ret_arguments = arguments;
    return arguments.spec && arguments.level <= TREE_LEVEL_MAX && arguments.mesh.runs > 0 &&
           arguments.mesh.schedule < SCHEDULE_COUNT;
}

/* ---- a run ---- */

struct result {
    struct seal_metrics last;
    struct executor_loss validation;
    struct digest digest;
    double seconds;
};

static enum err train(struct reference *reference, const struct arguments *arguments,
                      uint64_t steps, struct result *result)
{
    uint64_t begin_ns = time_now_ns();
    for (uint64_t step = 0; step < steps; step++) {
        TRY(reference_step(reference, &result->last));
        if (arguments->losses)
            printf("%" PRIu64 " loss %.9g accuracy %.9g norm %.9g lr %.9g\n", step,
                   result->last.loss, result->last.accuracy, result->last.norm, result->last.lr);
    }
    result->seconds = (double)(time_now_ns() - begin_ns) * 1e-9;
    return ERR_OK;
}

static void put(struct json_writer *writer, const char *key, double value)
{
    json_put_key(writer, key);
    json_put_real(writer, value);
}

/* Of each place, as its executor has taken them. */
static void put_memory(struct json_writer *writer, struct reference *reference, uint32_t places)
{
    json_put_key(writer, "device_bytes");
    json_put_array(writer);
    for (uint32_t p = 0; p < places; p++)
        json_put_uint(writer, executor_memory(reference_executor(reference, p)).total);
    json_put_end(writer);
    json_put_key(writer, "weights_bytes");
    json_put_array(writer);
    for (uint32_t p = 0; p < places; p++)
        json_put_uint(writer, executor_memory(reference_executor(reference, p)).weights);
    json_put_end(writer);
    json_put_key(writer, "hosted_bytes");
    json_put_array(writer);
    for (uint32_t p = 0; p < places; p++)
        json_put_uint(writer, executor_memory(reference_executor(reference, p)).hosted);
    json_put_end(writer);
}

static enum err print_json(struct reference *reference, const struct result *result,
                           const struct arguments *arguments, uint32_t sample_tokens)
{
    scoped(buf_release) struct buf buf = {0};
    struct json_writer writer = json_writer(&buf);
    const struct executor_loss *validation = &result->validation;
    json_put_object(&writer);
    json_put_key(&writer, "steps");
    json_put_uint(&writer, reference_version(reference));
    put(&writer, "loss", result->last.loss);
    put(&writer, "accuracy", result->last.accuracy);
    if (validation->samples > 0) {
        double predictions = (double)validation->samples * sample_tokens;
        put(&writer, "validation_loss", validation->loss_sum / (double)validation->samples);
        put(&writer, "validation_accuracy", (double)validation->correct / predictions);
    }
    json_put_key(&writer, "samples");
    json_put_uint(&writer, reference_samples(reference));
    put(&writer, "samples_per_second", (double)reference_samples(reference) / result->seconds);
    json_put_key(&writer, "pulled_bytes");
    json_put_uint(&writer, reference_pulled_bytes(reference));
    json_put_key(&writer, "pushed_bytes");
    json_put_uint(&writer, reference_pushed_bytes(reference));
    json_put_key(&writer, "peer_bytes");
    json_put_uint(&writer, reference_peer_bytes(reference));
    put_memory(&writer, reference, arguments->mesh.places > 0 ? arguments->mesh.places : 1);
    json_put_key(&writer, "digest");
    json_put_text(&writer, digest_to_hex(&result->digest).text);
    json_put_end(&writer);
    TRY(json_writer_finish(&writer));
    printf("%.*s\n", (int)buf.bytes, (const char *)buf.data);
    return ERR_OK;
}

static enum err run_with(const struct arguments *arguments, const struct spec *spec,
                         const struct model *model, const struct kernels *kernels,
                         const struct data *data, struct reason *reason)
{
    struct reference_local local;
    const struct executor_samples samples = local_samples(&local, spec, data);
    if (arguments->dump)
        return dump(arguments->dump, spec, model, &samples, reason);
    struct mesh mesh = arguments->mesh, alone = mesh_alone(&spec->train);
    mesh.recompute = alone.recompute;
    mesh.offload |= alone.offload;
    if (!mesh.residency.streamed)
        mesh.residency = alone.residency;
    const struct reference_options options = {.spec = spec,
                                              .mesh = mesh.places > 0 ? &mesh : NULL,
                                              .model = model,
                                              .kernels = kernels,
                                              .samples = &samples,
                                              .node_level = arguments->level};
    struct reference *reference = NULL;
    struct result result = {0};
    enum err err = reference_new(&options, &reference, reason);
    if (err == ERR_OK)
        err = train(reference, arguments, spec->train.steps, &result);
    if (err == ERR_OK && samples.held_out > 0)
        err = reference_validate(reference, &result.validation);
    if (err == ERR_OK)
        err = reference_digest(reference, &result.digest);
    if (err == ERR_OK && arguments->json)
        err = print_json(reference, &result, arguments, model->sample_tokens);
    else if (err == ERR_OK)
        printf("%s\n", digest_to_hex(&result.digest).text);
    reference_free(reference);
    return err;
}

static enum err run_on(const struct arguments *arguments, const struct spec *spec,
                       const struct kernels *kernels, struct reason *reason)
{
    scoped(model_release) struct model model = {0};
    scoped(data_free_scoped) struct data *data = NULL;
    TRY(model_init(&model, &spec->model, reason));
    TRY(run_data_open(spec, NULL, &data, reason));
    return run_with(arguments, spec, &model, kernels, data, reason);
}

static enum err run(const struct arguments *arguments, struct reason *reason)
{
    struct spec spec;
    const struct config_overrides overrides = {.flags = arguments->sets,
                                               .flags_count = arguments->sets_count};
    TRY(local_spec(arguments->spec, &overrides, &spec, reason));
    const struct kernels_options options = {.compute = (enum kernels_compute)spec.train.compute,
                                            .gemm_core = spec.train.gemm_core,
                                            .gemm_threads = (int)spec.train.threads};
    const struct kernels *kernels = NULL;
    if (!kernels_new(&options, &kernels, reason->text, sizeof reason->text))
        return ERR_UNSUPPORTED;
    enum err err = run_on(arguments, &spec, kernels, reason);
    kernels_free(kernels);
    return err;
}

int main(int count, char **words)
{
    struct arguments arguments;
    if (!parse_arguments(count, words, &arguments)) {
        fprintf(stderr,
                "usage: reference SPEC [--set key=value]... [--level N] [--losses] [--json] "
                "[--dump DIR]\n                 [--stages P [--schedule NAME] [--units V] "
                "[--offload]\n                 [--stream unit|microbatch "
                "[--keep-after-forward] [--prefetch K]]]\n");
        return EXIT_USAGE;
    }
    struct reason reason = {.text = ""};
    enum err err = run(&arguments, &reason);
    if (err == ERR_OK)
        return EXIT_SUCCESS;
    fprintf(stderr, "reference: %s\n", reason_text(err, &reason));
    return EXIT_FAILURE;
}
