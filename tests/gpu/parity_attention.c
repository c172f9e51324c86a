/* Attention, and the positions that go into it. */
#include "tests/gpu/parity.h"

/* -- rope -------------------------------------------------------------------------------------- */

static void rope_both_ways(const struct call *c, const struct kernels *k, void *const *a)
{
    struct kernels_rope rope = rope_of(1e4, c->C / c->H);
    k->rope_forward(k, kernels_at(k, a[0], c->skip), &rope, c->B, c->T, c->C, c->H, c->G);
    k->rope_backward(k, kernels_at(k, a[1], c->skip), &rope, c->B, c->T, c->C, c->H, c->G);
}

static void rope_at(const struct tables *tables, int64_t B, int64_t T, int64_t H, int64_t G,
                    int64_t S, int64_t skip)
{
    struct call call = {.elements = 0x3, .operate = rope_both_ways, .B = B, .T = T, .skip = skip};
    call.C = H * S;
    call.H = H;
    call.G = G;
    call_inout(&call, "rope.out", SAME, B * T * (H + 2 * G) * S + skip);
    call_inout(&call, "rope.dqkv", SAME, B * T * (H + 2 * G) * S + skip);
    call_compare(&call, tables);
}

PARITY(rope_has_the_cpus_bits)
{
    rope_at(*state, 1, 1, 1, 1, 2, 0);
    rope_at(*state, 2, 65, 3, 1, 34, 0);
    rope_at(*state, 1, 300, 4, 2, 64, 0);
    rope_at(*state, 2, 9, 3, 3, 64, 1);
    rope_at(*state, 3, 7, 2, 2, 2 * KERNELS_ROPE_PAIRS_MAX, 0);
    rope_at(*state, 1, 3, 20, 4, 2 * KERNELS_ROPE_PAIRS_MAX, 0); /* more packs than threads */
}

/* -- attention --------------------------------------------------------------------------------- */

static void attention_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    void *scratch = k->alloc(k, k->attention_scratch_bytes(k, c->T, c->C, c->H));
    assert_non_null(scratch);
    k->attention_forward(k, kernels_at(k, a[0], c->skip), a[1], scratch,
                         kernels_at(k, a[2], c->skip), c->flag, c->B, c->T, c->C, c->H, c->G);
    k->free(k, scratch);
}

static void attention_backward(const struct call *c, const struct kernels *k, void *const *a)
{
    void *scratch = k->alloc(k, k->attention_scratch_bytes(k, c->T, c->C, c->H));
    assert_non_null(scratch);
    k->attention_backward(k, kernels_at(k, a[0], c->skip), scratch, kernels_at(k, a[1], c->skip),
                          kernels_at(k, a[2], c->skip), a[3], kernels_at(k, a[4], c->skip), c->flag,
                          c->B, c->T, c->C, c->H, c->G);
    k->free(k, scratch);
}

/* The backward pass gets the CPU's forward results, so that each is compared by itself. */
static void skipping_attention_at(const struct tables *tables, bool causal, int64_t B, int64_t T,
                                  int64_t H, int64_t G, int64_t size, int64_t skip)
{
    int64_t C = H * size, n = B * T * C + skip, wide = B * T * (H + 2 * G) * size + skip;
    print_message("# attention, %d rows, %d (%d) heads of %d\n", (int)T, (int)H, (int)G, (int)size);
    bool in_bf16 = size <= 128; /* what it has templates for */
    struct call forward = {.elements = in_bf16 ? 0x5 : 0,
                           .operate = attention_forward,
                           .skip = skip,
                           .B = B,
                           .T = T,
                           .C = C,
                           .H = H,
                           .G = G,
                           .flag = causal};
    call_output_floats(&forward, "attention.out", NEAR, n);
    call_output_floats(&forward, "attention.lse", NEAR, B * H * T);
    call_input(&forward, wide, 2);
    struct call backward = {.elements = in_bf16 ? 0x17 : 0,
                            .operate = attention_backward,
                            .skip = skip,
                            .B = B,
                            .T = T,
                            .C = C,
                            .H = H,
                            .G = G,
                            .flag = causal};
    call_output_floats(&backward, "attention.dqkv", NEAR, wide);
    call_input(&backward, n, 1);
    call_inout(&backward, "attention.out", SAME, n);
    call_inout(&backward, "attention.lse", SAME, B * H * T);
    call_inout(&backward, "attention.qkv", SAME, wide);
    memset(forward.arrays[0].start, 0, (size_t)skip * sizeof(float));
    memset(backward.arrays[0].start, 0, (size_t)skip * sizeof(float));
    call_operate(&forward, tables->cpu, false);
    memcpy(backward.arrays[2].start, forward.arrays[0].expected, forward.arrays[0].bytes);
    memcpy(backward.arrays[3].start, forward.arrays[1].expected, forward.arrays[1].bytes);
    memcpy(backward.arrays[4].start, forward.arrays[2].start, forward.arrays[2].bytes);
    call_compare(&forward, tables);
    call_compare(&backward, tables);
}

static void attention_at(const struct tables *tables, bool causal, int64_t B, int64_t T, int64_t H,
                         int64_t G, int64_t size)
{
    skipping_attention_at(tables, causal, B, T, H, G, size, 0);
}

PARITY(attention_is_the_cpus)
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
    skipping_attention_at(*state, true, 1, 37, 2, 1, 16, 1);
}

#ifdef EMULATED
PARITY_OLDER(before_sm_90_attention_is_the_cpus)
{
    attention_at(*state, true, 2, 63, 3, 3, 16);
    attention_at(*state, true, 1, 130, 1, 1, 64);
    attention_at(*state, true, 2, 33, 1, 1, 100);
    attention_at(*state, false, 1, 65, 2, 2, 64);
    attention_at(*state, true, 1, 70, 3, 1, 64);
    skipping_attention_at(*state, true, 1, 37, 2, 1, 16, 1);
}
#endif

PARITY(heads_that_are_too_wide_are_refused)
{
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
