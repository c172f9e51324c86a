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
    binary *const operations[] = {k->gelu_backward, k->relu_backward, k->tanh_backward, k->add};
    return operations[which];
}

static void run_unary(const struct call *c, const struct kernels *k, void *const *a)
{
    unary_of(k, c->V)(k, a[0], a[1], c->n);
    unary_of(k, c->V)(k, a[2], a[2], c->n); /* in place */
}

static void run_binary(const struct call *c, const struct kernels *k, void *const *a)
{
    binary_of(k, c->V)(k, a[0], a[1], a[2], c->n);
    binary_of(k, c->V)(k, a[3], a[3], a[2], c->n);
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

void elementwise_operations_have_the_cpus_bits(void **state)
{
    static const int64_t lengths[] = {1, 63, 65, 20001};
    for (int i = 0; i < 4; i++) {
        int64_t n = lengths[i];
        for (int64_t which = 0; which < 3; which++) {
            struct call call = {.elements = 0x7, .operate = run_unary, .V = which, .n = n};
            call_output_floats(&call, "out", SAME, n);
            call_input(&call, n, 1);
            hard_values(&call, 1);
            call_inout(&call, "in place", SAME, n);
            call_compare(&call, *state);
        }
        for (int64_t which = 0; which < 4; which++) {
            struct call call = {
                .elements = which < 3 ? 0xf : 0, .operate = run_binary, .V = which, .n = n};
            call_output_floats(&call, "out", SAME, n);
            call_input(&call, n, 1);
            call_input(&call, n, 6);
            float *values = call.arrays[2].start;
            for (int64_t at = 0; at < n; at += 5)
                values[at] = 0;
            call_inout(&call, "in place", SAME, n);
            call_compare(&call, *state);
        }
    }
}

static void run_swiglu(const struct call *c, const struct kernels *k, void *const *a)
{
    k->swiglu_forward(k, a[0], a[3], a[4], c->n);
    k->swiglu_backward(k, a[1], a[2], a[5], a[3], a[4], c->n);
    k->swiglu_backward(k, a[6], a[7], a[5], a[6], a[7], c->n); /* in place */
}

void swiglu_has_the_cpus_bits(void **state)
{
    static const int64_t lengths[] = {1, 63, 65, 20001};
    for (int i = 0; i < 4; i++) {
        int64_t n = lengths[i];
        struct call call = {.elements = 0xff, .operate = run_swiglu, .n = n};
        for (int output = 0; output < 3; output++)
            call_output_floats(&call, "out", SAME, n);
        call_input(&call, n, 6);
        call_input(&call, n, 1);
        call_input(&call, n, 1);
        call_inout(&call, "in place", SAME, n);
        call_inout(&call, "in place", SAME, n);
        float *gate = call.arrays[3].start;
        gate[n / 2] = -100;
        gate[n - 1] = 100;
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

void wire_operations_have_the_cpus_bits(void **state)
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

void the_sum_of_squares_is_the_cpus(void **state)
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

static void *published(const struct call *c, void *memory)
{
    return c->format == KERNELS_NONE ? NULL : (char *)memory + c->flag; /* maybe unaligned */
}

static void run_optimizers(const struct call *c, const struct kernels *k, void *const *a)
{
    const struct kernels_sgd sgd = {0.5f, 0.1f, 0.01f};
    const struct kernels_momentum plain = {0.5f, 0.1f, 0.01f, 0.9f, false};
    const struct kernels_momentum nesterov = {0.5f, 0.1f, 0.01f, 0.9f, true};
    const struct kernels_adamw adamw = {0.5f,  0.999f,        0.9f, 0.1f, 0.95f,
                                        0.05f, 0.01f / 0.19f, 3.2f, 1e-8f};
    void *at = published(c, a[4]);
    k->sgd(k, a[0], at, c->format, a[3], &sgd, c->n);
    k->momentum(k, a[0], a[1], at, c->format, a[3], &plain, c->n);
    k->momentum(k, a[0], a[1], at, c->format, a[3], &nesterov, c->n);
    k->adamw(k, a[0], a[1], a[2], at, c->format, a[3], &adamw, c->n);
    k->mean(k, a[5], c->format == KERNELS_NONE ? NULL : (char *)at + 4 * c->n, c->format, a[3],
            0.125f, c->n);
}

void optimizers_have_the_cpus_bits(void **state)
{
    static const enum kernels_format formats[] = {KERNELS_NONE, KERNELS_F32, KERNELS_BF16};
    for (int i = 0; i < 3; i++) {
        for (int unaligned = 0; unaligned < 2; unaligned++) {
            int64_t n = 2001;
            struct call call = {
                .operate = run_optimizers, .n = n, .format = formats[i], .flag = unaligned};
            call_inout(&call, "w", SAME, n);
            call_inout(&call, "m", SAME, n);
            call_inout(&call, "v", SAME, n);
            float *v = call.arrays[2].start;
            for (int64_t at = 0; at < n; at++)
                v[at] *= v[at];
            call_input(&call, n, 0.1f);
            call_output(&call, "published", SAME, (size_t)n * 8 + 1);
            call_output_floats(&call, "mean", SAME, n);
            call_compare(&call, *state);
        }
    }
}
