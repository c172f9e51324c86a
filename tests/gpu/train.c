/* Whole training on the device against the same training on the CPU: executor and model call the
 * operations, the reference's shard sums and updates on the CPU. Runs in the repository's root.
 * Without a device: one skipped test. With -DEMULATED, fewer steps of something smaller. */
#include "tests/unit/unit.h"

#include "tests/parity/train.h"
#include "worker/fingerprint.h"
#include "worker/model/unit.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

#define GPT "tests/golden/train20_gpt.yaml"
#define MLP "tests/golden/train20_mlp.yaml"
#define LLAMA "tests/golden/train20_llama.yaml"

#ifdef EMULATED
enum { STEPS = 2, LONG_STEPS = 4, SMALLER = 6 };
static const char *const gpt_sets[] = {
    "model.layers=1",       "model.width=32",       "model.context=24",
    "data.validation=0.02", "train.slots=3",        "train.slot_samples=1",
    "train.recompute=true", "train.precision=bf16", "train.compute=bf16"};
static const char *const mlp_sets[] = {"train.slots=3"};
static const char long_steps[] = "train.steps=20";
#else
enum { STEPS = 20, LONG_STEPS = 300, SMALLER = 0 };
static const char *const gpt_sets[] = {"train.recompute=true", "train.precision=bf16",
                                       "train.compute=bf16"};
static const char *const mlp_sets[] = {"train.slots=6"};
static const char long_steps[] = "train.steps=300";
#endif

enum { STEPS_MAX = LONG_STEPS };

/* Relative, of a loss; in bf16 a rounding may turn out the other way. */
static const double tolerance = 1e-4, tolerance_bf16 = 1e-2;

struct curve {
    int steps;
    double loss[STEPS_MAX], validation;
    struct digest digest;
};

static void train(enum kernels_backend backend, const char *spec_path, const char *const *sets,
                  size_t sets_count, int steps, struct curve *ret_curve)
{
    struct run run;
    struct executor_loss validation;
    memset(ret_curve, 0, sizeof *ret_curve);
    ret_curve->steps = steps;
    run_begin(&run, backend, spec_path, sets, sets_count);
    for (int step = 0; step < steps; step++) {
        struct seal_metrics metrics;
        enum err err = reference_step(run.reference, &metrics);
        if (err != ERR_OK)
            fail_msg("%s: %s", err_name(err),
                     executor_failure(reference_executor(run.reference, 0)));
        ret_curve->loss[step] = metrics.loss;
    }
    if (run.samples.held_out > 0) {
        assert_int_equal(reference_validate(run.reference, &validation), ERR_OK);
        ret_curve->validation = validation.loss_sum;
    }
    assert_int_equal(reference_digest(run.reference, &ret_curve->digest), ERR_OK);
    run_end(&run);
}

static double relative(double value, double wanted)
{
    return wanted == 0 ? fabs(value) : fabs(value - wanted) / fabs(wanted);
}

static void compare_steps(const char *spec_path, const char *const *sets, size_t sets_count,
                          int steps, double limit)
{
    struct curve cpu, first, second;
    train(KERNELS_CPU, spec_path, sets, sets_count, steps, &cpu);
    train(KERNELS_CUDA, spec_path, sets, sets_count, steps, &first);
    train(KERNELS_CUDA, spec_path, sets, sets_count, steps, &second);
    double worst = relative(first.validation, cpu.validation);
    for (int step = 0; step < steps; step++)
        worst = worst_of(worst, relative(first.loss[step], cpu.loss[step]));
    print_message("# %s: %d losses at most %.1e away (limit %.0e), %.3f to %.3f\n", spec_path,
                  steps, worst, limit, cpu.loss[0], cpu.loss[steps - 1]);
    assert_true(worst <= limit);
    assert_memory_equal(&first, &second, sizeof first);
}

static void compare(const char *spec_path, const char *const *sets, size_t sets_count, double limit)
{
    compare_steps(spec_path, sets, sets_count, STEPS, limit);
}

TEST(a_gpt_has_the_cpus_losses_and_twice_the_same_bits)
{
    compare(GPT, gpt_sets, SMALLER, tolerance);
}

