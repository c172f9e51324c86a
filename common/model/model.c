/* Tables of each kind's parameters, and the grid that cuts them. */
#include "common/model/model.h"

#include "common/rand.h"

#include <stdlib.h>
#include <string.h>

/* GPT-2's and nanoGPT's initial values: 0.02, residual projections 0.02 / sqrt(2 L). */
static const double gpt_std = 0.02;

static enum err describe_gpt(struct model *model);
static enum err describe_mlp(struct model *model);
static void choose_splits(struct model *model);
static enum err cut(struct model *model, struct reason *reason);

enum err model_init(struct model *model, const struct spec_model *settings, struct reason *reason)
{
    *model = (struct model){.settings = *settings};
    enum err err = settings->kind == SPEC_GPT ? describe_gpt(model) : describe_mlp(model);
    if (err == ERR_OK) {
        choose_splits(model);
        err = cut(model, reason);
    }
    if (err != ERR_OK)
        model_release(model);
    return err;
}

void model_release(struct model *model)
{
    free(model->parameters);
    free(model->units);
    free(model->uses);
    free(model->chunks);
    *model = (struct model){0};
}

/* ---- what the describing functions share ---- */

static enum err reserve(struct model *model, uint32_t parameters, uint32_t units, uint32_t uses)
{
    model->parameters = calloc(parameters, sizeof *model->parameters);
    model->units = calloc(units, sizeof *model->units);
    model->uses = calloc(uses, sizeof *model->uses);
    return model->parameters == NULL || model->units == NULL || model->uses == NULL ? ERR_NOMEM
                                                                                    : ERR_OK;
}

static struct model_unit *begin_unit(struct model *model, double flops_forward)
{
    struct model_unit *unit = &model->units[model->units_count++];
    unit->use_first = model->uses_count;
    unit->flops_forward = flops_forward;
    model->flops_forward += flops_forward;
    return unit;
}

/* The last unit begun also contributes to `parameter`: its next part. */
static void use(struct model *model, uint32_t parameter)
{
    struct model_parameter *used = &model->parameters[parameter];
    check(used->parts < MODEL_PARTS_MAX);
    model->uses[model->uses_count++] = (struct model_use){parameter, used->parts};
    used->part_units[used->parts++] = model->units_count - 1;
    model->units[model->units_count - 1].uses_count++;
}

/* A new parameter of the last unit begun; cols 0: a vector. */
static struct model_parameter *add(struct model *model, uint32_t rows, uint32_t cols)
{
    struct model_parameter *parameter = &model->parameters[model->parameters_count];
    *parameter = (struct model_parameter){
        .dims = cols == 0 ? 1 : 2,
        .shape = {rows, cols == 0 ? 1 : cols},
        .rows = rows,
        .cols = cols == 0 ? 1 : cols,
        .decay = cols != 0,
        .split_groups = 1,
        .split_pieces = 1,
    };
    use(model, model->parameters_count++);
    return parameter;
}

static void add_loss(struct model *model)
{
    model->loss_parameter = model->parameters_count;
    struct model_parameter *loss = add(model, MODEL_LOSS_WEIGHTS, 0);
    snprintf(loss->name, sizeof loss->name, "loss");
    loss->rule = MODEL_NONE;
}

/* IEEE 754 has it rounded correctly, so it has the same bits everywhere. */
static double root(double number)
{
    return __builtin_sqrt(number);
}

static void start_normal(struct model_parameter *parameter, double std)
{
    parameter->initial = MODEL_NORMAL;
    parameter->initial_std = (float)std;
}

/* ---- gpt ---- */

/* One parameter of a transformer block; rows and cols in widths. */
struct block_row {
    const char *name;
    uint32_t rows, cols;
    enum model_initial_kind initial;
    bool residual; /* writes to the residual stream */
    enum model_split split;
    uint32_t groups; /* of the split dim, before the heads */
    bool by_heads;   /* what splits is a head, not a channel */
};

