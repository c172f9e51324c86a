#include "kernels/cuda/plan.cuh"

#include <stdarg.h>

static void add_text(struct gemm *gemm, const char *format, ...) PRINTF_LIKE(2, 3);

static void add_text(struct gemm *gemm, const char *format, ...)
{
    size_t left = sizeof gemm->text - gemm->text_bytes;
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(gemm->text + gemm->text_bytes, left, format, arguments);
    va_end(arguments);
    check(bytes >= 0);
    check((size_t)bytes < left);
    gemm->text_bytes += (size_t)bytes;
}

/* Those of another library, compute type or kind of device are not used. */
static bool take_products(struct gemm *gemm, const char *products, char *reason,
                          size_t reason_bytes)
{
    bool ours = products && strncmp(products, gemm->text, gemm->head_bytes) == 0;
    if (!ours || products[gemm->head_bytes] != ';')
        return true;
    gemm->products = strdup(products);
    if (!gemm->products)
        snprintf(reason, reason_bytes, "out of memory");
    return gemm->products != NULL;
}

bool gemm_new(const struct kernels_options *options, const cudaDeviceProp *device,
              struct gemm **ret_gemm, char *reason, size_t reason_bytes)
{
    struct gemm *gemm = (struct gemm *)calloc(1, sizeof *gemm);
    if (!gemm) {
        snprintf(reason, reason_bytes, "out of memory");
        return false;
    }
    cublasStatus_t status = cublasLtCreate(&gemm->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        snprintf(reason, reason_bytes, "cuBLASLt: %s", cublasLtGetStatusString(status));
        free(gemm);
        return false;
    }
    gemm->compute = options->compute;
    gemm->fuses_gelu = device->major >= 9;
    static const char *const names[] = {"fp32", "tf32", "bf16"};
    add_text(gemm, "cuBLASLt %zu %s, %d SMs of sm_%d%d:", cublasLtGetVersion(),
             names[gemm->compute], device->multiProcessorCount, device->major, device->minor);
    gemm->head_bytes = gemm->text_bytes;
    *ret_gemm = gemm;
    return take_products(gemm, options->products, reason, reason_bytes);
}

void gemm_free(struct gemm *gemm)
{
    if (!gemm)
        return;
    for (int i = 0; i < gemm->plans_count; i++)
        plan_release(&gemm->plans[i]);
    cublasLtDestroy(gemm->handle);
    free(gemm->products);
    free(gemm);
}

const char *gemm_numerics(const struct gemm *gemm)
{
    return gemm->text;
}

/* -- plans ------------------------------------------------------------------------------------- */

/* " NT 64x50304x768/16.16.16: 71.20.5.0.2.0.1.0", or "none" for an algorithm. */
static void note(struct gemm *gemm, const struct plan *plan)
{
    char shape[PLAN_TEXT_BYTES], algorithm[PLAN_TEXT_BYTES] = "none";
    plan_shape_text(gemm, &plan->shape, shape);
    if (!plan->declined)
        plan_algorithm_text(&plan->algorithm, algorithm);
    add_text(gemm, " %s: %s", shape, algorithm);
}

void gemm_note_again(struct gemm *gemm)
{
    gemm->text_bytes = gemm->head_bytes;
    for (int i = 0; i < gemm->plans_count; i++)
        note(gemm, &gemm->plans[i]);
}

void gemm_write_products(SELF, char *text, size_t bytes)
{
    const struct gemm *gemm = k->state->gemm;
    char shape[PLAN_TEXT_BYTES], algorithm[PLAN_TEXT_BYTES], words[PLAN_WORDS_BYTES];
    size_t used = (size_t)snprintf(text, bytes, "%.*s;", (int)gemm->head_bytes, gemm->text);
    check(used < bytes);
    for (int i = 0; i < gemm->plans_count; i++) {
        const struct plan *plan = &gemm->plans[i];
        plan_shape_text(gemm, &plan->shape, shape);
        plan_algorithm_text(&plan->algorithm, algorithm);
        plan_words_text(&plan->algorithm, words);
        size_t entry = strlen(shape) + strlen(algorithm) + strlen(words) + 3;
        if (!plan->declined && entry < bytes - used)
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s %s %s;", shape, algorithm, words);
    }
}

