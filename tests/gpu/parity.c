/* The CUDA tables against the CPU table: every operation on odd shapes, within the tolerances of
 * tests/parity or, where no sum is shared between threads, bit for bit; and twice on the device,
 * which must give the same bits. A table in bf16 gets inputs that bf16 holds, so what differs is
 * what is rounded on the way and at the end. Without a device: one skipped test.
 *
 * With -DEMULATED it is linked beside the emulated module, which is there on every machine. */
#include "tests/unit/unit.h"

#include "tests/parity/tolerances.h"
#include "tests/unit/test_kernels.h"

enum { ARRAYS_MAX = 12 };

/* How an array's values on the device are compared with the CPU's. */
enum compared {
    NEAR, /* floats, by the tolerance of the array's name */
    SAME, /* bits */
};

/* One argument of an operation. Before each call it has the values `start`. */
struct array {
    char name[48];
    enum compared compared;
    bool on_host;  /* for every table */
    bool elements; /* maybe bf16 on the device; here they are floats */
    size_t bytes;
    void *start, *expected, *first, *second; /* CPU's result, the device's two */
    void *device;
};

/* One call: its arguments, and their dims for the function that makes it. */
struct call {
    struct array arrays[ARRAYS_MAX];
    int arrays_count;
    double terms; /* that the longest sum has, 0: as few as the tolerances were made for */
    int64_t B, T, C, H, G, V, N, I, O, n;
    bool flag;
    enum kernels_format format;
    unsigned elements; /* bit i: the i-th array is of elements */
    struct arrays host;
    /* a[i] is the i-th array in the table's memory */
    void (*operate)(const struct call *call, const struct kernels *k, void *const *a);
};

struct tables {
    const struct kernels *cpu, *gpu, *bf16;
};

/* How far results of a bf16 table may be: elements, which are rounded themselves to 8 bits, and
 * floats, which are sums of what was rounded. */
static const double tolerance_elements = 1e-2, tolerance_floats = 4e-3;

/* -- arrays ------------------------------------------------------------------------------------ */

static struct array *add_array(struct call *call, const char *name, size_t bytes)
{
    check(call->arrays_count < ARRAYS_MAX);
    struct array *array = &call->arrays[call->arrays_count++];
    snprintf(array->name, sizeof array->name, "%s", name);
    array->compared = SAME;
    array->bytes = bytes;
    array->start = arrays_take(&call->host, bytes);
    array->expected = arrays_take(&call->host, bytes);
    array->first = arrays_take(&call->host, bytes);
    array->second = arrays_take(&call->host, bytes);
    return array;
}

/* Floats that the operation reads and must not change, or (`inout`) adds to. */
static void input(struct call *call, int64_t n, float scale)
{
    struct array *array = add_array(call, "input", (size_t)n * sizeof(float));
    float *values = array->start;
    for (int64_t i = 0; i < n; i++)
        values[i] = scale * hash_float((uint32_t)call->arrays_count, (uint32_t)i);
}

static void inout(struct call *call, const char *name, enum compared compared, int64_t n)
{
    input(call, n, 1);
    struct array *array = &call->arrays[call->arrays_count - 1];
    snprintf(array->name, sizeof array->name, "%s", name);
    array->compared = compared;
}

/* Floats or bytes that the operation writes, whatever was there. */
static struct array *output(struct call *call, const char *name, enum compared compared,
                            size_t bytes)
{
    struct array *array = add_array(call, name, bytes);
    array->compared = compared;
    memset(array->start, 0xff, bytes);
    return array;
}

static void output_floats(struct call *call, const char *name, enum compared compared, int64_t n)
{
    output(call, name, compared, (size_t)n * sizeof(float));
}

/* Integers in [0, below), every seventh negative when `negatives`. */
static void integers(struct call *call, int64_t n, int64_t below, bool negatives)
{
    struct array *array = add_array(call, "integers", (size_t)n * sizeof(int32_t));
    int32_t *values = array->start;
    for (int64_t i = 0; i < n; i++)
        values[i] =
            negatives && i % 7 == 3
                ? -1
                : (int32_t)(hash_bits(77, (uint32_t)i) % (uint32_t)(below < INT32_MAX ? below : 1));
}

/* -- comparing --------------------------------------------------------------------------------- */

static float rounded_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x == x)
        bits += (bits >> 16 & 1) + 0x7fff;
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The array in the table's memory, and back. */
static void array_to_device(const struct kernels *k, const struct array *array)
{
    if (array->elements)
        k->cast_from_f32(k, array->device, array->start, (int64_t)(array->bytes / sizeof(float)));
    else
        k->copy_in(k, array->device, array->start, array->bytes);
}

