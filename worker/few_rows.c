#include "worker/few_rows.h"

#include "common/model/pieces.h"
#include "worker/blocks.h"

#include <stdlib.h>
#include <string.h>

/* ---- which gradient it is ---- */

/* The first use of the model's first operation. */
static bool is_tied_embedding(const struct model *model)
{
    const struct model_unit *unit = &model->units[0];
    const struct model_use *use = &model->uses[unit->use_first + unit->operations[0].use];
    return unit->operations[0].kind == MODEL_EMBEDDING &&
           model->parameters[use->parameter].parts > 1;
}

/* A device would take all rows' memory at once. */
static bool is_host(const struct kernels *k)
{
    struct kernels_memory memory;
    k->memory(k, &memory);
    return memory.total == 0;
}

bool few_rows_fit(const struct kernels *k, const struct model *model,
                  const struct spec_train *train, uint32_t node_slots_max, struct few_rows *ret_few)
{
    if (!is_host(k) || model->ranks > 1 || !is_tied_embedding(model))
        return false;
    uint32_t use = model->units[0].use_first + model->units[0].operations[0].use;
    const struct model_parameter *table = &model->parameters[model->uses[use].parameter];
    uint64_t max = (uint64_t)node_slots_max * train->slot_samples * model->sample_tokens;
    if (max == 0 || max * FEW_ROWS_SHARE >= table->rows || pieces_cols(table) != table->cols)
        return false;
    *ret_few = (struct few_rows){
        .use = use, .rows = table->rows, .cols = table->cols, .max = (uint32_t)max};
    return true;
}

/* ---- memory ---- */

void few_rows_carve(struct few_rows *few, struct carve *carve)
{
    few->place_of = carve_take(carve, few->rows * sizeof *few->place_of);
    few->row_of = carve_take(carve, few->max * sizeof *few->row_of);
    few->places = carve_take(carve, few->max * sizeof *few->places);
    few->values = carve_take(carve, (uint64_t)few->max * few->cols * sizeof *few->values);
}

uint64_t few_rows_bytes(const struct few_rows *few)
{
    struct few_rows shape = *few;
    struct carve carve = {0};
    few_rows_carve(&shape, &carve);
    return carve.bytes;
}

void few_rows_init(struct few_rows *few)
{
    memset(few->place_of, -1, few->rows * sizeof *few->place_of);
}

void few_rows_release(struct few_rows *few)
{
    free(few->whole);
}

/* ---- rows ---- */

void few_rows_clear(struct few_rows *few)
{
    for (uint32_t place = 0; place < few->count; place++)
        few->place_of[few->row_of[place]] = -1;
    few->count = 0;
}

static float *values_at(const struct few_rows *few, int32_t place)
{
    return few->values + (size_t)place * few->cols;
}

/* A row that has no place gets the next one, and begins as zeros. */
static int32_t place_row(struct few_rows *few, uint32_t row)
{
    check(row < few->rows);
    int32_t place = few->place_of[row];
    if (place >= 0)
        return place;
    check(few->count < few->max); /* the node's tokens are no more */
    place = few->place_of[row] = (int32_t)few->count;
    few->row_of[few->count++] = row;
    memset(values_at(few, place), 0, few->cols * sizeof *few->values);
    return place;
}

const int32_t *few_rows_places(struct few_rows *few, const int32_t *rows, int64_t count)
{
    check(count <= few->max);
    for (int64_t i = 0; i < count; i++)
        few->places[i] = place_row(few, (uint32_t)rows[i]);
    return few->places;
}

void few_rows_add(struct few_rows *sum, const struct few_rows *other, const struct kernels *k)
{
    check(sum->rows == other->rows && sum->cols == other->cols);
    for (uint32_t place = 0; place < other->count; place++) {
        float *row = values_at(sum, place_row(sum, other->row_of[place]));
        k->add(k, row, row, values_at(other, (int32_t)place), sum->cols);
    }
}

/* ---- the whole ---- */

void few_rows_encode(const struct few_rows *few, const struct kernels *k, const struct model *model,
                     uint32_t chunk, enum codec codec, void *ret_bytes)
{
    const struct model_chunk *c = &model->chunks[chunk];
    uint8_t *bytes = ret_bytes;
    size_t row_bytes = c->cols * codec_bytes(codec);
    memset(bytes, 0, c->rows * row_bytes);
    for (uint32_t r = 0; r < c->rows; r++, bytes += row_bytes) {
        uint64_t first = pieces_row_offset(model, chunk, r);
        int32_t place = few->place_of[first / few->cols];
        if (place >= 0)
            blocks_encode_run(k, codec, values_at(few, place) + first % few->cols, c->cols, bytes);
    }
}

const float *few_rows_whole(struct few_rows *few)
{
    free(few->whole);
    few->whole = calloc((size_t)few->rows * few->cols, sizeof *few->whole);
    check(few->whole != NULL);
    for (uint32_t place = 0; place < few->count; place++)
        memcpy(few->whole + (size_t)few->row_of[place] * few->cols, values_at(few, (int32_t)place),
               few->cols * sizeof *few->whole);
    return few->whole;
}
