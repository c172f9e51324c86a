#include "worker/model/operations.h"

#include "common/elementary.h"
#include "worker/few_rows.h"
#include "worker/model/classifier.h"
#include "worker/model/norms.h"
#include "worker/model/piece_sum.h"
#include "worker/model/ranges.h"

/* ---- what they share ---- */

static const struct model_parameter *parameter_of(const struct act_arrays *act,
                                                  const struct model_operation *o)
{
    const struct model *model = act->call->model;
    return &model->parameters[model->uses[act->unit->use_first + o->use].parameter];
}

/* Of an array whose gradient somebody wants. */
static bool wants_gradient(const struct act_arrays *act, uint8_t array)
{
    uint8_t at = act->unit->arrays[array].gradient;
    return at != MODEL_NO_ARRAY && (at != MODEL_DIN || act->unit->din != MODEL_DIN_ABSENT);
}

/* How many members have pieces of it: 1 when it is whole. */
static uint32_t members(const struct act_arrays *act, bool split)
{
    return split ? act->call->model->ranks : 1;
}

/* The sum over all pieces, of which this member's are in the array; or its own ranges of the sum. */
static void sum_members(const struct act_arrays *act, element *array, int64_t n)
{
    const struct unit_exchange *exchange = act->call->exchange;
    if (members(act, true) > 1)
        exchange->sum(exchange->context, array, n);
}

/* ---- embedding: a row of the table is copied from the member that has it ---- */

struct table {
    int64_t first, rows; /* that are here, with padding */
    int64_t V;           /* all of them, without */
    uint32_t members;    /* that have some */
};

static struct table table_of(const struct act_arrays *a, const struct model_operation *o)
{
    const struct model_parameter *parameter = parameter_of(a, o);
    uint32_t count = members(a, parameter->pieces > 1);
    int64_t rows = parameter->rows / count;
    return (struct table){a->call->model->rank * rows * (count > 1), rows, parameter->shape[0],
                          count};
}

static void embedding_exchange(const struct act_arrays *a, const struct model_operation *o)
{
    const struct unit_exchange *exchange = a->call->exchange;
    if (table_of(a, o).members > 1)
        exchange->merge(exchange->context, ranges_all(a, o->out), a->N * act_width(a, o->out));
}

static void embedding_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    const struct table table = table_of(a, o);
    int64_t T = a->call->model->sample_tokens, C = act_width(a, o->out);
    element *out = a->arrays[o->out], *all = ranges_all(a, o->out);
    k->embedding_forward(k, all, a->call->input, act_weights(a, o, 0), act_weights(a, o, 1),
                         a->call->samples, T, C, table.first, table.rows, table.V);
    embedding_exchange(a, o);
    if (all != out)
        k->copy(k, out, ranges_own(a, all, C),
                (size_t)(ranges_rows(a, o->out) * C) * k->element_bytes);
}

static uint64_t embedding_scratch_bytes(const struct act_arrays *a, const struct model_operation *o)
{
    return ranges_all_bytes(a, o->out);
}

static void embedding_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    struct few_rows *few = a->call->few;
    struct table table = table_of(a, o);
    const int32_t *tokens = a->call->input;
    float *gradient = act_gradients(a, o, 0);
    if (few != NULL) { /* which is a table too: a token's row is at its place */
        table = (struct table){.rows = few->max, .V = few->max};
        tokens = few_rows_places(few, tokens, a->N);
        gradient = few->values;
    }
    k->embedding_backward(k, gradient, act_gradients(a, o, 1), tokens, act_gradient(a, o->out),
                          a->call->samples, a->call->model->sample_tokens, act_width(a, o->out),
                          table.first, table.rows, table.V);
}

/* ---- linear, in pieces or as a whole (common/model/pieces.h) ---- */

enum { WEIGHT, BIAS };

static uint32_t pieces(const struct act_arrays *act, uint8_t array)
{
    return act->unit->arrays[array].pieces;
}

/* The products of a linear that are made here: how many, of which shape, and how far the arrays of
 * one are from those of the next, in elements. By rows all have one input, by columns one output,
 * their sum. */
struct products {
    const struct act_arrays *act;
    const struct model_operation *operation;
    bool by_rows, by_cols; /* neither: the linear is whole */
    uint32_t count;
    int64_t I, O;
    int64_t in, out, weight, bias;
};

static struct products products_of(const struct act_arrays *a, const struct model_operation *o)
{
    const struct model_array *arrays = a->unit->arrays;
    struct products p = {a, o, .by_rows = arrays[o->out].split, .by_cols = arrays[o->in].split};
    check(!p.by_rows || !p.by_cols);
    p.count = pieces(a, p.by_rows ? o->out : o->in);
    p.I = act_width(a, o->in) / pieces(a, o->in);
    p.O = act_width(a, o->out) / pieces(a, o->out);
    p.weight = p.I * p.O;
    if (p.by_cols)
        p.in = a->N * p.I;
    if (p.by_rows) {
        p.out = a->N * p.O;
        p.bias = p.O;
    }
    return p;
}

