/* Matrix products, and what the table says of them. */
#include "tests/gpu/parity.h"

/* -- linear ------------------------------------------------------------------------------------ */

static void linear_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->linear_forward(k, a[0], a[1], a[2], c->flag ? a[3] : NULL, c->N, c->I, c->O);
}

/* Each array but one begins an element later. */
static void unaligned_linear_add_forward(const struct call *c, const struct kernels *k,
                                         void *const *a)
{
    void *at[5];
    for (int64_t i = 0; i < 5; i++)
        at[i] = kernels_at(k, a[i], i == c->skip ? 0 : 1);
    k->linear_add_forward(k, at[0], at[1], at[2], at[3], at[4], c->N, c->I, c->O);
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
    call_output_floats(&add, "linear.out", NEAR, N * O);
    call_input(&add, N * O, 1);
    call_input(&add, N * I, 1);
    call_input(&add, O * I, 1);
    call_input(&add, O, 1);
    call_compare(&add, tables);
    struct call gelu = {.elements = 0x1f, .operate = linear_gelu_forward, .N = N, .I = I, .O = O};
    call_output_floats(&gelu, "linear.out", NEAR, N * O);
    call_output_floats(&gelu, "linear.out", NEAR, N * O);
    call_input(&gelu, N * I, 1);
    call_input(&gelu, O * I, 0.2f);
    call_input(&gelu, O, 1);
    call_compare(&gelu, tables);
    struct call backward = {
        .elements = 0xf, .operate = linear_gelu_backward_input, .N = N, .I = I, .O = O};
    call_output_floats(&backward, "linear.dinp", NEAR, N * I);
    call_input(&backward, N * O, 1);
    call_input(&backward, O * I, 1);
    call_input(&backward, N * I, 3);
    call_compare(&backward, tables);
}

static void linear_finish(const struct call *c, const struct kernels *k, void *const *a)
{
    k->linear_finish(k, a[0], c->flag ? a[1] : NULL, a[2], c->flag ? NULL : a[3], c->N, c->O);
    k->linear_finish(k, a[0], a[0], a[2], c->flag ? NULL : a[3], c->N, c->O);
}

static void linear_finish_at(const struct tables *tables, int64_t N, int64_t O, bool residual)
{
    struct call call = {
        .elements = 0xf, .operate = linear_finish, .N = N, .O = O, .flag = residual};
    call_output_floats(&call, "linear.out", NEAR, N * O); /* in bf16 it is rounded between */
    call_input(&call, N * O, 1);
    call_input(&call, N * O, 1);
    call_input(&call, O, 1);
    call_compare(&call, tables);
}

PARITY(what_follows_a_sum_of_pieces_is_the_cpus)
{
    linear_finish_at(*state, 1, 1, true);
    linear_finish_at(*state, 5, 64, false);
    linear_finish_at(*state, 63, 37, false);
    linear_finish_at(*state, 1, 5001, true);
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
    call_output_floats(&forward, "linear.out", NEAR, N * O);
    call_input(&forward, N * I, 1);
    call_input(&forward, O * I, 1);
    call_input(&forward, O, 1);
    call_compare(&forward, tables);
    struct call backward = {.elements = 0x7,
                            .operate = linear_backward_input,
                            .N = N,
                            .I = I,
                            .O = O,
                            .terms = (double)O};
    call_output_floats(&backward, "linear.dinp", NEAR, N * I);
    call_input(&backward, N * O, 1);
    call_input(&backward, O * I, 1);
    call_compare(&backward, tables);
    struct call weight = {.elements = 0xc,
                          .operate = linear_backward_weight,
                          .N = N,
                          .I = I,
                          .O = O,
                          .flag = bias,
                          .terms = (double)N};
    call_inout(&weight, "linear.dweight", NEAR, O * I);
    call_inout(&weight, "linear.dbias", bias ? FULL : SAME, O);
    call_input(&weight, N * O, 1);
    call_input(&weight, N * I, 1);
    call_compare(&weight, tables);
}

PARITY(linear_is_the_cpus)
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

#ifndef EMULATED
/* Many blocks, whatever the algorithm's tiles, and sums that a split is tempting for. */
PARITY(at_real_shapes_linear_is_the_cpus)
{
    linear_at(*state, 8192, 768, 3072, true);
    linear_at(*state, 16384, 768, 768, true);
}
#endif

PARITY(arrays_of_a_product_need_not_be_aligned)
{
    const int64_t N = 5, I = 24, O = 16;
    for (int64_t aligned = 0; aligned < 5; aligned++) {
        struct call call = {.elements = 0x1f,
                            .operate = unaligned_linear_add_forward,
                            .N = N,
                            .I = I,
                            .O = O,
                            .skip = aligned};
        call_output_floats(&call, "linear.out", NEAR, N * O + 1);
        memset(call.arrays[0].start, 0, call.arrays[0].bytes);
        call_input(&call, N * O + 1, 1);
        call_input(&call, N * I + 1, 1);
        call_input(&call, O * I + 1, 1);
        call_input(&call, O + 1, 1);
        call_compare(&call, *state);
    }
}

