/* From a kind's tables to a model: splits, the grid of chunks, initial values. */
#include "common/model/model.h"

#include "common/model/kind.h"
#include "common/model/pieces.h"
#include "common/rand.h"

#include <stdlib.h>
#include <string.h>

static const struct kind *const kinds[] = {
    [SPEC_GPT] = &kind_gpt, [SPEC_MLP] = &kind_mlp, [SPEC_LLAMA] = &kind_llama};

static const struct kind *kind_of(const struct spec_model *settings)
{
    check(settings->kind < sizeof kinds / sizeof *kinds);
    return kinds[settings->kind];
}

struct model_sample model_sample(const struct spec_model *settings)
{
    return kind_of(settings)->sample(settings);
}

static void choose_splits(struct model *model);
static enum err cut(struct model *model, struct reason *reason);

enum err model_init(struct model *model, const struct spec_model *settings, struct reason *reason)
{
    const struct kind *kind = kind_of(settings);
    *model = (struct model){.settings = *settings,
                            .files = &kind->files,
                            .sample_tokens = kind->sample(settings).predictions};
    enum err err = kind->describe(model);
    if (err == ERR_OK) {
        choose_splits(model);
        err = pieces_choose(model, reason);
    }
    if (err == ERR_OK)
        err = cut(model, reason);
    if (err != ERR_OK) {
        model_release(model);
        return err;
    }
    model_check(model);
    model_check_tables(model);
    return ERR_OK;
}

void model_release(struct model *model)
{
    free(model->parameters);
    free(model->units);
    free(model->uses);
    free(model->chunks);
    free(model->tensors);
    *model = (struct model){0};
}

/* ---- the grid ---- */

/* A dim in `pieces` equal pieces, each in `subs` parts that differ by at most one. */
struct axis {
    uint32_t length, pieces, subs;
};

static uint32_t axis_count(const struct axis *axis)
{
    return axis->pieces * axis->subs;
}

static uint32_t axis_at(const struct axis *axis, uint32_t index)
{
    uint32_t piece = axis->length / axis->pieces;
    uint64_t inside = (uint64_t)piece * (index % axis->subs) / axis->subs;
    return index / axis->subs * piece + (uint32_t)inside;
}

static uint32_t divide_up(uint32_t number, uint32_t by)
{
    return number / by + (number % by != 0);
}

static uint32_t power_of_two_dividing(uint32_t number, uint32_t most)
{
    uint32_t power = 1;
    while (power < most && number % (2 * power) == 0)
        power *= 2;
    return power;
}

/* Rule 1, where rule 3 allows it. */
static uint32_t split_pieces(const struct model *model, const struct model_parameter *parameter)
{
    uint32_t length = parameter->split == MODEL_SPLIT_ROWS ? parameter->rows : parameter->cols;
    uint32_t splits =
        parameter->split_heads != 0 ? parameter->split_heads : length / parameter->split_groups;
    return power_of_two_dividing(splits, spec_tensor_max(&model->settings));
}

/* Of the parameters that are first used there. */
static uint64_t unit_weights(const struct model *model, const struct model_unit *unit)
{
    uint64_t weights = 0;
    for (uint32_t i = unit->use_first; i < unit->use_first + unit->uses_count; i++)
        if (model->uses[i].part == 0)
            weights += model->parameters[model->uses[i].parameter].weights;
    return weights;
}

static void choose_splits(struct model *model)
{
    for (uint32_t i = 0; i < model->parameters_count; i++) {
        struct model_parameter *parameter = &model->parameters[i];
        parameter->weights = (uint64_t)parameter->rows * parameter->cols;
        if (i == model->loss_parameter)
            continue;
        model->weights += parameter->weights;
        model->weights_logical += (uint64_t)parameter->shape[0] * parameter->shape[1];
    }
    for (uint32_t u = 0; u < model->units_count; u++) {
        const struct model_unit *unit = &model->units[u];
        bool cut_for_meshes = unit_weights(model, unit) >= MODEL_UNIT_CUT_MIN;
        for (uint32_t i = unit->use_first; i < unit->use_first + unit->uses_count; i++) {
            struct model_parameter *parameter = &model->parameters[model->uses[i].parameter];
            if (model->uses[i].part != 0 || !cut_for_meshes)
                continue;
            parameter->cut_for_meshes = true;
            if (parameter->split != MODEL_SPLIT_NONE)
                parameter->split_pieces = split_pieces(model, parameter);
        }
    }
}

struct grid {
    struct axis rows, cols;
};

