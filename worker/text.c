#include "worker/text.h"

#include "common/files/checkpoint.h"
#include "common/scoped.h"
#include "common/settings/config.h"
#include "common/utf8.h"

#include <string.h>
#include <unistd.h>

struct loaded {
    struct checkpoint *checkpoint;
    struct spec spec;
    struct model model;
    const struct kernels *kernels;
    float **weights;
};

static void loaded_release(struct loaded *loaded)
{
    for (uint32_t p = 0; loaded->weights != NULL && p < loaded->model.parameters_count; p++)
        free(loaded->weights[p]);
    free(loaded->weights);
    kernels_free(loaded->kernels);
    model_release(&loaded->model);
    checkpoint_free(loaded->checkpoint);
}

/* A sample is part of no run's bits: where the run's core type does not open, this machine's does. */
static enum err open_kernels(const char *core, const struct kernels **ret_kernels,
                             struct reason *reason)
{
    struct kernels_options options = {.backend = KERNELS_CPU, .gemm_core = core};
    struct reason why = {.text = ""};
    if (kernels_new(&options, ret_kernels, why.text, sizeof why.text))
        return ERR_OK;
    options.gemm_core = kernels_gemm_core_auto();
    if (!kernels_new(&options, ret_kernels, reason->text, sizeof reason->text))
        return ERR_UNSUPPORTED;
    fprintf(stderr, "warning: %s: with %s the text may be another one\n", why.text,
            options.gemm_core);
    return ERR_OK;
}

static enum err open_model(const char *path, struct loaded *loaded, struct reason *reason)
{
    TRY(config_path_error(checkpoint_open_any(path, &loaded->checkpoint, reason)));
    const char *spec = checkpoint_about(loaded->checkpoint)->spec;
    struct slice text = {(const uint8_t *)spec, strlen(spec)};
    TRY(spec_parse(text, checkpoint_path(loaded->checkpoint), NULL, &loaded->spec, reason));
    loaded->spec.model.pieces = 1; /* files have whole parameters */
    TRY(model_init(&loaded->model, &loaded->spec.model, reason));
    TRY(checkpoint_fits(loaded->checkpoint, &loaded->model,
                        checkpoint_arrays(loaded->checkpoint).states, reason));
    return open_kernels(loaded->spec.train.gemm_core, &loaded->kernels, reason);
}

static enum err read_weights(struct loaded *loaded, struct reason *reason)
{
    const struct model *model = &loaded->model;
    loaded->weights = calloc(model->parameters_count, sizeof *loaded->weights);
    if (loaded->weights == NULL)
        return ERR_NOMEM;
    for (uint32_t p = 0; p < model->parameters_count; p++) {
        loaded->weights[p] = aligned_alloc(64, (model->parameters[p].weights * 4 + 63) / 64 * 64);
        if (loaded->weights[p] == NULL)
            return ERR_NOMEM;
        TRY(checkpoint_read_parameter(loaded->checkpoint, model, p, 0, loaded->weights[p], reason));
    }
    return ERR_OK;
}

/* A terminal gets no control characters and no half ones: a model may learn, or guess, anything. */
static void write_to_terminal(struct slice text)
{
    while (text.bytes > 0) {
        size_t length = utf8_length(text);
        uint8_t first = text.data[0];
        bool control =
            length == 1 && (first < ' ' || first == 127) && first != '\n' && first != '\t';
        control |= length == 2 && first == 0xC2 && text.data[1] < 0xA0; /* U+0080 to U+009F */
        if (length == 0 || control)
            fputs("\uFFFD", stdout);
        else
            fwrite(text.data, 1, length, stdout);
        text.data += length > 0 ? length : 1;
        text.bytes -= length > 0 ? length : 1;
    }
}

enum err text_write(const char *path, const char *prompt, const struct sample_options *options,
                    struct reason *reason)
{
    scoped(loaded_release) struct loaded loaded = {0};
    scoped(buf_release) struct buf text = {0};
    struct slice begin = {(const uint8_t *)prompt, strlen(prompt)}, all;
    TRY(buf_append(&text, prompt, begin.bytes));
    TRY(open_model(path, &loaded, reason));
    TRY(read_weights(&loaded, reason));
    struct sample_options drawn = *options;
    drawn.bytes = loaded.spec.data.kind == SPEC_TEXT;
    TRY(sample_text(loaded.kernels, &loaded.model, loaded.weights, begin, &drawn, &text, reason));
    all = buf_slice(&text);
    if (isatty(STDOUT_FILENO) == 1)
        write_to_terminal(all);
    else
        fwrite(all.data, 1, all.bytes, stdout);
    putchar('\n');
    return ERR_OK;
}