TEST(so_it_has_with_recompute)
{
    compare(GPT, gpt_sets, SMALLER + 1, tolerance);
}

TEST(in_bf16_it_has_nearly_the_cpus_losses)
{
    compare(GPT, gpt_sets, SMALLER + 2, tolerance_bf16);
}

/* The CPU computes in fp32 all the same. */
TEST(with_bf16_elements_it_has_nearly_the_cpus_losses)
{
    compare(GPT, gpt_sets, SMALLER + 3, tolerance_bf16);
}

/* Each step's batch is the same, so the curves are compared step by step. At the spec's own rate of
 * 2e-3 they would part for reasons of their own: bf16 on the wire alone moves single losses by 1.7
 * % there, by 0.1 % at 5e-4. */
TEST(so_it_has_for_as_long_as_it_learns)
{
    const char *sets[16] = {long_steps, "optimizer.lr=5.0e-4", "optimizer.lr_min=5.0e-5"};
    size_t count = sizeof gpt_sets / sizeof *gpt_sets;
    for (size_t i = 0; i < count; i++)
        sets[3 + i] = gpt_sets[i];
    compare_steps(GPT, sets, 3 + count, LONG_STEPS, tolerance_bf16);
}

TEST(a_llama_has_the_cpus_losses_and_twice_the_same_bits)
{
    compare(LLAMA, gpt_sets, SMALLER, tolerance);
}

TEST(a_llama_with_bf16_elements_has_nearly_the_cpus_losses)
{
    compare(LLAMA, gpt_sets, SMALLER + 3, tolerance_bf16);
}

/* Norms' gradients in ranges. */
TEST(with_split_norms_they_have_the_cpus_losses)
{
    static const char *const sets[] = {"model.layers=1",       "model.width=48",
                                       "model.context=24",     "data.validation=0.02",
                                       "train.slots=3",        "train.slot_samples=1",
                                       "train.pieces=2",       "train.tensor_norms=split",
                                       "train.recompute=true", "train.compute=bf16"};
    compare(GPT, sets, 9, tolerance);
    compare(LLAMA, sets, 9, tolerance);
    compare(LLAMA, sets, 10, tolerance_bf16);
}

TEST(an_mlp_with_bf16_elements_as_well)
{
    static const char *const sets[] = {"train.slots=3", "train.compute=bf16"};
    compare(MLP, sets, 2, tolerance_bf16);
}

TEST(an_mlp_has_the_cpus_losses_and_twice_the_same_bits)
{
    compare(MLP, mlp_sets, 1, tolerance);
}

static struct digest fingerprint(const struct run *run)
{
    struct digest digest;
    struct reason reason = {.text = ""};
    const struct fingerprint_options options = {
        .kernels = run->computes, .model = &run->model, .train = &run->spec.train, .held_out = 3};
    must(fingerprint_probe(&options, &digest, &reason), &reason);
    return digest;
}

TEST(the_device_has_one_fingerprint_and_not_the_cpus)
{
    struct run cpu, first, second;
    run_begin(&cpu, KERNELS_CPU, GPT, gpt_sets, SMALLER);
    run_begin(&first, KERNELS_CUDA, GPT, gpt_sets, SMALLER);
    run_begin(&second, KERNELS_CUDA, GPT, gpt_sets, SMALLER);
    struct digest of_cpu = fingerprint(&cpu), of_device = fingerprint(&first);
    struct digest again = fingerprint(&second);
    assert_memory_equal(&of_device, &again, sizeof again);
    assert_memory_not_equal(&of_device, &of_cpu, sizeof of_cpu);
    run_end(&second);
    run_end(&first);
    run_end(&cpu);
}

/* -- memory ------------------------------------------------------------------------------------ */

