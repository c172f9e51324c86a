/* Softmax and cross-entropy over rows of logits. */
#include "tests/unit/test_kernels.h"

/* log of the sum of exponentials */
static double exact_lse(const float *logits, int64_t V)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t v = 0; v < V; v++)
        largest = fmax(largest, logits[v]);
    for (int64_t v = 0; v < V; v++)
        sum += exp(logits[v] - largest);
    return log(sum) + largest;
}

TEST_ON_CPU(loss_and_gradient_are_their_formulas)
{
    const int64_t N = 3, sizes[] = {1, 2, 16, 33, 50257};
    for (int s = 0; s < 5; s++) {
        int64_t V = sizes[s], Vp = V + 47;
        scoped(arrays_release) struct arrays a = {0};
        float *logits = arrays_floats(&a, 1, N * Vp, 8), *losses = arrays_floats(&a, 0, N, 0);
        float *kept = arrays_floats(&a, 1, N * Vp, 8);
        int32_t *targets = arrays_integers(&a, 2, N, V);
        double *expected = arrays_take(&a, (size_t)(N * Vp) * sizeof *expected), exact[3];
        for (int64_t n = 0; n < N; n++) {
            double lse = exact_lse(logits + n * Vp, V);
            exact[n] = lse - logits[n * Vp + targets[n]];
            for (int64_t v = 0; v < V; v++)
                expected[n * Vp + v] = 0.25 * (exp(logits[n * Vp + v] - lse) - (v == targets[n]));
        }
        k->classifier_forward(k, losses, NULL, logits, targets, N, V, Vp);
        assert_memory_equal(logits, kept, (size_t)(N * Vp) * sizeof *logits);
        assert_true(distance(losses, exact, N) < 1e-6);
        k->classifier_forward_backward(k, losses, NULL, logits, targets, 0.25f, N, V, Vp);
        assert_true(distance(losses, exact, N) < 1e-6);
        assert_true(distance(logits, expected, N * Vp) < 1e-6);
        for (int64_t v = V; v < Vp; v++)
            assert_true(logits[v] == 0);
    }
}

TEST_ON_CPU(padded_columns_are_not_looked_at)
{
    float logits[2 * 5] = {1, 2, 3, 100, NAN, 1, 2, 3, NAN, INFINITY}, losses[2];
    int32_t correct[2];
    k->classifier_forward_backward(k, losses, correct, logits, (const int32_t[]){2, 2}, 1, 2, 3, 5);
    assert_true(losses[0] == losses[1] && fabsf(losses[0] - 0.40760596f) < 1e-6f);
    assert_true(correct[0] == 1 && correct[1] == 1);
    assert_true(logits[3] == 0 && logits[4] == 0 && logits[8] == 0 && logits[9] == 0);
}

TEST_ON_CPU(the_lowest_index_of_equal_logits_is_the_prediction)
{
    float logits[40], loss;
    for (int32_t second = 0; second < 40; second++) {
        for (int i = 0; i < 40; i++)
            logits[i] = -1;
        logits[5] = logits[second] = 3;
        for (int32_t target = 0; target < 40; target++) {
            int32_t correct = -1;
            k->classifier_forward(k, &loss, &correct, logits, &target, 1, 40, 40);
            assert_int_equal(correct, target == (second < 5 ? second : 5));
        }
    }
}

TEST_ON_CPU(a_negative_target_is_a_row_that_does_not_count)
{
    float logits[4] = {1, 2, 3, 4}, loss = 9;
    int32_t correct = 9, target = -1;
    k->classifier_forward(k, &loss, &correct, logits, &target, 1, 4, 4);
    assert_true(loss == 0 && correct == 0 && logits[3] == 4);
    loss = 9;
    correct = 9;
    k->classifier_forward_backward(k, &loss, &correct, logits, &target, 1, 1, 4, 4);
    assert_true(loss == 0 && correct == 0);
    for (int i = 0; i < 4; i++)
        assert_true(logits[i] == 0);
}

TEST_ON_CPU(large_logits_do_not_overflow)
{
    float logits[3] = {3e38f, -3e38f, 0}, loss;
    k->classifier_forward_backward(k, &loss, NULL, logits, (const int32_t[]){0}, 1, 1, 3, 3);
    assert_true(loss == 0 && logits[0] == 0 && logits[1] == 0 && logits[2] == 0);
}

TEST_ON_CPU(what_is_not_finite_ends_in_the_loss)
{
    const float wrong[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        for (int at = 0; at < 20; at++) {
            float logits[20] = {0}, loss = 0;
            logits[at] = wrong[i];
            k->classifier_forward_backward(k, &loss, NULL, logits, (const int32_t[]){4}, 1, 1, 20,
                                           20);
            assert_true(!isfinite(loss));
        }
    }
}
