/* Whole training on the device against the same training on the CPU: executor and model call the
 * operations, the reference's shard sums and updates on the CPU. Runs in the repository's root.
 * Without a device: one skipped test. With -DEMULATED, fewer steps of something smaller. */
#include "tests/unit/unit.h"

#include "tests/parity/train.h"
#include "worker/fingerprint.h"

#include <math.h>
#include <string.h>

#define GPT "tests/golden/train20_gpt.yaml"
#define MLP "tests/golden/train20_mlp.yaml"

#ifdef EMULATED
enum { STEPS = 2, SMALLER = 6 };
static const char *const gpt_sets[] = {
    "model.layers=1",       "model.width=32",       "model.context=24",
    "data.validation=0.02", "train.slots=3",        "train.slot_samples=1",
    "train.recompute=true", "train.precision=bf16", "train.compute=bf16"};
static const char *const mlp_sets[] = {"train.slots=3"};
#else
enum { STEPS = 20, SMALLER = 0 };
static const char *const gpt_sets[] = {"train.recompute=true", "train.precision=bf16",
                                       "train.compute=bf16"};
static const char *const mlp_sets[] = {"train.slots=6"};
#endif

/* Relative, of a loss; in bf16 a rounding may turn out the other way. */
static const double tolerance = 1e-4, tolerance_bf16 = 1e-2;

struct curve {
    double loss[STEPS], validation;
    struct digest digest;
};

static void train(enum kernels_backend backend, const char *spec_path, const char *const *sets,
                  size_t sets_count, struct curve *ret_curve)
{
    struct run run;
    struct executor_loss validation;
    run_begin(&run, backend, spec_path, sets, sets_count);
    for (int step = 0; step < STEPS; step++) {
        struct seal_metrics metrics;
        enum err err = reference_step(run.reference, &metrics);
        if (err != ERR_OK)
            fail_msg("%s: %s", err_name(err), executor_failure(reference_executor(run.reference)));
        ret_curve->loss[step] = metrics.loss;
    }
    ret_curve->validation = 0;
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

static void compare(const char *spec_path, const char *const *sets, size_t sets_count, double limit)
{
    struct curve cpu, first, second;
    train(KERNELS_CPU, spec_path, sets, sets_count, &cpu);
    train(KERNELS_CUDA, spec_path, sets, sets_count, &first);
    train(KERNELS_CUDA, spec_path, sets, sets_count, &second);
    double worst = relative(first.validation, cpu.validation);
    for (int step = 0; step < STEPS; step++)
        worst = fmax(worst, relative(first.loss[step], cpu.loss[step]));
    print_message("# %s: loss at most %.1e away (limit %.0e)\n", spec_path, worst, limit);
    assert_true(worst <= limit);
    assert_memory_equal(&first, &second, sizeof first);
}

static void a_gpt_has_the_cpus_losses_and_twice_the_same_bits(void **state)
{
    (void)state;
    compare(GPT, gpt_sets, SMALLER, tolerance);
}

static void so_it_has_with_recompute(void **state)
{
    (void)state;
    compare(GPT, gpt_sets, SMALLER + 1, tolerance);
}

static void in_bf16_it_has_nearly_the_cpus_losses(void **state)
{
    (void)state;
    compare(GPT, gpt_sets, SMALLER + 2, tolerance_bf16);
}

/* The CPU computes in fp32 all the same. */
static void with_bf16_elements_it_has_nearly_the_cpus_losses(void **state)
{
    (void)state;
    compare(GPT, gpt_sets, SMALLER + 3, tolerance_bf16);
}

static void an_mlp_with_bf16_elements_as_well(void **state)
{
    (void)state;
    static const char *const sets[] = {"train.slots=3", "train.compute=bf16"};
    compare(MLP, sets, 2, tolerance_bf16);
}

static void an_mlp_has_the_cpus_losses_and_twice_the_same_bits(void **state)
{
    (void)state;
    compare(MLP, mlp_sets, 1, tolerance);
}

static struct digest fingerprint(const struct run *run)
{
    struct digest digest;
    struct reason reason = {.text = ""};
    must(fingerprint_probe(run->computes, &run->model, &run->spec.train, &digest, &reason),
         &reason);
    return digest;
}

static void the_device_has_one_fingerprint_and_not_the_cpus(void **state)
{
    (void)state;
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

/* An executor of the small gpt with so many samples a microbatch, on a device opened for it. */
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
    if (err == ERR_OK)
        *ret_memory = executor_memory(executor);
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

static void a_run_that_does_not_fit_is_refused_with_what_needs_what(void **state)
{
    (void)state;
    struct reason reason = {.text = ""};
    struct executor_memory memory = {0};
    struct kernels_memory device;
    assert_int_equal(new_executor(1, &memory, &device, &reason), ERR_OK);
    assert_true(memory.total < device.free && device.free + device.own <= device.total);
    assert_true(memory.workspace == device.own && device.own > 0);
    assert_int_equal(new_executor(100000000, &memory, &device, &reason), ERR_NOMEM);
    print_message("# %s\n", reason.text);
    char weights[64];
    snprintf(weights, sizeof weights, "weights %llu, gradients",
             (unsigned long long)memory.weights);
    assert_says(&reason, weights);
    assert_says(&reason, "train.microbatch");
    assert_says(&reason, "train.node_slots (gradients)"); /* its end */
}

#ifdef EMULATED
/* With just enough memory, and with a page less. */
static void the_ledger_is_what_is_taken(void **state)
{
    (void)state;
    struct reason reason = {.text = ""};
    struct executor_memory memory = {0};
    struct kernels_memory device;
    assert_int_equal(new_executor(1, &memory, &device, &reason), ERR_OK);
    for (int missing = 0; missing < 2; missing++) {
        char bytes[32];
        uint64_t taken = device.total - device.free + (memory.total + 4095) / 4096 * 4096;
        snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)(missing ? taken - 4096 : taken));
        setenv("ROOST_EMULATED_BYTES", bytes, 1);
        assert_int_equal(new_executor(1, &memory, &device, &reason), missing ? ERR_NOMEM : ERR_OK);
        unsetenv("ROOST_EMULATED_BYTES");
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpt_has_the_cpus_losses_and_twice_the_same_bits),
        cmocka_unit_test(so_it_has_with_recompute),
        cmocka_unit_test(in_bf16_it_has_nearly_the_cpus_losses),
        cmocka_unit_test(with_bf16_elements_it_has_nearly_the_cpus_losses),
        cmocka_unit_test(an_mlp_with_bf16_elements_as_well),
        cmocka_unit_test(an_mlp_has_the_cpus_losses_and_twice_the_same_bits),
        cmocka_unit_test(the_device_has_one_fingerprint_and_not_the_cpus),
        cmocka_unit_test(a_run_that_does_not_fit_is_refused_with_what_needs_what),
#ifdef EMULATED
        cmocka_unit_test(the_ledger_is_what_is_taken),
#endif
    };
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
    return cmocka_run_group_tests(tests, NULL, NULL);
}
