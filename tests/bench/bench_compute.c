/* Forward and backward of a gpt: bench_compute [cuda] [STEPS [MODEL-SETTING…]]
 *
 * GPT-2 124M, B 4, T 64, fp32, one thread; `bench_compute.py` is the same in PyTorch, and
 * `tests/bench/compute` runs the two in turn and prints the ratio. Prints a step a line: CPU
 * seconds, on a GPU those of the clock. */
#include "common/scoped.h"
#include "common/spec.h"
#include "common/time.h"
#include "worker/executor.h"

#include <string.h>

static const char spec_text[] =
    "model: {kind: gpt, layers: 12, heads: 12, width: 768, context: 64, vocabulary: 50257}\n"
    "data: {kind: tokens, path: unused}\n"
    "train: {slots: 1, slot_samples: 4, microbatch: 4, logits_bytes_max: 60000000}\n";

static enum err read_samples(void *context, enum ticket_kind kind, uint64_t first, uint32_t count,
                             void *ret_inputs, int32_t *ret_targets)
{
    const struct spec *spec = context;
    (void)kind;
    uint32_t n = count * spec->model.context;
    for (uint32_t i = 0; i < n; i++) {
        ((int32_t *)ret_inputs)[i] = (int32_t)((first + i) * 7919 % spec->model.vocabulary);
        ret_targets[i] = (int32_t)((first + i + 1) * 7919 % spec->model.vocabulary);
    }
    return ERR_OK;
}

static enum err no_pull(void *context, uint32_t unit)
{
    (void)context;
    (void)unit;
    return ERR_OK;
}

static bool never(void *context)
{
    (void)context;
    return false;
}

/* Small weights that cost nothing to make. */
static void fill_weights(struct executor *executor, const struct model *model)
{
    for (uint32_t p = 0; p < model->parameters_count; p++) {
        float *weights = executor_weights(executor, p);
        for (uint64_t i = 0; i < model->parameters[p].weights; i++)
            weights[i] = ((float)((i * 2654435761u) >> 8 & 0xffff) / 65536.0f - 0.5f) * 0.04f;
    }
}

/* On a GPU the clock decides, and executor_run() returns when the device is done. */
static enum err measure(const struct spec *spec, const struct model *model,
                        struct executor *executor, uint64_t (*now_ns)(void), unsigned steps)
{
    struct executor_samples samples = {(void *)(uintptr_t)spec, read_samples, 0};
    struct executor_hooks hooks = {NULL, no_pull, no_pull, never};
    fill_weights(executor, model);
    for (unsigned step = 0; step <= steps; step++) { /* the first one warms up */
        struct ticket ticket = {.kind = TICKET_TRAIN, .step = step};
        struct executor_loss loss;
        uint64_t begun = now_ns();
        TRY(executor_run(executor, &ticket, &samples, &hooks, &loss));
        if (step > 0)
            printf("%.4f\n", (double)(now_ns() - begun) / 1e9);
        fflush(stdout);
    }
    return ERR_OK;
}

static enum err bench(enum kernels_backend backend, unsigned steps,
                      const struct config_overrides *overrides, struct reason *reason)
{
    struct slice text = {(const uint8_t *)spec_text, sizeof spec_text - 1};
    struct spec spec;
    struct model model;
    const struct kernels *kernels;
    struct executor *executor;
    TRY(spec_parse(text, "bench", overrides, &spec, reason));
    TRY(model_init(&model, &spec.model, reason));
    struct kernels_options options = {
        .backend = backend, .gemm_core = spec.train.gemm_core, .gemm_threads = 1};
    if (!kernels_new(&options, &kernels, reason->text, sizeof reason->text))
        return ERR_UNSUPPORTED;
    struct executor_options executor_options = {
        .kernels = kernels, .model = &model, .train = &spec.train, .node_slots_max = 1};
    TRY(executor_new(&executor_options, &executor, reason));
    struct executor_memory memory = executor_memory(executor);
    fprintf(stderr,
            "%s; weights %.0f MB, gradients %.0f MB, activations %.0f MB, scratch %.0f MB\n",
            kernels->numerics, (double)memory.weights / 1e6, (double)memory.gradients / 1e6,
            (double)memory.activations / 1e6, (double)memory.scratch / 1e6);
    uint64_t (*now_ns)(void) = backend == KERNELS_CUDA ? time_now_ns : time_cpu_ns;
    enum err err = measure(&spec, &model, executor, now_ns, steps);
    executor_free(executor);
    kernels_free(kernels);
    model_release(&model);
    return err;
}

int main(int argc, char **argv)
{
    enum kernels_backend backend = KERNELS_CPU;
    if (argc > 1 && strcmp(argv[1], "cuda") == 0) {
        backend = KERNELS_CUDA;
        argc--, argv++;
    }
    unsigned steps = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 7;
    struct config_overrides overrides = {.flags = (const char *const *)argv + 2,
                                         .flags_count = argc > 2 ? (size_t)argc - 2 : 0};
    struct reason reason = {0};
    enum err err = bench(backend, steps, &overrides, &reason);
    if (err != ERR_OK)
        fprintf(stderr, "bench_compute: %s: %s\n", err_text(err), reason.text);
    return err != ERR_OK;
}