static const struct block_row block_rows[] = {
    {"ln_1.weight", 1, 0, MODEL_ONES, false, MODEL_SPLIT_NONE, 1, false},
    {"ln_1.bias", 1, 0, MODEL_ZEROS, false, MODEL_SPLIT_NONE, 1, false},
    {"attn.c_attn.weight", 3, 1, MODEL_NORMAL, false, MODEL_SPLIT_ROWS, 3, true},
    {"attn.c_attn.bias", 3, 0, MODEL_ZEROS, false, MODEL_SPLIT_ROWS, 3, true},
    {"attn.c_proj.weight", 1, 1, MODEL_NORMAL, true, MODEL_SPLIT_COLS, 1, true},
    {"attn.c_proj.bias", 1, 0, MODEL_ZEROS, false, MODEL_SPLIT_NONE, 1, false},
    {"ln_2.weight", 1, 0, MODEL_ONES, false, MODEL_SPLIT_NONE, 1, false},
    {"ln_2.bias", 1, 0, MODEL_ZEROS, false, MODEL_SPLIT_NONE, 1, false},
    {"mlp.c_fc.weight", 4, 1, MODEL_NORMAL, false, MODEL_SPLIT_ROWS, 1, false},
    {"mlp.c_fc.bias", 4, 0, MODEL_ZEROS, false, MODEL_SPLIT_ROWS, 1, false},
    {"mlp.c_proj.weight", 1, 4, MODEL_NORMAL, true, MODEL_SPLIT_COLS, 1, false},
    {"mlp.c_proj.bias", 1, 0, MODEL_ZEROS, false, MODEL_SPLIT_NONE, 1, false},
};
enum { BLOCK_ROWS = sizeof block_rows / sizeof block_rows[0] };

static void add_block_row(struct model *model, uint32_t layer, const struct block_row *row)
{
    const struct spec_model *settings = &model->settings;
    struct model_parameter *parameter =
        add(model, row->rows * settings->width, row->cols * settings->width);
    snprintf(parameter->name, sizeof parameter->name, "h.%u.%s", layer, row->name);
    parameter->split = row->split;
    parameter->split_groups = row->groups;
    parameter->split_heads = row->by_heads ? settings->heads : 0;
    parameter->initial = row->initial;
    if (row->initial == MODEL_NORMAL)
        start_normal(parameter, row->residual ? gpt_std / root(2.0 * settings->layers) : gpt_std);
}

static void add_embeddings(struct model *model)
{
    const struct spec_model *settings = &model->settings;
    begin_unit(model, 0);
    snprintf(model->units[0].name, sizeof model->units[0].name, "embedding");

    struct model_parameter *wte = add(model, settings->vocabulary, settings->width);
    snprintf(wte->name, sizeof wte->name, "wte.weight");
    uint32_t multiple = MODEL_VOCABULARY_MULTIPLE;
    wte->rows = (settings->vocabulary + multiple - 1) / multiple * multiple;
    wte->split = MODEL_SPLIT_ROWS;
    start_normal(wte, gpt_std);

    struct model_parameter *wpe = add(model, settings->context, settings->width);
    snprintf(wpe->name, sizeof wpe->name, "wpe.weight");
    start_normal(wpe, gpt_std);
}

static void add_block(struct model *model, uint32_t layer)
{
    double tokens = model->settings.context, width = model->settings.width;
    double linears = 2 * 12 * width * width * tokens;
    double attention = 2 * 2 * tokens * tokens * width; /* scores, then values */
    struct model_unit *unit = begin_unit(model, linears + attention);
    snprintf(unit->name, sizeof unit->name, "h.%u", layer);
    for (uint32_t i = 0; i < BLOCK_ROWS; i++)
        add_block_row(model, layer, &block_rows[i]);
}

static void add_head(struct model *model)
{
    const struct spec_model *settings = &model->settings;
    struct model_unit *unit =
        begin_unit(model, 2.0 * settings->vocabulary * settings->width * settings->context);
    snprintf(unit->name, sizeof unit->name, "head");
    struct model_parameter *weight = add(model, settings->width, 0);
    snprintf(weight->name, sizeof weight->name, "ln_f.weight");
    weight->initial = MODEL_ONES;
    struct model_parameter *bias = add(model, settings->width, 0);
    snprintf(bias->name, sizeof bias->name, "ln_f.bias");
    use(model, 0); /* wte again: the tied head */
    add_loss(model);
}

