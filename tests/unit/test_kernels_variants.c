/* The scalar, AVX2 and AVX-512 variants give equal bits: every operation, with sizes around the
 * sixteen lanes and unaligned bytes, is run by each and everything it wrote is compared. */
#include "tests/unit/test_kernels.h"

static const int64_t sizes[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 257, 1000};
#define SIZES (sizeof sizes / sizeof *sizes)

/* One run of an operation: its inputs, and where its outputs end up for comparison. */
struct trial {
    const struct kernels *k;
    struct arrays arrays;
    int64_t n;
    unsigned char *written;
    size_t written_bytes;
};

static float *in(struct trial *trial, uint32_t seed, int64_t n, float scale)
{
    return arrays_floats(&trial->arrays, seed, n, scale);
}

static void wrote(struct trial *trial, const void *bytes, size_t count)
{
    trial->written = realloc(trial->written, trial->written_bytes + count);
    check(trial->written);
    memcpy(trial->written + trial->written_bytes, bytes, count);
    trial->written_bytes += count;
}

static void wrote_floats(struct trial *trial, const float *x, int64_t n)
{
    wrote(trial, x, (size_t)n * sizeof *x);
}

static void elementwise(struct trial *t)
{
    const struct kernels *k = t->k;
    int64_t n = t->n;
    float *a = in(t, 1, n, 6), *b = in(t, 2, n, 3), *out = in(t, 3, n, 1);
    a[0] = -100;
    a[n / 2] = 100;
    a[n - 1] = -0.0f;
#define RUN(...)                                                                                   \
    __VA_ARGS__;                                                                                   \
    wrote_floats(t, out, n)
    RUN(k->add(k, out, a, b, n));
    RUN(k->subtract(k, out, a, b, n));
    RUN(k->gelu_forward(k, out, a, n));
    RUN(k->gelu_backward(k, out, b, a, n));
    RUN(k->relu_forward(k, out, a, n));
    RUN(k->relu_backward(k, out, b, a, n));
    RUN(k->tanh_forward(k, out, a, n));
    RUN(k->tanh_backward(k, out, b, a, n));
    RUN(k->add(k, out, out, out, n)); /* in place */
}

static void bytes(struct trial *t)
{
    const struct kernels *k = t->k;
    int64_t n = t->n;
    for (int shift = 0; shift < 4; shift++) {
        float *x = in(t, 4, n, 1e3f), *acc = in(t, 5, n, 1);
        char *source = arrays_take(&t->arrays, (size_t)(4 * n + shift));
        memcpy(source + shift, x, (size_t)(4 * n));
        k->copy_in_uncached(k, acc, source + shift, (size_t)(4 * n));
        wrote_floats(t, acc, n);
        k->add_f32(k, acc, source + shift, n);
        wrote_floats(t, acc, n);
        memset(source, 0, (size_t)(4 * n));
        k->cast_to_bf16(k, source + shift, x, n);
        wrote(t, source, (size_t)(4 * n));
        k->add_bf16(k, acc, source + shift, n);
        wrote_floats(t, acc, n);
        k->cast_from_bf16(k, acc, source + shift, n);
        wrote_floats(t, acc, n);
        double sum;
        k->sum_squares(k, &sum, x, n);
        wrote(t, &sum, sizeof sum);
    }
}

static void optimizers(struct trial *t)
{
    const struct kernels *k = t->k;
    int64_t n = t->n;
    const struct kernels_sgd sgd = {0.7f, 1e-2f, 0.1f};
    const struct kernels_momentum plain = {0.7f, 1e-2f, 0.1f, 0.9f, false};
    const struct kernels_momentum nesterov = {0.7f, 1e-2f, 0.1f, 0.9f, true};
    const struct kernels_adamw adamw = {0.7f, 0.999f, 0.9f, 0.1f, 0.95f, 0.05f, 1e-2f, 3.1f, 1e-8f};
    for (enum kernels_format format = KERNELS_NONE; format <= KERNELS_BF16; format++) {
        float *w = in(t, 6, n, 1), *m = in(t, 7, n, 1e-2f), *v = in(t, 8, n, 0);
        float *g = in(t, 9, n, 1e-1f);
        char *published = arrays_take(&t->arrays, (size_t)(4 * n + 1));
        void *to = format == KERNELS_NONE ? NULL : published + 1;
        for (int step = 0; step < 3; step++) {
            k->sgd(k, w, to, format, g, &sgd, n);
            wrote(t, published, (size_t)(4 * n + 1));
            k->momentum(k, w, m, to, format, g, &plain, n);
            wrote(t, published, (size_t)(4 * n + 1));
            k->momentum(k, w, m, to, format, g, &nesterov, n);
            wrote(t, published, (size_t)(4 * n + 1));
            k->adamw(k, w, m, v, to, format, g, &adamw, n);
            wrote(t, published, (size_t)(4 * n + 1));
        }
        wrote_floats(t, w, n);
        wrote_floats(t, m, n);
        wrote_floats(t, v, n);
        k->mean(k, w, to, format, g, 0.125f, n);
        wrote_floats(t, w, n);
    }
}

