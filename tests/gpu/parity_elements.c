/* What computes element by element, crosses to the host or sums all of an array. */
#include "tests/gpu/parity.h"

/* -- elementwise ------------------------------------------------------------------------------- */

typedef void unary(const struct kernels *k, float *out, const float *inp, int64_t n);
typedef void binary(const struct kernels *k, float *out, const float *a, const float *b, int64_t n);

static unary *unary_of(const struct kernels *k, int64_t which)
{
    unary *const operations[] = {k->gelu_forward, k->relu_forward, k->tanh_forward};
    return operations[which];
}

static binary *binary_of(const struct kernels *k, int64_t which)
{
    binary *const operations[] = {k->gelu_backward, k->relu_backward, k->tanh_backward, k->add,
                                  k->subtract};
    return operations[which];
}

/* What is given to an operation: n elements of an array that has c->skip before them. */
static element *skipped(const struct call *c, const struct kernels *k, void *array)
{
    return kernels_at(k, array, c->skip);
}

static void run_unary(const struct call *c, const struct kernels *k, void *const *a)
{
    element *out = skipped(c, k, a[0]), *inp = skipped(c, k, a[1]), *both = skipped(c, k, a[2]);
    unary_of(k, c->V)(k, out, inp, c->n);
    unary_of(k, c->V)(k, both, both, c->n); /* in place */
}

static void run_binary(const struct call *c, const struct kernels *k, void *const *a)
{
    element *out = skipped(c, k, a[0]), *left = skipped(c, k, a[1]);
    element *right = skipped(c, k, a[2]), *both = skipped(c, k, a[3]);
    binary_of(k, c->V)(k, out, left, right, c->n);
    binary_of(k, c->V)(k, both, both, right, c->n);
}

/* Ordinary values, and some that are hard. */
static void hard_values(struct call *call, int which)
{
    static const float hard[] = {0,     -0.0f, 1e-40f, -1e-30f, 1e30f,    -1e30f, INFINITY,
                                 0.5f,  88,    -88,    -87.4f,  0.62499f, 0.625f, 1e-20f,
                                 20.0f, -20,   5,      -5,      3e38f,    -3e38f};
    struct array *array = &call->arrays[which];
    float *values = array->start;
    size_t n = array->bytes / sizeof *values;
    for (size_t i = 0; i < n; i++)
        values[i] *= 6;
    for (size_t i = 0; i < n && i < sizeof hard / sizeof *hard; i++)
        values[i] = hard[i];
}

/* Lengths that are whole packs, that leave some of one over, and arrays that have none. All of them
 * go on for an element that is not the operation's. */
static const struct {
    int64_t n, skip;
} runs[] = {{1, 0}, {63, 0}, {64, 0}, {65, 0}, {20001, 0}, {64, 1}, {2003, 3}};

PARITY(elementwise_operations_have_the_cpus_bits)
{
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        int64_t n = runs[i].n, all = runs[i].skip + n + 1;
        for (int64_t which = 0; which < 3; which++) {
            struct call call = {
                .elements = 0x7, .operate = run_unary, .V = which, .n = n, .skip = runs[i].skip};
            call_output_floats(&call, "out", SAME, all);
            call_input(&call, all, 1);
            hard_values(&call, 1);
            call_inout(&call, "in place", SAME, all);
            call_compare(&call, *state);
        }
        for (int64_t which = 0; which < 5; which++) {
            struct call call = {.elements = which < 3 ? 0xf : 0,
                                .operate = run_binary,
                                .V = which,
                                .n = n,
                                .skip = runs[i].skip};
            call_output_floats(&call, "out", SAME, all);
            call_input(&call, all, 1);
            call_input(&call, all, 6);
            float *values = call.arrays[2].start;
            for (int64_t at = 0; at < all; at += 5)
                values[at] = 0;
            call_inout(&call, "in place", SAME, all);
            call_compare(&call, *state);
        }
    }
}

static void run_copy(const struct call *c, const struct kernels *k, void *const *a)
{
    k->copy(k, (float *)a[0] + c->skip, (float *)a[1] + c->skip, (size_t)c->n * sizeof(float));
}

PARITY(a_copy_has_the_cpus_bits)
{
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        int64_t all = runs[i].skip + runs[i].n + 1;
        struct call call = {.operate = run_copy, .n = runs[i].n, .skip = runs[i].skip};
        call_output_floats(&call, "copy", SAME, all);
        call_input(&call, all, 1);
        call_compare(&call, *state);
    }
}

/* Rows of n. */
enum { SWIGLU_ROWS = 3 };

static void run_swiglu(const struct call *c, const struct kernels *k, void *const *a)
{
    element *x[5];
    for (int i = 0; i < 5; i++)
        x[i] = skipped(c, k, a[i]);
    k->swiglu_forward(k, x[0], x[2], SWIGLU_ROWS, c->n);
    k->swiglu_backward(k, x[1], x[3], x[2], SWIGLU_ROWS, c->n);
    k->swiglu_backward(k, x[4], x[3], x[4], SWIGLU_ROWS, c->n); /* in place */
}

PARITY(swiglu_has_the_cpus_bits)
{
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        int64_t n = SWIGLU_ROWS * runs[i].n, single = runs[i].skip + n, twice = single + n;
        struct call call = {
            .elements = 0x1f, .operate = run_swiglu, .n = runs[i].n, .skip = runs[i].skip};
        call_output_floats(&call, "out", SAME, single);
        call_output_floats(&call, "dinp", SAME, twice);
        call_input(&call, twice, 6);
        call_input(&call, single, 1);
        call_inout(&call, "in place", SAME, twice);
        float *gates = (float *)call.arrays[2].start + runs[i].skip;
        gates[0] = -100;
        gates[runs[i].n - 1] = 100;
        call_compare(&call, *state);
    }
}

