#include "tests/sim/compute.h"

#include "common/clip.h"
#include "common/digest.h"
#include "common/model/pieces.h"
#include "tests/models.h"

#include <math.h> /* INFINITY, NAN: macros */
#include <string.h>

enum { LANES = 16 /* of a sum of squares, as worker/whole.c */ };

/* ---- life ---- */

static void name_places(struct compute *compute)
{
    const struct model *model = &compute->model;
    uint32_t weights = 0, pieces = 0, gradients = 0;
    for (uint32_t c = 0; c < model->chunks_count; c++) {
        compute->weights_first[c] = weights;
        compute->piece_first[c] = pieces;
        weights += model->chunks[c].weights;
        for (uint32_t p = 0; p < model->parameters[model->chunks[c].parameter].parts; p++) {
            compute->gradient_first[pieces++] = gradients;
            gradients += model->chunks[c].weights;
        }
    }
    compute->weights_first[model->chunks_count] = weights;
    compute->gradient_first[pieces] = gradients;
}

static enum err read_samples(void *context, enum ticket_kind kind, uint64_t first, uint32_t count,
                             void *ret_inputs, int32_t *ret_targets)
{
    const struct compute *compute = context;
    const struct model_sample about = model_sample(&compute->scenario->spec.model);
    uint32_t inputs = about.inputs, classes = about.classes;
    for (uint32_t i = 0; i < count; i++) {
        struct rand_state random = {(first + i) * 1000 + kind};
        for (uint32_t j = 0; j < inputs; j++) {
            if (about.tokens)
                ((int32_t *)ret_inputs)[i * inputs + j] = (int32_t)rand_below(&random, classes);
            else
                ((float *)ret_inputs)[i * inputs + j] = (float)rand_unit(&random) - 0.5F;
        }
        for (uint32_t j = 0; j < compute->model.sample_tokens; j++)
            *ret_targets++ = (int32_t)rand_below(&random, classes);
    }
    return ERR_OK;
}

struct executor_samples compute_samples(const struct compute *compute)
{
    return (struct executor_samples){(void *)(uintptr_t)compute, read_samples,
                                     compute->scenario->validation_samples};
}

static void open_executor(struct compute *compute)
{
    struct spec_train train = compute->scenario->spec.train;
    struct reason reason = {.text = ""};
    const struct executor_options options = {
        .kernels = compute->kernels,
        .model = &compute->model,
        .train = &train,
        .node_slots_max = train.slots,
        .local = local_settings_of(&compute->scenario->spec),
    };
    train.residency = (struct spec_residency){.weights = SPEC_RESIDENT}; /* load() writes them */
    check(executor_new(&options, &compute->executor, &reason) == ERR_OK);
}

void compute_init(struct compute *compute, const struct scenario *scenario,
                  const struct kernels *kernels)
{
    *compute = (struct compute){.scenario = scenario, .kernels = kernels};
    struct model *model = &compute->model;
    scenario_model(scenario, model);
    for (uint32_t c = 0; c < model->chunks_count; c++)
        compute->piece_count += model->parameters[model->chunks[c].parameter].parts;
    compute->weights_first = calloc(model->chunks_count + 1, sizeof(uint32_t));
    compute->piece_first = calloc(model->chunks_count, sizeof(uint32_t));
    compute->gradient_first = calloc(compute->piece_count + 1, sizeof(uint32_t));
    check(compute->weights_first && compute->piece_first && compute->gradient_first);
    name_places(compute);
    compute->scratch =
        calloc((size_t)(TREE_LEVEL_MAX + 1) * compute_gradients_count(compute), sizeof(float));
    check(compute->scratch != NULL);
    if (scenario->executor)
        open_executor(compute);
}

void compute_release(struct compute *compute)
{
    executor_free(compute->executor);
    model_release(&compute->model);
    free(compute->weights_first);
    free(compute->piece_first);
    free(compute->gradient_first);
    free(compute->scratch);
}

uint32_t compute_weights_count(const struct compute *compute)
{
    return compute->weights_first[compute->model.chunks_count];
}

