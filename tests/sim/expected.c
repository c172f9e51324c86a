#include "tests/sim/expected.h"

#include "common/files/state_digest.h"
#include "reference/reference.h"
#include "server/coordinator/validation.h"
#include "server/shard/prepare.h"

#include <string.h>

/* The one shard, and the state that drives it. */
struct single {
    struct compute *compute;
    struct shard *shard;
    struct shard_effects effects;
    struct seal seal;
    struct seal_counters counters;
    float *weights[SIM_STEPS_MAX + 1]; /* as workers see them, by version */
    const uint8_t *behind;             /* of the step's slots: what they are computed on */
    float *gradients;
    uint8_t *bytes;
};

uint64_t expected_published(const struct expected *expected, const struct compute *compute,
                            uint64_t version, uint32_t chunk)
{
    return expected->published[version * compute->model.chunks_count + chunk];
}

static void open_shard(struct single *single)
{
    const struct scenario *scenario = single->compute->scenario;
    const struct model *model = &single->compute->model;
    const struct chunk_range all = {0, model->chunks_count, 0};
    struct shard_chunk *chunks;
    struct shard_config config = scenario_shard(scenario);
    config.delay = config.cut_versions = 0; /* old versions are kept here */
    config.kernels = single->compute->kernels;
    config.generation = config.boot = config.term = 1;
    check(prepare_chunks(model, &all, 1, 0, &chunks, &config.chunk_count) == ERR_OK);
    config.chunks = chunks;
    check(shard_new(&config, &single->shard) == ERR_OK);
    prepare_initial(single->shard, model, scenario->spec.train.seed, chunks, config.chunk_count);
    check(shard_start(single->shard) == ERR_OK);
    free(chunks);
}

/* Pulls all chunks, one after another. */
static void pull(struct single *single, struct expected *expected, uint64_t version)
{
    const struct model *model = &single->compute->model;
    for (uint32_t c = 0; c < model->chunks_count; c++) {
        const struct pull one = {1, 1, version, 1, &c};
        single->effects.count = 0;
        shard_pull(single->shard, (struct pull_sender){1, 1}, &one, &single->effects);
        check(single->effects.count == 1 && single->effects.items[0].kind == SHARD_WEIGHTS);
        struct counted *copy = single->effects.items[0].weights.copies[0];
        expected->published[version * model->chunks_count + c] =
            digest_fast64((struct slice){copy->data, copy->bytes});
        compute_decode(single->compute, c, copy->data, single->weights[version]);
        counted_unref(copy);
    }
}

static void push_piece(struct single *single, uint64_t step, struct node node, uint32_t chunk,
                       uint32_t part)
{
    struct push_entry entry = {.chunk = chunk, .part = part};
    entry.bytes = compute_encode(single->compute, chunk, part, compute_codec(single->compute),
                                 single->gradients, single->bytes);
    const struct push push = {1, 1, step, node, compute_codec(single->compute), 1, &entry};
    const struct slice slice = {single->bytes, entry.bytes};
    single->effects.count = 0;
    struct shard_ack ack =
        shard_push(single->shard, 1, &push, (struct cursor){&slice, 1, 0, 0}, &single->effects);
    check(ack.code == ERR_OK);
    for (uint32_t i = 0; i < single->effects.count; i++) {
        const struct shard_effect *effect = &single->effects.items[i];
        if (effect->kind == SHARD_REDUCED)
            check(seal_add(&single->seal, &effect->reduced) == ERR_OK);
    }
}

/* The weights that a node of that step is computed on. */
static const float *weights_of(const struct single *single, uint64_t step, struct node node)
{
    return single->weights[step - single->behind[node_first(node)]];
}

static uint32_t push_slots(const struct single *single)
{
    return spec_push_slots(&single->compute->scenario->spec);
}

/* Leaves in order; with a lossy codec the nodes that workers push. */
static void push_all(struct single *single, uint64_t step)
{
    const struct spec_train *train = &single->compute->scenario->spec.train;
    const struct model *model = &single->compute->model;
    struct node node = {0, 0};
    while (train->precision == SPEC_BF16 && UINT32_C(1) << node.level < push_slots(single))
        node.level++;
    for (; node_valid(node, train->slots); node.index++) {
        compute_train(single->compute, step, node, weights_of(single, step, node),
                      single->gradients);
        for (uint32_t c = 0; c < model->chunks_count; c++)
            for (uint32_t p = 0; p < model->parameters[model->chunks[c].parameter].parts; p++)
                push_piece(single, step, node, c, p);
    }
}

/* ---- the same sums without the shard ---- */