static struct grid grid_of(const struct model *model, const struct model_parameter *parameter)
{
    struct grid grid = {{parameter->rows, 1, 1}, {parameter->cols, 1, 1}};
    if (parameter->cut_for_meshes) {
        uint32_t other = parameter->dims == 2 && spec_tensor_max(&model->settings) > 1 ? 2 : 1;
        uint32_t pieces = parameter->split_groups * parameter->split_pieces;
        if (parameter->split == MODEL_SPLIT_ROWS)
            grid.rows.pieces = pieces;
        else if (parameter->split == MODEL_SPLIT_COLS)
            grid.rows.pieces = power_of_two_dividing(parameter->rows, other);
        if (parameter->split == MODEL_SPLIT_COLS)
            grid.cols.pieces = pieces;
        else
            grid.cols.pieces = power_of_two_dividing(parameter->cols, other);
    }
    uint32_t piece_rows = parameter->rows / grid.rows.pieces;
    uint32_t piece_cols = parameter->cols / grid.cols.pieces;
    grid.cols.subs = divide_up(piece_cols, MODEL_CHUNK_WEIGHTS_MAX);
    uint32_t cols = divide_up(piece_cols, grid.cols.subs);
    grid.rows.subs = divide_up(piece_rows, MODEL_CHUNK_WEIGHTS_MAX / cols);
    return grid;
}

static void cut_parameter(struct model *model, uint32_t index)
{
    struct model_parameter *parameter = &model->parameters[index];
    struct grid grid = grid_of(model, parameter);
    struct model_chunk *chunk = &model->chunks[parameter->chunk_first];
    for (uint32_t i = 0; i < parameter->row_cuts; i++)
        for (uint32_t j = 0; j < parameter->col_cuts; j++, chunk++) {
            uint32_t row = axis_at(&grid.rows, i), rows = axis_at(&grid.rows, i + 1) - row;
            uint32_t col = axis_at(&grid.cols, j), cols = axis_at(&grid.cols, j + 1) - col;
            *chunk = (struct model_chunk){index, row, rows, col, cols, rows * cols};
        }
}

static enum err cut(struct model *model, struct reason *reason)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < model->parameters_count; i++) {
        struct model_parameter *parameter = &model->parameters[i];
        struct grid grid = grid_of(model, parameter);
        parameter->row_cuts = axis_count(&grid.rows);
        parameter->col_cuts = axis_count(&grid.cols);
        parameter->chunk_first = (uint32_t)count;
        parameter->chunks_count = parameter->row_cuts * parameter->col_cuts;
        count += parameter->chunks_count;
        if (count > MODEL_CHUNKS_MAX)
            return reason_set(reason, ERR_INVALID,
                              "the model's grid has more than %d chunks; a smaller "
                              "model.tensor_max (now %u) makes fewer",
                              MODEL_CHUNKS_MAX, spec_tensor_max(&model->settings));
    }
    model->chunks_count = (uint32_t)count;
    model->chunks = calloc(count, sizeof *model->chunks);
    if (model->chunks == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < model->parameters_count; i++)
        cut_parameter(model, i);
    return ERR_OK;
}

/* Block (i, j) meets its neighbours, so that the blocks cover each weight once. */
static void check_block(const struct model *model, const struct model_parameter *parameter,
                        uint32_t i, uint32_t j)
{
    const struct model_chunk *chunk =
        &model->chunks[parameter->chunk_first + i * parameter->col_cuts + j];
    check(chunk->weights == chunk->rows * chunk->cols);
    check(chunk->weights > 0 && chunk->weights <= MODEL_CHUNK_WEIGHTS_MAX);
    uint32_t row_end = chunk->row + chunk->rows, col_end = chunk->col + chunk->cols;
    const struct model_chunk *right = chunk + 1, *below = chunk + parameter->col_cuts;
    bool last_col = j + 1 == parameter->col_cuts, last_row = i + 1 == parameter->row_cuts;
    check(col_end == (last_col ? parameter->cols : right->col));
    check(row_end == (last_row ? parameter->rows : below->row));
    check(last_col || (right->row == chunk->row && right->rows == chunk->rows));
    check(last_row || (below->col == chunk->col && below->cols == chunk->cols));
    check(i != 0 || chunk->row == 0);
    check(j != 0 || chunk->col == 0);
}