uint32_t compute_gradients_count(const struct compute *compute)
{
    return compute->gradient_first[compute->piece_count];
}

float *compute_loss_of(const struct compute *compute, float *gradients)
{
    const struct model *model = &compute->model;
    uint32_t chunk = model->parameters[model->loss_parameter].chunk_first;
    return gradients + compute->gradient_first[compute->piece_first[chunk]];
}

/* ---- made-up numbers of a unit ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    struct rand_state random = {a};
    random.state = rand_next(&random) ^ b;
    return rand_next(&random);
}

/* What is whole is the first member's. */
uint64_t compute_unit_share(const struct compute *compute, uint32_t number,
                            const struct model *share, const float *weights)
{
    const struct model *model = &compute->model;
    const struct model_unit *unit = &model->units[number];
    uint64_t sum = 0;
    for (uint32_t use = unit->use_first; use < unit->use_first + unit->uses_count; use++) {
        const struct model_parameter *parameter = &model->parameters[model->uses[use].parameter];
        if (model->uses[use].parameter == model->loss_parameter)
            continue; /* it is no weight */
        for (uint32_t i = 0; i < parameter->chunks_count; i++) {
            uint32_t chunk = parameter->chunk_first + i, first = compute->weights_first[chunk];
            uint32_t count = compute->weights_first[chunk + 1] - first;
            const struct slice bytes = {(const uint8_t *)(weights + first),
                                        count * sizeof *weights};
            if (pieces_chunk_rank(model, chunk, share->ranks) == share->rank)
                sum += mix(chunk, digest_fast64(bytes));
        }
    }
    return sum;
}

uint64_t compute_unit_of_shares(uint32_t unit, uint64_t sum)
{
    return mix(unit, sum);
}

uint64_t compute_unit_weights(const struct compute *compute, uint32_t unit, const float *weights)
{
    return compute_unit_of_shares(unit,
                                  compute_unit_share(compute, unit, &compute->model, weights));
}

uint64_t compute_sample(enum ticket_kind kind, uint64_t slot, uint32_t microbatch)
{
    return mix(mix(kind, slot), microbatch);
}

uint64_t compute_forward(uint64_t weights, uint64_t input)
{
    return mix(weights, input);
}

uint64_t compute_backward(uint64_t weights, uint64_t input, uint64_t doutput)
{
    return mix(mix(weights, input), doutput);
}

uint64_t compute_add(uint64_t sum, uint64_t input, uint64_t doutput)
{
    return mix(mix(sum, input), doutput);
}

/* The chunks of a use: their gradients begin there. */
static float *piece_of(const struct compute *compute, const struct model_use *use, uint32_t chunk,
                       float *gradients)
{
    return gradients + compute->gradient_first[compute->piece_first[chunk] + use->part];
}

/* The unit's gradient of a slot, made up from these bits. The last unit's has the losses. */
static void make_up(const struct compute *compute, uint32_t number, uint64_t bits,
                    float *ret_gradients)
{
    const struct model *model = &compute->model;
    const struct spec *spec = &compute->scenario->spec;
    const struct model_unit *unit = &model->units[number];
    struct rand_state random = {bits};
    for (uint32_t u = unit->use_first; u < unit->use_first + unit->uses_count; u++) {
        const struct model_parameter *parameter = &model->parameters[model->uses[u].parameter];
        for (uint32_t c = 0; c < parameter->chunks_count; c++) {
            uint32_t chunk = parameter->chunk_first + c;
            float *values = piece_of(compute, &model->uses[u], chunk, ret_gradients);
            /* Half of an embedding's chunks have none of the slot's tokens. */
            bool none = number == 0 && parameter->parts > 1 && rand_below(&random, 2) == 0;
            for (uint32_t i = 0; i < model->chunks[chunk].weights; i++)
                values[i] = none ? 0 : (float)(rand_unit(&random) - 0.5);
        }
    }
    if (number + 1 < model->units_count)
        return;
    float *loss = compute_loss_of(compute, ret_gradients);
    loss[MODEL_LOSS_SUM] = (float)rand_unit(&random) * (float)spec->train.slot_samples;
    loss[MODEL_LOSS_COUNT] = (float)spec_slot_samples(spec);
    loss[MODEL_LOSS_CORRECT] = (float)rand_below(&random, spec->train.slot_samples + 1);
    loss[MODEL_LOSS_RESERVED] = 0;
}

