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

/* ---- by pieces ---- */

/* A block of logits in pieces: (P,N,Vp/P). */
struct piecewise {
    int64_t P, N, V, Vp;
    float *logits, *largest, *sums, *logit, *losses;
    int32_t *correct;
};

static struct piecewise piecewise_of(struct arrays *a, const float *logits, int64_t P, int64_t N,
                                     int64_t V, int64_t Vp)
{
    struct piecewise w = {P, N, V, Vp / P, .logits = arrays_floats(a, 0, N * Vp, 0)};
    w.largest = arrays_floats(a, 0, P * N, 0);
    w.sums = arrays_floats(a, 0, P * N, 0);
    w.logit = arrays_floats(a, 0, N, 0);
    w.losses = arrays_floats(a, 0, N, 0);
    w.correct = arrays_integers(a, 0, N, 1);
    for (int64_t n = 0; n < N; n++)
        for (int64_t v = 0; v < Vp; v++)
            w.logits[(v / w.Vp * N + n) * w.Vp + v % w.Vp] = logits[n * Vp + v];
    return w;
}

static void piecewise_run(const struct kernels *k, const struct piecewise *w,
                          const int32_t *targets, float dloss)
{
    for (int step = 0; step < 3; step++)
        for (int64_t piece = 0; piece < w->P; piece++) {
            int64_t first = piece * w->Vp, left = w->V - first, n = piece * w->N;
            int64_t V = left < 0 ? 0 : left < w->Vp ? left : w->Vp;
            float *logits = w->logits + n * w->Vp;
            if (step == 0)
                k->pieces_largest(k, w->largest + n, w->logit, logits, targets, first, w->N, V,
                                  w->Vp);
            else if (step == 1)
                k->pieces_exponentials(k, w->sums + n, w->correct, logits, w->largest, targets,
                                       first, w->P, w->N, V, w->Vp);
            else
                k->pieces_gradient(k, w->losses, logits, w->largest, w->sums, w->logit, targets,
                                   dloss, first, w->P, w->N, V, w->Vp);
        }
}

TEST_ON_CPU(pieces_have_the_loss_and_the_gradient_of_the_whole)
{
    const int64_t N = 9, shapes[][3] = {{1, 37, 40},
                                        {2, 30, 32},
                                        {4, 33, 128},
                                        {8, 256, 256},
                                        {4, 50257, 50304}}; /* a piece is padding */
    for (int s = 0; s < 5; s++) {
        int64_t P = shapes[s][0], V = shapes[s][1], Vp = shapes[s][2];
        scoped(arrays_release) struct arrays a = {0};
        float *logits = arrays_floats(&a, 1, N * Vp, 8), *losses = arrays_floats(&a, 0, N, 0);
        int32_t *targets = arrays_integers(&a, 2, N, V), *correct = arrays_integers(&a, 0, N, 1);
        double *exact = arrays_take(&a, (size_t)(N * Vp) * sizeof *exact);
        double *exact_losses = arrays_take(&a, (size_t)N * sizeof *exact_losses);
        float *got = arrays_floats(&a, 0, N * Vp, 0);
        targets[3] = -1;
        logits[4 * Vp + targets[4]] = 9; /* the prediction */
        logits[5 * Vp] = logits[5 * Vp + V - 1] = 9;
        targets[5] = (int32_t)V - 1; /* a lower index is as large */
        struct piecewise w = piecewise_of(&a, logits, P, N, V, Vp);
        piecewise_run(k, &w, targets, 0.25f);
        k->classifier_forward_backward(k, losses, correct, logits, targets, 0.25f, N, V, Vp);
        for (int64_t n = 0; n < N; n++) {
            exact_losses[n] = (double)losses[n];
            assert_int_equal(w.correct[n], correct[n]);
            for (int64_t v = 0; v < Vp; v++) {
                exact[n * Vp + v] = (double)logits[n * Vp + v];
                got[n * Vp + v] = w.logits[(v / w.Vp * N + n) * w.Vp + v % w.Vp];
            }
        }
        assert_int_equal(w.correct[4], 1);
        assert_int_equal(w.correct[5], 0);
        assert_true(distance(w.losses, exact_losses, N) < 1e-6);
        assert_true(distance(got, exact, N * Vp) < 1e-6);
        assert_true(P > 1 || memcmp(w.losses, losses, (size_t)N * sizeof *losses) == 0);
    }
}

TEST_ON_CPU(what_is_not_finite_in_a_piece_ends_in_the_loss)
{
    const float wrong[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++)
        for (int at = 0; at < 20; at++) {
            scoped(arrays_release) struct arrays a = {0};
            float logits[20] = {0};
            logits[at] = wrong[i];
            struct piecewise w = piecewise_of(&a, logits, 4, 1, 20, 20);
            piecewise_run(k, &w, (const int32_t[]){4}, 1);
            assert_true(!isfinite(w.losses[0]));
        }
}

/* sum(left) + sum(right): 1 + 2^-24 + 2^-24 … is 1 from left to right, and more by pairs. */
TEST_ON_CPU(sums_of_pieces_are_added_in_the_tree)
{
    float largest[4] = {0, 0, 0, 0}, logit = 0, loss;
    const int32_t target = 0;
    const float sums[4] = {1, 0x1p-24f, 0x1p-24f, 0x1p-24f};
    float logits = 1;
    k->pieces_gradient(k, &loss, &logits, largest, sums, &logit, &target, 0, 0, 4, 1, 1, 1);
    assert_true(loss > 0);
}

TEST_ON_CPU(what_follows_a_sum_is_bias_and_then_residual)
{
    scoped(arrays_release) struct arrays a = {0};
    const int64_t N = 3, O = 37;
    float *sum = arrays_floats(&a, 1, N * O, 1), *bias = arrays_floats(&a, 2, O, 1);
    float *residual = arrays_floats(&a, 3, N * O, 1), *out = arrays_floats(&a, 0, N * O, 0);
    for (int with = 0; with < 4; with++) {
        k->linear_finish(k, out, with & 2 ? residual : NULL, sum, with & 1 ? bias : NULL, N, O);
        for (int64_t i = 0; i < N * O; i++) {
            float biased = with & 1 ? sum[i] + bias[i % O] : sum[i];
            assert_true(out[i] == (with & 2 ? residual[i] + biased : biased));
        }
    }
}