static uint64_t in_pages(uint64_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

/* An executor of the small gpt with so many samples a microbatch, on a device opened for it, which
 * *ret_device is of before; what is taken of it then is the executor's total, in pages. */
static enum err new_executor(uint32_t microbatch, struct executor_memory *ret_memory,
                             struct kernels_memory *ret_device, struct reason *reason)
{
    struct spec spec;
    struct model model;
    struct executor *executor = NULL;
    const struct config_overrides overrides = {.flags = gpt_sets, .flags_count = SMALLER};
    must(local_spec(GPT, &overrides, &spec, reason), reason);
    spec.train.slot_samples = spec.train.microbatch = microbatch;
    must(model_init(&model, &spec.model, reason), reason);
    const struct kernels *k = open_kernels(KERNELS_CUDA, &spec);
    const struct executor_options options = {
        .kernels = k, .model = &model, .train = &spec.train, .node_slots_max = 2};
    k->memory(k, ret_device);
    enum err err = executor_new(&options, &executor, reason);
    if (err == ERR_OK) {
        struct kernels_memory left;
        k->memory(k, &left);
        *ret_memory = executor_memory(executor);
        assert_true(left.free + in_pages(ret_memory->total) <= ret_device->free);
#ifdef EMULATED
        assert_true(left.free + in_pages(ret_memory->total) == ret_device->free);
#endif
    }
    executor_free(executor);
    kernels_free(k);
    model_release(&model);
    return err;
}

static void assert_says(const struct reason *reason, const char *wanted)
{
    if (strstr(reason->text, wanted) == NULL)
        fail_msg("'%s' does not say '%s'", reason->text, wanted);
}

TEST(a_run_that_does_not_fit_is_refused_with_what_needs_what)
{
    struct reason reason = {.text = ""};
    struct executor_memory memory = {0};
    struct kernels_memory device;
    assert_int_equal(new_executor(1, &memory, &device, &reason), ERR_OK);
    assert_true(memory.total < device.free - device.reserved);
    assert_true(device.free + device.own <= device.total && device.reserved >= device.total / 512);
    assert_true(memory.workspace == device.own && device.own > 0);
    assert_int_equal(new_executor(100000000, &memory, &device, &reason), ERR_UNSUPPORTED);
    print_message("# %s\n", reason.text);
    char weights[64];
    snprintf(weights, sizeof weights, "weights %llu, gradients",
             (unsigned long long)memory.weights);
    assert_says(&reason, weights);
    assert_says(&reason, "train.microbatch");
    assert_says(&reason, "train.node_slots (gradients)"); /* its end */
}

#ifdef EMULATED
/* The least bytes of a device, in pages, of which so many are left beside its reserve. */
static uint64_t device_with(uint64_t bytes, const struct kernels_memory *device)
{
    uint64_t share = device->total / device->reserved;
    return in_pages(bytes * share / (share - 1));
}

/* With just enough memory, and with a few pages less. */
TEST(the_ledger_is_what_is_taken)
{
    struct reason reason = {.text = ""};
    struct executor_memory memory = {0};
    struct kernels_memory device;
    assert_int_equal(new_executor(1, &memory, &device, &reason), ERR_OK);
    for (int missing = 0; missing < 2; missing++) {
        char bytes[32];
        uint64_t taken = device.total - device.free + in_pages(memory.total);
        uint64_t least = device_with(taken, &device) - (missing ? 4 * 4096 : 0);
        snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)least);
        setenv("ROOST_EMULATED_BYTES", bytes, 1);
        assert_int_equal(new_executor(1, &memory, &device, &reason),
                         missing ? ERR_UNSUPPORTED : ERR_OK);
        unsetenv("ROOST_EMULATED_BYTES");
    }
}
#endif

/* -- streams and graphs ------------------------------------------------------------------------ */

#ifdef EMULATED
/* A function of the module that kernels_new() has loaded. */
static void *of_module(const char *name)
{
    void *module = dlopen("libroost-cuda.so", RTLD_NOW | RTLD_NOLOAD), *symbol = NULL;
    assert_non_null(module);
    symbol = dlsym(module, name);
    assert_non_null(symbol);
    dlclose(module);
    return symbol;
}
#endif

/* One unit's memory, all of it filled the same way, and its result. */
struct unit_trial {
    struct unit_call call;
    float *memory;
    size_t floats;
};

static void trial_work(void *context)
{
    const struct unit_trial *trial = context;
    unit_forward(&trial->call);
    unit_backward(&trial->call);
}

