/* A multi-layer perceptron: linear, activation, …, linear, softmax cross-entropy. One unit per
 * linear, with the activation after it or, for the last, the loss. */
#include "common/model/kind.h"

static struct model_sample sample(const struct spec_model *settings)
{
    return (struct model_sample){.inputs = settings->sizes[0],
                                 .predictions = 1,
                                 .classes = settings->sizes[settings->sizes_count - 1]};
}

static void compute_linear(struct model *model, uint32_t index)
{
    const struct spec_model *settings = &model->settings;
    bool last = index + 2 == settings->sizes_count;
    const struct model_operation head = {MODEL_CLASSIFIER, .in = MODEL_IN, .uses_count = 2};
    const struct model_operation linear[] = {
        {MODEL_LINEAR, .in = MODEL_IN, .out = MODEL_OUT, .uses_count = 2},
        {settings->activation == SPEC_TANH ? MODEL_TANH : MODEL_RELU, .in = MODEL_OUT,
         .out = MODEL_OUT},
    };
    kind_compute(model, &(struct kind_program){
                            .input_width = settings->sizes[index],
                            .output_width = last ? 0 : settings->sizes[index + 1],
                            .din = index == 0 ? MODEL_DIN_ABSENT : MODEL_DIN_SET,
                            .operations = last ? &head : linear,
                            .operations_count = last ? 1 : 2,
                        });
}

/* He et al. (arXiv:1502.01852, eq. 10) for relu; half the variance for tanh, which does not halve
 * its input's. Linears alternate between splits of rows and of columns, so that a pair needs one
 * reduction (Megatron-LM, arXiv:1909.08053, section 3). */
static void add_linear(struct model *model, uint32_t index)
{
    uint32_t inputs = model->settings.sizes[index], outputs = model->settings.sizes[index + 1];
    struct model_unit *unit = kind_begin_unit(model, 2.0 * inputs * outputs);
    snprintf(unit->name, sizeof unit->name, "fc%u", index + 1);
    double gain = model->settings.activation == SPEC_RELU ? 2 : 1;

    struct model_parameter *weight = kind_add(model, outputs, inputs);
    snprintf(weight->name, sizeof weight->name, "fc%u.weight", index + 1);
    weight->split = index % 2 == 0 ? MODEL_SPLIT_ROWS : MODEL_SPLIT_COLS;
    kind_start_normal(weight, kind_root(gain / inputs));
    kind_add_tensor(model);

    struct model_parameter *bias = kind_add(model, outputs, 0);
    snprintf(bias->name, sizeof bias->name, "fc%u.bias", index + 1);
    bias->split = index % 2 == 0 ? MODEL_SPLIT_ROWS : MODEL_SPLIT_NONE;
    kind_add_tensor(model);
    compute_linear(model, index);
}

static enum err describe(struct model *model)
{
    uint32_t linears = model->settings.sizes_count - 1;
    TRY(kind_reserve(model, (struct kind_counts){.parameters = 2 * linears + 1,
                                                 .units = linears,
                                                 .uses = 2 * linears + 1,
                                                 .tensors = 2 * linears}));
    for (uint32_t i = 0; i < linears; i++)
        add_linear(model, i);
    kind_add_loss(model);
    return ERR_OK;
}

const struct kind kind_mlp = {
    .sample = sample,
    .describe = describe,
    .files = {.prefix = ""},
};
