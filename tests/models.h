/* What tests ask a model that no program asks it. */
#ifndef ROOST_TESTS_MODELS_H
#define ROOST_TESTS_MODELS_H

#include "common/model/model.h"

#include <string.h>

/* The parameter of that name; parameters_count: none. */
static inline uint32_t parameter_named(const struct model *model, const char *name)
{
    uint32_t parameter = 0;
    while (parameter < model->parameters_count &&
           strcmp(model->parameters[parameter].name, name) != 0)
        parameter++;
    return parameter;
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
