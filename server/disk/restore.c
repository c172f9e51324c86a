/* Tensors are read where they lie in the mapped file. */
#include "server/disk/restore.h"

#include "common/file.h"
#include "common/files/json.h"
#include "common/files/safetensors.h"
#include "common/scoped.h"

#include <math.h>
#include <string.h>

/* Where a tensor's values are. */
struct source {
    const uint8_t *data;
    enum safetensors_dtype dtype;
};

struct restore {
    const struct model *model;
    struct file_map map;
    struct source *sources; /* one per tensor of the model */
    bool header_only;       /* no value is looked at */
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

/* A tensor of the file by the Hub's name, or by state_dict()'s. */
static const struct safetensors_tensor *
find_tensor(const struct restore *restore, const struct safetensors *header, const char *name)
{
    char prefixed[2 * MODEL_NAME_BYTES];
    snprintf(prefixed, sizeof prefixed, "%s%s", restore->model->files->prefix, name);
    const struct safetensors_tensor *tensor = safetensors_find(header, name);
    return tensor != NULL ? tensor : safetensors_find(header, prefixed);
}

static bool same_shape(const struct safetensors_tensor *tensor, const struct model_tensor *wanted)
{
    bool same = tensor->dims == wanted->dims;
    for (uint32_t i = 0; same && i < wanted->dims; i++)
        same = tensor->shape[i] == wanted->shape[i];
    return same;
}

static enum err find_source(struct restore *restore, const struct safetensors *header,
                            uint32_t number, const char *path, struct reason *reason)
{
    struct source *source = &restore->sources[number];
    const struct model_tensor *wanted = &restore->model->tensors[number];
    const struct safetensors_tensor *tensor = find_tensor(restore, header, wanted->name);
    if (tensor == NULL)
        return reason_set(reason, ERR_NOT_FOUND, "%s: no tensor %s", path, wanted->name);
    if (!same_shape(tensor, wanted))
        return reason_set(reason, ERR_SPEC_DIFFERS,
                          "%s: %s has another shape than the model's (%u, %u)", path, tensor->name,
                          wanted->shape[0], wanted->shape[1]);
    if (tensor->dtype != SAFETENSORS_F32 && tensor->dtype != SAFETENSORS_F16 &&
        tensor->dtype != SAFETENSORS_BF16)
        return reason_set(reason, ERR_UNSUPPORTED, "%s: %s is %s, not F32, F16 or BF16", path,
                          tensor->name, safetensors_dtype_name(tensor->dtype));
    source->dtype = tensor->dtype;
    source->data = restore->map.bytes.data + header->buffer_offset + tensor->begin;
    return ERR_OK;
}

/* ---- tensors that the model has no place for ---- */

static bool ends_in(const char *name, const char *ending)
{
    size_t length = strlen(name), ending_length = strlen(ending);
    return length >= ending_length && strcmp(name + length - ending_length, ending) == 0;
}

static bool is_passed_over(const struct model_files *files, const char *name)
{
    bool passed_over = false;
    for (size_t i = 0; files->passed_over != NULL && files->passed_over[i] != NULL; i++)
        passed_over |= ends_in(name, files->passed_over[i]);
    return passed_over;
}

/* The model has one tensor for the two: a twin with other values would be lost. */
static enum err check_twin(const struct restore *restore, const struct safetensors *header,
                           const struct safetensors_tensor *twin, const char *path,
                           struct reason *reason)
{
    const char *name = restore->model->files->twin_of;
    const struct safetensors_tensor *other = find_tensor(restore, header, name);
    const uint8_t *data = restore->map.bytes.data + header->buffer_offset;
    uint64_t bytes = twin->end - twin->begin;
    if (other != NULL && other->dtype == twin->dtype && other->end - other->begin == bytes &&
        (restore->header_only || memcmp(data + twin->begin, data + other->begin, bytes) == 0))
        return ERR_OK;
    return reason_set(reason, ERR_SPEC_DIFFERS, "%s: %s differs from %s, its twin here", path,
                      twin->name, name);
}

/* A tensor that was not asked for: another model's weights must not be half read. */
static enum err check_place(const struct restore *restore, const struct safetensors *header,
                            const struct safetensors_tensor *tensor, const char *path,
                            struct reason *reason)
{
    const struct model *model = restore->model;
    const struct model_files *files = model->files;
    const char *name = tensor->name;
    if (strncmp(name, files->prefix, strlen(files->prefix)) == 0)
        name += strlen(files->prefix);
    if (model_find_tensor(model, name) < model->tensors_count)
        return ERR_OK;
    if (files->twin != NULL && strcmp(name, files->twin) == 0)
        return check_twin(restore, header, tensor, path, reason);
    return is_passed_over(files, name)
               ? ERR_OK
               : reason_set(reason, ERR_SPEC_DIFFERS, "%s: the model has no place for %s", path,
                            tensor->name);
}

/* ---- what no tensor shows: config.json, where one lies beside the file ---- */

enum { CONFIG_BYTES_MAX = 1 << 20 };

static enum err other_value(const struct model_member *member, const char *theirs, const char *ours,
                            struct reason *reason)
{
    return reason_set(reason, ERR_SPEC_DIFFERS, "%s is %s, the model's is %s", member->key, theirs,
                      ours);
}

static enum err judge_number(const struct json *config, const struct model_member *member,
                             struct reason *reason)
{
    double ours = member->type == MODEL_UINT ? (double)member->number : member->real, value;
    char texts[2][32];
    TRY(json_get_real(config, member->key, &value, reason));
    if ((float)value == (float)ours) /* some files have a float's digits: 9.999999747378752e-06 */
        return ERR_OK;
    snprintf(texts[0], sizeof texts[0], "%.9g", value);
    snprintf(texts[1], sizeof texts[1], "%.9g", ours);
    return other_value(member, texts[0], texts[1], reason);
}

static enum err judge_text(const struct json *config, const struct model_member *member,
                           struct reason *reason)
{
    const char *value;
    TRY(json_get_text(config, member->key, &value, reason));
    return strcmp(value, member->text) == 0 ? ERR_OK
                                            : other_value(member, value, member->text, reason);
}

/* One that is missing says nothing. */
static enum err judge_member(const struct json *config, const struct model_member *member,
                             struct reason *reason)
{
    if (!member->only_here || json_lacks(config, member->key))
        return ERR_OK;
    switch (member->type) {
    case MODEL_UINT:
    case MODEL_REAL:
        return judge_number(config, member, reason);
    case MODEL_TEXT:
        return judge_text(config, member, reason);
    default:
        check(member->type == MODEL_NULL);
        return other_value(member, "set", "null", reason);
    }
}

/* `transformers` 5 has what is about rotary positions in an object of its own. */
static enum err judge_members(const struct model *model, const struct json *config,
                              struct reason *reason)
{
    static const struct model_member rope_type = {"rope_type", MODEL_TEXT, .text = "default",
                                                  .only_here = true};
    struct model_member members[MODEL_MEMBERS_MAX];
    const struct json *rope = json_object_of(config, "rope_parameters");
    uint32_t count = model->files->config(&model->settings, members);
    for (uint32_t i = 0; i < count; i++) {
        TRY(judge_member(config, &members[i], reason));
        if (rope != NULL)
            TRY(judge_member(rope, &members[i], reason));
    }
    return rope != NULL ? judge_member(rope, &rope_type, reason) : ERR_OK;
}

static enum err judge_config(const struct model *model, const char *path, struct slice text,
                             struct reason *reason)
{
    struct reason why = {0};
    scoped(json_free_scoped) struct json *config = NULL;
    TRY(json_parse(path, text, &config, reason));
    enum err err = judge_members(model, config, &why);
    return err == ERR_OK ? ERR_OK : reason_set(reason, err, "%s: %s", path, why.text);
}

static enum err check_config(const char *weights, const struct model *model, struct reason *reason)
{
    scoped(buf_release) struct buf path = {0};
    scoped(buf_release) struct buf text = {0};
    struct reason why = {0};
    const char *slash = strrchr(weights, '/');
    int folder_bytes = slash != NULL ? (int)(slash + 1 - weights) : 0;
    if (model->files->config == NULL)
        return ERR_OK;
    TRY(buf_printf(&path, "%.*sconfig.json", folder_bytes, weights));
    enum err err = file_read((const char *)path.data, CONFIG_BYTES_MAX, &text, &why);
    if (err != ERR_OK)
        return err == ERR_NOT_FOUND ? ERR_OK : reason_set(reason, err, "%s", why.text);
    return judge_config(model, (const char *)path.data, buf_slice(&text), reason);
}

static enum err open_file(const char *path, const struct model *model, bool header_only,
                          struct restore **ret_restore, struct reason *reason)
{
    scoped(restore_free_scoped) struct restore *restore = calloc(1, sizeof *restore);
    if (restore == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to read %s", path);
    restore->model = model;
    restore->header_only = header_only;
    restore->sources = calloc(model->tensors_count, sizeof *restore->sources);
    if (restore->sources == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to read %s", path);
    TRY(file_map_open(path, &restore->map, reason));
    scoped(safetensors_release) struct safetensors header = {0};
    struct slice file = restore->map.bytes;
    TRY(safetensors_parse(path, file, file.bytes, &header, reason));
    for (uint32_t i = 0; i < model->tensors_count; i++)
        TRY(find_source(restore, &header, i, path, reason));
    for (size_t i = 0; i < header.count; i++)
        TRY(check_place(restore, &header, &header.tensors[i], path, reason));
    TRY(check_config(path, model, reason));
    *ret_restore = restore;
    restore = NULL;
    return ERR_OK;
}

enum err restore_open(const char *path, const struct model *model, struct restore **ret_restore,
                      struct reason *reason)
{
    return open_file(path, model, false, ret_restore, reason);
}

enum err restore_check(const char *path, const struct model *model, struct reason *reason)
{
    scoped(restore_free_scoped) struct restore *restore = NULL;
    return open_file(path, model, true, &restore, reason);
}

void restore_free(struct restore *restore)
{
    if (restore == NULL)
        return;
    file_map_release(&restore->map);
    free(restore->sources);
    free(restore);
}

/* The tensor that has the row of that parameter; tensors_count: none, it is padding or the loss. */
static uint32_t tensor_of_row(const struct model *model, const struct model_parameter *parameter,
                              uint32_t row)
{
    for (uint32_t i = 0; i < parameter->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[parameter->tensor_first + i];
        if (row >= tensor->row && row - tensor->row < tensor->rows)
            return parameter->tensor_first + i;
    }
    return model->tensors_count;
}

static void restore_row(const struct restore *restore, const struct model_chunk *chunk,
                        uint32_t row, float *out)
{
    const struct model *model = restore->model;
    uint32_t i = tensor_of_row(model, &model->parameters[chunk->parameter], row);
    if (i == model->tensors_count) {
        memset(out, 0, chunk->cols * sizeof *out);
        return;
    }
    const struct model_tensor *tensor = &model->tensors[i];
    uint64_t file_cols = tensor->shape[1];
    row -= tensor->row;
    for (uint32_t col = chunk->col; col < chunk->col + chunk->cols; col++) {
        uint64_t at = tensor->transpose ? col * file_cols + row : row * file_cols + col;
        *out++ = value_at(&restore->sources[i], at);
    }
}

void restore_chunk(const struct restore *restore, uint32_t chunk, float *out)
{
    const struct model_chunk *c = &restore->model->chunks[chunk];
    for (uint32_t r = 0; r < c->rows; r++)
        restore_row(restore, c, c->row + r, out + (size_t)r * c->cols);
}
