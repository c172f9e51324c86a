#include "tests/reference/dump.h"

#include "common/file.h"
#include "common/scoped.h"

#include <stdlib.h>

enum { PATH_BYTES_MAX = 1024 };

static enum err write_file(const char *dir, const char *name, const char *type, struct slice bytes,
                           struct reason *reason)
{
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof path, "%s/%s.%s", dir, name, type);
    scoped(file_writer_release) struct file_writer writer = {0};
    TRY(file_writer_open(&file_ops_real, path, 0644, &writer, reason));
    TRY(file_writer_write(&writer, bytes, reason));
    return file_writer_commit(&writer, reason);
}

static enum err dump_parameter(const char *dir, const struct model *model, uint32_t parameter,
                               uint64_t seed, struct reason *reason)
{
    const struct model_parameter *p = &model->parameters[parameter];
    scoped(free_scoped) float *values = malloc(p->weights * sizeof *values);
    scoped(free_scoped) float *chunk_values = malloc(MODEL_CHUNK_WEIGHTS_MAX * sizeof *values);
    if (!values || !chunk_values)
        return ERR_NOMEM;
    for (uint32_t chunk = p->chunk_first; chunk < p->chunk_first + p->chunks_count; chunk++) {
        model_initial(model, seed, chunk, chunk_values);
        model_scatter(model, chunk, values, chunk_values);
    }
    return write_file(dir, p->name, "f32",
                      (struct slice){(const uint8_t *)values, p->weights * sizeof *values}, reason);
}

static enum err dump_samples(const char *dir, const struct spec *spec, const struct model *model,
                             const struct executor_samples *samples, struct reason *reason)
{
    uint64_t count = spec_run_samples(spec);
    uint64_t input_bytes = count * model_sample(&model->settings).inputs * sizeof(float);
    uint64_t target_bytes = count * model->sample_tokens * sizeof(int32_t);
    if (count > UINT32_MAX)
        return reason_set(reason, ERR_INVALID, "too many samples to dump");
    scoped(free_scoped) uint8_t *inputs = malloc(input_bytes);
    scoped(free_scoped) int32_t *targets = malloc(target_bytes);
    if (!inputs || !targets)
        return ERR_NOMEM;
    TRY(samples->read(samples->context, TICKET_TRAIN, 0, (uint32_t)count, inputs, targets));
    TRY(write_file(dir, "inputs", model_sample(&model->settings).tokens ? "i32" : "f32",
                   (struct slice){inputs, input_bytes}, reason));
    return write_file(dir, "targets", "i32", (struct slice){(const uint8_t *)targets, target_bytes},
                      reason);
}

enum err dump(const char *path, const struct spec *spec, const struct model *model,
              const struct executor_samples *samples, struct reason *reason)
{
    TRY(file_make_dirs(path, 0755, reason));
    for (uint32_t parameter = 0; parameter < model->loss_parameter; parameter++)
        TRY(dump_parameter(path, model, parameter, spec->train.seed, reason));
    return dump_samples(path, spec, model, samples, reason);
}