static float *trial_take(struct unit_trial *trial, uint64_t bytes)
{
    float *at = trial->memory ? trial->memory + trial->floats : NULL;
    trial->floats += (bytes + 63) / 64 * 16;
    return at;
}

static void trial_place(struct unit_trial *trial, const struct unit_sizes *sizes, float **weights,
                        float **gradients)
{
    const struct model *model = trial->call.model;
    const struct model_unit *unit = &model->units[trial->call.unit];
    trial->floats = 0;
    for (uint32_t i = 0; i < unit->uses_count; i++) {
        uint64_t bytes = model->parameters[model->uses[unit->use_first + i].parameter].weights * 4;
        weights[i] = trial_take(trial, bytes);
        gradients[i] = trial_take(trial, bytes);
    }
    uint64_t tokens = (uint64_t)model->sample_tokens * 4, stream = tokens * model->settings.width;
    trial->call.targets = (void *)trial_take(trial, tokens);
    trial->call.losses = trial_take(trial, tokens);
    trial->call.correct = (void *)trial_take(trial, tokens);
    trial->call.input = trial_take(trial, stream);
    trial->call.output = trial_take(trial, stream);
    trial->call.doutput = trial_take(trial, stream);
    trial->call.dinput = sizes->in_place ? trial->call.doutput : trial_take(trial, stream);
    trial->call.saved = trial_take(trial, sizes->saved);
    trial->call.scratch = trial_take(trial, sizes->scratch);
}

/* Small values, which tokens are too: as integers they are 0. */
static void trial_fill(const struct unit_trial *trial)
{
    const struct kernels *k = trial->call.k;
    const struct unit_call *call = &trial->call;
    float *values = malloc(trial->floats * sizeof *values);
    check(values);
    for (size_t i = 0; i < trial->floats; i++)
        values[i] = (float)(i * 7919 % 1009) / 1009 - 0.5f;
    k->copy_in(k, trial->memory, values, trial->floats * sizeof *values);
    free(values);
    size_t tokens = call->model->sample_tokens * sizeof(int32_t);
    k->zero(k, (void *)call->targets, tokens);
    if (call->unit == 0)
        k->zero(k, (void *)call->input, tokens);
}

static void assert_captured(const struct kernels *k, const struct model *model, uint32_t number)
{
    float *weights[16], *gradients[16];
    struct unit_trial trial = {0};
    struct unit_sizes sizes;
    trial.call = (struct unit_call){.k = k,
                                    .model = model,
                                    .unit = number,
                                    .samples = 1,
                                    .logits_bytes_max = 4096,
                                    .training = true,
                                    .weights = weights,
                                    .gradients = gradients};
    unit_size(k, model, number, 1, 4096, &sizes);
    trial_place(&trial, &sizes, weights, gradients);
    size_t bytes = trial.floats * sizeof(float);
    assert_non_null(trial.memory = k->alloc(k, bytes));
    trial_place(&trial, &sizes, weights, gradients);
    float *direct = malloc(bytes), *captured = malloc(bytes);
    trial_fill(&trial);
    trial_work(&trial); /* products are planned now */
    k->copy_out(k, direct, trial.memory, bytes);
    trial_fill(&trial);
    struct kernels_graph *graph = k->graph_new(k, trial_work, &trial);
    assert_non_null(graph);
    k->graph_run(k, graph);
    k->copy_out(k, captured, trial.memory, bytes);
    assert_null(k->synchronize(k));
    k->graph_free(k, graph);
    assert_memory_equal(direct, captured, bytes);
    free(direct);
    free(captured);
    k->free(k, trial.memory);
}

TEST(forward_and_backward_of_a_unit_can_be_a_graph)
{
    struct run run;
    static const char *const specs[] = {GPT, LLAMA};
    for (int i = 0; i < 2; i++) {
        run_begin(&run, KERNELS_CUDA, specs[i], gpt_sets, SMALLER);
        for (uint32_t unit = 0; unit < run.model.units_count; unit++)
            assert_captured(run.computes, &run.model, unit);
        run_end(&run);
    }
}

/* -- replaying ---- */

