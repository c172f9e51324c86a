/* Two runs are equal: a block a row, with fixed trees over its threads. */
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/math.cuh"

enum { ROW_THREADS = 512 };

/* What every thread of a row's block knows. */
struct row {
    float largest, logit, sum; /* logit: the target's; sum of e^(logit - largest) */
    bool correct;
};

template <typename Element, int COUNT>
static __device__ struct row classify_row(const Element *logits, int32_t target, int64_t V,
                                          int64_t Vp)
{
    const int64_t first = (int64_t)threadIdx.x * COUNT, step = ROW_THREADS * COUNT;
    float largest = -INFINITY, sum = 0;
    for (int64_t i = first; i < Vp; i += step) {
        pack<Element, COUNT> in = load<COUNT>(logits + i);
        for (int j = 0; j < COUNT && i + j < V; j++)
            largest = larger(largest, value(in.at[j]));
    }
    struct row row;
    row.largest = block_largest(largest);
    row.logit = value(logits[target]);
    bool earlier = false; /* a lower index that is the largest, too */
    for (int64_t i = first; i < Vp; i += step) {
        pack<Element, COUNT> in = load<COUNT>(logits + i);
        for (int j = 0; j < COUNT && i + j < V; j++) {
            sum += exp_of(value(in.at[j]) - row.largest);
            earlier |= i + j < target && value(in.at[j]) == row.largest;
        }
    }
    row.sum = block_sum(sum);
    row.correct = !__syncthreads_or(earlier) && row.logit == row.largest;
    return row;
}

static __device__ void store_row(float *losses, int32_t *correct, float loss, bool is_correct)
{
    if (threadIdx.x != 0)
        return;
    losses[blockIdx.x] = loss;
    if (correct)
        correct[blockIdx.x] = is_correct;
}

/* logits = their gradient */
template <typename Element, int COUNT>
static __device__ void differentiate_row(Element *logits, const struct row *row, int32_t target,
                                         float dloss, int64_t V, int64_t Vp)
{
    const int64_t first = (int64_t)threadIdx.x * COUNT, step = ROW_THREADS * COUNT;
    float scale = dloss / row->sum;
    for (int64_t i = first; i < Vp; i += step) {
        pack<Element, COUNT> in = load<COUNT>(logits + i);
        for (int j = 0; j < COUNT; j++) {
            float d = i + j < V ? exp_of(value(in.at[j]) - row->largest) * scale : 0;
            in.at[j] = rounded<Element>(i + j == target ? d - dloss : d);
        }
        store<COUNT>(logits + i, in);
    }
}

/* A block a row; `differentiate`: logits become their gradient. */
template <typename Element, int COUNT>
static __global__ void classify(float *losses, int32_t *correct, Element *logits,
                                const int32_t *targets, bool differentiate, float dloss, int64_t V,
                                int64_t Vp)
{
    int32_t target = targets[blockIdx.x];
    logits += blockIdx.x * Vp;
    if (target < 0) {
        store_row(losses, correct, 0, false);
        for (int64_t i = threadIdx.x; i < Vp && differentiate; i += ROW_THREADS)
            logits[i] = rounded<Element>(0);
        return;
    }
    device_check(target < V);
    struct row row = classify_row<Element, COUNT>(logits, target, V, Vp);
    store_row(losses, correct, log_of(row.sum) + (row.largest - row.logit), row.correct);
    if (differentiate)
        differentiate_row<Element, COUNT>(logits, &row, target, dloss, V, Vp);
}

void cuda_classifier_forward(SELF, float *losses, int32_t *correct, const element *logits,
                             const int32_t *targets, int64_t N, int64_t V, int64_t Vp)
{
    LAUNCH_PACKS(k, packs_fit(k, Vp, logits), N, ROW_THREADS, 0, classify, losses, correct,
                 (element *)logits, targets, false, 0.0f, V, Vp);
}

void cuda_classifier_forward_backward(SELF, float *losses, int32_t *correct, element *logits,
                                      const int32_t *targets, float dloss, int64_t N, int64_t V,
                                      int64_t Vp)
{
    LAUNCH_PACKS(k, packs_fit(k, Vp, logits), N, ROW_THREADS, 0, classify, losses, correct, logits,
                 targets, true, dloss, V, Vp);
}

/* -- by pieces of the classes ------------------------------------------------------------------ */

/* The largest of a row's first P pieces; `largest` (.,N) begins at the row. */
static __device__ float largest_of(const float *largest, int64_t P, int64_t N)
{
    float most = -INFINITY;
    for (int64_t piece = 0; piece < P; piece++)
        most = larger(most, largest[piece * N]);
    return most;
}

/* sum(left) + sum(right) */
static __device__ float tree_sum(const float *sums, int64_t P, int64_t N)
{
    float level[KERNELS_PIECES_MAX];
    for (int64_t piece = 0; piece < P; piece++)
        level[piece] = sums[piece * N];
    for (int64_t count = P / 2; count > 0; count /= 2)
        for (int64_t i = 0; i < count; i++)
            level[i] = level[2 * i] + level[2 * i + 1];
    return level[0];
}

