#include "worker/model/operations.h"

#include "common/elementary.h"
#include "worker/model/classifier.h"

/* ---- what they share ---- */

static uint32_t width(const struct act_arrays *act, uint8_t array)
{
    return act->unit->arrays[array].width;
}

/* Where the gradient of an array is; NULL: nobody wants it. */
static element *gradient(const struct act_arrays *act, uint8_t array)
{
    return act->arrays[act->unit->arrays[array].gradient];
}

static element *weights(const struct act_arrays *act, const struct model_operation *o, uint8_t use)
{
    return use < o->uses_count ? act->call->weights[o->use + use] : NULL;
}

static float *gradients(const struct act_arrays *act, const struct model_operation *o, uint8_t use)
{
    return use < o->uses_count ? act->call->gradients[o->use + use] : NULL;
}

static const struct model_parameter *parameter_of(const struct act_arrays *act,
                                                  const struct model_operation *o)
{
    const struct model *model = act->call->model;
    return &model->parameters[model->uses[act->unit->use_first + o->use].parameter];
}

/* ---- embedding ---- */

static void embedding_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->embedding_forward(k, a->arrays[o->out], a->call->input, weights(a, o, 0), weights(a, o, 1),
                         a->call->samples, a->call->model->sample_tokens, width(a, o->out),
                         parameter_of(a, o)->shape[0]);
}

static void embedding_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->embedding_backward(k, gradients(a, o, 0), gradients(a, o, 1), a->call->input,
                          gradient(a, o->out), a->call->samples, a->call->model->sample_tokens,
                          width(a, o->out), parameter_of(a, o)->shape[0]);
}

/* ---- layernorm: statistics are the means, and from the next whole line on the rstds ---- */

enum { GAMMA, BETA };

static float *rstds(const struct act_arrays *a, const struct model_operation *o)
{
    return a->statistics[o - a->unit->operations] + (a->N + 15) / 16 * 16;
}

static uint32_t layernorm_statistics(const struct model_operation *o)
{
    (void)o;
    return 2;
}

static void layernorm_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->layernorm_forward(k, a->arrays[o->out], a->statistics[o - a->unit->operations], rstds(a, o),
                         a->arrays[o->in], weights(a, o, GAMMA), weights(a, o, BETA), a->N,
                         width(a, o->in));
}

static void layernorm_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->layernorm_backward(k, gradient(a, o->in), gradients(a, o, GAMMA), gradients(a, o, BETA),
                          gradient(a, o->out), a->arrays[o->in],
                          a->statistics[o - a->unit->operations], rstds(a, o), weights(a, o, GAMMA),
                          a->N, width(a, o->in));
}

/* ---- rmsnorm: statistics are the rstds ---- */

static uint32_t rmsnorm_statistics(const struct model_operation *o)
{
    (void)o;
    return 1;
}

static void rmsnorm_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->rmsnorm_forward(k, a->arrays[o->out], a->statistics[o - a->unit->operations],
                       a->arrays[o->in], weights(a, o, GAMMA), a->N, width(a, o->in));
}

static void rmsnorm_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->rmsnorm_backward(k, gradient(a, o->in), gradients(a, o, GAMMA), gradient(a, o->out),
                        a->arrays[o->in], a->statistics[o - a->unit->operations],
                        weights(a, o, GAMMA), a->N, width(a, o->in));
}

/* ---- linear ---- */

enum { WEIGHT, BIAS };

static void linear_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    const element *in = a->arrays[o->in], *weight = weights(a, o, WEIGHT),
                  *bias = weights(a, o, BIAS);
    element *out = a->arrays[o->out];
    uint8_t gelu_of = a->unit->arrays[o->out].gelu_of;
    int64_t I = width(a, o->in), O = width(a, o->out);
    if (gelu_of != MODEL_NO_ARRAY)
        k->linear_gelu_forward(k, out, a->arrays[gelu_of], in, weight, bias, a->N, I, O);
    else if (o->with != MODEL_NO_ARRAY)
        k->linear_add_forward(k, out, a->arrays[o->with], in, weight, bias, a->N, I, O);
    else
        k->linear_forward(k, out, in, weight, bias, a->N, I, O);
}

static void linear_backward_weights(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->linear_backward_weight(k, gradients(a, o, WEIGHT), gradients(a, o, BIAS),
                              gradient(a, o->out), a->arrays[o->in], a->N, width(a, o->in),
                              width(a, o->out));
}

static void linear_backward_input(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    element *din = gradient(a, o->in);
    uint8_t gelu_of = a->unit->arrays[o->in].gelu_of;
    int64_t I = width(a, o->in), O = width(a, o->out);
    if (din == NULL)
        return;
    if (gelu_of != MODEL_NO_ARRAY)
        k->linear_gelu_backward_input(k, din, gradient(a, o->out), weights(a, o, WEIGHT),
                                      a->arrays[gelu_of], a->N, I, O);
    else
        k->linear_backward_input(k, din, gradient(a, o->out), weights(a, o, WEIGHT), a->N, I, O);
}

/* ---- rope, in place ---- */

