/* Forward and backward of a gpt: bench_compute [cuda [WAY]] [STEPS [MODEL-SETTING…]]
 *
 * GPT-2 124M, B 4, T 64, fp32, one thread; `bench_compute.py` is the same in PyTorch, and
 * `tests/bench/compute` runs the two in turn and prints the ratio. Prints a step a line: CPU
 * seconds, on a GPU those of the clock. WAY may be `update`: each step ends with AdamW on the device,
 * on fp32 weights and state there, what a step takes where no server has them; `direct`: units are
 * given act by act, without graphs; `fastest`: after the first step all algorithms for its products
 * are timed (a line each, "candidate …"), and the fastest are taken. On stderr, last, the device
 * memory that was taken: by the ledger, and all of it as the device says. */
#include "common/scoped.h"
#include "common/settings/options.h"
#include "common/settings/spec.h"
#include "common/time.h"
#include "tests/bench/processor.h"
#include "tests/bench/tokens.h"
#include "worker/executor.h"

#include <stdlib.h>
#include <string.h>

enum { WARM = 2 }; /* steps before those that count: products are planned, graphs captured */

static const char spec_text[] =
    "model: {kind: gpt, layers: 12, heads: 12, width: 768, context: 64, vocabulary: 50257}\n"
    "data: {kind: tokens, path: unused}\n"
    "train: {slots: 1, slot_samples: 4, microbatch: 4, logits_bytes_max: 60000000}\n";

/* The samples of all steps, as a worker has them: a file in memory. */
struct text {
    int32_t *tokens;
    uint32_t context; /* tokens of a sample */
};

static struct text new_text(const struct spec *spec, unsigned steps)
{
    uint64_t n = (uint64_t)steps * spec->train.slot_samples * spec->model.context + 1;
    struct text text = {malloc(n * sizeof *text.tokens), spec->model.context};
    check(text.tokens);
    for (uint64_t i = 0; i < n; i++)
        text.tokens[i] = token_at(i, spec->model.vocabulary);
    return text;
}

static enum err read_samples(void *context, enum ticket_kind kind, uint64_t first, uint32_t count,
                             void *ret_inputs, int32_t *ret_targets)
{
    const struct text *text = context;
    (void)kind;
    const int32_t *from = text->tokens + first * text->context;
    size_t bytes = (size_t)count * text->context * sizeof *from;
    memcpy(ret_inputs, from, bytes);
    memcpy(ret_targets, from + 1, bytes);
    return ERR_OK;
}

static enum err no_pull(void *context, uint32_t unit)
{
    (void)context;
    (void)unit;
    return ERR_OK;
}

static enum err no_push(void *context, uint32_t unit, struct node node)
{
    (void)context;
    (void)unit;
    (void)node;
    return ERR_OK;
}

static bool never(void *context)
{
    (void)context;
    return false;
}

/* -- weights ----------------------------------------------------------------------------------- */

/* What `update` keeps beside the executor's weights. */
struct master {
    float *weights, *moment, *variance;
};

/* Small values that cost nothing to make. */
static float *host_values(uint64_t n)
{
    float *values = malloc(n * sizeof *values);
    check(values);
    for (uint64_t i = 0; i < n; i++)
        values[i] = ((float)((i * 2654435761u) >> 8 & 0xffff) / 65536.0f - 0.5f) * 0.04f;
    return values;
}

static void fill_weights(const struct kernels *k, const struct model *model,
                         struct executor *executor)
{
    for (uint32_t p = 0; p < model->parameters_count; p++) {
        uint64_t n = model->parameters[p].weights;
        float *values = host_values(n);
        k->cast_from_f32(k, executor_weights(executor, p), values, (int64_t)n);
        free(values);
    }
}

static float *take_floats(const struct kernels *k, uint64_t n, uint64_t *bytes)
{
    float *memory = k->alloc(k, n * sizeof *memory);
    check(memory);
    k->zero(k, memory, n * sizeof *memory);
    *bytes += n * sizeof *memory;
    return memory;
}

