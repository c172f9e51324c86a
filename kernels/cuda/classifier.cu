/* Two runs are equal: a block a row, with fixed trees over its threads. */
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/math.cuh"

#include <float.h>

/* To be differentiated a row is looked at twice. Of long ones (98 KB with GPT-2's classes in bf16) so few
 * should be under way at once that the second look finds them in the L2 cache: their blocks have more
 * threads. */
enum {
    ROW_THREADS = 512,
    LONG_ROW_THREADS = 1024,
    LONG_ROW_CLASSES = 16384, /* at least */
    PACKS_AHEAD = 2,          /* loaded before the first is computed with */
};

/* Columns are counted in 32 bits. */
static int columns(int64_t Vp)
{
    check(Vp <= INT32_MAX / 2); /* a thread counts beyond it */
    return (int)Vp;
}

/* What every thread of a row's block knows. e^(x - largest) is 2^(x log2 e - base). */
struct row {
    float largest, base, logit, sum; /* logit: the target's; sum of e^(logit - largest) */
};

/* A thread's part of a row's sum: `sum` has the factor 2^-base, `base` follows `largest`. */
struct part {
    float largest, base, sum;
};

static __device__ float base_of(float largest)
{
    return largest == -INFINITY ? 0 : largest * LOG2_E;
}

/* More logits: what the sum has so far is scaled to the new largest one. */
template <int COUNT>
static __device__ void add_logits(struct part &part, const pack<float, COUNT> &x)
{
    float largest = part.largest;
    for (int j = 0; j < COUNT; j++)
        largest = larger(largest, x.at[j]);
    if (largest > part.largest) {
        float base = base_of(largest);
        part.sum *= exp2_of(part.base - base);
        part.base = base;
        part.largest = largest;
    }
    for (int j = 0; j < COUNT; j++)
        part.sum += exp2_of(fmaf(x.at[j], LOG2_E, -part.base));
}

/* Packs that have only classes come first, then single elements: so nothing is compared with V but
 * once. Where the single ones begin: */
template <int COUNT> static __device__ int first_single(int V)
{
    return V - V % COUNT;
}

/* A thread's packs that lie STRIDE apart. */
template <int STRIDE, int COUNT, typename Element>
static __device__ void load_ahead(pack<Element, COUNT> (&ahead)[PACKS_AHEAD], const Element *logits)
{
#pragma unroll
    for (int j = 0; j < PACKS_AHEAD; j++)
        ahead[j] = load<COUNT>(logits + j * STRIDE);
}

template <typename Element, int COUNT, int BLOCK>
static __device__ struct row sum_row(const Element *logits, int target, int V)
{
    const int singles = first_single<COUNT>(V), thread = threadIdx.x, STRIDE = BLOCK * COUNT;
    struct part part = {-INFINITY, -FLT_MAX, 0}; /* to any other base the power of the first is 0 */
    int i = thread * COUNT;
    for (; i + (PACKS_AHEAD - 1) * STRIDE < singles; i += PACKS_AHEAD * STRIDE) {
        pack<Element, COUNT> ahead[PACKS_AHEAD];
        load_ahead<STRIDE>(ahead, logits + i);
        for (int j = 0; j < PACKS_AHEAD; j++)
            add_logits(part, values(ahead[j]));
    }
#pragma unroll 1
    for (; i < singles; i += STRIDE)
        add_logits(part, values(load<COUNT>(logits + i)));
    for (i = singles + thread; i < V; i += BLOCK)
        add_logits(part, pack<float, 1>{{value(logits[i])}});
    struct row row;
    row.largest = block_largest(part.largest);
    row.base = base_of(row.largest);
    row.logit = value(logits[target]);
    row.sum = block_sum(part.sum * exp2_of(part.base - row.base));
    return row;
}

/* Whether a lower index than the target's is the largest, too; the same answer in all threads. */
template <int BLOCK, typename Element>
static __device__ bool is_earlier(const Element *logits, int target, float largest)
{
    bool earlier = false;
    for (int i = threadIdx.x; i < target; i += BLOCK)
        earlier |= value(logits[i]) == largest;
    return __syncthreads_or(earlier);
}

static __device__ void store_row(float *losses, int32_t *correct, float loss, bool is_correct)
{
    if (threadIdx.x != 0)
        return;
    losses[blockIdx.x] = loss;
    if (correct)
        correct[blockIdx.x] = is_correct;
}

