/* What computes element by element, crosses to the host or sums all of an array. */
#include "tests/gpu/parity.h"

#include <dlfcn.h>

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

/* Block: rows of cols values, each `skip` further than the block is wide; more of them in turn than a
 * table has under way at once. */
enum { BLOCKS = 6 };

struct grid {
    int64_t rows, cols, skip;
};

static const struct grid grids[] = {{67, 48, 48}, {7, 13, 16}, {9, 12, 5},
                                    {1, 5, 60},   {200, 1, 2}, {64, 100, 0}};

static int64_t block_stride(const struct call *c)
{
    return c->C + c->skip;
}

static int64_t block_values(const struct call *c)
{
    return c->N * block_stride(c);
}

/* What decode_block() does, by the CPU's table. */
static void decode_block(const struct call *c, const struct kernels *k, element *block,
                         const char *bytes, enum kernels_format format)
{
    if (k->decode_block != NULL) {
        void *room = k->block_room(k);
        size_t count = (size_t)(c->N * c->C) * (format == KERNELS_BF16 ? 2 : 4);
        if (format == KERNELS_BF16) /* once by way of the room, once from anywhere */
            memcpy(room, bytes, count);
        k->decode_block(k, block, block_stride(c), format == KERNELS_BF16 ? room : bytes, format,
                        c->N, c->C);
        return;
    }
    for (int64_t r = 0; r < c->N; r++)
        if (format == KERNELS_BF16)
            k->cast_from_bf16(k, block + r * block_stride(c), bytes + 2 * r * c->C, c->C);
        else
            k->cast_from_f32(k, block + r * block_stride(c), bytes + 4 * r * c->C, c->C);
}

static void encode_block(const struct call *c, const struct kernels *k, char *bytes,
                         enum kernels_format format, const float *block)
{
    if (k->encode_block != NULL)
        k->encode_block(k, bytes, format, block, block_stride(c), c->N, c->C);
    for (int64_t r = 0; k->encode_block == NULL && r < c->N; r++)
        if (format == KERNELS_BF16)
            k->cast_to_bf16(k, bytes + 2 * r * c->C, block + r * block_stride(c), c->C);
        else
            memcpy(bytes + 4 * r * c->C, block + r * block_stride(c), (size_t)(4 * c->C));
}

static void copy_block(const struct call *c, const struct kernels *k, element *block,
                       const element *from)
{
    if (k->copy_block != NULL)
        k->copy_block(k, block, from, block_stride(c), c->N, c->C);
    for (int64_t r = 0; k->copy_block == NULL && r < c->N; r++)
        memcpy(block + r * block_stride(c), from + r * block_stride(c), (size_t)(4 * c->C));
}

/* Arrays: fp32 and bf16 bytes of all blocks, gradients, and weights from fp32, from bf16 and copied. */
static void block_operations(const struct call *c, const struct kernels *k, void *const *a)
{
    int64_t values = c->N * c->C;
    for (int64_t i = 0; i < BLOCKS; i++) {
        char *wide = (char *)a[0] + 4 * i * values, *narrow = (char *)a[1] + 2 * i * values;
        const float *gradient = (const float *)a[2] + i * block_values(c);
        encode_block(c, k, wide, KERNELS_F32, gradient);
        encode_block(c, k, narrow, KERNELS_BF16, gradient);
    }
    k->synchronize(k);
    for (int64_t i = 0; i < BLOCKS; i++) {
        int64_t at = i * block_values(c);
        decode_block(c, k, kernels_at(k, a[3], at), (char *)a[0] + 4 * i * values, KERNELS_F32);
        decode_block(c, k, kernels_at(k, a[4], at), (char *)a[1] + 2 * i * values, KERNELS_BF16);
        copy_block(c, k, kernels_at(k, a[5], at), kernels_at(k, a[4], at));
    }
}