static void add_unit(const struct compute *compute, uint32_t number, float *gradients,
                     float *others)
{
    const struct model *model = &compute->model;
    const struct model_unit *unit = &model->units[number];
    for (uint32_t u = unit->use_first; u < unit->use_first + unit->uses_count; u++) {
        const struct model_parameter *parameter = &model->parameters[model->uses[u].parameter];
        for (uint32_t c = 0; c < parameter->chunks_count; c++) {
            uint32_t chunk = parameter->chunk_first + c;
            float *values = piece_of(compute, &model->uses[u], chunk, gradients);
            compute->kernels->add(compute->kernels, values, values,
                                  piece_of(compute, &model->uses[u], chunk, others),
                                  model->chunks[chunk].weights);
        }
    }
}

/* In tree order. */
static void add_slots(const struct compute *compute, uint32_t unit, struct node node,
                      const struct compute_slots *slots, float *ret_gradients)
{
    if (node.level == 0) {
        uint32_t slot = node.index - slots->first;
        make_up(compute, unit, slots->bits[slot * compute->model.units_count + unit],
                ret_gradients);
        return;
    }
    struct node left = {node.level - 1, 2 * node.index}, right = {node.level - 1, left.index + 1};
    add_slots(compute, unit, left, slots, ret_gradients);
    if (node_slots(right, compute->scenario->spec.train.slots) == 0)
        return;
    float *other = compute->scratch + (size_t)right.level * compute_gradients_count(compute);
    add_slots(compute, unit, right, slots, other);
    add_unit(compute, unit, ret_gradients, other);
}

/* Whether that is one of the unit's gradients. */
static bool has_value(const struct compute *compute, uint32_t number, float *gradients,
                      const float *value)
{
    const struct model *model = &compute->model;
    const struct model_unit *unit = &model->units[number];
    bool has = false;
    for (uint32_t u = unit->use_first; u < unit->use_first + unit->uses_count; u++) {
        const struct model_parameter *parameter = &model->parameters[model->uses[u].parameter];
        for (uint32_t c = 0; c < parameter->chunks_count; c++) {
            uint32_t chunk = parameter->chunk_first + c;
            const float *first = piece_of(compute, &model->uses[u], chunk, gradients);
            has = has || (value >= first && value < first + model->chunks[chunk].weights);
        }
    }
    return has;
}

enum { WHOLE = UINT32_MAX };

/* Not finite anywhere but in the loss. */
static void spoil(const struct compute *compute, uint32_t unit, uint64_t step, struct node node,
                  float *gradients)
{
    uint32_t bad_slot;
    if (!scenario_bad(compute->scenario, step, &bad_slot) || bad_slot < node_first(node) ||
        bad_slot >= node_end(node))
        return;
    const float *loss = compute_loss_of(compute, gradients);
    struct rand_state random = {compute->scenario->seed + step};
    float *value = &gradients[rand_below(&random, (uint64_t)(loss - gradients))];
    if (unit == WHOLE || has_value(compute, unit, gradients, value))
        *value = rand_below(&random, 2) == 0 ? INFINITY : NAN;
}

void compute_unit(const struct compute *compute, uint32_t unit, uint64_t step, struct node node,
                  const struct compute_slots *slots, float *ret_gradients)
{
    add_slots(compute, unit, node, slots, ret_gradients);
    spoil(compute, unit, step, node, ret_gradients);
}

/* ---- made-up numbers of the whole model ---- */

struct whole {
    const struct compute *compute;
    uint64_t weights[SIM_UNITS_MAX];    /* digests */
    uint64_t inputs[SIM_UNITS_MAX + 1]; /* of a microbatch; the last is what comes out */
};