template <typename Element, int COUNT>
static __device__ inline pack<Element, COUNT> gradient(const pack<Element, COUNT> &logits,
                                                       float base, float scale)
{
    pack<float, COUNT> x = values(logits);
    for (int j = 0; j < COUNT; j++)
        x.at[j] = exp2_of(fmaf(x.at[j], LOG2_E, -base)) * scale;
    return rounded<Element>(x);
}

/* logits = their gradient. The target's is put right by the thread that has stored it. */
template <typename Element, int COUNT, int BLOCK>
static __device__ void differentiate_row(Element *logits, const struct row &row, int target,
                                         float dloss, int V, int Vp)
{
    const int singles = first_single<COUNT>(V), thread = threadIdx.x, STRIDE = BLOCK * COUNT;
    const float scale = dloss / row.sum;
    int i = thread * COUNT;
    for (; i + (PACKS_AHEAD - 1) * STRIDE < singles; i += PACKS_AHEAD * STRIDE) {
        pack<Element, COUNT> ahead[PACKS_AHEAD];
        load_ahead<STRIDE>(ahead, logits + i);
        for (int j = 0; j < PACKS_AHEAD; j++)
            store(logits + i + j * STRIDE, gradient(ahead[j], row.base, scale));
    }
#pragma unroll 1
    for (; i < singles; i += STRIDE)
        store(logits + i, gradient(load<COUNT>(logits + i), row.base, scale));
    for (i = singles + thread; i < Vp; i += BLOCK) {
        float d = exp2_of(fmaf(value(logits[i]), LOG2_E, -row.base)) * scale;
        logits[i] = rounded<Element>(i < V ? d : 0);
    }
    int owner = target < singles ? target / COUNT : target - singles;
    if (thread == owner % BLOCK)
        logits[target] =
            rounded<Element>(exp2_of(fmaf(row.logit, LOG2_E, -row.base)) * scale - dloss);
}

/* A block of BLOCK threads a row; `differentiate`: logits become their gradient. */
template <typename Element, int COUNT, int BLOCK>
static __device__ void classify_row(float *losses, int32_t *correct, Element *logits,
                                    const int32_t *targets, bool differentiate, float dloss, int V,
                                    int Vp)
{
    int target = targets[blockIdx.x];
    logits += (int64_t)blockIdx.x * Vp;
    if (target < 0) {
        store_row(losses, correct, 0, false);
        for (int i = threadIdx.x; i < Vp && differentiate; i += BLOCK)
            logits[i] = rounded<Element>(0);
        return;
    }
    device_check(target < V);
    struct row row = sum_row<Element, COUNT, BLOCK>(logits, target, V);
    bool is_correct = correct && row.logit == row.largest;
    if (is_correct)
        is_correct = !is_earlier<BLOCK>(logits, target, row.largest);
    float largest_power = fmaf(row.largest, LOG2_E, -row.base); /* 0 but for the base's rounding */
    float loss = log_of(row.sum) - LN2_HIGH * largest_power + (row.largest - row.logit);
    store_row(losses, correct, loss, is_correct);
    if (differentiate)
        differentiate_row<Element, COUNT, BLOCK>(logits, row, target, dloss, V, Vp);
}

template <typename Element, int COUNT>
static __global__ void __launch_bounds__(ROW_THREADS)
    classify(float *losses, int32_t *correct, Element *logits, const int32_t *targets,
             bool differentiate, float dloss, int V, int Vp)
{
    classify_row<Element, COUNT, ROW_THREADS>(losses, correct, logits, targets, differentiate,
                                              dloss, V, Vp);
}

template <typename Element, int COUNT>
static __global__ void __launch_bounds__(LONG_ROW_THREADS, 2)
    classify_long(float *losses, int32_t *correct, Element *logits, const int32_t *targets,
                  bool differentiate, float dloss, int V, int Vp)
{
    classify_row<Element, COUNT, LONG_ROW_THREADS>(losses, correct, logits, targets, differentiate,
                                                   dloss, V, Vp);
}

static void classify_rows(SELF, float *losses, int32_t *correct, element *logits,
                          const int32_t *targets, bool differentiate, float dloss, int64_t N,
                          int64_t V, int64_t Vp)
{
    bool packed = packs_fit(k, Vp, logits);
    if (differentiate && V >= LONG_ROW_CLASSES)
        LAUNCH_PACKS(k, packed, N, LONG_ROW_THREADS, 0, classify_long, losses, correct, logits,
                     targets, differentiate, dloss, columns(V), columns(Vp));
    else
        LAUNCH_PACKS(k, packed, N, ROW_THREADS, 0, classify, losses, correct, logits, targets,
                     differentiate, dloss, columns(V), columns(Vp));
}

