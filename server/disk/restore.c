/* One tensor per parameter, read where it lies in the mapped file. */
#include "server/disk/restore.h"

#include "common/file.h"
#include "common/files/safetensors.h"
#include "common/scoped.h"

#include <math.h>
#include <string.h>

/* Where a parameter's values are; data NULL: it is not exported. */
struct source {
    const uint8_t *data;
    enum safetensors_dtype dtype;
    struct model_export about;
};

struct restore {
    const struct model *model;
    struct file_map map;
    struct source *sources; /* one per parameter */
};

static float half_value(uint16_t half)
{
    float sign = half & 0x8000 ? -1.0f : 1.0f;
    int exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31)
        return fraction == 0 ? sign * INFINITY : NAN;
    /* Both branches are exact: a half has fewer bits than a float. */
    if (exponent == 0)
        return sign * (float)fraction * 0x1p-24f;
    float scale =
        exponent >= 25 ? (float)(1 << (exponent - 25)) : 1 / (float)(1 << (25 - exponent));
    return sign * (float)(1024 + fraction) * scale;
}

static float value_at(const struct source *source, uint64_t index)
{
    float value;
    uint16_t half;
    if (source->dtype == SAFETENSORS_F32) {
        memcpy(&value, source->data + 4 * index, 4);
        return value;
    }
    memcpy(&half, source->data + 2 * index, 2);
    if (source->dtype == SAFETENSORS_F16)
        return half_value(half);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&value, &bits, 4);
    return value;
}

/* Names come as the Hub has them, or as state_dict() does. */
#define PREFIX "transformer."

static const struct safetensors_tensor *find(const struct safetensors *header, const char *name)
{
    char prefixed[MODEL_NAME_BYTES + sizeof PREFIX];
    snprintf(prefixed, sizeof prefixed, PREFIX "%s", name);
    const struct safetensors_tensor *tensor = safetensors_find(header, name);
    return tensor != NULL ? tensor : safetensors_find(header, prefixed);
}

static bool same_shape(const struct safetensors_tensor *tensor, const struct model_export *about)
{
    bool same = tensor->dims == about->dims;
    for (uint32_t i = 0; same && i < about->dims; i++)
        same = tensor->shape[i] == about->shape[i];
    return same;
}

static enum err find_source(struct restore *restore, const struct safetensors *header,
                            uint32_t parameter, const char *path, struct reason *reason)
{
    struct source *source = &restore->sources[parameter];
    enum err err = model_export(restore->model, parameter, &source->about);
    if (err == ERR_NOT_FOUND)
        return ERR_OK; /* the loss is no weight */
    TRY(err);
    const struct model_export *about = &source->about;
    const struct safetensors_tensor *tensor = find(header, about->name);
    if (tensor == NULL)
        return reason_set(reason, ERR_NOT_FOUND, "%s: no tensor %s", path, about->name);
    if (!same_shape(tensor, about))
        return reason_set(reason, ERR_SPEC_DIFFERS,
                          "%s: %s has another shape than the model's (%u, %u)", path, tensor->name,
                          about->shape[0], about->dims == 2 ? about->shape[1] : 1);
    if (tensor->dtype != SAFETENSORS_F32 && tensor->dtype != SAFETENSORS_F16 &&
        tensor->dtype != SAFETENSORS_BF16)
        return reason_set(reason, ERR_UNSUPPORTED, "%s: %s is %s, not F32, F16 or BF16", path,
                          tensor->name, safetensors_dtype_name(tensor->dtype));
    source->dtype = tensor->dtype;
    source->data = restore->map.bytes.data + header->buffer_offset + tensor->begin;
    return ERR_OK;
}

/* ---- tensors that are no parameter's ---- */

static bool ends_in(const char *name, const char *ending)
{
    size_t length = strlen(name), ending_length = strlen(ending);
    return length >= ending_length && strcmp(name + length - ending_length, ending) == 0;
}