static struct whole whole_of(const struct compute *compute, const float *weights)
{
    struct whole whole = {.compute = compute};
    check(compute->model.units_count <= SIM_UNITS_MAX);
    for (uint32_t unit = 0; unit < compute->model.units_count; unit++)
        whole.weights[unit] = compute_unit_weights(compute, unit, weights);
    return whole;
}

static uint64_t forward(struct whole *whole, uint64_t sample)
{
    uint32_t units = whole->compute->model.units_count;
    whole->inputs[0] = sample;
    for (uint32_t unit = 0; unit < units; unit++)
        whole->inputs[unit + 1] = compute_forward(whole->weights[unit], whole->inputs[unit]);
    return whole->inputs[units];
}

static void backward(const struct whole *whole, uint64_t doutput, uint64_t *bits)
{
    for (uint32_t unit = whole->compute->model.units_count; unit-- > 0;) {
        bits[unit] = compute_add(bits[unit], whole->inputs[unit], doutput);
        doutput = compute_backward(whole->weights[unit], whole->inputs[unit], doutput);
    }
}

static void make_up_node(const struct compute *compute, uint64_t step, struct node node,
                         const float *weights, float *ret_gradients)
{
    const struct spec_train *train = &compute->scenario->spec.train;
    uint64_t bits[SIM_SLOTS_MAX * SIM_UNITS_MAX] = {0};
    uint32_t units = compute->model.units_count, first = node_first(node);
    struct whole whole = whole_of(compute, weights);
    for (uint32_t slot = 0; slot < node_slots(node, train->slots); slot++)
        for (uint32_t i = 0; i < train->slot_samples; i++)
            backward(&whole,
                     forward(&whole,
                             compute_sample(TICKET_TRAIN, step * train->slots + first + slot, i)),
                     &bits[slot * units]);
    const struct compute_slots slots = {first, bits};
    for (uint32_t unit = 0; unit < units; unit++)
        add_slots(compute, unit, node, &slots, ret_gradients);
}

struct compute_loss compute_loss_of_piece(const struct compute *compute, uint32_t piece,
                                          uint64_t bits)
{
    uint64_t count = compute_piece_samples(compute, piece);
    struct rand_state random = {bits};
    double loss_sum = rand_unit(&random) * (double)count;
    return (struct compute_loss){loss_sum, count, rand_below(&random, count + 1)};
}

uint64_t compute_piece_samples(const struct compute *compute, uint32_t piece)
{
    uint64_t k = compute->scenario->spec.train.slot_samples;
    uint64_t left = compute->scenario->validation_samples - piece * k;
    return left < k ? left : k;
}

static struct compute_loss make_up_losses(const struct compute *compute, uint32_t piece,
                                          const float *weights)
{
    uint64_t bits = 0;
    struct whole whole = whole_of(compute, weights);
    for (uint32_t i = 0; i < compute_piece_samples(compute, piece); i++)
        bits = compute_add(bits, forward(&whole, compute_sample(TICKET_VALIDATE, piece, i)), 0);
    return compute_loss_of_piece(compute, piece, bits);
}

/* ---- the executor ---- */

static void load(struct compute *compute, const float *weights)
{
    const struct model *model = &compute->model;
    for (uint32_t c = 0; c < model->chunks_count; c++)
        if (model->chunks[c].parameter != model->loss_parameter)
            model_scatter(model, c, executor_weights(compute->executor, model->chunks[c].parameter),
                          weights + compute->weights_first[c]);
}

static void run_node(struct compute *compute, uint64_t step, struct node node, const float *weights,
                     float *ret_gradients)
{
    static const struct executor_hooks none = {0};
    const struct model *model = &compute->model;
    const struct executor_samples samples = compute_samples(compute);
    const struct ticket ticket = {.kind = TICKET_TRAIN, .step = step, .node = node};
    struct executor_loss loss;
    load(compute, weights);
    check(executor_run(compute->executor, &ticket, &samples, &none, &loss) == ERR_OK);
    for (uint32_t c = 0; c < model->chunks_count; c++) {
        uint32_t parameter = model->chunks[c].parameter;
        for (uint32_t p = 0; p < model->parameters[parameter].parts; p++)
            gather_chunk(model, c,
                         ret_gradients + compute->gradient_first[compute->piece_first[c] + p],
                         executor_gradient(compute->executor, parameter, p));
    }
}

