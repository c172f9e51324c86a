/* roost export: a checkpoint's weights as safetensors. */
#include "common/file.h"
#include "common/files/json.h"
#include "common/files/safetensors.h"
#include "common/scoped.h"
#include "common/settings/config.h"
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/stored.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    const char **out = state->input;
    if (key != 'o')
        return ARGP_ERR_UNKNOWN;
    if (argument[0] == 0)
        argp_error(state, "--out where?");
    *out = argument;
    return 0;
}

/* ---- tensors ---- */

static struct safetensors_tensor in_file(const struct model_tensor *tensor)
{
    return (struct safetensors_tensor){.name = tensor->name,
                                       .dtype = SAFETENSORS_F32,
                                       .dims = tensor->dims,
                                       .shape = {tensor->shape[0], tensor->shape[1]}};
}

/* A parameter's storage (·, cols) to one of its tensors: other rows left out, Conv1D transposed. */
static void arrange(const struct model_tensor *tensor, uint32_t cols, const float *storage,
                    float *out)
{
    storage += (size_t)tensor->row * cols;
    if (!tensor->transpose) {
        memcpy(out, storage, (size_t)tensor->rows * cols * sizeof(float));
        return;
    }
    for (uint32_t i = 0; i < cols; i++)
        for (uint32_t j = 0; j < tensor->rows; j++)
            out[(size_t)i * tensor->rows + j] = storage[(size_t)j * cols + i];
}

static enum err write_tensor(const struct stored *stored, const struct safetensors_tensor *wanted,
                             struct file_writer *writer, struct reason *reason)
{
    const struct model *model = &stored->model;
    const struct model_tensor *tensor = &model->tensors[model_find_tensor(model, wanted->name)];
    const struct model_parameter *parameter = &model->parameters[tensor->parameter];
    scoped(free_scoped) float *storage = malloc(parameter->weights * sizeof(float));
    scoped(free_scoped) float *out = malloc(parameter->weights * sizeof(float));
    if (storage == NULL || out == NULL)
        return ERR_NOMEM;
    TRY(checkpoint_read_parameter(stored->checkpoint, model, tensor->parameter, 0, storage,
                                  reason));
    arrange(tensor, parameter->cols, storage, out);
    struct slice bytes = {(const uint8_t *)out, (size_t)(wanted->end - wanted->begin)};
    return file_writer_write(writer, bytes, reason);
}

static enum err write_weights(const struct stored *stored, const char *path, struct reason *reason)
{
    scoped(file_writer_release) struct file_writer writer = {0};
    scoped(buf_release) struct buf header = {0};
    scoped(free_scoped) struct safetensors_tensor *tensors =
        calloc(stored->model.tensors_count, sizeof *tensors);
    size_t count = stored->model.tensors_count;
    if (tensors == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < count; i++)
        tensors[i] = in_file(&stored->model.tensors[i]);
    TRY(safetensors_put_header(&header, tensors, count, reason));
    TRY(file_writer_open(&file_ops_real, path, 0644, &writer, reason));
    TRY(file_writer_write(&writer, buf_slice(&header), reason));
    for (size_t i = 0; i < count; i++)
        TRY(write_tensor(stored, &tensors[i], &writer, reason));
    return file_writer_commit(&writer, reason);
}

/* ---- config.json, so that from_pretrained() reads the folder ---- */

static void put_member(struct json_writer *writer, const struct model_member *member)
{
    json_put_key(writer, member->key);
    switch (member->type) {
    case MODEL_UINT:
        json_put_uint(writer, member->number);
        break;
    case MODEL_REAL:
        json_put_real(writer, member->real);
        break;
    case MODEL_BOOL:
        json_put_bool(writer, member->number != 0);
        break;
    case MODEL_TEXT:
        json_put_text(writer, member->text);
        break;
    case MODEL_TEXTS:
        json_put_array(writer);
        json_put_text(writer, member->text);
        json_put_end(writer);
        break;
    case MODEL_NULL:
        json_put_real(writer, (double)NAN);
        break;
    }
}

static enum err write_config(const struct model *model, const char *path, struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    struct model_member members[MODEL_MEMBERS_MAX];
    uint32_t count = model->files->config(&model->settings, members);
    struct json_writer writer = json_writer(&text);
    json_put_object(&writer);
    for (uint32_t i = 0; i < count; i++)
        put_member(&writer, &members[i]);
    json_put_end(&writer);
    TRY(json_writer_finish(&writer));
    return file_write_atomic(&file_ops_real, path, 0644, buf_slice(&text), reason);
}

/* A path is a file's by its ending, unless there is a folder of that name. */
static bool is_folder(const char *path)
{
    static const char ending[] = ".safetensors";
    struct stat about;
    size_t length = strlen(path);
    bool named = length >= strlen(ending) && strcmp(path + length - strlen(ending), ending) == 0;
    return !named || (stat(path, &about) == 0 && S_ISDIR(about.st_mode));
}

static enum err export_to(const struct stored *stored, const char *out, struct reason *reason)
{
    char weights[4096], config[4096];
    if (!is_folder(out))
        return write_weights(stored, out, reason);
    TRY(file_make_dirs(out, 0755, reason));
    snprintf(weights, sizeof weights, "%s/model.safetensors", out);
    snprintf(config, sizeof config, "%s/config.json", out);
    TRY(write_weights(stored, weights, reason));
    return stored->model.files->config != NULL ? write_config(&stored->model, config, reason)
                                               : ERR_OK;
}

/* A file that nobody named takes the place of none. */
static enum err choose_out(const char **out, struct reason *reason)
{
    static const char unnamed[] = "model.safetensors";
    if (*out != NULL)
        return ERR_OK;
    *out = unnamed;
    return access(unnamed, F_OK) != 0
               ? ERR_OK
               : reason_set(reason, ERR_INVALID,
                            "%s is there already: name a file or a folder with --out", unnamed);
}

int command_export(int argc, char **argv)
{
    static const struct argp_option rows[] = {
        {"out", 'o', "PATH", 0,
         "a file that ends in .safetensors; or a folder, which gets model.safetensors and "
         "config.json (model.safetensors)",
         0},
        {0},
    };
    static const struct argp own = {.options = rows, .parser = parse_option};
    const char *out = NULL;
    const struct arguments_about about = {
        .subject = "DIR",
        .own = &own,
        .own_input = &out,
        .summary = "Writes the weights of the newest checkpoint in a run's directory, or of one "
                   "checkpoint's folder, as safetensors, with Hugging Face names: transformers "
                   "loads a gpt as GPT-2 and a llama as Llama."};
    scoped(stored_release) struct stored stored = {0};
    struct arguments arguments;
    struct reason reason = {0};
    arguments_parse(&about, argc, argv, &arguments);
    enum err err = choose_out(&out, &reason);
    if (err == ERR_OK)
        err = config_path_error(stored_open(arguments.subject, &stored, &reason));
    if (err == ERR_OK)
        err = config_path_error(export_to(&stored, out, &reason));
    if (err != ERR_OK)
        return command_fail(err, &reason);
    printf("%s\n", out);
    return EXIT_SUCCESS;
}