/* Channels of a head: `in` has the heads of queries, keys and values. */
static int64_t head_channels(const struct act_arrays *a, const struct model_operation *o)
{
    return width(a, o->in) / (o->heads + 2 * o->kv_heads);
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
    k->rope_forward(k, a->arrays[o->in], &rope, a->call->samples, a->call->model->sample_tokens,
                    head_channels(a, o) * o->heads, o->heads, o->kv_heads);
}

static void rope_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    const struct kernels_rope rope = rope_of(a, o);
    k->rope_backward(k, gradient(a, o->in), &rope, a->call->samples, a->call->model->sample_tokens,
                     head_channels(a, o) * o->heads, o->heads, o->kv_heads);
}

/* ---- attention: statistics are the logarithms of each row's sum ---- */

static uint32_t attention_statistics(const struct model_operation *o)
{
    return o->heads;
}

static uint64_t attention_scratch_bytes(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    return k->attention_scratch_bytes(k, a->call->model->sample_tokens, width(a, o->out), o->heads);
}

static void attention_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->attention_forward(k, a->arrays[o->out], a->statistics[o - a->unit->operations], a->scratch,
                         a->arrays[o->in], true, a->call->samples, a->call->model->sample_tokens,
                         width(a, o->out), o->heads, o->kv_heads);
}

static void attention_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->attention_backward(k, gradient(a, o->in), a->scratch, gradient(a, o->out), a->arrays[o->out],
                          a->statistics[o - a->unit->operations], a->arrays[o->in], true,
                          a->call->samples, a->call->model->sample_tokens, width(a, o->out),
                          o->heads, o->kv_heads);
}

/* ---- activations: swiglu, and two in place ---- */

static void swiglu_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->swiglu_forward(k, a->arrays[o->out], a->arrays[o->in], a->N, width(a, o->out));
}

static void swiglu_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->swiglu_backward(k, gradient(a, o->in), gradient(a, o->out), a->arrays[o->in], a->N,
                       width(a, o->out));
}

static void relu_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->relu_forward(k, a->arrays[o->out], a->arrays[o->in], a->N * width(a, o->out));
}

static void relu_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->relu_backward(k, gradient(a, o->in), gradient(a, o->out), a->arrays[o->out],
                     a->N * width(a, o->out));
}

static void tanh_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->tanh_forward(k, a->arrays[o->out], a->arrays[o->in], a->N * width(a, o->out));
}

static void tanh_backward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct kernels *k = a->call->k;
    k->tanh_backward(k, gradient(a, o->in), gradient(a, o->out), a->arrays[o->out],
                     a->N * width(a, o->out));
}

/* ---- classifier ---- */

static uint64_t classifier_bytes(const struct act_arrays *a, const struct model_operation *o)
{
    return classifier_scratch_bytes(a->call->k, a->N, parameter_of(a, o)->rows,
                                    a->call->logits_bytes_max);
}

static void classifier_forward(const struct act_arrays *a, const struct model_operation *o)
{
    const struct unit_call *call = a->call;
    struct classifier c = {
        .N = a->N,
        .C = width(a, o->in),
        .V = parameter_of(a, o)->shape[0],
        .Vp = parameter_of(a, o)->rows,
        .input = a->arrays[o->in],
        .weight = weights(a, o, WEIGHT),
        .bias = weights(a, o, BIAS),
        .dloss = (float)(1.0 / call->model->sample_tokens),
    };
    if (call->training) {
        c.dinput = gradient(a, o->in);
        c.dweight = gradients(a, o, WEIGHT);
        c.dbias = gradients(a, o, BIAS);
    }
    classifier(call->k, &c, call->logits_bytes_max, call->targets, call->losses, call->correct,
               a->scratch);
}

void operation_logits(const struct act_arrays *a, const struct model_operation *o, element *logits)
{
    const struct kernels *k = a->call->k;
    k->linear_forward(k, logits, a->arrays[o->in], weights(a, o, WEIGHT), weights(a, o, BIAS), a->N,
                      width(a, o->in), parameter_of(a, o)->rows);
}

const struct operation_code operation_codes[MODEL_OPERATIONS_COUNT] = {
    [MODEL_EMBEDDING] = {embedding_forward, embedding_backward, NULL, NULL, NULL},
    [MODEL_LAYERNORM] = {layernorm_forward, NULL, layernorm_backward, layernorm_statistics, NULL},
    [MODEL_RMSNORM] = {rmsnorm_forward, NULL, rmsnorm_backward, rmsnorm_statistics, NULL},
    [MODEL_LINEAR] = {linear_forward, linear_backward_weights, linear_backward_input, NULL, NULL},
    [MODEL_ROPE] = {rope_forward, NULL, rope_backward, NULL, NULL},
    [MODEL_ATTENTION] = {attention_forward, NULL, attention_backward, attention_statistics,
                         attention_scratch_bytes},
    [MODEL_SWIGLU] = {swiglu_forward, NULL, swiglu_backward, NULL, NULL},
    [MODEL_RELU] = {relu_forward, NULL, relu_backward, NULL, NULL},
    [MODEL_TANH] = {tanh_forward, NULL, tanh_backward, NULL, NULL},
    [MODEL_CLASSIFIER] = {classifier_forward, NULL, NULL, NULL, classifier_bytes},
};