/* Apart, on whole lines and beside them: what is there stays, and the bits are those of in place. */
static void optimizers_apart(struct trial *t)
{
    enum { N_MAX = 1000 };
    static _Alignas(64) float to[3][N_MAX + 1];
    const struct kernels *k = t->k;
    int64_t n = t->n;
    check(n <= N_MAX);
    for (int shift = 0; shift < 2; shift++) {
        float *w = in(t, 6, n, 1), *m = in(t, 7, n, 1e-2f), *v = in(t, 8, n, 0);
        float *g = in(t, 9, n, 1e-1f), *kept = in(t, 6, n, 1);
        struct kernels_sgd sgd = {0.7f, 1e-2f, 0.1f};
        struct kernels_momentum momentum = {0.7f, 1e-2f, 0.1f, 0.9f, true};
        struct kernels_adamw adamw = {0.7f, 0.999f, 0.9f, 0.1f, 0.95f, 0.05f, 1e-2f, 3.1f, 1e-8f};
        sgd.apart = momentum.apart = adamw.apart =
            (struct kernels_apart){to[0] + shift, to[1] + shift, to[2] + shift};
        k->sgd(k, w, NULL, KERNELS_NONE, g, &sgd, n);
        wrote_floats(t, to[0] + shift, n);
        k->momentum(k, w, m, NULL, KERNELS_NONE, g, &momentum, n);
        wrote_floats(t, to[0] + shift, n);
        wrote_floats(t, to[1] + shift, n);
        k->adamw(k, w, m, v, NULL, KERNELS_NONE, g, &adamw, n);
        assert_memory_equal(w, kept, (size_t)n * sizeof *w);
        adamw.apart = (struct kernels_apart){NULL, NULL, NULL};
        k->adamw(k, w, m, v, NULL, KERNELS_NONE, g, &adamw, n);
        assert_memory_equal(to[0] + shift, w, (size_t)n * sizeof *w);
        assert_memory_equal(to[1] + shift, m, (size_t)n * sizeof *m);
        assert_memory_equal(to[2] + shift, v, (size_t)n * sizeof *v);
    }
}