/* -- failures ---------------------------------------------------------------------------------- */

#ifdef EMULATED
PARITY(a_shape_without_an_algorithm_is_a_failure_of_its_tables_alone)
{
    const struct kernels *k = ((struct tables *)*state)->gpu;
    float *memory = k->alloc(k, 3 * sizeof *memory);
    setenv("ROOST_EMULATED_ALGORITHMS", "none", 1);
    k->linear_forward(k, memory, memory + 1, memory + 2, NULL, 1, 1, 1);
    unsetenv("ROOST_EMULATED_ALGORITHMS");
    const char *failure = k->synchronize(k);
    assert_non_null(failure);
    assert_non_null(strstr(failure, "a product of 1 x 1 x 1"));
    void *anew;
    assert_int_equal(tables_open(&anew), 0);
    linear_at(anew, 1, 1, 1, true);
    tables_close(&anew);
    k->free(k, memory);
}
#endif

/* -- the table --------------------------------------------------------------------------------- */

PARITY(the_table_says_how_products_are_computed)
{
    const struct tables *tables = *state;
    linear_at(tables, 7, 3072, 768, true);
    linear_at(tables, 65, 65, 63, true);
    fused_linear_at(tables, 9, 64, 192);
    printf("# %s\n# %s\n", tables->gpu->name, tables->gpu->numerics); /* too long for cmocka's */
    assert_non_null(strstr(tables->gpu->numerics, "cuBLASLt"));
    assert_null(strstr(tables->gpu->numerics, "GPU")); /* nor another name */
    assert_non_null(strstr(tables->gpu->numerics, "fp32"));
    assert_non_null(strstr(tables->gpu->numerics, "TN+ 768x3072x7/16.16.16: ")); /* a dweight */
    assert_non_null(strstr(tables->bf16->numerics, "TN+f 768x3072x7/16.16.16: "));
#ifdef EMULATED /* what it has algorithms for */
    assert_non_null(strstr(tables->bf16->numerics, "NTg 9x192x64/16.16.16: 0.0.0.0.0.0.1.0"));
    assert_non_null(strstr(tables->bf16->numerics, "NTb 7x768x3072/16.16.16: 0.0.0.0.0.0.2.2"));
    assert_non_null(strstr(tables->bf16->numerics, "NTb 65x63x65/16.16.16: none"));
    assert_non_null(strstr(tables->bf16->numerics, "NT 65x63x65/16.16.16: "));
#endif
}

#ifdef EMULATED
PARITY_OLDER(before_sm_90_no_product_has_gelu_in_its_pass)
{
    const struct tables *tables = *state;
    fused_linear_at(tables, 9, 64, 192);
    const char *numerics = tables->bf16->numerics;
    assert_non_null(strstr(numerics, "sm_80"));
    assert_null(strstr(numerics, "NTg"));
    assert_null(strstr(numerics, "NNd"));
}
#endif

/* -- algorithms -------------------------------------------------------------------------------- */

struct report {
    int candidates, shapes, fastest;
    double first_took; /* of the shape at hand */
};

static void count_candidate(void *context, const struct kernels_candidate *candidate)
{
    struct report *report = context;
    printf("# %s: %s %.1f us, %.1f TFLOP/s%s\n", candidate->shape, candidate->algorithm,
           candidate->microseconds, candidate->teraflops, candidate->is_fastest ? ", taken" : "");
    report->candidates++;
    report->shapes += candidate->is_first;
    report->fastest += candidate->is_fastest;
    if (candidate->is_first)
        report->first_took = candidate->microseconds;
    if (candidate->is_fastest)
        assert_true(candidate->microseconds <= report->first_took);
}

PARITY(of_a_products_algorithms_the_fastest_is_taken)
{
    const struct tables *tables = *state;
    linear_at(tables, 7, 3072, 96, true);
    struct report report = {0};
    tables->bf16->time_products(tables->bf16, count_candidate, &report);
    assert_null(tables->bf16->synchronize(tables->bf16));
    assert_int_equal(report.shapes, 3);
    assert_int_equal(report.fastest, 3);
    assert_true(report.candidates >= 3);
#ifdef EMULATED /* there it is the one that splits nothing */
    assert_int_equal(report.candidates, 4);
    assert_non_null(strstr(tables->bf16->numerics, "NTb 7x96x3072/16.16.16: 0.0.0.0.0.0.1.0"));
    assert_null(strstr(tables->bf16->numerics, ".2.2"));
#endif
    linear_at(tables, 7, 3072, 96, true);
}