static struct executor *executor_of(const struct run *run, bool direct)
{
    struct executor *executor;
    struct reason reason = {.text = ""};
    const struct executor_options options = {.kernels = run->computes,
                                             .model = &run->model,
                                             .train = &run->spec.train,
                                             .node_slots_max = 2,
                                             .direct = direct};
    must(executor_new(&options, &executor, &reason), &reason);
    for (uint32_t p = 0; p < run->model.parameters_count; p++) {
        int64_t n = (int64_t)run->model.parameters[p].weights;
        float *values = malloc((size_t)n * sizeof *values);
        check(values);
        for (int64_t i = 0; i < n; i++)
            values[i] = (float)(i * 7919 % 1009) / 10090 - 0.05f;
        run->computes->cast_from_f32(run->computes, executor_weights(executor, p), values, n);
        free(values);
    }
    return executor;
}

/* Some tickets of two slots, and held-out samples between them: digests of all gradients and of the
 * losses. */
static struct digest digest_of_tickets(const struct run *run, struct executor *executor)
{
    struct digest_stream stream = {0};
    struct executor_loss loss;
    const struct kernels *k = run->computes;
    assert_int_equal(digest_stream_init(&stream), ERR_OK);
    for (uint64_t step = 0; step < 4; step++) {
        const struct executor_hooks hooks = {0};
        const struct ticket train = {.kind = TICKET_TRAIN, .step = step, .node = {.level = 1}};
        const struct ticket validate = {.kind = TICKET_VALIDATE, .step = step};
        assert_int_equal(executor_run(executor, &train, &run->samples, &hooks, &loss), ERR_OK);
        digest_stream_add(&stream, (struct slice){(const uint8_t *)&loss, sizeof loss});
        for (uint32_t p = 0; p < run->model.parameters_count; p++) {
            size_t bytes = run->model.parameters[p].weights * sizeof(float);
            uint8_t *values = malloc(bytes);
            check(values);
            k->copy_out(k, values, executor_gradient(executor, p, 0), bytes);
            digest_stream_add(&stream, (struct slice){values, bytes});
            free(values);
        }
        assert_int_equal(executor_run(executor, &validate, &run->samples, &hooks, &loss), ERR_OK);
        digest_stream_add(&stream, (struct slice){(const uint8_t *)&loss, sizeof loss});
    }
    return digest_stream_finish(&stream);
}

static unsigned graphs_given(void)
{
#ifdef EMULATED
    return ((unsigned (*)(void))(uintptr_t)of_module("emulator_graphs"))();
#else
    return 0;
#endif
}

TEST(with_graphs_an_executor_has_the_same_bits)
{
    struct run run;
    run_begin(&run, KERNELS_CUDA, GPT, gpt_sets, SMALLER + 1);
    struct executor *direct = executor_of(&run, true), *replays = executor_of(&run, false);
    unsigned none = graphs_given();
    struct digest expected = digest_of_tickets(&run, direct);
    assert_int_equal(graphs_given(), none);
    struct digest digest = digest_of_tickets(&run, replays);
    assert_memory_equal(&digest, &expected, sizeof digest);
    assert_false(executor_refused_graphs(replays));
#ifdef EMULATED
    assert_true(graphs_given() > none + 2 * executor_program(replays)->places->rows_count);
#endif
    executor_free(direct);
    executor_free(replays);
    run_end(&run);
}

#ifdef EMULATED
TEST(a_device_without_graphs_computes_the_same)
{
    struct run run;
    run_begin(&run, KERNELS_CUDA, GPT, gpt_sets, SMALLER);
    struct executor *direct = executor_of(&run, true), *refused = executor_of(&run, false);
    struct digest expected = digest_of_tickets(&run, direct);
    setenv("ROOST_EMULATED_GRAPHS", "none", 1);
    struct digest digest = digest_of_tickets(&run, refused);
    unsetenv("ROOST_EMULATED_GRAPHS");
    assert_memory_equal(&digest, &expected, sizeof digest);
    assert_true(executor_refused_graphs(refused));
    executor_free(direct);
    executor_free(refused);
    run_end(&run);
}

static void wait_for(void *context)
{
    const struct kernels *k = context;
    k->synchronize(k);
}