PARITY(blocks_have_the_cpus_bits)
{
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        const struct grid *g = &grids[i];
        struct call call = {.elements = 0x38,
                            .operate = block_operations,
                            .N = g->rows,
                            .C = g->cols,
                            .skip = g->skip};
        size_t values = (size_t)(BLOCKS * g->rows * g->cols);
        int64_t all = BLOCKS * block_values(&call);
        call_output(&call, "fp32", SAME, values * 4)->on_host = true;
        call_output(&call, "bf16", SAME, values * 2)->on_host = true;
        call_input(&call, all, 1e4f);
        call_inout(&call, "from fp32", SAME, all);
        call_inout(&call, "from bf16", SAME, all);
        call_inout(&call, "copied", SAME, all);
        call_compare(&call, *state);
    }
}

#ifdef EMULATED
/* Of three pieces of the host's memory the third cannot be pinned: blocks lie in each, and across. */
PARITY(blocks_cross_to_shared_memory_whether_it_can_be_pinned_or_not)
{
    const struct tables *tables = *state;
    const struct kernels *k = tables->gpu, *out = k->out;
    enum { ROWS = 100, COLS = 700, STRIDE = 900, BYTES = 4 * ROWS * COLS };
    const size_t piece = 8 << 20, all = 3 * piece - 64, places[] = {0, piece - 64, 2 * piece - 64};
    char *shared = aligned_alloc(4096, 3 * piece), *apart = malloc(BYTES);
    float *values = malloc(4 * ROWS * STRIDE);
    for (int i = 0; i < ROWS * STRIDE; i++)
        values[i] = (float)i;
    element *block = k->alloc(k, 4 * ROWS * STRIDE);
    k->cast_from_f32(k, block, values, ROWS * STRIDE);
    assert_null(k->synchronize(k));
    setenv("ROOST_EMULATED_PINNED", "16777216", 1);
    k->share(k, shared, all);
    memset(shared, 1, 3 * piece);
    for (int i = 0; i < 3; i++)
        out->encode_block(out, shared + places[i], KERNELS_F32, block, STRIDE, ROWS, COLS);
    out->encode_block(out, shared + all - BYTES, KERNELS_F32, block, STRIDE, ROWS, COLS);
    out->encode_block(out, apart, KERNELS_F32, block, STRIDE, ROWS, COLS);
    assert_null(out->synchronize(out));
    for (int i = 0; i < 3; i++)
        assert_memory_equal(shared + places[i], apart, BYTES);
    assert_memory_equal(shared + all - BYTES, apart, BYTES);
    assert_memory_equal(apart + 4 * COLS, values + STRIDE, 4 * COLS);
    assert_int_equal(shared[all], 1);
    unsetenv("ROOST_EMULATED_PINNED");
    k->free(k, block);
    free(values);
    free(apart);
    free(shared);
}

/* What the device's streams were given so far. */
static uint64_t given(void)
{
    void *module = dlopen("libroost-cuda.so", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(module);
    uint64_t (*count)(void) = (uint64_t(*)(void))dlsym(module, "emulator_given");
    assert_non_null(count);
    dlclose(module);
    return count();
}

PARITY(a_block_of_many_rows_is_one_copy)
{
    const struct tables *tables = *state;
    const struct kernels *k = tables->gpu;
    enum { ROWS = 1000, COLS = 3, STRIDE = 7 };
    float values[ROWS * COLS];
    element *block = k->alloc(k, sizeof(float) * ROWS * STRIDE);
    memset(values, 0, sizeof values);
    uint64_t before = given();
    k->decode_block(k, block, STRIDE, values, KERNELS_F32, ROWS, COLS);
    assert_int_equal(given() - before, 2); /* and a kernel */
    k->encode_block(k, values, KERNELS_F32, block, STRIDE, ROWS, COLS);
    assert_int_equal(given() - before, 4);
    assert_null(k->synchronize(k));
    k->free(k, block);
}
#endif

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