static void take_masters(const struct kernels *k, const struct model *model, struct master *masters,
                         uint64_t *bytes)
{
    for (uint32_t p = 0; p < model->parameters_count; p++) {
        uint64_t n = model->parameters[p].weights;
        float *values = host_values(n);
        masters[p] = (struct master){take_floats(k, n, bytes), take_floats(k, n, bytes),
                                     take_floats(k, n, bytes)};
        k->copy_in(k, masters[p].weights, values, n * sizeof *values);
        free(values);
    }
}

static void free_masters(const struct kernels *k, const struct model *model,
                         const struct master *masters)
{
    for (uint32_t p = 0; p < model->parameters_count; p++) {
        k->free(k, masters[p].weights);
        k->free(k, masters[p].moment);
        k->free(k, masters[p].variance);
    }
}

/* The parts' sum, and AdamW, which publishes where the executor computes on. */
static void update(const struct kernels *k, const struct model *model, struct executor *executor,
                   const struct master *masters)
{
    static const struct kernels_adamw step = {1, 1, 0.9f, 0.1f, 0.95f, 0.05f, 1e-6f, 1, 1e-8f};
    enum kernels_format format = k->element_bytes == 2 ? KERNELS_BF16 : KERNELS_F32;
    for (uint32_t p = 0; p < model->parameters_count; p++) {
        const struct model_parameter *parameter = &model->parameters[p];
        int64_t n = (int64_t)parameter->weights;
        if (parameter->rule != MODEL_OPTIMIZER)
            continue;
        float *gradient = (float *)executor_gradient(executor, p, 0);
        for (uint32_t part = 1; part < parameter->parts; part++)
            k->add(k, gradient, gradient, executor_gradient(executor, p, part), n);
        k->adamw(k, masters[p].weights, masters[p].moment, masters[p].variance,
                 executor_weights(executor, p), format, gradient, &step, n);
    }
}

/* -- steps ------------------------------------------------------------------------------------- */

struct run {
    const struct text *text;
    const struct model *model;
    const struct kernels *kernels;
    struct executor *executor;
    struct master *masters;   /* NULL: no update */
    uint64_t (*now_ns)(void); /* on a GPU the clock decides */
    unsigned steps;
    bool takes_fastest;
};

static void print_candidate(void *context, const struct kernels_candidate *candidate)
{
    (void)context;
    printf("candidate %s %s %.1f us %.1f TFLOP/s%s%s\n", candidate->shape, candidate->algorithm,
           candidate->microseconds, candidate->teraflops, candidate->is_first ? " first" : "",
           candidate->is_fastest ? " taken" : "");
}

static enum err step(const struct run *run, uint64_t number)
{
    const struct executor_samples samples = {(void *)(uintptr_t)run->text, read_samples, 0};
    const struct executor_hooks hooks = {.pull = no_pull, .push = no_push, .cancelled = never};
    const struct ticket ticket = {.kind = TICKET_TRAIN, .step = number};
    struct executor_loss loss;
    TRY(executor_run(run->executor, &ticket, &samples, &hooks, &loss));
    if (run->masters)
        update(run->kernels, run->model, run->executor, run->masters);
    return run->kernels->synchronize(run->kernels) == NULL ? ERR_OK : ERR_IO;
}

static enum err measure(const struct run *run)
{
    fill_weights(run->kernels, run->model, run->executor);
    for (unsigned i = 0; i < WARM + run->steps; i++) {
        uint64_t begun = run->now_ns();
        TRY(step(run, i));
        if (i >= WARM)
            printf("%.6f\n", (double)(run->now_ns() - begun) / 1e9);
        if (i == 0 && run->takes_fastest)
            run->kernels->time_products(run->kernels, print_candidate, NULL);
        fflush(stdout);
    }
    return ERR_OK;
}