static __device__ bool has_class(int32_t target, int64_t first, int64_t V)
{
    return target >= first && target < first + V;
}

template <typename Element, int COUNT>
static __global__ void piece_largest(float *largest, float *logit, const Element *logits,
                                     const int32_t *targets, int64_t first, int64_t V, int64_t Vp)
{
    int32_t target = targets[blockIdx.x];
    float most = -INFINITY;
    logits += blockIdx.x * Vp;
    for (int64_t i = (int64_t)threadIdx.x * COUNT; i < Vp; i += ROW_THREADS * COUNT) {
        pack<Element, COUNT> in = load<COUNT>(logits + i);
        for (int j = 0; j < COUNT && i + j < V; j++)
            most = larger(most, value(in.at[j]));
    }
    most = block_largest(most);
    if (threadIdx.x != 0)
        return;
    largest[blockIdx.x] = most;
    if (has_class(target, first, V))
        logit[blockIdx.x] = value(logits[target - first]);
}

void cuda_pieces_largest(SELF, float *largest, float *logit, const element *logits,
                         const int32_t *targets, int64_t first, int64_t N, int64_t V, int64_t Vp)
{
    LAUNCH_PACKS(k, packs_fit(k, Vp, logits), N, ROW_THREADS, 0, piece_largest, largest, logit,
                 (element *)logits, targets, first, V, Vp);
}

template <typename Element, int COUNT>
static __global__ void piece_exponentials(float *sums, int32_t *correct, Element *logits,
                                          const float *largest, const int32_t *targets,
                                          int64_t first, int64_t P, int64_t N, int64_t V,
                                          int64_t Vp)
{
    int32_t target = targets[blockIdx.x];
    bool counts = target >= 0, owns = has_class(target, first, V);
    float most = largest_of(largest + blockIdx.x, P, N), sum = 0;
    logits += blockIdx.x * Vp;
    float logit = owns ? value(logits[target - first]) : -INFINITY;
    bool earlier = largest_of(largest + blockIdx.x, first / Vp, N) == most;
    __syncthreads(); /* the target's logit has been read */
    for (int64_t i = (int64_t)threadIdx.x * COUNT; i < Vp; i += ROW_THREADS * COUNT) {
        pack<Element, COUNT> in = load<COUNT>(logits + i);
        for (int j = 0; j < COUNT; j++) {
            float x = value(in.at[j]), e = counts && i + j < V ? exp_of(x - most) : 0;
            earlier |= i + j < V && first + i + j < target && x == most;
            sum += e;
            in.at[j] = rounded<Element>(e);
        }
        store<COUNT>(logits + i, in);
    }
    sum = block_sum(sum);
    bool is_correct = !__syncthreads_or(earlier) && owns && logit == most;
    if (threadIdx.x != 0)
        return;
    sums[blockIdx.x] = sum;
    if (correct && (owns || (!counts && first == 0)))
        correct[blockIdx.x] = is_correct;
}

void cuda_pieces_exponentials(SELF, float *sums, int32_t *correct, element *logits,
                              const float *largest, const int32_t *targets, int64_t first,
                              int64_t P, int64_t N, int64_t V, int64_t Vp)
{
    LAUNCH_PACKS(k, packs_fit(k, Vp, logits), N, ROW_THREADS, 0, piece_exponentials, sums, correct,
                 logits, largest, targets, first, P, N, V, Vp);
}

template <typename Element, int COUNT>
static __global__ void piece_gradient(float *losses, Element *logits, const float *largest,
                                      const float *sums, const float *logit, const int32_t *targets,
                                      float dloss, int64_t first, int64_t P, int64_t N, int64_t V,
                                      int64_t Vp)
{
    const int64_t row = blockIdx.x;
    int32_t target = targets[row];
    float total = tree_sum(sums + row, P, N), scale = dloss / total;
    if (losses && threadIdx.x == 0)
        losses[row] =
            target < 0 ? 0 : log_of(total) + (largest_of(largest + row, P, N) - logit[row]);
    if (!logits || target < 0) /* a row that does not count has zeroes already */
        return;
    logits += row * Vp;
    for (int64_t i = (int64_t)threadIdx.x * COUNT; i < Vp; i += ROW_THREADS * COUNT) {
        pack<Element, COUNT> in = load<COUNT>(logits + i);
        for (int j = 0; j < COUNT; j++) {
            float d = i + j < V ? value(in.at[j]) * scale : 0;
            in.at[j] = rounded<Element>(first + i + j == target && i + j < V ? d - dloss : d);
        }
        store<COUNT>(logits + i, in);
    }
}

void cuda_pieces_gradient(SELF, float *losses, element *logits, const float *largest,
                          const float *sums, const float *logit, const int32_t *targets,
                          float dloss, int64_t first, int64_t P, int64_t N, int64_t V, int64_t Vp)
{
    LAUNCH_PACKS(k, packs_fit(k, Vp, logits), N, ROW_THREADS, 0, piece_gradient, losses, logits,
                 largest, sums, logit, targets, dloss, first, P, N, V, Vp);
}