static void array_from_device(const struct kernels *k, const struct array *array, void *host)
{
    bool narrow = array->elements && k->element_bytes == 2;
    k->copy_out(k, host, array->device, narrow ? array->bytes / 2 : array->bytes);
    uint16_t *half = host;
    for (size_t i = array->bytes / sizeof(float); narrow && i-- > 0;) {
        uint32_t bits = (uint32_t)half[i] << 16; /* last to first: they make room for themselves */
        memcpy((float *)host + i, &bits, sizeof bits);
    }
}

static void operate(struct call *call, const struct kernels *k, bool on_device)
{
    void *memory[ARRAYS_MAX];
    for (int i = 0; i < call->arrays_count; i++) {
        struct array *array = &call->arrays[i];
        memory[i] = on_device && !array->on_host ? array->device : array->expected;
        if (memory[i] == array->device)
            array_to_device(k, array);
        else
            memcpy(memory[i], array->start, array->bytes);
    }
    call->operate(call, k, memory);
}

/* On the device; results in `second`, what was there in `first`. Arrays on the host use `expected`
 * for the call, which is put back. */
static void operate_on_device(struct call *call, const struct kernels *k)
{
    struct arrays kept = {.count = 0};
    for (int i = 0; i < call->arrays_count; i++) {
        struct array *array = &call->arrays[i];
        memcpy(array->first, array->second, array->bytes);
        memcpy(arrays_take(&kept, array->bytes), array->expected, array->bytes);
    }
    operate(call, k, true);
    const char *failure = k->synchronize(k);
    if (failure)
        fail_msg("%s", failure);
    for (int i = 0; i < call->arrays_count; i++) {
        struct array *array = &call->arrays[i];
        if (array->on_host)
            memcpy(array->second, array->expected, array->bytes);
        else
            array_from_device(k, array, array->second);
        memcpy(array->expected, kept.memory[i], array->bytes);
    }
    arrays_release(&kept);
}

static void compare_bits(const struct array *array)
{
    const unsigned char *x = array->second, *expected = array->expected;
    for (size_t i = 0; i < array->bytes; i++)
        if (x[i] != expected[i])
            fail_msg("%s: byte %zu of %zu is %02x, not %02x", array->name, i, array->bytes, x[i],
                     expected[i]);
}

/* Elements of a bf16 table: the CPU's, rounded. */
static void compare_rounded(const struct array *array)
{
    const float *x = array->second, *expected = array->expected;
    for (size_t i = 0; i < array->bytes / sizeof(float); i++) {
        float wanted = rounded_to_bf16(expected[i]);
        if (memcmp(&x[i], &wanted, sizeof wanted) != 0 && (x[i] == x[i] || wanted == wanted))
            fail_msg("%s: element %zu is %g, not %g", array->name, i, (double)x[i], (double)wanted);
    }
}

/* `limit` 0: the tolerance of the array's name */
static void compare_near(const struct call *call, const struct array *array, double limit)
{
    int64_t n = (int64_t)(array->bytes / sizeof(float));
    double *expected = malloc((size_t)n * sizeof *expected);
    check(expected);
    for (int64_t i = 0; i < n; i++)
        expected[i] = ((float *)array->expected)[i];
    double away = distance(array->second, expected, n);
    free(expected);
    /* an fp32 sum's error grows with the root of its terms */
    if (limit == 0)
        limit = tolerance(array->name) * (call->terms > 768 ? sqrt(call->terms / 768) : 1);
    print_message("# %-24s %.1e (limit %.0e)\n", array->name, away, limit);
    if (!(away <= limit))
        fail_msg("%s: %.2e away", array->name, away);
}

static void compare_array(const struct call *call, const struct array *array, bool in_bf16)
{
    if (memcmp(array->first, array->second, array->bytes) != 0)
        fail_msg("%s: two runs differ", array->name);
    if (array->compared == NEAR && in_bf16)
        compare_near(call, array, array->elements ? tolerance_elements : tolerance_floats);
    else if (array->compared == NEAR)
        compare_near(call, array, 0);
    else if (array->elements && in_bf16)
        compare_rounded(array);
    else
        compare_bits(array);
}

