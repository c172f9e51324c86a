#include "common/model/pieces.h"

#include <stdlib.h>
#include <string.h>

/* ---- which ---- */

static uint32_t pieces_of_run(const struct model *model)
{
    return model->settings.pieces > 1 ? model->settings.pieces : 1;
}

static struct model_parameter *weight_of(struct model *model, const struct model_unit *unit,
                                         const struct model_operation *operation)
{
    return &model->parameters[model->uses[unit->use_first + operation->use].parameter];
}

static void make_whole(struct model *model, const struct model_unit *unit,
                       const struct model_operation *operation)
{
    uint32_t first = unit->use_first + operation->use;
    for (uint32_t use = first; use < first + operation->uses_count; use++)
        model->parameters[model->uses[use].parameter].pieces = 1;
}

static bool is_split(const struct model_parameter *weight, enum model_split split)
{
    return weight->split == split && weight->pieces > 1;
}

/* What it makes is in pieces when what it is given is. */
static bool keeps_pieces(enum model_operation_kind kind)
{
    return kind == MODEL_ROPE || kind == MODEL_ATTENTION || kind == MODEL_SWIGLU ||
           kind == MODEL_RELU || kind == MODEL_TANH;
}

/* From last to first: linears whose pieces nobody eats are whole. */
static void look_back(struct model *model)
{
    bool next_eats = false;
    for (uint32_t u = model->units_count; u-- > 0;) {
        const struct model_unit *unit = &model->units[u];
        bool eaten[MODEL_UNIT_ARRAYS_MAX] = {[MODEL_OUT] = next_eats};
        for (uint32_t i = unit->operations_count; i-- > 0;) {
            const struct model_operation *o = &unit->operations[i];
            const struct model_parameter *weight = weight_of(model, unit, o);
            bool linear = o->kind == MODEL_LINEAR;
            if ((linear && is_split(weight, MODEL_SPLIT_ROWS) && !eaten[o->out]) ||
                (o->kind == MODEL_CLASSIFIER && is_split(weight, MODEL_SPLIT_COLS)))
                make_whole(model, unit, o);
            if (linear || keeps_pieces(o->kind))
                eaten[o->in] = linear ? is_split(weight, MODEL_SPLIT_COLS) : eaten[o->out];
        }
        next_eats = eaten[MODEL_IN];
    }
}

/* From first to last: arrays in pieces; linears that would eat some and get none are whole. */
static void look_forward(struct model *model)
{
    uint8_t handed_on = 1;
    for (uint32_t u = 0; u < model->units_count; u++) {
        struct model_unit *unit = &model->units[u];
        for (uint32_t i = 0; i < unit->arrays_count; i++)
            unit->arrays[i].pieces = 1;
        unit->arrays[MODEL_IN].pieces = handed_on;
        for (uint32_t i = 0; i < unit->operations_count; i++) {
            const struct model_operation *o = &unit->operations[i];
            struct model_array *in = &unit->arrays[o->in], *out = &unit->arrays[o->out];
            const struct model_parameter *weight = weight_of(model, unit, o);
            if (o->kind == MODEL_LINEAR && is_split(weight, MODEL_SPLIT_COLS) && in->pieces == 1)
                make_whole(model, unit, o);
            if (keeps_pieces(o->kind))
                out->pieces = in->pieces;
            else if (o->kind == MODEL_LINEAR && is_split(weight, MODEL_SPLIT_ROWS))
                out->pieces = unit->arrays[out->gelu_of].pieces = (uint8_t)weight->pieces;
        }
        handed_on = unit->arrays[MODEL_OUT].pieces;
        for (uint32_t i = 0; i < unit->arrays_count; i++)
            unit->arrays[i].split = unit->arrays[i].pieces > 1;
    }
}

/* ---- which ranges ---- */

bool pieces_ranged(const struct model *model)
{
    return pieces_of_run(model) > 1 && model->settings.norms == SPEC_NORMS_SPLIT;
}

