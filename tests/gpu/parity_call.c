#include "tests/gpu/parity.h"

#include "tests/parity/tolerances.h"

/* How far results of a bf16 table may be: elements, which are rounded themselves to 8 bits, floats,
 * which are sums of what was rounded, and those that are not: only tensor cores add a little less
 * well. */
static const double tolerance_elements = 1e-2, tolerance_floats = 4e-3, tolerance_full = 1e-4;

/* -- arrays ------------------------------------------------------------------------------------ */

struct array *call_array(struct call *call, const char *name, size_t bytes)
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

void call_input(struct call *call, int64_t n, float scale)
{
    struct array *array = call_array(call, "input", (size_t)n * sizeof(float));
    float *values = array->start;
    for (int64_t i = 0; i < n; i++)
        values[i] = scale * hash_float((uint32_t)call->arrays_count, (uint32_t)i);
}

void call_inout(struct call *call, const char *name, enum compared compared, int64_t n)
{
    call_input(call, n, 1);
    struct array *array = &call->arrays[call->arrays_count - 1];
    snprintf(array->name, sizeof array->name, "%s", name);
    array->compared = compared;
}

struct array *call_output(struct call *call, const char *name, enum compared compared, size_t bytes)
{
    struct array *array = call_array(call, name, bytes);
    array->compared = compared;
    memset(array->start, 0xff, bytes);
    return array;
}

void call_output_floats(struct call *call, const char *name, enum compared compared, int64_t n)
{
    call_output(call, name, compared, (size_t)n * sizeof(float));
}

void call_integers(struct call *call, int64_t n, int64_t below, bool negatives)
{
    struct array *array = call_array(call, "integers", (size_t)n * sizeof(int32_t));
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

void call_operate(struct call *call, const struct kernels *k, bool on_device)
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
    call_operate(call, k, true);
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
    if (array->compared == NEAR && in_bf16)
        compare_near(call, array, array->elements ? tolerance_elements : tolerance_floats);
    else if (array->compared != SAME)
        compare_near(call, array, in_bf16 ? tolerance_full : 0);
    else if (array->elements && in_bf16)
        compare_rounded(array);
    else
        compare_bits(array);
}

void call_repeat(struct call *call, const struct kernels *gpu)
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
    operate_on_device(call, gpu);
    operate_on_device(call, gpu);
    for (int i = 0; i < call->arrays_count; i++) {
        struct array *array = &call->arrays[i];
        gpu->free(gpu, array->device);
        if (memcmp(array->first, array->second, array->bytes) != 0)
            fail_msg("%s: two runs differ", array->name);
    }
}

static void compare_with(struct call *call, const struct kernels *cpu, const struct kernels *gpu)
{
    call_repeat(call, gpu);
    call_operate(call, cpu, false);
    for (int i = 0; i < call->arrays_count; i++)
        compare_array(call, &call->arrays[i], gpu->element_bytes == 2);
}

void call_compare(struct call *call, const struct tables *tables)
{
    compare_with(call, tables->cpu, tables->gpu);
    if (call->elements)
        compare_with(call, tables->cpu, tables->bf16);
    arrays_release(&call->host);
}