/* Tensors are the parameter's logical rows, each once and in order. */
static void check_tensors(const struct model *model, uint32_t number)
{
    const struct model_parameter *parameter = &model->parameters[number];
    uint32_t row = 0;
    for (uint32_t i = 0; i < parameter->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[parameter->tensor_first + i];
        check(tensor->parameter == number);
        check(tensor->row == row);
        check(tensor->dims == parameter->dims);
        check(tensor->shape[tensor->transpose ? 1 : 0] == tensor->rows);
        check(tensor->shape[tensor->transpose ? 0 : 1] == parameter->cols);
        row += tensor->rows;
    }
    check(row == (number == model->loss_parameter ? 0 : parameter->shape[0]));
}

/* An array has what it refers to, and room for its gradient. */
static void check_array(const struct model_unit *unit, const struct model_array *array)
{
    check(array->gradient < unit->arrays_count && array->gelu_of < unit->arrays_count);
    const struct model_array *gradient = &unit->arrays[array->gradient];
    check(array->gradient == MODEL_NO_ARRAY || gradient->width >= array->width);
    check(array->gradient == MODEL_NO_ARRAY || gradient->ranged == array->ranged);
    check(array->gelu_of == MODEL_NO_ARRAY ||
          unit->arrays[array->gelu_of].gradient == array->gradient);
}

static void check_operations(const struct model_unit *unit)
{
    check(unit->operations_count > 0);
    for (uint32_t i = MODEL_IN; i < unit->arrays_count; i++)
        check_array(unit, &unit->arrays[i]);
    for (uint32_t i = 0; i < unit->operations_count; i++) {
        const struct model_operation *operation = &unit->operations[i];
        check(operation->kind < MODEL_OPERATIONS_COUNT);
        check(operation->in < unit->arrays_count && operation->in != MODEL_NO_ARRAY);
        check(operation->out < unit->arrays_count && operation->with < unit->arrays_count);
        check((uint32_t)operation->use + operation->uses_count <= unit->uses_count);
    }
}

void model_check(const struct model *model)
{
    uint32_t chunks = 0;
    for (uint32_t p = 0; p < model->parameters_count; p++) {
        const struct model_parameter *parameter = &model->parameters[p];
        check(parameter->chunk_first == chunks);
        check(parameter->chunks_count == parameter->row_cuts * parameter->col_cuts);
        chunks += parameter->chunks_count;
        for (uint32_t c = parameter->chunk_first; c < chunks; c++)
            check(model->chunks[c].parameter == p);
        for (uint32_t i = 0; i < parameter->row_cuts; i++)
            for (uint32_t j = 0; j < parameter->col_cuts; j++)
                check_block(model, parameter, i, j);
    }
    check(chunks == model->chunks_count);
}

void model_check_tables(const struct model *model)
{
    for (uint32_t p = 0; p < model->parameters_count; p++)
        check_tensors(model, p);
    for (uint32_t u = 0; u < model->units_count; u++)
        check_operations(&model->units[u]);
    for (uint32_t i = 1; model->units_count > 1 && i < model->units[0].operations_count; i++)
        check(model->units[0].operations[i].uses_count == 0); /* its backward reads no weights */
}

/* ---- using it ---- */

uint32_t model_find_tensor(const struct model *model, const char *name)
{
    uint32_t tensor = 0;
    while (tensor < model->tensors_count && strcmp(model->tensors[tensor].name, name) != 0)
        tensor++;
    return tensor;
}

void model_scatter(const struct model *model, uint32_t chunk, float *parameter, const float *inp)
{
    const struct model_chunk *block = &model->chunks[chunk];
    for (uint32_t r = 0; r < block->rows; r++)
        memcpy(parameter + model_row_offset(model, chunk, r), inp + (size_t)r * block->cols,
               block->cols * sizeof *inp);
}

void model_initial(const struct model *model, uint64_t seed, uint32_t chunk, float *out)
{
    const struct model_chunk *block = &model->chunks[chunk];
    const struct model_parameter *parameter = &model->parameters[block->parameter];
    struct rand_key key = rand_key(seed, RAND_WEIGHTS, block->parameter);
    for (uint32_t r = 0; r < block->rows; r++, out += block->cols) {
        bool padding = block->row + r >= parameter->shape[0];
        if (parameter->initial == MODEL_NORMAL && !padding)
            rand_normal_fill(key, model_row_offset(model, chunk, r), block->cols, out);
        float scale = parameter->initial == MODEL_NORMAL ? parameter->initial_std : 1;
        for (uint32_t c = 0; c < block->cols; c++)
            out[c] = parameter->initial == MODEL_ZEROS || padding ? 0
                     : parameter->initial == MODEL_ONES           ? 1
                                                                  : scale * out[c];
    }
}