static void compare_with(struct call *call, const struct kernels *cpu, const struct kernels *gpu)
{
    bool in_bf16 = gpu->element_bytes == 2;
    for (int i = 0; i < call->arrays_count; i++) {
        struct array *array = &call->arrays[i];
        array->elements = call->elements >> i & 1;
        for (size_t at = 0; in_bf16 && array->elements && at < array->bytes / sizeof(float); at++)
            ((float *)array->start)[at] = rounded_to_bf16(((float *)array->start)[at]);
        if (!array->on_host)
            assert_non_null(array->device = gpu->alloc(gpu, array->bytes));
    }
    operate(call, cpu, false);
    operate_on_device(call, gpu);
    operate_on_device(call, gpu);
    for (int i = 0; i < call->arrays_count; i++) {
        gpu->free(gpu, call->arrays[i].device);
        compare_array(call, &call->arrays[i], in_bf16);
    }
}

/* With all tables; operations without elements are the same on those in bf16. */
static void compare(struct call *call, const struct tables *tables)
{
    compare_with(call, tables->cpu, tables->gpu);
    if (call->elements)
        compare_with(call, tables->cpu, tables->bf16);
    arrays_release(&call->host);
}

/* -- linear ------------------------------------------------------------------------------------ */

static void linear_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->linear_forward(k, a[0], a[1], a[2], c->flag ? a[3] : NULL, c->N, c->I, c->O);
}

static void linear_backward_input(const struct call *c, const struct kernels *k, void *const *a)
{
    k->linear_backward_input(k, a[0], a[1], a[2], c->N, c->I, c->O);
}

static void linear_backward_weight(const struct call *c, const struct kernels *k, void *const *a)
{
    k->linear_backward_weight(k, a[0], c->flag ? a[1] : NULL, a[2], a[3], c->N, c->I, c->O);
}

static void linear_add_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->linear_add_forward(k, a[0], a[1], a[2], a[3], a[4], c->N, c->I, c->O);
}

static void linear_gelu_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->linear_gelu_forward(k, a[0], a[1], a[2], a[3], a[4], c->N, c->I, c->O);
}

static void linear_gelu_backward_input(const struct call *c, const struct kernels *k,
                                       void *const *a)
{
    k->linear_gelu_backward_input(k, a[0], a[1], a[2], a[3], c->N, c->I, c->O);
}

static void fused_linear_at(const struct tables *tables, int64_t N, int64_t I, int64_t O)
{
    struct call add = {.elements = 0x1f, .operate = linear_add_forward, .N = N, .I = I, .O = O};
    output_floats(&add, "linear.out", NEAR, N * O);
    input(&add, N * O, 1);
    input(&add, N * I, 1);
    input(&add, O * I, 1);
    input(&add, O, 1);
    compare(&add, tables);
    struct call gelu = {.elements = 0x1f, .operate = linear_gelu_forward, .N = N, .I = I, .O = O};
    output_floats(&gelu, "linear.out", NEAR, N * O);
    output_floats(&gelu, "linear.out", NEAR, N * O);
    input(&gelu, N * I, 1);
    input(&gelu, O * I, 0.2f);
    input(&gelu, O, 1);
    compare(&gelu, tables);
    struct call backward = {
        .elements = 0xf, .operate = linear_gelu_backward_input, .N = N, .I = I, .O = O};
    output_floats(&backward, "linear.dinp", NEAR, N * I);
    input(&backward, N * O, 1);
    input(&backward, O * I, 1);
    input(&backward, N * I, 3);
    compare(&backward, tables);
}

static void linear_at(const struct tables *tables, int64_t N, int64_t I, int64_t O, bool bias)
{
    print_message("# linear %d x %d x %d\n", (int)N, (int)I, (int)O);
    struct call forward = {.elements = 0xf,
                           .operate = linear_forward,
                           .N = N,
                           .I = I,
                           .O = O,
                           .flag = bias,
                           .terms = (double)I};
    output_floats(&forward, "linear.out", NEAR, N * O);
    input(&forward, N * I, 1);
    input(&forward, O * I, 1);
    input(&forward, O, 1);
    compare(&forward, tables);
    struct call backward = {.elements = 0x7,
                            .operate = linear_backward_input,
                            .N = N,
                            .I = I,
                            .O = O,
                            .terms = (double)O};
    output_floats(&backward, "linear.dinp", NEAR, N * I);
    input(&backward, N * O, 1);
    input(&backward, O * I, 1);
    compare(&backward, tables);
    struct call weight = {
        .elements = 0xc, .operate = linear_backward_weight, .N = N, .I = I, .O = O, .flag = bias};
    inout(&weight, "linear.dweight", NEAR, O * I);
    inout(&weight, "linear.dbias", bias ? NEAR : SAME, O);
    input(&weight, N * O, 1);
    input(&weight, N * I, 1);
    compare(&weight, tables);
}

