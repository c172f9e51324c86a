/* A multi-layer perceptron: linear, activation, …, linear, softmax cross-entropy. One unit per
 * linear, with the activation after it or, for the last, the loss. */
#include "worker/model/classifier.h"
#include "worker/model/unit.h"

/* Order of a unit's uses (common/model/model.c). */
enum { WEIGHT, BIAS };

struct dims {
    int64_t N, I, O;
    bool first, last;
};

static struct dims dims(const struct model *model, uint32_t unit, uint32_t samples)
{
    const struct spec_model *settings = &model->settings;
    return (struct dims){.N = samples,
                         .I = settings->sizes[unit],
                         .O = settings->sizes[unit + 1],
                         .first = unit == 0,
                         .last = unit + 2 == settings->sizes_count};
}

static void mlp_sizes(const struct kernels *k, const struct model *model, uint32_t unit,
                      uint32_t samples, uint64_t logits_bytes_max, struct unit_sizes *ret_sizes)
{
    struct dims d = dims(model, unit, samples);
    struct unit_sizes sizes = {0};
    if (d.last)
        sizes.scratch = classifier_scratch_bytes(k, d.N, d.O, logits_bytes_max);
    else
        sizes.output = (uint64_t)(d.N * d.O) * k->element_bytes;
    if (!d.first)
        sizes.dinput = (uint64_t)(d.N * d.I) * k->element_bytes;
    *ret_sizes = sizes;
}

static void head(const struct unit_call *call, struct dims d)
{
    struct classifier c = {
        .N = d.N,
        .C = d.I,
        .V = d.O,
        .Vp = d.O,
        .input = call->input,
        .weight = call->weights[WEIGHT],
        .bias = call->weights[BIAS],
        .dloss = 1.0F,
    };
    if (call->training) {
        c.dinput = d.first ? NULL : call->dinput;
        c.dweight = call->gradients[WEIGHT];
        c.dbias = call->gradients[BIAS];
    }
    classifier(call->k, &c, call->logits_bytes_max, call->targets, call->losses, call->correct,
               call->scratch);
}

static void mlp_forward(const struct unit_call *call)
{
    const struct kernels *k = call->k;
    struct dims d = dims(call->model, call->unit, call->samples);
    if (d.last) {
        head(call, d);
        return;
    }
    k->linear_forward(k, call->output, call->input, call->weights[WEIGHT], call->weights[BIAS], d.N,
                      d.I, d.O);
    if (call->model->settings.activation == SPEC_TANH)
        k->tanh_forward(k, call->output, call->output, d.N * d.O);
    else
        k->relu_forward(k, call->output, call->output, d.N * d.O);
}

static void mlp_backward(const struct unit_call *call)
{
    const struct kernels *k = call->k;
    struct dims d = dims(call->model, call->unit, call->samples);
    if (d.last)
        return; /* all of it is in the forward */
    if (call->model->settings.activation == SPEC_TANH)
        k->tanh_backward(k, call->doutput, call->doutput, call->output, d.N * d.O);
    else
        k->relu_backward(k, call->doutput, call->doutput, call->output, d.N * d.O);
    k->linear_backward_weight(k, call->gradients[WEIGHT], call->gradients[BIAS], call->doutput,
                              call->input, d.N, d.I, d.O);
    if (!d.first)
        k->linear_backward_input(k, call->dinput, call->doutput, call->weights[WEIGHT], d.N, d.I,
                                 d.O);
}

const struct unit_operations unit_mlp = {
    .sizes = mlp_sizes,
    .forward = mlp_forward,
    .backward = mlp_backward,
};