static void rows(struct trial *t)
{
    const struct kernels *k = t->k;
    int64_t N = 3, C = t->n, V = 2 * C + 1;
    float *inp = in(t, 10, N * C, 2), *gamma = in(t, 11, C, 1), *beta = in(t, 12, C, 1);
    float *out = in(t, 0, N * C, 0), *mean = in(t, 0, N, 0), *rstd = in(t, 0, N, 0);
    float *dout = in(t, 13, N * C, 1), *dinp = in(t, 14, N * C, 1);
    float *dgamma = in(t, 15, V * C, 1), *dbeta = in(t, 16, V * C, 1);
    int32_t *tokens = arrays_integers(&t->arrays, 17, N, V);
    k->layernorm_forward(k, out, mean, rstd, inp, gamma, beta, N, C);
    wrote_floats(t, out, N * C);
    wrote_floats(t, rstd, N);
    k->layernorm_backward(k, dinp, dgamma, dbeta, dout, inp, mean, rstd, gamma, N, C);
    wrote_floats(t, dinp, N * C);
    wrote_floats(t, dgamma, C);
    wrote_floats(t, dbeta, C);
    k->rmsnorm_forward(k, out, rstd, inp, gamma, N, C);
    wrote_floats(t, out, N * C);
    wrote_floats(t, rstd, N);
    k->rmsnorm_backward(k, dinp, dgamma, dout, inp, rstd, gamma, N, C);
    wrote_floats(t, dinp, N * C);
    wrote_floats(t, dgamma, C);
    k->embedding_forward(k, out, tokens, dgamma, dbeta, 1, N, C, 0, V, V);
    wrote_floats(t, out, N * C);
    k->embedding_forward(k, out, tokens, dgamma, NULL, 1, N, C, 0, V, V);
    wrote_floats(t, out, N * C);
    k->embedding_backward(k, dgamma, dbeta, tokens, dout, 1, N, C, 0, V, V);
    wrote_floats(t, dgamma, V * C);
    wrote_floats(t, dbeta, V * C);
    float *pairs = in(t, 18, 2 * N * C, 6);
    pairs[0] = -100;
    pairs[C - 1] = 100;
    k->swiglu_forward(k, out, pairs, N, C);
    wrote_floats(t, out, N * C);
    k->swiglu_backward(k, pairs, dout, pairs, N, C);
    wrote_floats(t, pairs, 2 * N * C);
}

static void linear(struct trial *t)
{
    const struct kernels *k = t->k;
    int64_t N = 5, I = 9, O = t->n;
    float *inp = in(t, 18, N * I, 1), *weight = in(t, 19, O * I, 1), *bias = in(t, 20, O, 1);
    float *out = in(t, 0, N * O, 0);
    k->linear_forward(k, out, inp, weight, bias, N, I, O);
    wrote_floats(t, out, N * O);
    k->linear_finish(k, out, out, out, bias, N, O);
    wrote_floats(t, out, N * O);
    k->linear_backward_input(k, inp, out, weight, N, I, O);
    wrote_floats(t, inp, N * I);
    k->linear_backward_weight(k, weight, bias, out, inp, N, I, O);
    wrote_floats(t, weight, O * I);
    wrote_floats(t, bias, O);
    k->linear_forward(k, out, inp, weight, bias, 1, I, O); /* no GEMM */
    wrote_floats(t, out, O);
    k->linear_backward_input(k, inp, out, weight, 1, I, O);
    wrote_floats(t, inp, I);
    k->linear_backward_weight(k, weight, bias, out, inp, 1, I, O);
    wrote_floats(t, weight, O * I);
}

static void rope(struct trial *t)
{
    const struct kernels *k = t->k;
    int64_t B = 2, T = 40, H = 4, G = 2, S = t->n < 128 ? 2 * t->n : 256, C = H * S;
    int64_t n = B * T * (H + 2 * G) * S;
    struct kernels_rope circles = rope_of(1e4, S);
    float *qkv = in(t, 26, n, 1);
    k->rope_forward(k, qkv, &circles, B, T, C, H, G);
    wrote_floats(t, qkv, n);
    k->rope_backward(k, qkv, &circles, B, T, C, H, G);
    wrote_floats(t, qkv, n);
}

static void attention(struct trial *t)
{
    const struct kernels *k = t->k;
    int64_t B = 2, T = t->n < 200 ? t->n : 130, H = 3, C = H * 5;
    for (int causal = 0; causal < 2; causal++) {
        float *qkv = in(t, 21, B * T * 3 * C, 3), *out = in(t, 0, B * T * C, 0);
        float *lse = in(t, 0, B * H * T, 0), *dqkv = in(t, 22, B * T * 3 * C, 1);
        float *dout = in(t, 23, B * T * C, 1);
        void *scratch = arrays_take(&t->arrays, k->attention_scratch_bytes(k, T, C, H));
        k->attention_forward(k, out, lse, scratch, qkv, causal, B, T, C, H, H);
        wrote_floats(t, out, B * T * C);
        wrote_floats(t, lse, B * H * T);
        k->attention_backward(k, dqkv, scratch, dout, out, lse, qkv, causal, B, T, C, H, H);
        wrote_floats(t, dqkv, B * T * 3 * C);
    }
}