/* The array from an element on; NULL stays NULL. */
static element *from(const struct products *p, const element *array, int64_t index)
{
    return array != NULL ? kernels_at(p->act->call->k, array, index) : NULL;
}

static void product_forward(const void *context, uint32_t piece, element *out)
{
    const struct products *p = context;
    const struct act_arrays *a = p->act;
    const struct model_operation *o = p->operation;
    a->call->k->linear_forward(a->call->k, out, from(p, a->arrays[o->in], piece * p->in),
                               from(p, act_weights(a, o, WEIGHT), piece * p->weight), NULL, a->N,
                               p->I, p->O);
}

static void product_backward(const void *context, uint32_t piece, element *din)
{
    const struct products *p = context;
    const struct act_arrays *a = p->act;
    const struct model_operation *o = p->operation;
    a->call->k->linear_backward_input(
        a->call->k, din, from(p, act_gradient(a, o->out), piece * p->out),
        from(p, act_weights(a, o, WEIGHT), piece * p->weight), a->N, p->I, p->O);
}

/* One product, with all that follows it. */
static void forward_alone(const struct products *p, uint32_t piece)
{
    const struct act_arrays *a = p->act;
    const struct kernels *k = a->call->k;
    const struct model_operation *o = p->operation;
    const element *in = a->arrays[o->in],
                  *weight = from(p, act_weights(a, o, WEIGHT), piece * p->weight),
                  *bias = from(p, act_weights(a, o, BIAS), piece * p->bias);
    element *out = from(p, a->arrays[o->out], piece * p->out);
    uint8_t gelu_of = a->unit->arrays[o->out].gelu_of;
    if (gelu_of != MODEL_NO_ARRAY)
        k->linear_gelu_forward(k, out, from(p, a->arrays[gelu_of], piece * p->out), in, weight,
                               bias, a->N, p->I, p->O);
    else if (o->with != MODEL_NO_ARRAY)
        k->linear_add_forward(k, out, a->arrays[o->with], in, weight, bias, a->N, p->I, p->O);
    else
        k->linear_forward(k, out, in, weight, bias, a->N, p->I, p->O);
}

static void linear_exchange_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct products p = products_of(a, o);
    if (p.by_cols)
        sum_members(a, ranges_all(a, o->out), a->N * p.O);
}

/* By columns: first the sum of the pieces, then what follows it, of the ranges that are here. */
static void forward_by_cols(const struct products *p)
{
    const struct act_arrays *a = p->act;
    const struct kernels *k = a->call->k;
    const struct model_operation *o = p->operation;
    element *out = a->arrays[o->out], *all = ranges_all(a, o->out);
    const element *bias = act_weights(a, o, BIAS);
    uint8_t *scratch = (uint8_t *)a->scratch + ranges_all_bytes(a, o->out);
    piece_sum(k, all, scratch, p->count, a->N * p->O, product_forward, p);
    linear_exchange_forward(a, o);
    if (all != out || bias != NULL || o->with != MODEL_NO_ARRAY)
        k->linear_finish(k, out, a->arrays[o->with], ranges_own(a, all, p->O), bias,
                         ranges_rows(a, o->out), p->O);
}

static void linear_forward(const struct act_arrays *a, const struct model_operation *o)
{
    struct products p = products_of(a, o);
    if (p.by_cols) {
        check(a->unit->arrays[o->out].gelu_of == MODEL_NO_ARRAY);
        forward_by_cols(&p);
        return;
    }
    check(!p.by_rows || o->with == MODEL_NO_ARRAY);
    for (uint32_t piece = 0; piece < p.count; piece++)
        forward_alone(&p, piece);
}

/* The bias of what is summed over pieces has one gradient: the first piece adds it, of each member. */
static void linear_backward_weights(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    struct products p = products_of(a, o);
    for (uint32_t piece = 0; piece < p.count; piece++) {
        float *bias = act_gradients(a, o, BIAS);
        bool has_bias = bias != NULL && (!p.by_cols || piece == 0);
        k->linear_backward_weight(k, act_gradients(a, o, WEIGHT) + piece * p.weight,
                                  has_bias ? bias + piece * p.bias : NULL,
                                  from(&p, act_gradient(a, o->out), piece * p.out),
                                  from(&p, a->arrays[o->in], piece * p.in), a->N, p.I, p.O);
    }
}

static void linear_exchange_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct products p = products_of(a, o);
    if (p.by_rows && wants_gradient(a, o->in))
        sum_members(a, act_gradient(a, o->in), a->N * p.I);
}