void cuda_classifier_forward(SELF, float *losses, int32_t *correct, const element *logits,
                             const int32_t *targets, int64_t N, int64_t V, int64_t Vp)
{
    classify_rows(k, losses, correct, (element *)logits, targets, false, 0, N, V, Vp);
}

void cuda_classifier_forward_backward(SELF, float *losses, int32_t *correct, element *logits,
                                      const int32_t *targets, float dloss, int64_t N, int64_t V,
                                      int64_t Vp)
{
    classify_rows(k, losses, correct, logits, targets, true, dloss, N, V, Vp);
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
                                     const int32_t *targets, int64_t first, int V, int Vp)
{
    const int singles = first_single<COUNT>(V), thread = threadIdx.x;
    int32_t target = targets[blockIdx.x];
    float most = -INFINITY;
    logits += (int64_t)blockIdx.x * Vp;
    for (int i = thread * COUNT; i < singles; i += ROW_THREADS * COUNT) {
        pack<float, COUNT> x = values(load<COUNT>(logits + i));
        for (int j = 0; j < COUNT; j++)
            most = larger(most, x.at[j]);
    }
    for (int i = singles + thread; i < V; i += ROW_THREADS)
        most = larger(most, value(logits[i]));
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
                 (element *)logits, targets, first, columns(V), columns(Vp));
}

template <typename Element, int COUNT>
static __global__ void piece_exponentials(float *sums, int32_t *correct, Element *logits,
                                          const float *largest, const int32_t *targets,
                                          int64_t first, int64_t P, int64_t N, int V, int Vp)
{
    int32_t target = targets[blockIdx.x];
    bool counts = target >= 0, owns = has_class(target, first, V);
    const int classes = counts ? V : 0; /* a row that does not count gets zeros */
    float most = largest_of(largest + blockIdx.x, P, N), sum = 0;
    logits += (int64_t)blockIdx.x * Vp;
    const int below = target < first ? 0 : owns ? (int)(target - first) : V; /* the target */
    float logit = owns ? value(logits[target - first]) : -INFINITY;
    bool earlier = largest_of(largest + blockIdx.x, first / Vp, N) == most;
    __syncthreads(); /* the target's logit has been read */
    for (int i = (int)threadIdx.x * COUNT; i < Vp; i += ROW_THREADS * COUNT) {
        pack<float, COUNT> x = values(load<COUNT>(logits + i));
        for (int j = 0; j < COUNT; j++) {
            earlier |= i + j < below && x.at[j] == most;
            x.at[j] = i + j < classes ? exp_of(x.at[j] - most) : 0;
            sum += x.at[j];
        }
        store(logits + i, rounded<Element>(x));
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
                 logits, largest, targets, first, P, N, columns(V), columns(Vp));
}

template <typename Element, int COUNT>
static __global__ void piece_gradient(float *losses, Element *logits, const float *largest,
                                      const float *sums, const float *logit, const int32_t *targets,
                                      float dloss, int64_t first, int64_t P, int64_t N, int V,
                                      int Vp)
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
    const int target_here = has_class(target, first, V) ? (int)(target - first) : -1;
    for (int i = (int)threadIdx.x * COUNT; i < Vp; i += ROW_THREADS * COUNT) {
        pack<float, COUNT> x = values(load<COUNT>(logits + i));
        for (int j = 0; j < COUNT; j++) {
            float d = i + j < V ? x.at[j] * scale : 0;
            x.at[j] = i + j == target_here ? d - dloss : d;
        }
        store(logits + i, rounded<Element>(x));
    }
}

void cuda_pieces_gradient(SELF, float *losses, element *logits, const float *largest,
                          const float *sums, const float *logit, const int32_t *targets,
                          float dloss, int64_t first, int64_t P, int64_t N, int64_t V, int64_t Vp)
{
    LAUNCH_PACKS(k, packs_fit(k, Vp, logits), N, ROW_THREADS, 0, piece_gradient, losses, logits,
                 largest, sums, logit, targets, dloss, first, P, N, columns(V), columns(Vp));
}