static void linear_is_the_cpus(void **state)
{
    linear_at(*state, 1, 1, 1, true);
    linear_at(*state, 1, 64, 3, true);
    linear_at(*state, 63, 1, 64, true);
    linear_at(*state, 65, 64, 192, false);
    linear_at(*state, 65, 65, 63, true);
    linear_at(*state, 130, 768, 65, true);
    linear_at(*state, 7, 3072, 768, true);
    linear_at(*state, 3, 64, 50304, false);
    fused_linear_at(*state, 1, 1, 1);
    fused_linear_at(*state, 9, 64, 192);
    fused_linear_at(*state, 65, 63, 65);
}

/* -- embedding --------------------------------------------------------------------------------- */

static void embedding_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->embedding_forward(k, a[0], a[1], a[2], a[3], c->B, c->T, c->C, c->V);
}

static void embedding_backward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->embedding_backward(k, a[0], a[1], a[2], a[3], c->B, c->T, c->C, c->V);
}

static void embedding_at(const struct tables *tables, int64_t B, int64_t T, int64_t C, int64_t V)
{
    struct call forward = {
        .elements = 0xd, .operate = embedding_forward, .B = B, .T = T, .C = C, .V = V};
    output_floats(&forward, "embedding.out", SAME, B * T * C);
    integers(&forward, B * T, V, false);
    input(&forward, V * C, 1);
    input(&forward, T * C, 1);
    compare(&forward, tables);
    struct call backward = {
        .elements = 0x8, .operate = embedding_backward, .B = B, .T = T, .C = C, .V = V};
    inout(&backward, "embedding.dwte", SAME, V * C);
    inout(&backward, "embedding.dwpe", SAME, T * C);
    integers(&backward, B * T, V, false);
    input(&backward, B * T * C, 1);
    compare(&backward, tables);
}

static void embedding_has_the_cpus_bits(void **state)
{
    embedding_at(*state, 1, 1, 1, 1);
    embedding_at(*state, 2, 63, 64, 29);
    embedding_at(*state, 3, 65, 768, 256);
    embedding_at(*state, 2, 65, 8, 50257);
    embedding_at(*state, 5, 130, 1, 2); /* tokens with more rows than a block has threads */
}

/* -- layernorm --------------------------------------------------------------------------------- */

static void layernorm_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->layernorm_forward(k, a[0], a[1], a[2], a[3], a[4], a[5], c->N, c->C);
}

static void layernorm_backward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->layernorm_backward(k, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], c->N, c->C);
}

static void layernorm_at(const struct tables *tables, int64_t N, int64_t C)
{
    struct call forward = {.elements = 0x39, .operate = layernorm_forward, .N = N, .C = C};
    output_floats(&forward, "layernorm.out", NEAR, N * C);
    output_floats(&forward, "layernorm.mean", NEAR, N);
    output_floats(&forward, "layernorm.rstd", NEAR, N);
    input(&forward, N * C, 3);
    input(&forward, C, 1);
    input(&forward, C, 1);
    compare(&forward, tables);
    struct call backward = {.elements = 0x99, .operate = layernorm_backward, .N = N, .C = C};
    inout(&backward, "layernorm.dinp", NEAR, N * C);
    inout(&backward, "layernorm.dgamma", NEAR, C);
    inout(&backward, "layernorm.dbeta", NEAR, C);
    for (int i = 0; i < 2; i++)
        input(&backward, N * C, 1);
    for (int i = 0; i < 2; i++)
        input(&backward, N, 1);
    input(&backward, C, 1);
    compare(&backward, tables);
}

static void layernorm_is_the_cpus(void **state)
{
    layernorm_at(*state, 1, 1);
    layernorm_at(*state, 63, 5);
    layernorm_at(*state, 65, 64);
    layernorm_at(*state, 9, 768);
    layernorm_at(*state, 1030, 33);
}

/* -- rmsnorm ----------------------------------------------------------------------------------- */

static void rmsnorm_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->rmsnorm_forward(k, a[0], a[1], a[2], a[3], c->N, c->C);
}

static void rmsnorm_backward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->rmsnorm_backward(k, a[0], a[1], a[2], a[3], a[4], a[5], c->N, c->C);
}