static void linear_backward_input(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    struct products p = products_of(a, o);
    element *din = act_gradient(a, o->in);
    uint8_t gelu_of = a->unit->arrays[o->in].gelu_of;
    if (!wants_gradient(a, o->in))
        return;
    if (p.by_rows) {
        check(gelu_of == MODEL_NO_ARRAY);
        piece_sum(k, din, a->scratch, p.count, a->N * p.I, product_backward, &p);
        linear_exchange_backward(a, o);
        return;
    }
    for (uint32_t piece = 0; piece < p.count; piece++)
        if (gelu_of != MODEL_NO_ARRAY)
            k->linear_gelu_backward_input(k, from(&p, din, piece * p.in), act_gradient(a, o->out),
                                          from(&p, act_weights(a, o, WEIGHT), piece * p.weight),
                                          from(&p, a->arrays[gelu_of], piece * p.in), a->N, p.I,
                                          p.O);
        else
            product_backward(&p, piece, from(&p, din, piece * p.in));
}

static uint64_t linear_scratch_bytes(const struct act_arrays *a, const struct model_operation *o)
{
    struct products p = products_of(a, o);
    return ranges_all_bytes(a, o->out) +
           piece_sum_bytes(a->call->k, p.count, a->N * (p.by_rows ? p.I : p.O));
}

/* ---- rope, in place ---- */

/* Channels of a head: `in` has the heads of queries, keys and values. */
static int64_t head_channels(const struct act_arrays *a, const struct model_operation *o)
{
    return act_width(a, o->in) / (o->heads + 2 * o->kv_heads);
}

/* A piece's heads: pieces lie one after another, as samples do. */
struct heads {
    int64_t B, H, G;
};

static struct heads heads_of(const struct act_arrays *a, const struct model_operation *o)
{
    int64_t p = pieces(a, o->in);
    return (struct heads){p * a->call->samples, o->heads / p, o->kv_heads / p};
}

/* Pair i turns by base^(-2i/S) radians a position (Su et al. 2021, section 3.2.2). */
static struct kernels_rope rope_of(const struct act_arrays *a, const struct model_operation *o)
{
    static const double circles_per_radian = 0x1.45f306dc9c883p-3; /* 1 / 2 pi */
    struct kernels_rope rope = {.high = {0}};
    int64_t S = head_channels(a, o);
    double log_base = elementary_log(o->rope_base);
    check(S / 2 <= KERNELS_ROPE_PAIRS_MAX);
    for (int64_t i = 0; i < S / 2; i++) {
        double radians = elementary_exp(-2.0 * (double)i / (double)S * log_base);
        double circles = radians * circles_per_radian;
        rope.high[i] = (float)circles;
        rope.low[i] = (float)(circles - (double)rope.high[i]);
    }
    return rope;
}

static void rope_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    const struct kernels_rope rope = rope_of(a, o);
    const struct heads h = heads_of(a, o);
    k->rope_forward(k, a->arrays[o->in], &rope, h.B, a->call->model->sample_tokens,
                    head_channels(a, o) * h.H, h.H, h.G);
}

static void rope_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    const struct kernels_rope rope = rope_of(a, o);
    const struct heads h = heads_of(a, o);
    k->rope_backward(k, act_gradient(a, o->in), &rope, h.B, a->call->model->sample_tokens,
                     head_channels(a, o) * h.H, h.H, h.G);
}

/* ---- attention: statistics are the logarithms of each row's sum ---- */

static uint32_t attention_statistics(const struct model_operation *o)
{
    return o->heads;
}

static uint64_t attention_scratch_bytes(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    return k->attention_scratch_bytes(k, a->call->model->sample_tokens,
                                      act_width(a, o->out) / pieces(a, o->out), heads_of(a, o).H);
}

static void attention_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    const struct heads h = heads_of(a, o);
    k->attention_forward(k, a->arrays[o->out], act_statistics(a, o), a->scratch, a->arrays[o->in],
                         true, h.B, a->call->model->sample_tokens,
                         act_width(a, o->out) / pieces(a, o->out), h.H, h.G);
}

static void attention_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    const struct heads h = heads_of(a, o);
    k->attention_backward(k, act_gradient(a, o->in), a->scratch, act_gradient(a, o->out),
                          a->arrays[o->out], act_statistics(a, o), a->arrays[o->in], true, h.B,
                          a->call->model->sample_tokens, act_width(a, o->out) / pieces(a, o->out),
                          h.H, h.G);
}

/* ---- activations: swiglu, whose pieces lie as rows do, and two in place ---- */

static void swiglu_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    int64_t p = pieces(a, o->out);
    k->swiglu_forward(k, a->arrays[o->out], a->arrays[o->in], p * a->N, act_width(a, o->out) / p);
}

