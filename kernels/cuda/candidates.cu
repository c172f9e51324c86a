/* Which algorithm is the fastest for a shape depends on more than cuBLASLt's heuristic knows: here
 * all that it names are run, on matrices of the shape's size that no cache holds when they are
 * large. Each is given ROUNDS times between two events, and the shortest of PASSES counts: another
 * program may have had the device meanwhile. */
#include "kernels/cuda/plan.cuh"

#include <string.h>

enum {
    ROUNDS = 10,
    PASSES = 3,
    HOPELESS_TIMES = 4, /* as long as the best so far: it is timed no more */
    BLOCK_FLOATS = 1 << 14
};
static const double WORTH_IT = 0.97; /* less is noise: the heuristic's first is kept */

/* -- arrays ------------------------------------------------------------------------------------ */

enum { FACTOR_A, FACTOR_B, RESULT, BIAS, BEFORE, ARRAYS };

struct arrays {
    void *at[ARRAYS];
    size_t bytes[ARRAYS];
};

/* Values in [-0.5, 0.5) that differ: zeros would be multiplied faster. The first block comes from
 * the host, the others from those before them. */
static void fill(SELF, void *array, size_t bytes, bool floats)
{
    static const size_t block_bytes = BLOCK_FLOATS * sizeof(float);
    float *values = (float *)malloc(block_bytes);
    check(values);
    uint32_t x = 1;
    for (int i = 0; i < BLOCK_FLOATS; i++) {
        x = x * 1664525u + 1013904223u;
        values[i] = (float)(x >> 8) / 16777216.0f - 0.5f;
        uint16_t *halves = (uint16_t *)&values[i]; /* as two bf16: in both the upper half */
        if (!floats)
            halves[0] = halves[1];
    }
    cuda_copy_in(k, array, values, bytes < block_bytes ? bytes : block_bytes);
    free(values);
    for (size_t at = block_bytes; at < bytes; at *= 2)
        k->copy(k, (char *)array + at, array, bytes - at < at ? bytes - at : at);
}

static void free_arrays(SELF, struct arrays *arrays)
{
    for (int i = 0; i < ARRAYS; i++)
        k->free(k, arrays->at[i]);
}

/* False: there is no room. */
static bool take_arrays(SELF, const struct plan_shape *shape, struct arrays *ret_arrays)
{
    const size_t element = k->element_bytes, M = (size_t)shape->M, N = (size_t)shape->N,
                 K = (size_t)shape->K, result = shape->c_is_float ? sizeof(float) : element;
    *ret_arrays = {
        {}, {M * K * element, K * N * element, M * N * result, N * element, M * N * element}};
    bool taken = true;
    for (int i = 0; i < ARRAYS && taken; i++)
        taken = (ret_arrays->at[i] = k->alloc(k, ret_arrays->bytes[i])) != NULL;
    for (int i = 0; i < ARRAYS && taken; i++)
        fill(k, ret_arrays->at[i], ret_arrays->bytes[i],
             element == sizeof(float) || (i == RESULT && shape->c_is_float));
    if (!taken)
        free_arrays(k, ret_arrays);
    return taken;
}

static struct gemm_product product_of(const struct plan_shape *shape, const struct arrays *arrays)
{
    struct gemm_product product = {};
    product.c = arrays->at[RESULT];
    product.add = shape->adds ? product.c : NULL;
    product.a = {(const element *)arrays->at[FACTOR_A], shape->transpose_a};
    product.b = {(const element *)arrays->at[FACTOR_B], shape->transpose_b};
    product.bias = (const element *)arrays->at[BIAS];
    product.pre = (element *)arrays->at[BEFORE];
    return product;
}

/* -- time -------------------------------------------------------------------------------------- */

struct clock {
    cudaEvent_t begun, ended;
};

struct trial {
    struct clock clock;
    const struct plan *plan;
    const struct gemm_product *product;
};

/* Microseconds of one product, or infinity when the algorithm cannot be run after all. */
static double burst(SELF, const struct trial *trial, const cublasLtMatmulAlgo_t *algorithm,
                    int rounds)
{
    const struct clock clock = trial->clock;
    float milliseconds = 0;
    bool ran = cudaEventRecord(clock.begun, k->state->stream) == cudaSuccess;
    for (int i = 0; i < rounds && ran; i++)
        ran = plan_multiply(k, trial->plan, algorithm, trial->product) == CUBLAS_STATUS_SUCCESS;
    ran = ran && cudaEventRecord(clock.ended, k->state->stream) == cudaSuccess &&
          cudaEventSynchronize(clock.ended) == cudaSuccess &&
          cudaEventElapsedTime(&milliseconds, clock.begun, clock.ended) == cudaSuccess;
    return ran ? milliseconds * 1e3 / rounds : INFINITY;
}