/* Causal masks, which older files hold. */
static bool is_mask(const char *name)
{
    return ends_in(name, ".attn.bias") || ends_in(name, ".attn.masked_bias");
}

/* A gpt's head is its token embedding: a head of its own would be lost. */
static enum err check_head(const struct restore *restore, const struct safetensors *header,
                           const struct safetensors_tensor *head, const char *path,
                           struct reason *reason)
{
    const struct safetensors_tensor *tokens = find(header, "wte.weight");
    const uint8_t *data = restore->map.bytes.data + header->buffer_offset;
    uint64_t bytes = head->end - head->begin;
    if (tokens != NULL && tokens->dtype == head->dtype && tokens->end - tokens->begin == bytes &&
        memcmp(data + head->begin, data + tokens->begin, bytes) == 0)
        return ERR_OK;
    return reason_set(reason, ERR_SPEC_DIFFERS, "%s: %s differs from wte.weight, its twin here",
                      path, head->name);
}

/* A tensor that was not asked for: another model's weights must not be half read. */
static enum err check_place(const struct restore *restore, const struct safetensors *header,
                            const struct safetensors_tensor *tensor, const char *path,
                            struct reason *reason)
{
    const struct model *model = restore->model;
    const char *name = tensor->name;
    struct model_export about;
    if (strncmp(name, PREFIX, strlen(PREFIX)) == 0)
        name += strlen(PREFIX);
    uint32_t p = model_find(model, name);
    if (p < model->parameters_count && model_export(model, p, &about) == ERR_OK)
        return ERR_OK;
    if (model->settings.kind == SPEC_GPT && strcmp(name, "lm_head.weight") == 0)
        return check_head(restore, header, tensor, path, reason);
    return is_mask(name) ? ERR_OK
                         : reason_set(reason, ERR_SPEC_DIFFERS, "%s: the model has no place for %s",
                                      path, tensor->name);
}

enum err restore_open(const char *path, const struct model *model, struct restore **ret_restore,
                      struct reason *reason)
{
    scoped(restore_free_scoped) struct restore *restore = calloc(1, sizeof *restore);
    if (restore == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to read %s", path);
    restore->model = model;
    restore->sources = calloc(model->parameters_count, sizeof *restore->sources);
    if (restore->sources == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to read %s", path);
    TRY(file_map_open(path, &restore->map, reason));
    scoped(safetensors_release) struct safetensors header = {0};
    struct slice file = restore->map.bytes;
    TRY(safetensors_parse(path, file, file.bytes, &header, reason));
    for (uint32_t p = 0; p < model->parameters_count; p++)
        TRY(find_source(restore, &header, p, path, reason));
    for (size_t i = 0; i < header.count; i++)
        TRY(check_place(restore, &header, &header.tensors[i], path, reason));
    *ret_restore = restore;
    restore = NULL;
    return ERR_OK;
}

void restore_free(struct restore *restore)
{
    if (restore == NULL)
        return;
    file_map_release(&restore->map);
    free(restore->sources);
    free(restore);
}

void restore_chunk(const struct restore *restore, uint32_t chunk, float *out)
{
    const struct model_chunk *c = &restore->model->chunks[chunk];
    const struct source *source = &restore->sources[c->parameter];
    const struct model_export *about = &source->about;
    uint32_t file_rows = about->shape[0], file_cols = about->dims == 2 ? about->shape[1] : 1;
    uint32_t rows = about->transpose ? file_cols : file_rows; /* of the storage, without padding */
    for (uint32_t r = c->row; r < c->row + c->rows; r++) {
        for (uint32_t col = c->col; col < c->col + c->cols; col++) {
            uint64_t at =
                about->transpose ? (uint64_t)col * file_cols + r : (uint64_t)r * file_cols + col;
            *out++ = source->data != NULL && r < rows ? value_at(source, at) : 0;
        }
    }
}
