#include "kernels/cpu/cpu.h"
#include "kernels/cpu/softmax.h"

/* Whether the largest of logits, which is known, is the target's and no lower index has it too. */
static bool is_correct(const float *logits, int32_t target, float largest)
{
    return logits[target] == largest && row_largest(logits, target) < largest;
}

/* One row: its loss, and in `terms` (NULL: not wanted, or logits themselves) its exponentials,
 * whose sum is returned. */
static float classify_row(float *loss, int32_t *correct, float *terms, const float *logits,
                          int32_t target, int64_t V)
{
    check(target < V);
    float largest = row_largest(logits, V), logit = logits[target];
    if (correct)
        *correct = is_correct(logits, target, largest);
    float sum = row_exp(terms, logits, largest, V);
    *loss = log_of(sum) + (largest - logit);
    return sum;
}

static void uncounted_row(float *loss, int32_t *correct)
{
    *loss = 0;
    if (correct)
        *correct = 0;
}

void VARIANT(classifier_forward)(SELF, float *losses, int32_t *correct, const float *logits,
                                 const int32_t *targets, int64_t N, int64_t V, int64_t Vp)
{
    for (int64_t row = 0; row < N; row++, logits += Vp) {
        int32_t *row_correct = correct ? correct + row : NULL;
        if (targets[row] < 0)
            uncounted_row(losses + row, row_correct);
        else
            classify_row(losses + row, row_correct, NULL, logits, targets[row], V);
    }
}

void VARIANT(classifier_forward_backward)(SELF, float *losses, int32_t *correct, float *logits,
                                          const int32_t *targets, float dloss, int64_t N, int64_t V,
                                          int64_t Vp)
{
    for (int64_t row = 0; row < N; row++, logits += Vp) {
        int32_t *row_correct = correct ? correct + row : NULL;
        if (targets[row] < 0) {
            uncounted_row(losses + row, row_correct);
            memset(logits, 0, (size_t)Vp * sizeof *logits);
            continue;
        }
        float sum = classify_row(losses + row, row_correct, logits, logits, targets[row], V);
        row_scale(logits, dloss / sum, V);
        logits[targets[row]] -= dloss;
        memset(logits + V, 0, (size_t)(Vp - V) * sizeof *logits);
    }
}