/* Norms alone compute with ranges, and with nothing else. A whole linear could not add its product to
 * one: a product of fewer rows has other bits. */
static bool fits_ranges(const struct model_unit *unit, const struct model_operation *o)
{
    const struct model_array *arrays = unit->arrays;
    bool norm = o->kind == MODEL_LAYERNORM || o->kind == MODEL_RMSNORM;
    return norm == arrays[o->in].ranged &&
           (o->with == MODEL_NO_ARRAY || arrays[o->with].ranged == arrays[o->out].ranged);
}

/* From first to last. */
static enum err choose_ranges(struct model *model, struct reason *reason)
{
    bool handed_on = false;
    for (uint32_t u = 0; u < model->units_count; u++) {
        struct model_unit *unit = &model->units[u];
        unit->arrays[MODEL_IN].ranged = unit->arrays[MODEL_DIN].ranged = handed_on;
        for (uint32_t i = 0; i < unit->operations_count; i++) {
            const struct model_operation *o = &unit->operations[i];
            if (o->kind == MODEL_EMBEDDING ||
                (o->kind == MODEL_LINEAR && unit->arrays[o->in].split))
                unit->arrays[o->out].ranged = true;
            if (!fits_ranges(unit, o))
                return reason_set(reason, ERR_INVALID,
                                  "train.tensor_norms split needs layers in pieces, and %s is too "
                                  "small to be cut; whole works",
                                  unit->name);
        }
        handed_on = unit->arrays[MODEL_DOUT].ranged = unit->arrays[MODEL_OUT].ranged;
    }
    return ERR_OK;
}

enum err pieces_choose(struct model *model, struct reason *reason)
{
    uint32_t pieces = pieces_of_run(model);
    model->ranks = 1;
    for (uint32_t i = 0; i < model->parameters_count; i++) {
        struct model_parameter *parameter = &model->parameters[i];
        if (!parameter->cut_for_meshes || parameter->split == MODEL_SPLIT_NONE)
            continue;
        if (parameter->split_pieces % pieces != 0)
            return reason_set(reason, ERR_INVALID,
                              "train.pieces (%u) must divide the %u pieces that %s can be cut in",
                              pieces, parameter->split_pieces, parameter->name);
        parameter->pieces = pieces;
    }
    look_back(model);
    look_forward(model);
    return pieces_ranged(model) ? choose_ranges(model, reason) : ERR_OK;
}

/* ---- a member's ---- */

static void *copy_of(const void *table, size_t bytes)
{
    void *copy = malloc(bytes + 1); /* a model may have no tensors */
    return copy != NULL && bytes > 0 ? memcpy(copy, table, bytes) : copy;
}

static enum err copy_tables(const struct model *whole, struct model *ret_copy)
{
    *ret_copy = *whole;
    ret_copy->parameters =
        copy_of(whole->parameters, whole->parameters_count * sizeof *whole->parameters);
    ret_copy->units = copy_of(whole->units, whole->units_count * sizeof *whole->units);
    ret_copy->uses = copy_of(whole->uses, whole->uses_count * sizeof *whole->uses);
    ret_copy->chunks = copy_of(whole->chunks, whole->chunks_count * sizeof *whole->chunks);
    ret_copy->tensors = copy_of(whole->tensors, whole->tensors_count * sizeof *whole->tensors);
    if (ret_copy->parameters != NULL && ret_copy->units != NULL && ret_copy->uses != NULL &&
        ret_copy->chunks != NULL && ret_copy->tensors != NULL)
        return ERR_OK;
    model_release(ret_copy);
    return ERR_NOMEM;
}