/* The products of a linear's three passes, and of one with GELU, of zeros. */
static void linear_on(const struct kernels *k, int64_t N, int64_t I, int64_t O)
{
    size_t bytes = (size_t)(N * I + O * I + O + N * O) * sizeof(float);
    char *memory = k->alloc(k, 2 * bytes);
    assert_non_null(memory);
    k->zero(k, memory, 2 * bytes);
    void *inp = memory, *weight = kernels_at(k, inp, N * I), *bias = kernels_at(k, weight, O * I);
    void *out = kernels_at(k, bias, O), *dweight = memory + bytes;
    k->linear_forward(k, out, inp, weight, bias, N, I, O);
    k->linear_backward_input(k, inp, out, weight, N, I, O);
    k->linear_backward_weight(k, dweight, NULL, out, inp, N, I, O);
    void *pre = kernels_at(k, dweight, O * I); /* of N * I at most */
    k->linear_gelu_forward(k, out, pre, inp, weight, bias, N, I, O);
    k->linear_gelu_backward_input(k, inp, out, weight, pre, N, I, O);
    assert_null(k->synchronize(k));
    k->free(k, memory);
}

/* A table of its own with these products. */
static const struct kernels *open_with(const char *products)
{
    const struct kernels_options options = {
        .backend = KERNELS_CUDA, .compute = KERNELS_COMPUTE_BF16, .products = products};
    const struct kernels *k;
    char reason[256];
    if (!kernels_new(&options, &k, reason, sizeof reason))
        fail_msg("%s", reason);
    return k;
}

/* What such a table says of its products after some. */
static void numerics_with(const char *products, char *ret_numerics, size_t bytes)
{
    const struct kernels *k = open_with(products);
    linear_on(k, 7, 3072, 96);
    snprintf(ret_numerics, bytes, "%s", k->numerics);
    kernels_free(k);
}

PARITY(another_table_takes_the_algorithms_that_were_chosen)
{
    const struct tables *tables = *state;
    static char written[16384], again[16384], numerics[16384], own[16384];
    linear_on(tables->bf16, 7, 3072, 96);
    numerics_with(NULL, own, sizeof own);
    assert_string_equal(tables->bf16->numerics, own);
    tables->bf16->time_products(tables->bf16, NULL, NULL);
    assert_null(tables->bf16->synchronize(tables->bf16));
    tables->bf16->write_products(tables->bf16, written, sizeof written);
    printf("# %s\n", written);
    numerics_with(written, numerics, sizeof numerics);
    assert_string_equal(numerics, tables->bf16->numerics);
    const struct kernels *k = open_with(written);
    linear_on(k, 7, 3072, 96);
    k->write_products(k, again, sizeof again);
    kernels_free(k);
    assert_string_equal(again, written);
#ifdef EMULATED
    assert_string_not_equal(numerics, own); /* there another one is the fastest */
#endif
}

/* They come from a peer. */
PARITY(algorithms_that_are_of_no_use_here_are_not_taken)
{
    const struct tables *tables = *state;
    static char written[16384], numerics[16384], own[16384], bad[16384];
    linear_on(tables->bf16, 7, 3072, 96);
    numerics_with(NULL, own, sizeof own);
    tables->bf16->time_products(tables->bf16, NULL, NULL);
    tables->bf16->write_products(tables->bf16, written, sizeof written);
    char *entries = strchr(written, ';');
    snprintf(bad, sizeof bad, "cuBLASLt 7 fp32, 1 SMs of sm_20:%s", entries); /* of another kind */
    numerics_with(bad, numerics, sizeof numerics);
    assert_string_equal(numerics, own);
    static const char *const words[] = {"ff", "f", "", "xx", "ffffffffffffffffffffffffffffffff"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        int used = snprintf(bad, sizeof bad, "%.*s", (int)(entries - written) + 1, written);
        for (const char *entry = entries + 1; *entry != 0; entry = strchr(entry, ';') + 1) {
            const char *end = strchr(strchr(entry, ' ') + 1, ' '); /* behind the shape */
            used += snprintf(bad + used, sizeof bad - (size_t)used, "%.*s 0.0 %s;",
                             (int)(end - entry), entry, words[i]);
        }
        numerics_with(bad, numerics, sizeof numerics);
        assert_string_equal(numerics, own);
    }
    char cut[64];
    tables->bf16->write_products(tables->bf16, cut, sizeof cut); /* no room for an entry */
    assert_int_equal(strlen(cut), entries - written + 1);
    numerics_with(cut, numerics, sizeof numerics);
    assert_string_equal(numerics, own);
}

PARITY(with_tf32_products_are_near)
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