TEST(what_waits_cannot_be_a_graph)
{
    struct run run;
    run_begin(&run, KERNELS_CUDA, GPT, gpt_sets, SMALLER);
    assert_null(run.computes->graph_new(run.computes, wait_for, (void *)(uintptr_t)run.computes));
    assert_null(run.computes->synchronize(run.computes)); /* nothing else is lost */
    run_end(&run);
}

/* What the hooks of a run see of the emulated device. */
struct watched {
    struct executor *executor;
    const struct model *model;
    unsigned (*waits)(void);
    uint64_t (*left)(void);
    unsigned waits_before;
    uint32_t before; /* the unit pushed before, units_count: none */
    bool encodes;
    uint64_t digests[8]; /* of units, as encoded during the run */
};

static uint64_t encode_chunk(const struct watched *watched, uint32_t chunk, uint32_t part)
{
    static uint8_t bytes[MODEL_CHUNK_WEIGHTS_MAX * sizeof(float)];
    executor_encode(watched->executor, chunk, part, CODEC_FP32, bytes);
    assert_int_equal(executor_encoded(watched->executor), ERR_OK);
    size_t count = blocks_bytes(watched->model, chunk, CODEC_FP32);
    return digest_fast64((struct slice){bytes, count});
}

/* A digest of the unit's gradients. */
static uint64_t encode_unit(const struct watched *watched, uint32_t unit)
{
    uint64_t digest = 0;
    const struct model_unit *u = &watched->model->units[unit];
    for (uint32_t i = u->use_first; i < u->use_first + u->uses_count; i++) {
        struct model_use use = watched->model->uses[i];
        const struct model_parameter *parameter = &watched->model->parameters[use.parameter];
        for (uint32_t c = 0; c < parameter->chunks_count; c++)
            digest = digest * 31 + encode_chunk(watched, parameter->chunk_first + c, use.part);
    }
    return digest;
}

/* From one unit's push to the next one's nothing waits; and when gradients are fetched, what comes
 * after their unit is not waited for. */
static enum err watch_push(void *context, uint32_t unit, struct node node)
{
    (void)node;
    struct watched *watched = context;
    if (watched->before != watched->model->units_count) {
        assert_int_equal(watched->waits(), watched->waits_before);
        assert_true(watched->left() > 0);
        if (watched->encodes) {
            watched->digests[watched->before] = encode_unit(watched, watched->before);
            assert_true(watched->left() > 0);
        }
    }
    watched->waits_before = watched->waits();
    watched->before = unit;
    return ERR_OK;
}

TEST(gradients_leave_while_the_next_units_are_computed)
{
    struct run run;
    for (int encodes = 0; encodes < 2; encodes++) {
        run_begin(&run, KERNELS_CUDA, GPT, gpt_sets, SMALLER);
        struct watched watched = {.executor = reference_executor(run.reference, 0),
                                  .model = &run.model,
                                  .before = run.model.units_count,
                                  .encodes = encodes};
        watched.waits = (unsigned (*)(void))(uintptr_t)of_module("emulator_waits");
        watched.left = (uint64_t(*)(void))(uintptr_t)of_module("emulator_left");
        const struct executor_hooks hooks = {.context = &watched, .push = watch_push};
        const struct ticket ticket = {.kind = TICKET_TRAIN}; /* its slot 0 */
        struct executor_loss loss;
        assert_int_equal(executor_run(watched.executor, &ticket, &run.samples, &hooks, &loss),
                         ERR_OK);
        assert_int_equal(watched.before, 0);
        for (uint32_t unit = 1; encodes && unit < run.model.units_count; unit++)
            assert_true(encode_unit(&watched, unit) == watched.digests[unit]);
        assert_int_equal(watched.left(), 0);
        run_end(&run);
    }
}
#endif

int main(int count, char **words)
{
    unit_choose(count, words);
#ifndef EMULATED
    const struct kernels_options options = {.backend = KERNELS_CUDA};
    const struct kernels *k;
    char reason[256];
    if (!kernels_new(&options, &k, reason, sizeof reason)) {
        printf("1..1\nok 1 - training on a device # SKIP %s\n", reason);
        return 0;
    }
    kernels_free(k);
#endif
    return unit_run(NULL, NULL);
}
