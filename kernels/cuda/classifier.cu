/* Two runs are equal: a block a row, with fixed trees over its threads. */
#include "kernels/cuda/math.cuh"

enum { ROW_THREADS = 512 };

/* What every thread of a row's block knows. */
struct row {
    float largest, logit, sum; /* logit: the target's; sum of e^(logit - largest) */
    bool correct;
};

static __device__ struct row classify_row(const float *logits, int32_t target, int64_t V)
{
    float largest = -INFINITY, sum = 0;
    for (int64_t i = threadIdx.x; i < V; i += ROW_THREADS)
        largest = larger(largest, logits[i]);
    struct row row;
    row.largest = block_largest(largest);
    row.logit = logits[target];
    bool earlier = false; /* a lower index that is the largest, too */
    for (int64_t i = threadIdx.x; i < V; i += ROW_THREADS) {
        sum += exp_of(logits[i] - row.largest);
        earlier |= i < target && logits[i] == row.largest;
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
static __device__ void differentiate_row(float *logits, const struct row *row, int32_t target,
                                         float dloss, int64_t V, int64_t Vp)
{
    float scale = dloss / row->sum;
    for (int64_t i = threadIdx.x; i < Vp; i += ROW_THREADS) {
        float d = i < V ? exp_of(logits[i] - row->largest) * scale : 0;
        logits[i] = i == target ? d - dloss : d;
    }
}

/* A block a row; `differentiate`: logits become their gradient. */
static __global__ void classify(float *losses, int32_t *correct, float *logits,
                                const int32_t *targets, bool differentiate, float dloss, int64_t V,
                                int64_t Vp)
{
    int32_t target = targets[blockIdx.x];
    logits += blockIdx.x * Vp;
    if (target < 0) {
        store_row(losses, correct, 0, false);
        for (int64_t i = threadIdx.x; i < Vp && differentiate; i += ROW_THREADS)
            logits[i] = 0;
        return;
    }
    device_check(target < V);
    struct row row = classify_row(logits, target, V);
    store_row(losses, correct, log_of(row.sum) + (row.largest - row.logit), row.correct);
    if (differentiate)
        differentiate_row(logits, &row, target, dloss, V, Vp);
}

void cuda_classifier_forward(SELF, float *losses, int32_t *correct, const float *logits,
                             const int32_t *targets, int64_t N, int64_t V, int64_t Vp)
{
    launch(k, N, ROW_THREADS, 0, classify, losses, correct, (float *)logits, targets, false, 0.0f,
           V, Vp);
}

void cuda_classifier_forward_backward(SELF, float *losses, int32_t *correct, float *logits,
                                      const int32_t *targets, float dloss, int64_t N, int64_t V,
                                      int64_t Vp)
{
    launch(k, N, ROW_THREADS, 0, classify, losses, correct, logits, targets, true, dloss, V, Vp);
}