static void classifier_of(struct trial *t, int64_t N, int64_t V)
{
    const struct kernels *k = t->k;
    int64_t Vp = V + 47;
    float *logits = in(t, 24, N * Vp, 10), *losses = in(t, 0, N, 0);
    int32_t *targets = arrays_integers(&t->arrays, 25, N, V);
    int32_t *correct = arrays_integers(&t->arrays, 0, N, 1);
    k->classifier_forward(k, losses, correct, logits, targets, N, V, Vp);
    wrote_floats(t, losses, N);
    k->classifier_forward_backward(k, losses, correct, logits, targets, 0.01f, N, V, Vp);
    wrote_floats(t, losses, N);
    wrote(t, correct, (size_t)N * sizeof *correct);
    wrote_floats(t, logits, N * Vp);
}

static void classifier(struct trial *t)
{
    classifier_of(t, 3, t->n);
}

static void pieces(struct trial *t)
{
    const struct kernels *k = t->k;
    int64_t P = 4, N = 3, V = t->n, Vp = V + 5;
    float *logits = in(t, 27, P * N * Vp, 10), *largest = in(t, 0, P * N, 0);
    float *sums = in(t, 0, P * N, 0), *logit = in(t, 0, N, 0), *losses = in(t, 0, N, 0);
    int32_t *targets = arrays_integers(&t->arrays, 28, N, V);
    int32_t *correct = arrays_integers(&t->arrays, 0, N, 1);
    for (int64_t p = 0; p < P; p++)
        k->pieces_largest(k, largest + p * N, logit, logits + p * N * Vp, targets, p * Vp, N, V,
                          Vp);
    for (int64_t p = 0; p < P; p++)
        k->pieces_exponentials(k, sums + p * N, correct, logits + p * N * Vp, largest, targets,
                               p * Vp, P, N, V, Vp);
    wrote_floats(t, sums, P * N);
    for (int64_t p = 0; p < P; p++)
        k->pieces_gradient(k, losses, logits + p * N * Vp, largest, sums, logit, targets, 0.01f,
                           p * Vp, P, N, V, Vp);
    wrote_floats(t, losses, N);
    wrote(t, correct, (size_t)N * sizeof *correct);
    wrote_floats(t, logits, P * N * Vp);
}

static void vocabulary(struct trial *t)
{
    if (t->n == 1)
        classifier_of(t, 2, 50257);
}

/* Runs `operation` at every size with the scalar variant and with `isa`. */
static void equal_bits(enum kernels_isa isa, void (*operation)(struct trial *trial))
{
    const struct kernels *wide = kernels_for(isa);
    if (!wide)
        skip();
    const struct kernels *scalar = kernels_for(KERNELS_ISA_SCALAR);
    assert_non_null(scalar);
    for (size_t i = 0; i < SIZES; i++) {
        struct trial a = {.k = scalar, .n = sizes[i]}, b = {.k = wide, .n = sizes[i]};
        operation(&a);
        operation(&b);
        assert_int_equal(a.written_bytes, b.written_bytes);
        if (a.written_bytes > 0 && memcmp(a.written, b.written, a.written_bytes) != 0)
            fail_msg("other bits at n = %d", (int)sizes[i]);
        arrays_release(&a.arrays);
        arrays_release(&b.arrays);
        free(a.written);
        free(b.written);
    }
    kernels_free(wide);
    kernels_free(scalar);
}

#define EACH_OPERATION(X)                                                                          \
    X(elementwise)                                                                                 \
    X(bytes)                                                                                       \
    X(optimizers)                                                                                  \
    X(optimizers_apart)                                                                            \
    X(rows)                                                                                        \
    X(linear)                                                                                      \
    X(rope)                                                                                        \
    X(attention)                                                                                   \
    X(classifier)                                                                                  \
    X(pieces)                                                                                      \
    X(vocabulary)

#define TESTS_OF(operation)                                                                        \
    TEST(operation##_in_avx2_is_the_scalar_bit_for_bit)                                            \
    {                                                                                              \
        equal_bits(KERNELS_ISA_AVX2, operation);                                                   \
    }                                                                                              \
    TEST(operation##_in_avx512_is_the_scalar_bit_for_bit)                                          \
    {                                                                                              \
        equal_bits(KERNELS_ISA_AVX512, operation);                                                 \
    }
EACH_OPERATION(TESTS_OF)