/* -- wire and sums ----------------------------------------------------------------------------- */

static void wire_operations(const struct call *c, const struct kernels *k, void *const *a)
{
    k->cast_to_bf16(k, (char *)a[0] + 1, a[2], c->n);
    k->cast_from_bf16(k, a[1], (char *)a[0] + 1, c->n);
    k->cast_from_f32(k, a[5], (char *)a[4] + 1, c->n);
    k->add_f32(k, a[3], (char *)a[4] + 1, c->n);
    k->add_bf16(k, a[3], (char *)a[0] + 1, c->n);
}

PARITY(wire_operations_have_the_cpus_bits)
{
    static const int64_t lengths[] = {1, 65, 131072, 600001}; /* the last passes in pieces */
    for (int i = 0; i < 4; i++) {
        int64_t n = lengths[i];
        struct call call = {.elements = 0x22, .operate = wire_operations, .n = n};
        call_output(&call, "bf16", SAME, (size_t)n * 2 + 1)->on_host = true;
        call_output_floats(&call, "cast_from_bf16", SAME, n);
        call_input(&call, n, 1e4f);
        if (n > 4) {
            float *values = call.arrays[2].start;
            values[0] = INFINITY;
            values[1] = 3.4e38f;
            values[2] = 1e-40f;
        }
        call_inout(&call, "sum", SAME, n);
        struct array *bytes = call_array(&call, "bytes", (size_t)n * 4 + 1);
        bytes->on_host = true;
        for (int64_t at = 0; at < n; at++) {
            float value = hash_float(5, (uint32_t)at);
            memcpy((char *)bytes->start + 1 + 4 * at, &value, sizeof value);
        }
        call_output_floats(&call, "cast_from_f32", SAME, n);
        call_compare(&call, *state);
    }
}

PARITY(the_sum_of_squares_is_the_cpus)
{
    const struct tables *tables = *state;
    const struct kernels *gpu = tables->gpu;
    static const int64_t lengths[] = {0, 1, 65, 600001};
    for (int i = 0; i < 4; i++) {
        int64_t n = lengths[i];
        struct arrays host = {.count = 0};
        float *x = arrays_floats(&host, 3, n, 10), *device = gpu->alloc(gpu, (size_t)n * 4);
        double expected, first, second;
        gpu->copy_in(gpu, device, x, (size_t)n * sizeof *x);
        tables->cpu->sum_squares(tables->cpu, &expected, x, n);
        gpu->sum_squares(gpu, &first, device, n);
        gpu->sum_squares(gpu, &second, device, n);
        assert_memory_equal(&first, &second, sizeof first);
        assert_true(fabs(first - expected) <= 1e-12 * expected);
        if (n > 1) {
            x[n / 2] = INFINITY;
            gpu->copy_in(gpu, device, x, (size_t)n * sizeof *x);
            gpu->sum_squares(gpu, &first, device, n);
            assert_true(first == (double)INFINITY);
        }
        assert_null(gpu->synchronize(gpu));
        gpu->free(gpu, device);
        arrays_release(&host);
    }
}

/* -- optimizers -------------------------------------------------------------------------------- */

enum { WEIGHTS = 2003, MEAN_AT = 8016 /* bytes: behind as many floats, aligned */ };

static void *published(const struct call *c, void *memory)
{
    return c->format == KERNELS_NONE ? NULL : (char *)memory + c->flag; /* maybe unaligned */
}

static void run_optimizers(const struct call *c, const struct kernels *k, void *const *a)
{
    float *w = (float *)a[0] + c->skip, *m = (float *)a[1] + c->skip, *v = (float *)a[2] + c->skip;
    float *g = (float *)a[3] + c->skip;
    const struct kernels_sgd sgd = {0.5f, 0.1f, 0.01f};
    const struct kernels_momentum plain = {0.5f, 0.1f, 0.01f, 0.9f, false};
    const struct kernels_momentum nesterov = {0.5f, 0.1f, 0.01f, 0.9f, true};
    const struct kernels_adamw adamw = {0.5f,  0.999f,        0.9f, 0.1f, 0.95f,
                                        0.05f, 0.01f / 0.19f, 3.2f, 1e-8f};
    void *at = published(c, a[4]);
    k->sgd(k, w, at, c->format, g, &sgd, c->n);
    k->momentum(k, w, m, at, c->format, g, &plain, c->n);
    k->momentum(k, w, m, at, c->format, g, &nesterov, c->n);
    k->adamw(k, w, m, v, at, c->format, g, &adamw, c->n);
    k->mean(k, a[5], c->format == KERNELS_NONE ? NULL : (char *)at + MEAN_AT, c->format, a[3],
            0.125f, c->n);
}

PARITY(optimizers_have_the_cpus_bits)
{
    static const enum kernels_format formats[] = {KERNELS_NONE, KERNELS_F32, KERNELS_BF16};
    for (int i = 0; i < 3; i++) {
        for (int unaligned = 0; unaligned < 3; unaligned++) { /* 1: published, 2: the weights */
            int64_t n = WEIGHTS;
            struct call call = {.operate = run_optimizers,
                                .n = n - 1,
                                .format = formats[i],
                                .flag = unaligned == 1,
                                .skip = unaligned / 2};
            call_inout(&call, "w", SAME, n);
            call_inout(&call, "m", SAME, n);
            call_inout(&call, "v", SAME, n);
            float *v = call.arrays[2].start;
            for (int64_t at = 0; at < n; at++)
                v[at] *= v[at];
            call_input(&call, n, 0.1f);
            call_output(&call, "published", SAME, 2 * MEAN_AT);
            call_output_floats(&call, "mean", SAME, n);
            call_compare(&call, *state);
        }
    }
}