static void rmsnorm_at(const struct tables *tables, int64_t N, int64_t C)
{
    struct call forward = {.elements = 0xd, .operate = rmsnorm_forward, .N = N, .C = C};
    output_floats(&forward, "rmsnorm.out", NEAR, N * C);
    output_floats(&forward, "rmsnorm.rstd", NEAR, N);
    input(&forward, N * C, 3);
    input(&forward, C, 1);
    compare(&forward, tables);
    struct call backward = {.elements = 0x2d, .operate = rmsnorm_backward, .N = N, .C = C};
    inout(&backward, "rmsnorm.dinp", NEAR, N * C);
    inout(&backward, "rmsnorm.dgamma", NEAR, C);
    for (int i = 0; i < 2; i++)
        input(&backward, N * C, 1);
    input(&backward, N, 1);
    input(&backward, C, 1);
    compare(&backward, tables);
}

static void rmsnorm_is_the_cpus(void **state)
{
    rmsnorm_at(*state, 1, 1);
    rmsnorm_at(*state, 63, 5);
    rmsnorm_at(*state, 65, 64);
    rmsnorm_at(*state, 9, 768);
    rmsnorm_at(*state, 1030, 33);
}

/* -- rope -------------------------------------------------------------------------------------- */

static void rope_both_ways(const struct call *c, const struct kernels *k, void *const *a)
{
    struct kernels_rope rope = rope_of(1e4, c->C / c->H);
    k->rope_forward(k, a[0], &rope, c->B, c->T, c->C, c->H, c->G);
    k->rope_backward(k, a[1], &rope, c->B, c->T, c->C, c->H, c->G);
}

static void rope_at(const struct tables *tables, int64_t B, int64_t T, int64_t H, int64_t G,
                    int64_t S)
{
    struct call call = {.elements = 0x3, .operate = rope_both_ways, .B = B, .T = T};
    call.C = H * S;
    call.H = H;
    call.G = G;
    inout(&call, "rope.out", SAME, B * T * (H + 2 * G) * S);
    inout(&call, "rope.dqkv", SAME, B * T * (H + 2 * G) * S);
    compare(&call, tables);
}

static void rope_has_the_cpus_bits(void **state)
{
    rope_at(*state, 1, 1, 1, 1, 2);
    rope_at(*state, 2, 65, 3, 1, 34);
    rope_at(*state, 1, 300, 4, 2, 64);
    rope_at(*state, 3, 7, 2, 2, 2 * KERNELS_ROPE_PAIRS_MAX);
}

/* -- attention --------------------------------------------------------------------------------- */

static void attention_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    void *scratch = k->alloc(k, k->attention_scratch_bytes(k, c->T, c->C, c->H));
    assert_non_null(scratch);
    k->attention_forward(k, a[0], a[1], scratch, a[2], c->flag, c->B, c->T, c->C, c->H, c->G);
    k->free(k, scratch);
}

static void attention_backward(const struct call *c, const struct kernels *k, void *const *a)
{
    void *scratch = k->alloc(k, k->attention_scratch_bytes(k, c->T, c->C, c->H));
    assert_non_null(scratch);
    k->attention_backward(k, a[0], scratch, a[1], a[2], a[3], a[4], c->flag, c->B, c->T, c->C, c->H,
                          c->G);
    k->free(k, scratch);
}

/* The backward pass gets the CPU's forward results, so that each is compared by itself. */
static void attention_at(const struct tables *tables, bool causal, int64_t B, int64_t T, int64_t H,
                         int64_t G, int64_t size)
{
    int64_t C = H * size, n = B * T * C, wide = B * T * (H + 2 * G) * size;
    print_message("# attention, %d rows, %d (%d) heads of %d\n", (int)T, (int)H, (int)G, (int)size);
    bool in_bf16 = size <= 128; /* what it has templates for */
    struct call forward = {.elements = in_bf16 ? 0x5 : 0,
                           .operate = attention_forward,
                           .B = B,
                           .T = T,
                           .C = C,
                           .H = H,
                           .G = G,
                           .flag = causal};
    output_floats(&forward, "attention.out", NEAR, n);
    output_floats(&forward, "attention.lse", NEAR, B * H * T);
    input(&forward, wide, 2);
    struct call backward = {.elements = in_bf16 ? 0x17 : 0,
                            .operate = attention_backward,
                            .B = B,
                            .T = T,
                            .C = C,
                            .H = H,
                            .G = G,
                            .flag = causal};
    output_floats(&backward, "attention.dqkv", NEAR, wide);
    input(&backward, n, 1);
    inout(&backward, "attention.out", SAME, n);
    inout(&backward, "attention.lse", SAME, B * H * T);
    inout(&backward, "attention.qkv", SAME, wide);
    operate(&forward, tables->cpu, false);
    memcpy(backward.arrays[2].start, forward.arrays[0].expected, forward.arrays[0].bytes);
    memcpy(backward.arrays[3].start, forward.arrays[1].expected, forward.arrays[1].bytes);
    memcpy(backward.arrays[4].start, forward.arrays[2].start, forward.arrays[2].bytes);
    compare(&forward, tables);
    compare(&backward, tables);
}

