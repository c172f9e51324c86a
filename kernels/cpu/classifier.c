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

/* ---- by pieces of the classes ---- */

/* The largest of a row's first P pieces; `largest` (·,N) begins at the row. */
static float largest_of(const float *largest, int64_t P, int64_t N)
{
    float ret = -__builtin_inff();
    for (int64_t piece = 0; piece < P; piece++)
        ret = ret > largest[piece * N] ? ret : largest[piece * N];
    return ret;
}

/* sum(left) + sum(right) */
static float tree_sum(const float *sums, int64_t P, int64_t N)
{
    float level[KERNELS_PIECES_MAX];
    check(P <= KERNELS_PIECES_MAX);
    for (int64_t piece = 0; piece < P; piece++)
        level[piece] = sums[piece * N];
    for (int64_t count = P / 2; count > 0; count /= 2)
        for (int64_t i = 0; i < count; i++)
            level[i] = level[2 * i] + level[2 * i + 1];
    return level[0];
}

static bool has_class(int32_t target, int64_t first, int64_t V)
{
    return target >= first && target < first + V;
}

void VARIANT(pieces_largest)(SELF, float *largest, float *logit, const float *logits,
                             const int32_t *targets, int64_t first, int64_t N, int64_t V,
                             int64_t Vp)
{
    for (int64_t row = 0; row < N; row++, logits += Vp) {
        largest[row] = row_largest(logits, V);
        if (has_class(targets[row], first, V))
            logit[row] = logits[targets[row] - first];
    }
}

void VARIANT(pieces_exponentials)(SELF, float *sums, int32_t *correct, float *logits,
                                  const float *largest, const int32_t *targets, int64_t first,
                                  int64_t P, int64_t N, int64_t V, int64_t Vp)
{
    for (int64_t row = 0; row < N; row++, logits += Vp) {
        int32_t target = targets[row];
        float most = largest_of(largest + row, P, N);
        if (target < 0) {
            memset(logits, 0, (size_t)Vp * sizeof *logits);
            sums[row] = 0;
            if (correct && first == 0)
                correct[row] = 0;
            continue;
        }
        if (correct && has_class(target, first, V))
            correct[row] = largest_of(largest + row, first / Vp, N) < most &&
                           is_correct(logits, (int32_t)(target - first), most);
        sums[row] = row_exp(logits, logits, most, V);
        memset(logits + V, 0, (size_t)(Vp - V) * sizeof *logits);
    }
}

void VARIANT(pieces_gradient)(SELF, float *losses, float *logits, const float *largest,
                              const float *sums, const float *logit, const int32_t *targets,
                              float dloss, int64_t first, int64_t P, int64_t N, int64_t V,
                              int64_t Vp)
{
    for (int64_t row = 0; row < N; row++) {
        float total = tree_sum(sums + row, P, N), *own = logits ? logits + row * Vp : NULL;
        bool counts = targets[row] >= 0;
        if (losses)
            losses[row] =
                counts ? log_of(total) + (largest_of(largest + row, P, N) - logit[row]) : 0;
        if (!own || !counts) /* a row that does not count has zeroes already */
            continue;
        row_scale(own, dloss / total, V);
        if (has_class(targets[row], first, V))
            own[targets[row] - first] -= dloss;
    }
}
