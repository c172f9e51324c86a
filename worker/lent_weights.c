/* A message for each chunk that was lent, and what they make together. */
#include "worker/lent_weights.h"

#include "common/model/pieces.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 }; /* of arrays that kernels work on */

enum err lent_weights_init(struct lent_weights *lent, struct executor *executor,
                           const struct model *model)
{
    *lent = (struct lent_weights){0};
    if (!executor_may_point(executor))
        return ERR_OK;
    lent->executor = executor;
    lent->model = model;
    lent->chunks = calloc(model->chunks_count, sizeof *lent->chunks);
    return lent->chunks != NULL ? ERR_OK : ERR_NOMEM;
}

static void drop(struct lent_chunk *chunk)
{
    rpc_message_unref(chunk->message);
    *chunk = (struct lent_chunk){0};
}

void lent_weights_release(struct lent_weights *lent)
{
    for (uint32_t i = 0; lent->chunks != NULL && i < lent->model->chunks_count; i++)
        drop(&lent->chunks[i]);
    free(lent->chunks);
    *lent = (struct lent_weights){0};
}

bool lent_weights_has(const struct lent_weights *lent, uint32_t chunk)
{
    return lent->chunks != NULL && lent->chunks[chunk].message != NULL;
}

void lent_weights_give_back(struct lent_weights *lent)
{
    for (uint32_t i = 0; lent->chunks != NULL && i < lent->model->chunks_count; i++) {
        if (!lent_weights_has(lent, i))
            continue;
        executor_point(lent->executor, lent->model->chunks[i].parameter, NULL);
        drop(&lent->chunks[i]);
    }
}

/* The next bytes, where all of them lie together. */
static const uint8_t *piece_at(const struct cursor *cursor, size_t bytes)
{
    struct cursor ahead = *cursor;
    uint8_t value[8];
    const uint8_t *values;
    return cursor_values(&ahead, 1, bytes, value, &values) == bytes ? values : NULL;
}

bool lent_weights_keep(struct lent_weights *lent, uint32_t chunk, struct cursor *cursor,
                       struct rpc_message *message)
{
    if (lent->chunks == NULL)
        return false;
    size_t bytes = lent->model->chunks[chunk].weights * sizeof(float);
    const uint8_t *piece = message->lent ? piece_at(cursor, bytes) : NULL;
    drop(&lent->chunks[chunk]);
    if (piece == NULL)
        return false;
    lent->chunks[chunk] = (struct lent_chunk){rpc_message_ref(message), piece};
    cursor_skip(cursor, bytes);
    return true;
}

/* Where the parameter lies, chunk behind chunk as in the executor's memory; NULL: it does not. */
static const uint8_t *whole_of(const struct lent_weights *lent, uint32_t parameter)
{
    const struct model *model = lent->model;
    const struct model_parameter *about = &model->parameters[parameter];
    const uint8_t *first = lent->chunks[about->chunk_first].bytes;
    bool whole = first != NULL && (uintptr_t)first % ALIGNMENT == 0;
    for (uint32_t c = about->chunk_first; whole && c < about->chunk_first + about->chunks_count;
         c++)
        whole = lent->chunks[c].bytes == first + pieces_row_offset(model, c, 0) * sizeof(float) &&
                model->chunks[c].cols == pieces_cols(about);
    return whole ? first : NULL;
}

static void decode_kept(struct lent_weights *lent, uint32_t chunk)
{
    struct lent_chunk *kept = &lent->chunks[chunk];
    size_t bytes = lent->model->chunks[chunk].weights * sizeof(float);
    struct slice slice = {kept->bytes, bytes};
    struct cursor cursor = {&slice, 1, 0, 0};
    if (kept->message == NULL)
        return;
    executor_decode(lent->executor, chunk, CODEC_FP32, &cursor);
    drop(kept);
}

static void settle(struct lent_weights *lent, uint32_t parameter)
{
    const struct model_parameter *about = &lent->model->parameters[parameter];
    const uint8_t *whole = whole_of(lent, parameter);
    for (uint32_t i = 0; whole == NULL && i < about->chunks_count; i++)
        decode_kept(lent, about->chunk_first + i);
    executor_point(lent->executor, parameter, (const float *)(const void *)whole);
}

void lent_weights_settle(struct lent_weights *lent, uint32_t unit)
{
    if (lent->chunks == NULL)
        return;
    const struct model_unit *about = &lent->model->units[unit];
    for (uint32_t use = about->use_first; use < about->use_first + about->uses_count; use++)
        if (lent->model->uses[use].parameter != lent->model->loss_parameter)
            settle(lent, lent->model->uses[use].parameter);
}