static void attention_is_the_cpus(void **state)
{
    attention_at(*state, true, 1, 1, 1, 1, 1);
    attention_at(*state, true, 2, 63, 3, 3, 16);
    attention_at(*state, true, 1, 65, 2, 2, 64);
    attention_at(*state, true, 1, 130, 1, 1, 64);
    attention_at(*state, true, 1, 65, 1, 1, 1);
    attention_at(*state, true, 2, 33, 1, 1, 100);
    attention_at(*state, true, 1, 65, 1, 1, 200);
    attention_at(*state, false, 1, 65, 2, 2, 64);
    attention_at(*state, false, 1, 17, 1, 1, 129);
    attention_at(*state, true, 2, 65, 4, 2, 24);
    attention_at(*state, true, 1, 70, 3, 1, 64);
}

static void heads_that_are_too_wide_are_refused(void **state)
{
    (void)state;
    const struct kernels_options options = {.backend = KERNELS_CUDA};
    const struct kernels *k;
    char reason[256];
    assert_true(kernels_new(&options, &k, reason, sizeof reason));
    float *memory = k->alloc(k, 4 * 257 * sizeof(float));
    assert_null(k->synchronize(k));
    k->attention_forward(k, memory, memory, NULL, memory, true, 1, 1, 257, 1, 1);
    const char *failure = k->synchronize(k);
    assert_non_null(failure);
    assert_non_null(strstr(failure, "heads of 257 channels"));
    k->free(k, memory);
    kernels_free(k);
}

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

static void elementwise_operations_have_the_cpus_bits(void **state)
{
    static const int64_t lengths[] = {1, 63, 65, 20001};
    for (int i = 0; i < 4; i++) {
        int64_t n = lengths[i];
        for (int64_t which = 0; which < 3; which++) {
            struct call call = {.elements = 0x7, .operate = run_unary, .V = which, .n = n};
            output_floats(&call, "out", SAME, n);
            input(&call, n, 1);
            hard_values(&call, 1);
            inout(&call, "in place", SAME, n);
            compare(&call, *state);
        }
        for (int64_t which = 0; which < 4; which++) {
            struct call call = {
                .elements = which < 3 ? 0xf : 0, .operate = run_binary, .V = which, .n = n};
            output_floats(&call, "out", SAME, n);
            input(&call, n, 1);
            input(&call, n, 6);
            float *values = call.arrays[2].start;
            for (int64_t at = 0; at < n; at += 5)
                values[at] = 0;
            inout(&call, "in place", SAME, n);
            compare(&call, *state);
        }
    }
}

static void run_swiglu(const struct call *c, const struct kernels *k, void *const *a)
{
    k->swiglu_forward(k, a[0], a[3], a[4], c->n);
    k->swiglu_backward(k, a[1], a[2], a[5], a[3], a[4], c->n);
    k->swiglu_backward(k, a[6], a[7], a[5], a[6], a[7], c->n); /* in place */
}

static void swiglu_has_the_cpus_bits(void **state)
{
    static const int64_t lengths[] = {1, 63, 65, 20001};
    for (int i = 0; i < 4; i++) {
        int64_t n = lengths[i];
        struct call call = {.elements = 0xff, .operate = run_swiglu, .n = n};
        for (int output = 0; output < 3; output++)
            output_floats(&call, "out", SAME, n);
        input(&call, n, 6);
        input(&call, n, 1);
        input(&call, n, 1);
        inout(&call, "in place", SAME, n);
        inout(&call, "in place", SAME, n);
        float *gate = call.arrays[3].start;
        gate[n / 2] = -100;
        gate[n - 1] = 100;
        compare(&call, *state);
    }
}

/* -- classifier -------------------------------------------------------------------------------- */

static void classifier_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->classifier_forward(k, a[0], c->flag ? a[1] : NULL, a[3], a[2], c->N, c->V, c->V + c->C);
}

static void classifier_forward_backward(const struct call *c, const struct kernels *k,
                                        void *const *a)
{
    k->classifier_forward_backward(k, a[0], c->flag ? a[1] : NULL, a[3], a[2], 0.25f, c->N, c->V,
                                   c->V + c->C);
}