static void swiglu_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    int64_t p = pieces(a, o->out);
    k->swiglu_backward(k, act_gradient(a, o->in), act_gradient(a, o->out), a->arrays[o->in],
                       p * a->N, act_width(a, o->out) / p);
}

static void relu_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->relu_forward(k, a->arrays[o->out], a->arrays[o->in], a->N * act_width(a, o->out));
}

static void relu_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->relu_backward(k, act_gradient(a, o->in), act_gradient(a, o->out), a->arrays[o->out],
                     a->N * act_width(a, o->out));
}

static void tanh_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->tanh_forward(k, a->arrays[o->out], a->arrays[o->in], a->N * act_width(a, o->out));
}

static void tanh_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->tanh_backward(k, act_gradient(a, o->in), act_gradient(a, o->out), a->arrays[o->out],
                     a->N * act_width(a, o->out));
}

/* ---- classifier ---- */

static struct classifier classifier_of(const struct act_arrays *a, const struct model_operation *o)
{
    return (struct classifier){.N = a->N,
                               .C = act_width(a, o->in),
                               .V = parameter_of(a, o)->shape[0],
                               .Vp = parameter_of(a, o)->rows,
                               .pieces = parameter_of(a, o)->pieces,
                               .rank = a->call->model->rank,
                               .ranks = members(a, parameter_of(a, o)->pieces > 1),
                               .ranged = ranges_members(a) > 1,
                               .exchange = a->call->exchange};
}

static uint64_t classifier_bytes(const struct act_arrays *a, const struct model_operation *o)
{
    const struct classifier c = classifier_of(a, o);
    return classifier_scratch_bytes(a->call->k, &c, a->call->logits_bytes_max);
}

static void classifier_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct unit_call *call = a->call;
    struct classifier c = classifier_of(a, o);
    c.input = a->arrays[o->in];
    c.weight = act_weights(a, o, WEIGHT);
    c.bias = act_weights(a, o, BIAS);
    c.dloss = (float)(1.0 / call->model->sample_tokens);
    if (call->training) {
        c.dinput = act_gradient(a, o->in);
        c.dweight = act_gradients(a, o, WEIGHT);
        c.dbias = act_gradients(a, o, BIAS);
    }
    classifier(call->k, &c, call->logits_bytes_max, call->targets, call->losses, call->correct,
               a->scratch);
}

static void classifier_exchange_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct classifier c = classifier_of(a, o);
    bool has_dinput = a->call->training && wants_gradient(a, o->in);
    classifier_exchange(a->call->k, &c, a->call->logits_bytes_max, has_dinput);
}

void operation_logits(const struct act_arrays *a, const struct model_operation *o, element *logits)
{
    const struct kernels *k = a->call->k;
    check(parameter_of(a, o)->pieces == 1);
    k->linear_forward(k, logits, a->arrays[o->in], act_weights(a, o, WEIGHT),
                      act_weights(a, o, BIAS), a->N, act_width(a, o->in), parameter_of(a, o)->rows);
}

const struct operation_code operation_codes[MODEL_OPERATIONS_COUNT] = {
    [MODEL_EMBEDDING] = {.forward = embedding_forward,
                         .backward_weights = embedding_backward,
                         .scratch_bytes = embedding_scratch_bytes,
                         .exchange_forward = embedding_exchange},
    [MODEL_LAYERNORM] = {.forward = norms_layer_forward,
                         .backward_input = norms_layer_backward,
                         .statistics = norms_layer_statistics,
                         .exchange_forward = norms_exchange_forward},
    [MODEL_RMSNORM] = {.forward = norms_rms_forward,
                       .backward_input = norms_rms_backward,
                       .statistics = norms_rms_statistics,
                       .exchange_forward = norms_exchange_forward},
    [MODEL_LINEAR] = {.forward = linear_forward,
                      .backward_weights = linear_backward_weights,
                      .backward_input = linear_backward_input,
                      .scratch_bytes = linear_scratch_bytes,
                      .exchange_forward = linear_exchange_forward,
                      .exchange_backward = linear_exchange_backward},
    [MODEL_ROPE] = {.forward = rope_forward, .backward_input = rope_backward},
    [MODEL_ATTENTION] = {.forward = attention_forward,
                         .backward_input = attention_backward,
                         .statistics = attention_statistics,
                         .scratch_bytes = attention_scratch_bytes},
    [MODEL_SWIGLU] = {.forward = swiglu_forward, .backward_input = swiglu_backward},
    [MODEL_RELU] = {.forward = relu_forward, .backward_input = relu_backward},
    [MODEL_TANH] = {.forward = tanh_forward, .backward_input = tanh_backward},
    [MODEL_CLASSIFIER] = {.forward = classifier_forward,
                          .scratch_bytes = classifier_bytes,
                          .exchange_forward = classifier_exchange_forward},
};
