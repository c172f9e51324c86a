/* Opening a table: what is refused and why, memory, what says which bits. */
#include "tests/unit/test_kernels.h"

static void refused(struct kernels_options options, const char *because)
{
    const struct kernels *k = NULL;
    char reason[256] = "";
    assert_false(kernels_new(&options, &k, reason, sizeof reason));
    assert_null(k);
    if (!strstr(reason, because))
        fail_msg("'%s' does not say '%s'", reason, because);
}

TEST(the_table_says_what_it_is)
{
    const struct kernels *k = kernels_for(KERNELS_ISA_SCALAR);
    assert_string_equal(k->name, "CPU, scalar");
    assert_non_null(strstr(k->numerics, "OpenBLAS 0."));
    assert_non_null(strstr(k->numerics, kernels_gemm_core_auto()));
    assert_non_null(strstr(k->numerics, "threads=1"));
    kernels_free(k);
    kernels_free(NULL);
}

/* But for what is a device's: graphs, the choice of algorithms, blocks at once. */
TEST(every_operation_is_there)
{
    const size_t without_first = offsetof(struct kernels, use) / sizeof(void *);
    const size_t without_last = offsetof(struct kernels, copy_block) / sizeof(void *);
    scoped(kernels_free_scoped) const struct kernels *k = kernels_for(KERNELS_ISA_AUTO);
    void *pointers[sizeof *k / sizeof(void *)];
    memcpy(pointers, k, sizeof pointers);
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++)
        assert_true((pointers[i] == NULL) == (i >= without_first && i <= without_last));
}

TEST(servers_open_it_without_openblas)
{
    const struct kernels_options options = {.gemm_core = NULL};
    scoped(kernels_free_scoped) const struct kernels *k = NULL;
    char reason[256];
    assert_true(kernels_new(&options, &k, reason, sizeof reason));
    assert_string_equal(k->numerics, "");
    float w = 1, g = 2;
    k->mean(k, &w, NULL, KERNELS_NONE, &g, 0.5f, 1);
    assert_true(w == 1);
}

TEST_ON_CPU(another_core_type_or_thread_count_is_refused_once_openblas_is_loaded)
{
    assert_non_null(k); /* OpenBLAS is loaded */
    refused((struct kernels_options){.gemm_core = "Nehalem"}, "not Nehalem");
    refused((struct kernels_options){.gemm_core = "auto", .gemm_threads = 2}, "1 threads, not 2");
}

TEST(an_unknown_core_type_is_refused)
{
    refused((struct kernels_options){.gemm_core = "Pentium"}, "unknown OpenBLAS core type Pentium");
}

TEST(a_cpu_computes_in_fp32_only)
{
    refused((struct kernels_options){.compute = KERNELS_COMPUTE_TF32}, "fp32 only");
    refused((struct kernels_options){.compute = KERNELS_COMPUTE_BF16}, "fp32 only");
}

TEST(without_the_module_there_is_no_cuda)
{
    refused((struct kernels_options){.backend = KERNELS_CUDA}, "CUDA");
}

TEST_ON_CPU(memory_is_aligned_and_copies_are_copies)
{
    float host[5] = {1, 2, 3, 4, 5}, back[5];
    float *memory = k->alloc(k, sizeof host);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 64, 0);
    k->copy_in(k, memory, host, sizeof host);
    k->copy_out(k, back, memory, sizeof back);
    assert_memory_equal(host, back, sizeof host);
    k->zero(k, memory, 2 * sizeof *memory);
    assert_true(memory[0] == 0 && memory[1] == 0 && memory[2] == 3);
    k->copy(k, memory, memory + 3, 2 * sizeof *memory);
    assert_true(memory[0] == 4 && memory[1] == 5 && memory[2] == 3);
    assert_null(k->synchronize(k));
    k->free(k, memory);
    k->free(k, NULL);
    void *empty = k->alloc(k, 0);
    assert_non_null(empty);
    k->free(k, empty);
}

TEST_ON_CPU(a_difference_may_take_the_place_of_either_side)
{
    float a[3] = {1, 0, -0.0f}, b[3] = {0.25f, -0.0f, 0}, out[3];
    k->subtract(k, out, a, b, 3);
    assert_true(out[0] == 0.75f && out[1] == 0 && !signbit(out[1]) && signbit(out[2]));
    k->subtract(k, a, a, b, 1);
    k->subtract(k, b, a, b, 1);
    assert_true(a[0] == 0.75f && b[0] == 0.5f);
}
