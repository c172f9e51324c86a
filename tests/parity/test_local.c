/* Local steps against what they must come to: plain training, step for step, where the two are the
 * same by algebra. Differences are the roundings of "pulled minus reached" and of the mean. Runs in
 * the repository's root. */
#include "tests/unit/unit.h"

#include "tests/parity/train.h"

#include <math.h>

/* Of weights of about 1, after all steps: some float32 roundings each. */
static const double tolerance = 2e-6;

enum { SETS_MAX = 16 };

/* `steps` steps of tests/parity/local_NAME.yaml with settings over it, end of list NULL. */
static void train(struct run *run, const char *name, uint64_t steps, const char *const *sets)
{
    char path[100];
    struct seal_metrics metrics;
    size_t count = 0;
    while (sets[count] != NULL)
        count++;
    snprintf(path, sizeof path, "tests/parity/local_%s.yaml", name);
    run_begin(run, KERNELS_CPU, path, sets, count);
    for (uint64_t step = 0; step < steps; step++)
        assert_int_equal(reference_step(run->reference, &metrics), ERR_OK);
}

/* The largest difference of any weight; *ret_moved: the largest that training made. */
static double distance(struct run *a, struct run *b, double *ret_moved)
{
    static float left[MODEL_CHUNK_WEIGHTS_MAX], right[MODEL_CHUNK_WEIGHTS_MAX];
    static float initial[MODEL_CHUNK_WEIGHTS_MAX];
    double worst = 0;
    *ret_moved = 0;
    for (uint32_t chunk = 0; chunk < a->model.chunks_count; chunk++) {
        if (a->model.chunks[chunk].parameter == a->model.loss_parameter)
            continue;
        reference_read(a->reference, chunk, 0, left);
        reference_read(b->reference, chunk, 0, right);
        model_initial(&a->model, a->spec.train.seed, chunk, initial);
        for (uint32_t i = 0; i < a->model.chunks[chunk].weights; i++) {
            worst = worst_of(worst, fabs((double)left[i] - (double)right[i]));
            *ret_moved = worst_of(*ret_moved, fabs((double)left[i] - (double)initial[i]));
        }
    }
    return worst;
}

struct side {
    uint64_t steps;
    const char *sets[SETS_MAX];
};

static void come_to_the_same(const char *name, const struct side *plain, const struct side *local)
{
    struct run a, b;
    double moved;
    train(&a, name, plain->steps, plain->sets);
    train(&b, name, local->steps, local->sets);
    double worst = distance(&a, &b, &moved);
    print_message("# %s: at most %.1e apart, moved by up to %.1e\n", name, worst, moved);
    assert_true(moved > 1000 * tolerance);
    assert_true(worst < tolerance);
    run_end(&a);
    run_end(&b);
}

#define SGD "optimizer.kind=sgd", "optimizer.lr=0.1", "optimizer.weight_decay=0.01"
#define NO_DECAY "optimizer.weight_decay=0"

static const char *const models[] = {"mlp", "gpt"};

TEST(one_local_step_of_sgd_and_the_average_is_sync_sgd)
{
    const struct side plain = {20, {SGD}};
    const struct side local = {20, {SGD, "consistency.kind=local", "consistency.local_steps=1"}};
    for (size_t i = 0; i < 2; i++)
        come_to_the_same(models[i], &plain, &local);
}

TEST(one_slot_makes_the_steps_that_sync_makes)
{
    const struct side plain = {20, {"train.slots=1", "optimizer.lr=0.01", "optimizer.clip_norm=1"}};
    const struct side local = {1,
                               {"train.slots=1", "optimizer.lr=0.01", "optimizer.clip_norm=1",
                                "consistency.kind=local", "consistency.local_steps=20",
                                "train.steps=1"}};
    for (size_t i = 0; i < 2; i++)
        come_to_the_same(models[i], &plain, &local);
}

TEST(sgd_keeps_no_state_so_rounds_are_steps)
{
    const struct side plain = {20, {SGD, "train.slots=1"}};
    const struct side local = {
        5, {SGD, "train.slots=1", "consistency.kind=local", "consistency.local_steps=4"}};
    for (size_t i = 0; i < 2; i++)
        come_to_the_same(models[i], &plain, &local);
}

TEST(outer_nesterov_on_one_step_of_sgd_is_nesterov_with_both_rates)
{
    const struct side plain = {20,
                               {NO_DECAY, "optimizer.kind=momentum", "optimizer.nesterov=true",
                                "optimizer.momentum=0.8", "optimizer.lr=0.05"}};
    const struct side local = {20,
                               {NO_DECAY, "optimizer.kind=sgd", "optimizer.lr=0.1",
                                "consistency.kind=local", "consistency.local_steps=1",
                                "consistency.outer.kind=nesterov", "consistency.outer.lr=0.5",
                                "consistency.outer.momentum=0.8"}};
    for (size_t i = 0; i < 2; i++)
        come_to_the_same(models[i], &plain, &local);
}

TEST(activations_computed_again_leave_no_trace)
{
    const char *const sets[] = {"consistency.kind=local", "consistency.local_steps=3", NULL};
    const char *const again[] = {"consistency.kind=local", "consistency.local_steps=3",
                                 "train.recompute=true", NULL};
    struct run a, b;
    double moved;
    train(&a, "gpt", 3, sets);
    train(&b, "gpt", 3, again);
    assert_true(distance(&a, &b, &moved) == 0);
    assert_true(moved > 0);
    run_end(&a);
    run_end(&b);
}