/* As the wire leaves them. */
static void round_gradients(const struct single *single, float *gradients)
{
    const struct compute *compute = single->compute;
    const struct model *model = &compute->model;
    if (compute_codec(compute) == CODEC_FP32)
        return;
    for (uint32_t c = 0; c < model->chunks_count; c++)
        for (uint32_t p = 0; p < model->parameters[model->chunks[c].parameter].parts; p++) {
            float *values = gradients + compute->gradient_first[compute->piece_first[c] + p];
            uint32_t bytes =
                compute_encode(compute, c, p, compute_codec(compute), gradients, single->bytes);
            if (bytes < model->chunks[c].weights * sizeof *values)
                compute->kernels->cast_from_bf16(compute->kernels, values, single->bytes,
                                                 model->chunks[c].weights);
        }
}

static void sum_node(struct single *single, uint64_t step, struct node node, float *ret_sum)
{
    struct compute *compute = single->compute;
    const struct spec_train *train = &compute->scenario->spec.train;
    uint32_t count = compute_gradients_count(compute);
    if (node_end(node) - node_first(node) == (push_slots(single) > 0 ? push_slots(single) : 1)) {
        compute_train(compute, step, node, weights_of(single, step, node), ret_sum);
        round_gradients(single, ret_sum);
        return;
    }
    struct node right = {node.level - 1, 2 * node.index + 1};
    sum_node(single, step, (struct node){node.level - 1, 2 * node.index}, ret_sum);
    if (node_slots(right, train->slots) == 0)
        return;
    float *other = malloc(count * sizeof *other);
    check(other != NULL);
    sum_node(single, step, right, other);
    for (uint32_t i = 0; i < count; i++)
        ret_sum[i] += other[i];
    free(other);
}

/* What the shard has sealed is the sum of all slots in the tree's order, and of the parts in
 * theirs. */
static void check_seal(struct single *single, uint64_t step)
{
    struct compute *compute = single->compute;
    const struct model *model = &compute->model;
    float *sum = calloc(compute_gradients_count(compute), sizeof *sum);
    check(sum != NULL);
    sum_node(single, step, (struct node){tree_level(compute->scenario->spec.train.slots), 0}, sum);
    for (uint32_t c = 0; c < model->chunks_count; c++) {
        const struct model_parameter *parameter = &model->parameters[model->chunks[c].parameter];
        float *values = sum + compute->gradient_first[compute->piece_first[c]];
        uint32_t n = model->chunks[c].weights;
        double sumsq;
        for (uint32_t i = n; i < parameter->parts * n; i++)
            values[i % n] += values[i];
        compute->kernels->sum_squares(compute->kernels, &sumsq, values, n);
        check(single->seal.chunks[c].finite == (__builtin_isfinite(sumsq) != 0));
        sumsq = parameter->rule == MODEL_OPTIMIZER ? sumsq : 0;
        check(!single->seal.chunks[c].finite || single->seal.chunks[c].sumsq == sumsq);
    }
    free(sum);
}

/* ---- a step ---- */

/* False: the run fails by this step. */
static bool commit(struct single *single, uint64_t step, struct expected_step *ret_step)
{
    const struct scenario *scenario = single->compute->scenario;
    const struct seal_settings settings = seal_settings_of_spec(&scenario->spec);
    struct commit decision;
    uint32_t slot;
    bool more = true;
    check_seal(single, step);
    if (seal_decide(&settings, &single->counters, &single->seal, &decision, &ret_step->metrics) !=
        ERR_OK)
        return false;
    decision.generation = decision.term = 1;
    decision.step = step;
    decision.cut = false;
    ret_step->skipped = !decision.apply;
    check(decision.apply != scenario_bad(scenario, step, &slot));
    single->effects.count = 0;
    check(shard_commit(single->shard, 1, &decision, NULL, &single->effects) == ERR_OK);
    while (more) {
        single->effects.count = 0;
        check(shard_work(single->shard, &single->effects, &more) == ERR_OK);
    }
    check(shard_version(single->shard) == step + 1);
    seal_restart(&single->seal);
    return true;
}

static struct expected_validation validate(struct single *single, uint64_t version)
{
    const struct scenario *scenario = single->compute->scenario;
    uint64_t k = scenario->spec.train.slot_samples;
    struct compute_loss sum = {0};
    for (uint32_t piece = 0; piece * k < scenario->validation_samples; piece++) {
        struct compute_loss loss =
            compute_validate(single->compute, piece, single->weights[version]);
        sum.loss_sum += loss.loss_sum;
        sum.sample_count += loss.sample_count;
        sum.correct_count += loss.correct_count;
    }
    if (sum.sample_count == 0)
        return (struct expected_validation){0};
    double samples = (double)sum.sample_count;
    double predictions = samples * seal_settings_of_spec(&scenario->spec).sample_predictions;
    return (struct expected_validation){.loss = sum.loss_sum / samples,
                                        .accuracy = (double)sum.correct_count / predictions,
                                        .samples = sum.sample_count};
}

static enum err read_state(void *context, uint32_t chunk, uint32_t array, float *ret_values)
{
    const struct single *single = context;
    struct shard_state state = shard_state(single->shard, chunk);
    memcpy(ret_values, array == 0 ? state.weights : state.state[array - 1],
           single->compute->model.chunks[chunk].weights * sizeof *ret_values);
    return ERR_OK;
}