/* An operation on an array in pieces has the heads of those that are held. */
static void share_unit(struct model_unit *unit, uint32_t ranks)
{
    for (uint32_t i = 0; i < unit->operations_count; i++)
        if (unit->arrays[unit->operations[i].in].split) {
            unit->operations[i].heads /= ranks;
            unit->operations[i].kv_heads /= ranks;
        }
    for (uint32_t i = 0; i < unit->arrays_count; i++)
        if (unit->arrays[i].split) {
            unit->arrays[i].width /= ranks;
            unit->arrays[i].pieces = (uint8_t)(unit->arrays[i].pieces / ranks);
        }
}

enum err pieces_share(const struct model *whole, uint32_t rank, uint32_t ranks,
                      struct model *ret_model)
{
    check(whole->ranks == 1 && rank < ranks && pieces_of_run(whole) % ranks == 0);
    TRY(copy_tables(whole, ret_model));
    ret_model->rank = rank;
    ret_model->ranks = ranks;
    for (uint32_t i = 0; i < whole->parameters_count; i++)
        if (whole->parameters[i].pieces > 1)
            ret_model->parameters[i].weights /= ranks;
    for (uint32_t i = 0; i < whole->units_count; i++)
        share_unit(&ret_model->units[i], ranks);
    return ERR_OK;
}

bool pieces_rank_holds(const struct model *model, uint32_t chunk, uint32_t rank, uint32_t ranks)
{
    return model->parameters[model->chunks[chunk].parameter].pieces <= 1 ||
           pieces_chunk_rank(model, chunk, ranks) == rank;
}

bool pieces_holds(const struct model *model, uint32_t chunk)
{
    return pieces_rank_holds(model, chunk, model->rank, model->ranks);
}

/* ---- where ---- */

uint32_t pieces_cols(const struct model_parameter *parameter)
{
    return parameter->split == MODEL_SPLIT_COLS ? parameter->cols / parameter->pieces
                                                : parameter->cols;
}

/* The row of the worker's storage. Groups that are joined, and each of the others, are cut in pieces
 * by themselves. */
static uint64_t row_in_pieces(const struct model_parameter *parameter, uint32_t row)
{
    uint32_t pieces = parameter->pieces, group = parameter->rows / parameter->split_groups;
    uint32_t joined = parameter->split_joined * group;
    uint32_t begin = row < joined ? 0 : row / group * group;
    uint32_t share = (row < joined ? joined : group) / pieces; /* of a piece */
    return (uint64_t)(row - begin) / share * (parameter->rows / pieces) + begin / pieces +
           (row - begin) % share;
}

uint64_t pieces_row_offset(const struct model *model, uint32_t chunk, uint32_t r)
{
    const struct model_chunk *c = &model->chunks[chunk];
    const struct model_parameter *parameter = &model->parameters[c->parameter];
    uint32_t cols = pieces_cols(parameter);
    uint64_t first = parameter->weights * model->rank; /* of those that are held */
    if (parameter->pieces <= 1)
        return model_row_offset(model, chunk, r);
    if (parameter->split == MODEL_SPLIT_ROWS)
        return row_in_pieces(parameter, c->row + r) * cols + c->col - first;
    return ((uint64_t)(c->col / cols) * parameter->rows + c->row + r) * cols + c->col % cols -
           first;
}

uint32_t pieces_chunk_piece(const struct model *model, uint32_t chunk)
{
    const struct model_chunk *c = &model->chunks[chunk];
    const struct model_parameter *parameter = &model->parameters[c->parameter];
    uint32_t pieces = parameter->pieces;
    if (pieces <= 1)
        return 0;
    return parameter->split == MODEL_SPLIT_ROWS
               ? (uint32_t)(row_in_pieces(parameter, c->row) / (parameter->rows / pieces))
               : c->col / pieces_cols(parameter);
}

uint32_t pieces_chunk_rank(const struct model *model, uint32_t chunk, uint32_t ranks)
{
    uint32_t pieces = model->parameters[model->chunks[chunk].parameter].pieces;
    if (pieces <= 1 || ranks <= 1)
        return 0;
    return (uint32_t)((uint64_t)pieces_chunk_piece(model, chunk) * ranks / pieces);
}