static enum err describe_gpt(struct model *model)
{
    uint32_t layers = model->settings.layers;
    uint32_t parameters = 2 + BLOCK_ROWS * layers + 2 + 1;
    model->sample_tokens = model->settings.context;
    TRY(reserve(model, parameters, layers + 2, parameters + 1));
    add_embeddings(model);
    for (uint32_t layer = 0; layer < layers; layer++)
        add_block(model, layer);
    add_head(model);
    check(model->parameters_count == parameters && model->uses_count == parameters + 1);
    return ERR_OK;
}

/* ---- mlp ---- */

/* He et al. (arXiv:1502.01852, eq. 10) for relu; half the variance for tanh, which does not halve
 * its input's. Linears alternate between splits of rows and of columns, so that a pair needs one
 * reduction (Megatron-LM, arXiv:1909.08053, section 3). */
static void add_linear(struct model *model, uint32_t index)
{
    uint32_t inputs = model->settings.sizes[index], outputs = model->settings.sizes[index + 1];
    struct model_unit *unit = begin_unit(model, 2.0 * inputs * outputs);
    snprintf(unit->name, sizeof unit->name, "fc%u", index + 1);
    double gain = model->settings.activation == SPEC_RELU ? 2 : 1;

    struct model_parameter *weight = add(model, outputs, inputs);
    snprintf(weight->name, sizeof weight->name, "fc%u.weight", index + 1);
    weight->split = index % 2 == 0 ? MODEL_SPLIT_ROWS : MODEL_SPLIT_COLS;
    start_normal(weight, root(gain / inputs));

    struct model_parameter *bias = add(model, outputs, 0);
    snprintf(bias->name, sizeof bias->name, "fc%u.bias", index + 1);
    bias->split = index % 2 == 0 ? MODEL_SPLIT_ROWS : MODEL_SPLIT_NONE;
}

static enum err describe_mlp(struct model *model)
{
    uint32_t linears = model->settings.sizes_count - 1;
    model->sample_tokens = 1;
    TRY(reserve(model, 2 * linears + 1, linears, 2 * linears + 1));
    for (uint32_t i = 0; i < linears; i++)
        add_linear(model, i);
    add_loss(model);
    return ERR_OK;
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
    uint32_t splits = parameter->split_heads != 0 ? parameter->split_heads : length;
    return power_of_two_dividing(splits, model->settings.tensor_max);
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
        uint32_t other = parameter->dims == 2 && model->settings.tensor_max > 1 ? 2 : 1;
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
                              MODEL_CHUNKS_MAX, model->settings.tensor_max);
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

/* ---- using it ---- */

uint32_t model_find(const struct model *model, const char *name)
{
    uint32_t parameter = 0;
    while (parameter < model->parameters_count &&
           strcmp(model->parameters[parameter].name, name) != 0)
        parameter++;
    return parameter;
}

void model_gather(const struct model *model, uint32_t chunk, float *out, const float *parameter)
{
    const struct model_chunk *block = &model->chunks[chunk];
    for (uint32_t r = 0; r < block->rows; r++)
        memcpy(out + (size_t)r * block->cols, parameter + model_row_offset(model, chunk, r),
               block->cols * sizeof *out);
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

enum err model_export(const struct model *model, uint32_t parameter,
                      struct model_export *ret_export)
{
    const struct model_parameter *p = &model->parameters[parameter];
    if (parameter == model->loss_parameter)
        return ERR_NOT_FOUND;
    /* Hugging Face's GPT-2 has Conv1D in its blocks: (in, out); embeddings are as ours. */
    bool transpose = model->settings.kind == SPEC_GPT && p->dims == 2 && p->part_units[0] != 0;
    *ret_export = (struct model_export){
        .name = p->name,
        .dims = p->dims,
        .shape = {p->shape[transpose ? 1 : 0], p->shape[transpose ? 0 : 1]},
        .transpose = transpose,
    };
    return ERR_OK;
}