/* `best`: of those before. The first burst also loads the kernel. */
static double measure(SELF, const struct trial *trial, const cublasLtMatmulAlgo_t *algorithm,
                      double best)
{
    double took = burst(k, trial, algorithm, 1);
    took = took < INFINITY ? burst(k, trial, algorithm, 1) : took;
    if (!(took < INFINITY) || took > HOPELESS_TIMES * best)
        return took;
    took = INFINITY;
    for (int pass = 0; pass < PASSES; pass++) {
        double again = burst(k, trial, algorithm, ROUNDS);
        took = again < took ? again : took;
    }
    return took;
}

struct candidates {
    cublasLtMatmulAlgo_t algorithms[2 * CANDIDATES_MAX];
    double microseconds[2 * CANDIDATES_MAX];
    int count;
};

static void add_candidates(SELF, const struct plan *plan, bool splits,
                           struct candidates *candidates)
{
    cublasLtMatmulAlgo_t found[CANDIDATES_MAX];
    int count = plan_candidates(k, plan, splits, found);
    for (int i = 0; i < count; i++) {
        bool known = false;
        for (int j = 0; j < candidates->count; j++)
            known = known || memcmp(&candidates->algorithms[j], &found[i], sizeof found[i]) == 0;
        if (!known)
            candidates->algorithms[candidates->count++] = found[i];
    }
}

static int fastest(const struct candidates *candidates)
{
    const double *took = candidates->microseconds;
    int best = 0;
    for (int i = 1; i < candidates->count; i++)
        if (took[i] < took[best])
            best = i;
    return took[best] < WORTH_IT * took[0] ? best : 0;
}

static void measure_all(SELF, const struct trial *trial, struct candidates *candidates)
{
    double best = INFINITY;
    for (int i = 0; i < candidates->count; i++) {
        double took = measure(k, trial, &candidates->algorithms[i], best);
        candidates->microseconds[i] = took;
        best = took < best ? took : best;
    }
}

static void report_all(SELF, const struct plan *plan, const struct candidates *candidates,
                       kernels_report *report, void *context)
{
    char shape[PLAN_TEXT_BYTES], algorithm[PLAN_TEXT_BYTES];
    const struct plan_shape *s = &plan->shape;
    plan_shape_text(k->state->gemm, s, shape);
    for (int i = 0; i < candidates->count; i++) {
        double took = candidates->microseconds[i];
        plan_algorithm_text(&candidates->algorithms[i], algorithm);
        const struct kernels_candidate candidate = {
            shape,  algorithm,
            took,   2.0 * (double)s->M * (double)s->N * (double)s->K / took * 1e-6,
            i == 0, i == fastest(candidates)};
        report(context, &candidate);
    }
}

static void time_plan(SELF, struct clock clock, struct plan *plan, kernels_report *report,
                      void *context)
{
    struct arrays arrays;
    struct candidates candidates = {};
    if (plan->declined || !take_arrays(k, &plan->shape, &arrays))
        return;
    const struct gemm_product product = product_of(&plan->shape, &arrays);
    add_candidates(k, plan, true, &candidates);
    add_candidates(k, plan, false, &candidates);
    const struct trial trial = {clock, plan, &product};
    if (plan_point(k, plan, &product))
        measure_all(k, &trial, &candidates);
    if (candidates.count > 0)
        plan->algorithm = candidates.algorithms[fastest(&candidates)];
    if (report)
        report_all(k, plan, &candidates, report, context);
    free_arrays(k, &arrays);
}

void gemm_time(SELF, kernels_report *report, void *context)
{
    struct gemm *gemm = k->state->gemm;
    struct clock clock = {};
    if (cuda_ok(k, cudaEventCreateWithFlags(&clock.begun, cudaEventDefault), "event") &&
        cuda_ok(k, cudaEventCreateWithFlags(&clock.ended, cudaEventDefault), "event"))
        for (int i = 0; i < gemm->plans_count; i++)
            time_plan(k, clock, &gemm->plans[i], report, context);
    if (clock.begun)
        cudaEventDestroy(clock.begun);
    if (clock.ended)
        cudaEventDestroy(clock.ended);
    gemm_note_again(gemm);
}