static void digest_state(struct single *single, struct digest *ret_digest)
{
    const struct compute *compute = single->compute;
    const struct state_digest_source source = {
        .context = single,
        .read = read_state,
        .arrays = 1 + optimizer_states(spec_server_optimizer(&compute->scenario->spec).kind)};
    check(state_digest(&compute->model, &source, ret_digest) == ERR_OK);
}

/* The same from tests/reference, which knows of no gradients but the executor's. */
static void compare_with_reference(const struct compute *compute, const struct digest *digest)
{
    const struct scenario *scenario = compute->scenario;
    const struct executor_samples samples = compute_samples(compute);
    const struct reference_options options = {.spec = &scenario->spec,
                                              .model = &compute->model,
                                              .kernels = compute->kernels,
                                              .samples = &samples};
    struct reason reason = {.text = ""};
    struct seal_metrics metrics;
    struct reference *reference;
    struct digest other;
    check(reference_new(&options, &reference, &reason) == ERR_OK);
    for (uint64_t step = 0; step < scenario->spec.train.steps; step++)
        check(reference_step(reference, &metrics) == ERR_OK);
    check(reference_digest(reference, &other) == ERR_OK);
    check(memcmp(digest, &other, sizeof other) == 0);
    reference_free(reference);
}

static void open_single(struct single *single, struct compute *compute)
{
    *single = (struct single){.compute = compute};
    for (uint32_t v = 0; v <= SIM_STEPS_MAX; v++) {
        single->weights[v] = calloc(compute_weights_count(compute), sizeof(float));
        check(single->weights[v] != NULL);
    }
    single->gradients = calloc(compute_gradients_count(compute), sizeof(float));
    single->bytes = malloc(MODEL_CHUNK_WEIGHTS_MAX * sizeof(float));
    check(single->gradients && single->bytes);
    check(seal_init(&single->seal, compute->model.chunks_count) == ERR_OK);
    open_shard(single);
}

static void close_single(struct single *single)
{
    shard_free(single->shard);
    seal_release(&single->seal);
    for (uint32_t v = 0; v <= SIM_STEPS_MAX; v++)
        free(single->weights[v]);
    free(single->gradients);
    free(single->bytes);
}

/* Fills in the results of the version that it has reached. */
static void note_version(struct single *single, struct expected *expected, uint64_t version)
{
    pull(single, expected, version);
    digest_state(single, &expected->digests[version]);
    expected->validations[version] = validate(single, version);
}

void expected_begin(struct expected *expected, struct compute *compute)
{
    uint64_t steps = compute->scenario->spec.train.steps;
    check(steps <= SIM_STEPS_MAX && compute->scenario->spec.train.slots <= SIM_SLOTS_MAX);
    *expected = (struct expected){.single = malloc(sizeof *expected->single)};
    expected->published =
        calloc((steps + 1) * compute->model.chunks_count, sizeof *expected->published);
    check(expected->published != NULL && expected->single != NULL);
    open_single(expected->single, compute);
    note_version(expected->single, expected, 0);
}

void expected_step(struct expected *expected, const uint8_t *behind)
{
    struct single *single = expected->single;
    uint64_t step = expected->version;
    memcpy(expected->behind[step], behind, single->compute->scenario->spec.train.slots);
    single->behind = expected->behind[step];
    push_all(single, step);
    expected->failed = !commit(single, step, &expected->steps[step]);
    expected->failed_step = step;
    if (expected->failed)
        return;
    expected->version++;
    note_version(single, expected, expected->version);
}

void expected_branch(struct expected *expected, const struct expected *from, uint64_t version,
                     struct compute *compute)
{
    check(version <= from->version);
    expected_begin(expected, compute);
    while (expected->version < version)
        expected_step(expected, from->behind[expected->version]);
}

static void close_expected(struct expected *expected)
{
    if (expected->single != NULL)
        close_single(expected->single);
    free(expected->single);
    expected->single = NULL;
}

void expected_run(struct expected *expected, struct compute *compute)
{
    const struct spec *spec = &compute->scenario->spec;
    uint64_t steps = spec->train.steps;
    uint32_t delay = spec->consistency.kind == SPEC_DELAY ? spec->consistency.delay : 0;
    uint8_t behind[SIM_SLOTS_MAX];
    expected_begin(expected, compute);
    for (uint64_t step = 0; step < steps && !expected->failed; step++) {
        memset(behind, (int)(step < delay ? step : delay), sizeof behind);
        expected_step(expected, behind);
    }
    close_expected(expected);
    if (compute->executor != NULL && compute->scenario->bad_percent == 0)
        compare_with_reference(compute, &expected->digests[steps]);
}

void expected_release(struct expected *expected)
{
    close_expected(expected);
    free(expected->published);
}