static void print_memory(const struct run *run, uint64_t bytes)
{
    struct executor_memory memory = executor_memory(run->executor);
    struct kernels_memory device;
    run->kernels->memory(run->kernels, &device);
    fprintf(stderr,
            "%s\nweights %.0f MB, gradients %.0f MB, activations %.0f MB, scratch %.0f MB\n"
            "peak %.0f MiB\ndevice %.0f MiB\n",
            run->kernels->numerics, (double)memory.weights / 1e6, (double)memory.gradients / 1e6,
            (double)memory.activations / 1e6, (double)memory.scratch / 1e6,
            (double)bytes / (1 << 20), (double)(device.total - device.free) / (1 << 20));
}

static enum err bench_run(struct run *run, bool updates)
{
    struct executor_memory memory = executor_memory(run->executor);
    uint64_t bytes = memory.total + memory.workspace;
    if (updates) {
        run->masters = calloc(run->model->parameters_count, sizeof *run->masters);
        check(run->masters);
        take_masters(run->kernels, run->model, run->masters, &bytes);
    }
    enum err err = measure(run);
    print_memory(run, bytes);
    if (updates)
        free_masters(run->kernels, run->model, run->masters);
    free(run->masters);
    return err;
}

static enum err bench(enum kernels_backend backend, const char *way, unsigned steps,
                      const struct config_overrides *overrides, struct reason *reason)
{
    struct slice yaml = {(const uint8_t *)spec_text, sizeof spec_text - 1};
    struct spec spec;
    struct model model;
    struct run run = {.model = &model, .steps = steps};
    TRY(spec_parse(yaml, "bench", overrides, &spec, reason));
    TRY(model_init(&model, &spec.model, reason));
    struct kernels_options options = {.backend = backend,
                                      .gemm_core = spec.train.gemm_core,
                                      .gemm_threads = 1,
                                      .python_path = options_environment("PATH", NULL),
                                      .compute = (enum kernels_compute)spec.train.compute};
    if (!kernels_new(&options, &run.kernels, reason->text, sizeof reason->text))
        return ERR_UNSUPPORTED;
    struct executor_options executor_options = {.kernels = run.kernels,
                                                .model = &model,
                                                .train = &spec.train,
                                                .node_slots_max = 1,
                                                .direct = strcmp(way, "direct") == 0};
    TRY(executor_new(&executor_options, &run.executor, reason));
    run.now_ns = backend == KERNELS_CUDA ? time_now_ns : processor_ns;
    run.takes_fastest = strcmp(way, "fastest") == 0;
    struct text samples = new_text(&spec, WARM + steps);
    run.text = &samples;
    enum err err = bench_run(&run, strcmp(way, "update") == 0);
    if (err == ERR_IO)
        reason_set(reason, err, "%s", executor_failure(run.executor));
    free(samples.tokens);
    executor_free(run.executor);
    kernels_free(run.kernels);
    model_release(&model);
    return err;
}

static bool is_way(const char *word)
{
    return strcmp(word, "update") == 0 || strcmp(word, "direct") == 0 ||
           strcmp(word, "fastest") == 0;
}

int main(int argc, char **argv)
{
    enum kernels_backend backend = KERNELS_CPU;
    const char *way = "";
    if (argc > 1 && strcmp(argv[1], "cuda") == 0) {
        backend = KERNELS_CUDA;
        argc--, argv++;
        if (argc > 1 && is_way(argv[1])) {
            way = argv[1];
            argc--, argv++;
        }
    }
    unsigned steps = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 7;
    struct config_overrides overrides = {.flags = (const char *const *)argv + 2,
                                         .flags_count = argc > 2 ? (size_t)argc - 2 : 0};
    struct reason reason = {0};
    enum err err = bench(backend, way, steps, &overrides, &reason);
    if (err != ERR_OK)
        fprintf(stderr, "bench_compute: %s: %s\n", err_text(err), reason.text);
    return err != ERR_OK;
}
