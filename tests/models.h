/* What tests ask a model that no program asks it. */
#ifndef ROOST_TESTS_MODELS_H
#define ROOST_TESTS_MODELS_H

#include "common/check.h"
#include "common/model/model.h"

#include <string.h>

/* With a context of 8 where a model has one, and for eight tensor ranks, so that chunks are small and
 * narrow, unless the settings say. */
static inline struct model model_of(struct spec_model settings)
{
    struct model model;
    if (settings.tensor_max == 0)
        settings.tensor_max = 8;
    if (settings.context == 0 && settings.kind != SPEC_MLP)
        settings.context = 8;
    check(model_init(&model, &settings, NULL) == ERR_OK);
    return model;
}

/* The parameter of that name; parameters_count: none. */
static inline uint32_t parameter_named(const struct model *model, const char *name)
{
    uint32_t parameter = 0;
    while (parameter < model->parameters_count &&
           strcmp(model->parameters[parameter].name, name) != 0)
        parameter++;
    return parameter;
}

/* The published names of a gpt of one block, in their order; the head's and the loss are behind. */
enum { GPT_NAMES = 16 };

static inline const char *gpt_name(uint32_t i)
{
    static const char *const names[GPT_NAMES] = {
        "wte.weight",
        "wpe.weight",
        "h.0.ln_1.weight",
        "h.0.ln_1.bias",
        "h.0.attn.c_attn.weight",
        "h.0.attn.c_attn.bias",
        "h.0.attn.c_proj.weight",
        "h.0.attn.c_proj.bias",
        "h.0.ln_2.weight",
        "h.0.ln_2.bias",
        "h.0.mlp.c_fc.weight",
        "h.0.mlp.c_fc.bias",
        "h.0.mlp.c_proj.weight",
        "h.0.mlp.c_proj.bias",
        "ln_f.weight",
        "ln_f.bias",
    };
    return names[i];
}

/* The inverse of model_scatter(): one chunk out of the whole parameter's storage. */
static inline void gather_chunk(const struct model *model, uint32_t chunk, float *out,
                                const float *parameter)
{
    const struct model_chunk *block = &model->chunks[chunk];
    for (uint32_t r = 0; r < block->rows; r++)
        memcpy(out + (size_t)r * block->cols, parameter + model_row_offset(model, chunk, r),
               block->cols * sizeof *out);
}

#endif