/* ---- both ---- */

void compute_train(struct compute *compute, uint64_t step, struct node node, const float *weights,
                   float *ret_gradients)
{
    if (compute->executor != NULL)
        run_node(compute, step, node, weights, ret_gradients);
    else
        make_up_node(compute, step, node, weights, ret_gradients);
    spoil(compute, WHOLE, step, node, ret_gradients);
}

float compute_whole(const struct compute *compute, float *gradients)
{
    const struct model *model = &compute->model;
    const struct spec *spec = &compute->scenario->spec;
    double sum = 0;
    for (uint32_t c = 0; c < model->chunks_count; c++) {
        const struct model_parameter *parameter = &model->parameters[model->chunks[c].parameter];
        double lanes[LANES] = {0}, chunk_sum = 0;
        float *values = gradients + compute->gradient_first[compute->piece_first[c]];
        uint32_t n = model->chunks[c].weights;
        for (uint32_t i = n; i < parameter->parts * n; i++)
            values[i % n] += values[i];
        for (uint32_t i = 0; parameter->rule == MODEL_OPTIMIZER && i < n; i++)
            lanes[i % LANES] += (double)values[i] * (double)values[i];
        for (uint32_t lane = 0; lane < LANES; lane++)
            chunk_sum += lanes[lane];
        sum += chunk_sum;
    }
    if (!__builtin_isfinite(sum))
        return 0;
    double norm = __builtin_sqrt(sum) / (double)spec_slot_samples(spec);
    return (float)clip_factor(spec->optimizer.clip_norm, norm);
}

struct compute_loss compute_validate(struct compute *compute, uint32_t piece, const float *weights)
{
    if (compute->executor == NULL)
        return make_up_losses(compute, piece, weights);
    static const struct executor_hooks none = {0};
    const struct executor_samples samples = compute_samples(compute);
    const struct ticket ticket = {.kind = TICKET_VALIDATE, .node = {0, piece}};
    struct executor_loss loss;
    load(compute, weights);
    check(executor_run(compute->executor, &ticket, &samples, &none, &loss) == ERR_OK);
    return (struct compute_loss){loss.loss_sum, loss.samples, loss.correct};
}

/* ---- the wire ---- */

enum codec compute_codec(const struct compute *compute)
{
    return compute->scenario->spec.train.precision == SPEC_BF16 ? CODEC_BF16 : CODEC_FP32;
}

uint32_t compute_encode(const struct compute *compute, uint32_t chunk, uint32_t part,
                        enum codec codec, const float *gradients, void *ret_bytes)
{
    const struct model_chunk *what = &compute->model.chunks[chunk];
    const float *values = gradients + compute->gradient_first[compute->piece_first[chunk] + part];
    if (codec == CODEC_FP32 || what->parameter == compute->model.loss_parameter) {
        memcpy(ret_bytes, values, what->weights * sizeof *values);
        return what->weights * codec_bytes(CODEC_FP32);
    }
    compute->kernels->cast_to_bf16(compute->kernels, ret_bytes, values, what->weights);
    return what->weights * codec_bytes(CODEC_BF16);
}

void compute_copy(const struct compute *compute, uint32_t chunk, const float *from, float *weights)
{
    uint32_t first = compute->weights_first[chunk];
    memcpy(weights + first, from + first, compute->model.chunks[chunk].weights * sizeof *weights);
}

void compute_decode(const struct compute *compute, uint32_t chunk, const uint8_t *bytes,
                    float *weights)
{
    uint32_t count = compute->model.chunks[chunk].weights;
    float *values = weights + compute->weights_first[chunk];
    if (compute_codec(compute) == CODEC_BF16)
        compute->kernels->cast_from_bf16(compute->kernels, values, bytes, count);
    else
        memcpy(values, bytes, count * sizeof *values);
}
