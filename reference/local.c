#include "reference/local.h"

#include "common/file.h"

enum { SPEC_FILE_BYTES_MAX = 1 << 20 };

enum err local_spec(const char *path, const struct config_overrides *overrides,
                    struct spec *ret_spec, struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    TRY(file_read(path, SPEC_FILE_BYTES_MAX, &text, reason));
    return spec_parse(buf_slice(&text), path, overrides, ret_spec, reason);
}

static enum err read_one(struct reference_local *local, enum data_split split, uint64_t index,
                         uint32_t i, void *ret_inputs, int32_t *ret_targets)
{
    size_t tokens = local->sample_tokens;
    if (tokens > 0)
        return data_sample_tokens(local->data, split, index, (int32_t *)ret_inputs + i * tokens,
                                  ret_targets + i * tokens, &local->failure);
    data_sample_point(local->data, split, index, (float *)ret_inputs + 2 * i, ret_targets + i);
    return ERR_OK;
}

static enum err read_samples(void *context, enum ticket_kind kind, uint64_t first, uint32_t count,
                             void *ret_inputs, int32_t *ret_targets)
{
    struct reference_local *local = context;
    for (uint32_t i = 0; i < count; i++) {
        if (kind == TICKET_TRAIN)
            TRY(read_one(local, DATA_TRAIN, sampler_sample(&local->sampler, first + i), i,
                         ret_inputs, ret_targets));
        else
            TRY(read_one(local, DATA_VALIDATION, first + i, i, ret_inputs, ret_targets));
    }
    return ERR_OK;
}

struct executor_samples local_samples(struct reference_local *local, const struct spec *spec,
                                      const struct data *data)
{
    *local = (struct reference_local){
        .data = data,
        .sampler = {.seed = spec->train.seed,
                    .sample_count = data_count(data, DATA_TRAIN),
                    .slot_samples = spec->train.slot_samples},
        .sample_tokens = spec->data.kind == SPEC_SPIRAL ? 0 : spec->model.context,
    };
    uint64_t held_out = data_count(data, DATA_VALIDATION), wanted = spec->train.validation_samples;
    return (struct executor_samples){
        .context = local,
        .read = read_samples,
        .held_out = wanted > 0 && wanted < held_out ? wanted : held_out,
    };
}
