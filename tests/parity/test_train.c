/* Twenty steps of whole training against PyTorch: executor, shard, seal, clipping, schedule, AdamW.
 * The golden files are float64 (tests/golden/make_train.py); ours is fp32. Runs in the
 * repository's root. */
#include "tests/unit/unit.h"

#include "tests/parity/train.h"

#include <math.h>

enum { STEPS = 20 };

/* Relative, of a step's loss; a tenth of a step's norm. float32 in PyTorch is 1e-7 away. */
static const double tolerance = 1e-5;

struct golden {
    double loss[STEPS], norm[STEPS];
};

static void read_golden(const char *path, struct golden *ret_golden)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char comment[256];
    assert_non_null(fgets(comment, sizeof comment, file));
    for (int step = 0; step < STEPS; step++)
        assert_int_equal(fscanf(file, "%lf %lf", &ret_golden->loss[step], &ret_golden->norm[step]),
                         2);
    fclose(file);
}

static double relative(double value, double wanted)
{
    return fabs(value - wanted) / fabs(wanted);
}

/* The largest relative difference of a step's loss. */
static double worst_loss(struct run *run, const struct golden *golden)
{
    double worst = 0;
    for (int step = 0; step < STEPS; step++) {
        struct seal_metrics metrics;
        assert_int_equal(reference_step(run->reference, &metrics), ERR_OK);
        worst = worst_of(worst, relative(metrics.loss, golden->loss[step]));
        worst = worst_of(worst, relative(metrics.norm, golden->norm[step]) / 10);
    }
    return worst;
}

static void compare(const char *spec_path, const char *golden_path, const char *const *sets,
                    size_t sets_count)
{
    struct run run;
    struct golden golden;
    read_golden(golden_path, &golden);
    run_begin(&run, KERNELS_CPU, spec_path, sets, sets_count);
    double worst = worst_loss(&run, &golden);
    print_message("# %s: at most %.1e away\n", spec_path, worst);
    assert_true(worst < tolerance);
    run_end(&run);
}

TEST(twenty_steps_of_a_gpt_have_pytorchs_losses)
{
    compare("tests/golden/train20_gpt.yaml", "tests/golden/train20_gpt.txt", NULL, 0);
}

TEST(other_microbatches_and_recompute_do_not_leave_the_tolerance)
{
    static const char *const sets[] = {"train.microbatch=2", "train.recompute=true",
                                       "train.logits_bytes_max=65536"};
    compare("tests/golden/train20_gpt.yaml", "tests/golden/train20_gpt.txt", sets, 3);
}

TEST(twenty_steps_of_an_mlp_have_pytorchs_losses)
{
    compare("tests/golden/train20_mlp.yaml", "tests/golden/train20_mlp.txt", NULL, 0);
}

TEST(twenty_steps_of_a_llama_have_transformers_losses)
{
    static const char *const sets[] = {"train.microbatch=2", "train.recompute=true",
                                       "train.logits_bytes_max=65536"};
    compare("tests/golden/train20_llama.yaml", "tests/golden/train20_llama.txt", NULL, 0);
    compare("tests/golden/train20_llama.yaml", "tests/golden/train20_llama.txt", sets, 3);
}

/* The comparison can fail: a slightly other rate is found. */
TEST(a_rate_that_is_one_percent_off_is_found)
{
    static const char *const sets[] = {"optimizer.lr=0.01010"};
    struct run run;
    struct golden golden;
    read_golden("tests/golden/train20_mlp.txt", &golden);
    run_begin(&run, KERNELS_CPU, "tests/golden/train20_mlp.yaml", sets, 1);
    assert_true(worst_loss(&run, &golden) > 10 * tolerance);
    run_end(&run);
}