static void classifier_at(const struct tables *tables, int64_t N, int64_t V, int64_t padding,
                          bool with_correct)
{
    int64_t Vp = V + padding;
    for (int backward = 0; backward < 2; backward++) {
        struct call call = {.elements = 0x8,
                            .operate = backward ? classifier_forward_backward : classifier_forward,
                            .N = N,
                            .V = V,
                            .C = padding,
                            .flag = with_correct};
        output_floats(&call, "classifier.losses", NEAR, N);
        output(&call, "classifier.correct", SAME, (size_t)N * sizeof(int32_t));
        integers(&call, N, V, true);
        inout(&call, "classifier.dlogits", backward ? NEAR : SAME, N * Vp);
        float *logits = call.arrays[3].start;
        const int32_t *targets = call.arrays[2].start;
        for (int64_t i = 0; i < N * Vp; i++)
            logits[i] *= 10;
        for (int64_t row = 0; row < N; row += 2) /* every other one's target is the largest … */
            if (targets[row] >= 0)
                logits[row * Vp + targets[row]] = 11;
        if (V > 1 && targets[0] > 0)
            logits[0] = 11; /* … but here a lower index is as large */
        compare(&call, tables);
    }
}

static void classifier_is_the_cpus(void **state)
{
    classifier_at(*state, 1, 1, 0, true);
    classifier_at(*state, 63, 3, 5, true);
    classifier_at(*state, 9, 256, 0, false);
    classifier_at(*state, 5, 50257, 47, true);
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

static void wire_operations_have_the_cpus_bits(void **state)
{
    static const int64_t lengths[] = {1, 65, 131072, 600001}; /* the last passes in pieces */
    for (int i = 0; i < 4; i++) {
        int64_t n = lengths[i];
        struct call call = {.elements = 0x22, .operate = wire_operations, .n = n};
        output(&call, "bf16", SAME, (size_t)n * 2 + 1)->on_host = true;
        output_floats(&call, "cast_from_bf16", SAME, n);
        input(&call, n, 1e4f);
        if (n > 4) {
            float *values = call.arrays[2].start;
            values[0] = INFINITY;
            values[1] = 3.4e38f;
            values[2] = 1e-40f;
        }
        inout(&call, "sum", SAME, n);
        struct array *bytes = add_array(&call, "bytes", (size_t)n * 4 + 1);
        bytes->on_host = true;
        for (int64_t at = 0; at < n; at++) {
            float value = hash_float(5, (uint32_t)at);
            memcpy((char *)bytes->start + 1 + 4 * at, &value, sizeof value);
        }
        output_floats(&call, "cast_from_f32", SAME, n);
        compare(&call, *state);
    }
}

static void the_sum_of_squares_is_the_cpus(void **state)
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

static void optimizers_have_the_cpus_bits(void **state)
{
    static const enum kernels_format formats[] = {KERNELS_NONE, KERNELS_F32, KERNELS_BF16};
    for (int i = 0; i < 3; i++) {
        for (int unaligned = 0; unaligned < 2; unaligned++) {
            int64_t n = 2001;
            struct call call = {
                .operate = run_optimizers, .n = n, .format = formats[i], .flag = unaligned};
            inout(&call, "w", SAME, n);
            inout(&call, "m", SAME, n);
            inout(&call, "v", SAME, n);
            float *v = call.arrays[2].start;
            for (int64_t at = 0; at < n; at++)
                v[at] *= v[at];
            input(&call, n, 0.1f);
            output(&call, "published", SAME, (size_t)n * 8 + 1);
            output_floats(&call, "mean", SAME, n);
            compare(&call, *state);
        }
    }
}

/* -- the table --------------------------------------------------------------------------------- */

static void the_table_says_how_products_are_computed(void **state)
{
    const struct tables *tables = *state;
    print_message("# %s\n# %s\n", tables->gpu->name, tables->gpu->numerics);
    assert_non_null(strstr(tables->gpu->numerics, "cuBLASLt"));
    assert_non_null(strstr(tables->gpu->numerics, "fp32"));
    assert_non_null(strstr(tables->gpu->numerics, "TN+ 768x3072x7/16: ")); /* a dweight */
}

static void with_tf32_products_are_near(void **state)
{
    const struct tables *tables = *state;
    const struct kernels_options options = {.backend = KERNELS_CUDA,
                                            .compute = KERNELS_COMPUTE_TF32};
    const struct kernels *k;
    char reason[256];
    assert_true(kernels_new(&options, &k, reason, sizeof reason));
    assert_non_null(strstr(k->numerics, "tf32"));
    int64_t N = 65, I = 768, O = 64;
    struct arrays host = {.count = 0};
    float *inp = arrays_floats(&host, 1, N * I, 1), *weight = arrays_floats(&host, 2, O * I, 1);
    float *expected = arrays_floats(&host, 0, N * O, 0), *out = arrays_floats(&host, 0, N * O, 0);
    double *doubles = arrays_take(&host, (size_t)(N * O) * sizeof(double));
    float *device[] = {k->alloc(k, (size_t)(N * I) * 4), k->alloc(k, (size_t)(O * I) * 4),
                       k->alloc(k, (size_t)(N * O) * 4)};
    tables->cpu->linear_forward(tables->cpu, expected, inp, weight, NULL, N, I, O);
    k->copy_in(k, device[0], inp, (size_t)(N * I) * 4);
    k->copy_in(k, device[1], weight, (size_t)(O * I) * 4);
    k->linear_forward(k, device[2], device[0], device[1], NULL, N, I, O);
    k->copy_out(k, out, device[2], (size_t)(N * O) * 4);
    assert_null(k->synchronize(k));
    for (int64_t i = 0; i < N * O; i++)
        doubles[i] = expected[i];
    print_message("# tf32 %.1e\n", distance(out, doubles, N * O));
    assert_true(distance(out, doubles, N * O) < 2e-3);
    for (int i = 0; i < 3; i++)
        k->free(k, device[i]);
    kernels_free(k);
    arrays_release(&host);
}

/* The last test: no GPU computes for a process again that has had this. */
static void a_token_that_does_not_exist_is_reported(void **state)
{
    const struct kernels *k = ((struct tables *)*state)->gpu;
    const int32_t token = 5;
    int32_t *tokens = k->alloc(k, sizeof token);
    float *memory = k->alloc(k, 8 * sizeof *memory);
    k->copy_in(k, tokens, &token, sizeof token);
    assert_null(k->synchronize(k));
    k->embedding_forward(k, memory, tokens, memory, memory, 1, 1, 1, 5);
    const char *failure = k->synchronize(k);
    assert_non_null(failure);
    print_message("# %s\n", failure);
}

/* -- both tables ------------------------------------------------------------------------------- */

static struct tables tables;

static int hand_over_tables(void **state)
{
    *state = &tables;
    return 0;
}

static int free_tables(void **state)
{
    (void)state;
    kernels_free(tables.bf16);
    kernels_free(tables.gpu);
    kernels_free(tables.cpu);
    return 0;
}

/* False: there is no device. */
static bool open_tables(char *reason, size_t reason_bytes)
{
    struct kernels_options options = {.backend = KERNELS_CUDA};
    tables.cpu = kernels_for(KERNELS_ISA_AUTO);
    check(tables.cpu);
    if (!kernels_new(&options, &tables.gpu, reason, reason_bytes))
        return false;
    options.compute = KERNELS_COMPUTE_BF16;
    return kernels_new(&options, &tables.bf16, reason, reason_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_is_the_cpus),
        cmocka_unit_test(embedding_has_the_cpus_bits),
        cmocka_unit_test(layernorm_is_the_cpus),
        cmocka_unit_test(rmsnorm_is_the_cpus),
        cmocka_unit_test(rope_has_the_cpus_bits),
        cmocka_unit_test(attention_is_the_cpus),
        cmocka_unit_test(heads_that_are_too_wide_are_refused),
        cmocka_unit_test(elementwise_operations_have_the_cpus_bits),
        cmocka_unit_test(swiglu_has_the_cpus_bits),
        cmocka_unit_test(classifier_is_the_cpus),
        cmocka_unit_test(wire_operations_have_the_cpus_bits),
        cmocka_unit_test(the_sum_of_squares_is_the_cpus),
        cmocka_unit_test(optimizers_have_the_cpus_bits),
        cmocka_unit_test(the_table_says_how_products_are_computed),
        cmocka_unit_test(with_tf32_products_are_near),
        cmocka_unit_test(a_token_that_does_not_exist_is_reported),
    };
    char reason[256];
    if (!open_tables(reason, sizeof reason)) {
        kernels_free(tables.cpu);
#ifdef EMULATED
        printf("1..1\nnot ok 1 - the emulated device: %s\n", reason);
        return 1;
#else
        printf("1..1\nok 1 - CUDA operations on a device # SKIP %s\n", reason);
        return 0;
#endif
    }
    return cmocka_run_group_tests(tests, hand_over_tables, free_tables);
}
