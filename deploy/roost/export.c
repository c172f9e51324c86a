/* roost export: a checkpoint's weights as safetensors. */
#include "common/file.h"
#include "common/files/safetensors.h"
#include "common/scoped.h"
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/print.h"
#include "deploy/roost/stored.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

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

static enum err list_tensors(const struct model *model, struct safetensors_tensor *tensors,
                             size_t *ret_count)
{
    size_t count = 0;
    for (uint32_t p = 0; p < model->parameters_count; p++) {
        struct model_export about;
        enum err err = model_export(model, p, &about);
        if (err == ERR_NOT_FOUND) /* the loss is no weight */
            continue;
        TRY(err);
        tensors[count++] = (struct safetensors_tensor){
            .name = about.name,
            .dtype = SAFETENSORS_F32,
            .dims = about.dims,
            .shape = {about.shape[0], about.shape[1]},
        };
    }
    *ret_count = count;
    return ERR_OK;
}

/* Storage (rows, cols) to the file's shape: padding rows left out, Conv1D transposed. */
static void arrange(const struct model_parameter *parameter, const struct model_export *about,
                    const float *storage, float *out)
{
    uint32_t rows = about->shape[0], cols = about->dims == 2 ? about->shape[1] : 1;
    if (!about->transpose) {
        memcpy(out, storage, (size_t)rows * cols * sizeof(float));
        return;
    }
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < cols; j++)
            out[(size_t)i * cols + j] = storage[(size_t)j * parameter->cols + i];
}

static enum err write_tensor(const struct stored *stored, const struct safetensors_tensor *tensor,
                             struct file_writer *writer, struct reason *reason)
{
    uint32_t p = model_find(&stored->model, tensor->name);
    const struct model_parameter *parameter = &stored->model.parameters[p];
    struct model_export about;
    scoped(free_scoped) float *storage = malloc(parameter->weights * sizeof(float));
    scoped(free_scoped) float *out = malloc(parameter->weights * sizeof(float));
    if (storage == NULL || out == NULL)
        return ERR_NOMEM;
    TRY(model_export(&stored->model, p, &about));
    TRY(checkpoint_read_parameter(stored->checkpoint, &stored->model, p, 0, storage, reason));
    arrange(parameter, &about, storage, out);
    struct slice bytes = {(const uint8_t *)out, (size_t)(tensor->end - tensor->begin)};
    return file_writer_write(writer, bytes, reason);
}

static enum err write_weights(const struct stored *stored, const char *path, struct reason *reason)
{
    scoped(file_writer_release) struct file_writer writer = {0};
    scoped(buf_release) struct buf header = {0};
    scoped(free_scoped) struct safetensors_tensor *tensors =
        calloc(stored->model.parameters_count, sizeof *tensors);
    size_t count;
    if (tensors == NULL)
        return ERR_NOMEM;
    TRY(list_tensors(&stored->model, tensors, &count));
    TRY(safetensors_put_header(&header, tensors, count, reason));
    TRY(file_writer_open(&file_ops_real, path, 0644, &writer, reason));
    TRY(file_writer_write(&writer, buf_slice(&header), reason));
    for (size_t i = 0; i < count; i++)
        TRY(write_tensor(stored, &tensors[i], &writer, reason));
    return file_writer_commit(&writer, reason);
}

/* ---- config.json, so that from_pretrained() reads the folder ---- */

/* GPT-2's own vocabulary ends in the token that begins and ends a text; others have none. */
static void put_end_tokens(struct json_writer *writer, uint32_t vocabulary)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id"};
    const uint32_t end_of_text = 50256;
    for (int i = 0; i < 2; i++) {
        if (end_of_text < vocabulary)
            print_uint(writer, keys[i], end_of_text);
        else
            print_real(writer, keys[i], (double)NAN); /* null */
    }
}

/* We train without dropout. */
static void put_dropout(struct json_writer *writer)
{
    print_real(writer, "resid_pdrop", 0);
    print_real(writer, "embd_pdrop", 0);
    print_real(writer, "attn_pdrop", 0);
}

static enum err write_config(const struct spec_model *model, const char *path,
                             struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    struct json_writer writer = json_writer(&text);
    json_put_object(&writer);
    print_text(&writer, "model_type", "gpt2");
    print_array(&writer, "architectures");
    json_put_text(&writer, "GPT2LMHeadModel");
    json_put_end(&writer);
    print_uint(&writer, "vocab_size", model->vocabulary);
    print_uint(&writer, "n_positions", model->context);
    print_uint(&writer, "n_embd", model->width);
    print_uint(&writer, "n_layer", model->layers);
    print_uint(&writer, "n_head", model->heads);
    print_text(&writer, "activation_function", "gelu_new");
    print_real(&writer, "layer_norm_epsilon", 1e-5);
    put_end_tokens(&writer, model->vocabulary);
    put_dropout(&writer);
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
    return stored->spec.model.kind == SPEC_GPT ? write_config(&stored->spec.model, config, reason)
                                               : ERR_OK;
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
    const char *out = "model.safetensors";
    const struct arguments_about about = {
        .subject = "DIR",
        .own = &own,
        .own_input = &out,
        .summary = "Writes the weights of the newest checkpoint in a run's directory, or of one "
                   "checkpoint's folder, as safetensors; a gpt's with Hugging Face names, so that "
                   "transformers loads it as GPT-2."};
    scoped(stored_release) struct stored stored = {0};
    struct arguments arguments;
    struct reason reason = {0};
    arguments_parse(&about, argc, argv, &arguments);
    enum err err = stored_open(arguments.subject, &stored, &reason);
    if (err == ERR_OK)
        err = export_to(&stored, out, &reason);
    if (err != ERR_OK)
        return command_fail(err, &reason);
    printf("%s\n", out);
    return EXIT_SUCCESS;
}
