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
