#include "common/files/state_digest.h"

#include "common/scoped.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MAX = 64 /* blocks side by side; more are assembled */ };

static int by_name(const void *a, const void *b)
{
    const struct model_parameter *const *left = a, *const *right = b;
    return strcmp((*left)->name, (*right)->name);
}

/* The blocks that lie side by side in the same rows, row by row. */
static enum err add_band(const struct model *model, const struct state_digest_source *source,
                         uint32_t chunk_first, uint32_t chunk_count, uint32_t array,
                         struct digest_stream *stream)
{
    const float *values[COLUMNS_MAX];
    const struct model_chunk *blocks = &model->chunks[chunk_first];
    for (uint32_t i = 0; i < chunk_count; i++)
        TRY(source->borrow(source->context, chunk_first + i, array, &values[i]));
    if (chunk_count == 1) {
        digest_stream_add(
            stream, (struct slice){(const uint8_t *)values[0], blocks->weights * sizeof(float)});
        return ERR_OK;
    }
    for (uint32_t r = 0; r < blocks->rows; r++)
        for (uint32_t i = 0; i < chunk_count; i++) {
            const float *row = values[i] + (size_t)r * blocks[i].cols;
            digest_stream_add(stream,
                              (struct slice){(const uint8_t *)row, blocks[i].cols * sizeof *row});
        }
    return ERR_OK;
}

/* The values are added where they lie. */
static enum err add_borrowed(const struct model *model, const struct model_parameter *parameter,
                             const struct state_digest_source *source, uint32_t array,
                             struct digest_stream *stream)
{
    for (uint32_t i = 0; i < parameter->row_cuts; i++)
        TRY(add_band(model, source, parameter->chunk_first + i * parameter->col_cuts,
                     parameter->col_cuts, array, stream));
    return ERR_OK;
}

/* One array of one parameter, assembled from its chunks. */
static enum err add_array(const struct model *model, const struct model_parameter *parameter,
                          const struct state_digest_source *source, uint32_t array, float *values,
                          float *chunk_values, struct digest_stream *stream)
{
    if (source->borrow != NULL && parameter->col_cuts <= COLUMNS_MAX)
        return add_borrowed(model, parameter, source, array, stream);
    for (uint32_t i = 0; i < parameter->chunks_count; i++) {
        uint32_t chunk = parameter->chunk_first + i;
        TRY(source->read(source->context, chunk, array, chunk_values));
        model_scatter(model, chunk, values, chunk_values);
    }
    digest_stream_add(stream,
                      (struct slice){(const uint8_t *)values, parameter->weights * sizeof *values});
    return ERR_OK;
}

static enum err add_parameters(const struct model *model, const struct state_digest_source *source,
                               const struct model_parameter *const *sorted, uint32_t count,
                               struct digest_stream *stream)
{
    uint64_t weights_max = 0;
    for (uint32_t i = 0; i < count; i++)
        weights_max = sorted[i]->weights > weights_max ? sorted[i]->weights : weights_max;
    scoped(free_scoped) float *values = malloc(weights_max * sizeof *values);
    scoped(free_scoped) float *chunk_values = malloc(MODEL_CHUNK_WEIGHTS_MAX * sizeof *values);
    if (values == NULL || chunk_values == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t array = 0; array < source->arrays; array++)
            TRY(add_array(model, sorted[i], source, array, values, chunk_values, stream));
    return ERR_OK;
}

enum err state_digest(const struct model *model, const struct state_digest_source *source,
                      struct digest *ret_digest)
{
    scoped(free_scoped) const struct model_parameter **sorted =
        calloc(model->parameters_count, sizeof(const struct model_parameter *));
    if (sorted == NULL)
        return ERR_NOMEM;
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->parameters_count; i++)
        if (i != model->loss_parameter)
            sorted[count++] = &model->parameters[i];
    qsort(sorted, count, sizeof *sorted, by_name);
    scoped(digest_stream_release) struct digest_stream stream = {0};
    TRY(digest_stream_init(&stream));
    TRY(add_parameters(model, source, sorted, count, &stream));
    *ret_digest = digest_stream_finish(&stream);
    return ERR_OK;
}