static void refuse(SELF, const struct plan_shape *shape)
{
    char text[PLAN_TEXT_BYTES];
    plan_shape_text(k->state->gemm, shape, text);
    cuda_fail(k, "cuBLASLt: no algorithm for a product of %lld x %lld x %lld (%s)",
              (long long)shape->M, (long long)shape->N, (long long)shape->K, text);
}

static struct plan *new_plan(SELF, const struct plan_shape *shape,
                             const struct gemm_product *product)
{
    struct gemm *gemm = k->state->gemm;
    if (gemm->plans_count == PLANS_MAX) {
        cuda_fail(k, "more than %d shapes of matrix products", PLANS_MAX);
        return NULL;
    }
    struct plan *plan = &gemm->plans[gemm->plans_count];
    if (!plan_init(k, plan, shape, product))
        return NULL;
    if (plan->declined && shape->epilogue == GEMM_PLAIN) {
        refuse(k, shape);
        plan_release(plan);
        return NULL;
    }
    gemm->plans_count++;
    note(gemm, plan);
    return plan;
}

static bool same_shape(const struct plan_shape *a, const struct plan_shape *b)
{
    return a->M == b->M && a->N == b->N && a->K == b->K && a->transpose_a == b->transpose_a &&
           a->transpose_b == b->transpose_b && a->c_is_float == b->c_is_float &&
           a->adds == b->adds && a->epilogue == b->epilogue && a->aligned_a == b->aligned_a &&
           a->aligned_b == b->aligned_b && a->aligned_c == b->aligned_c;
}

static struct plan *find_plan(SELF, const struct plan_shape *shape,
                              const struct gemm_product *product)
{
    struct gemm *gemm = k->state->gemm;
    for (int i = 0; i < gemm->plans_count; i++)
        if (same_shape(&gemm->plans[i].shape, shape))
            return &gemm->plans[i];
    return new_plan(k, shape, product);
}

/* -- products ---------------------------------------------------------------------------------- */

/* The largest power of two that the address is a multiple of, up to PACK_BYTES. */
static uint32_t alignment(const void *array)
{
    uint32_t bytes = PACK_BYTES;
    while ((uintptr_t)array % bytes != 0)
        bytes /= 2;
    return bytes;
}

static struct plan_shape shape_of(const struct gemm_product *product)
{
    struct plan_shape shape = {};
    shape.M = product->M;
    shape.N = product->N;
    shape.K = product->K;
    shape.transpose_a = product->a.transposed;
    shape.transpose_b = product->b.transposed;
    shape.c_is_float = product->c_is_float;
    shape.adds = product->add != NULL;
    shape.epilogue = product->epilogue;
    shape.aligned_a = alignment(product->a.data);
    shape.aligned_b = alignment(product->b.data);
    shape.aligned_c = alignment(product->c);
    if (product->add && alignment(product->add) < shape.aligned_c)
        shape.aligned_c = alignment(product->add);
    return shape;
}

/* False: the plan is to decline. A failure is not: what follows it is of no use. */
static bool multiply(SELF, const struct gemm_product *product)
{
    const struct plan_shape shape = shape_of(product);
    const struct plan *plan = find_plan(k, &shape, product);
    if (plan && plan->declined)
        return false;
    if (plan && plan_point(k, plan, product))
        plan_ok(k, plan_multiply(k, plan, &plan->algorithm, product));
    return true;
}

void gemm_multiply(SELF, const struct gemm_product *product)
{
    check(product->epilogue == GEMM_PLAIN);
    bool done = product->M == 0 || product->N == 0 || multiply(k, product);
    check(done); /* a plain product is not declined */
}

/* Of a product with one row or column, cuBLASLt before CUDA 12.8 Update 1 may add a wrong bias. */
static bool may_fuse(SELF, const struct gemm_product *product)
{
    const struct gemm *gemm = k->state->gemm;
    if (product->M == 1 || product->N == 1)
        return false;
    switch (product->epilogue) {
    case GEMM_BIAS:
        return are_aligned(product->bias);
    case GEMM_GELU:
    case GEMM_GELU_BACKWARD:
        return gemm->fuses_gelu && k->state->bf16 && are_aligned(product->bias) &&
               packs_fit(k, product->N, product->pre);
    case GEMM_PLAIN:
        break;
    }
    return false;
}

bool gemm_fuse(SELF, const struct gemm_product *product)
{
    return may_fuse(k, product) && (product->M == 0 || product->N == 0 || multiply(k, product));
}
