/* The CPU kernels against PyTorch: the same inputs, made from integers, and the outputs that
 * tests/golden/make_kernels.py stored. */
#include "tests/unit/unit.h"

#include "tests/parity/tolerances.h"
#include "tests/unit/test_kernels.h"

/* -- golden records ---------------------------------------------------------------------------- */

struct header {
    char name[48];
    uint32_t count, stored;
    double norm;
};

struct golden {
    const struct kernels *k;
    unsigned char *bytes;
    size_t size;
    int compared;         /* records so far */
    struct arrays arrays; /* of one test */
};

static int read_golden(void **state)
{
    static struct golden golden;
    FILE *file = fopen("tests/golden/kernels.bin", "rb");
    if (!file)
        return -1;
    golden.bytes = malloc(1 << 20);
    golden.size = fread(golden.bytes, 1, 1 << 20, file);
    fclose(file);
    golden.k = kernels_for(KERNELS_ISA_AUTO);
    *state = &golden;
    return golden.k ? 0 : -1;
}

static int free_golden(void **state)
{
    struct golden *golden = *state;
    free(golden->bytes);
    kernels_free(golden->k);
    return 0;
}

static int end_test(void **state)
{
    arrays_release(&((struct golden *)*state)->arrays);
    return 0;
}

/* The record `name`: its header, and where its values are. */
static const unsigned char *find(const struct golden *golden, const char *name,
                                 struct header *header)
{
    for (size_t at = 0; at + sizeof *header <= golden->size;) {
        memcpy(header, golden->bytes + at, sizeof *header);
        at += sizeof *header;
        if (strcmp(header->name, name) == 0)
            return golden->bytes + at;
        at += header->stored * sizeof(float);
    }
    fail_msg("no golden record %s", name);
    return NULL;
}

/* x (n) is what PyTorch computed. Where only samples are stored, they are compared, and the norms
 * of all values. */
static void assert_golden(struct golden *golden, const char *name, const float *x, int64_t n)
{
    struct header header = {0};
    const unsigned char *values = find(golden, name, &header);
    assert_int_equal(header.count, n);
    golden->compared++;
    double sum = 0, all = 0;
    for (uint32_t i = 0; i < header.stored; i++) {
        float value;
        memcpy(&value, values + i * sizeof value, sizeof value);
        int64_t at = header.stored == header.count ? i : hash_bits(99, i) % header.count;
        sum += ((double)x[at] - (double)value) * ((double)x[at] - (double)value);
    }
    for (int64_t i = 0; i < n; i++)
        all += (double)x[i] * (double)x[i];
    double scale = sqrt((double)header.count / header.stored) / header.norm;
    double away = sqrt(sum) * scale, norms = fabs(sqrt(all) / header.norm - 1);
    print_message("# %-24s %.1e (limit %.0e)\n", name, away, tolerance(name));
    if (!(away <= tolerance(name) && norms <= tolerance(name) + 1e-12))
        fail_msg("%s: %.2e away, norm %.2e", name, away, norms);
}

/* "name/caseNUMBER" */
static const char *named(char buffer[static 48], const char *name, const char *kind, int64_t number)
{
    snprintf(buffer, 48, "%s/%s%d", name, kind, (int)number);
    return buffer;
}

static float *in(struct golden *golden, uint32_t seed, int64_t n, float scale)
{
    return arrays_floats(&golden->arrays, seed, n, scale);
}

static float *zeroes(struct golden *golden, int64_t n)
{
    return arrays_floats(&golden->arrays, 0, n, 0);
}

/* -- operations -------------------------------------------------------------------------------- */

TEST(linear_is_pytorchs, .teardown_func = end_test)
{
    struct golden *g = *state;
    const struct kernels *k = g->k;
    const struct {
        const char *name;
        int64_t N, I, O;
    } cases[] = {{"small", 1, 1, 1}, {"odd", 37, 99, 65}, {"deep", 8, 3072, 96}};
    for (int i = 0; i < 3; i++) {
        int64_t N = cases[i].N, I = cases[i].I, O = cases[i].O;
        float *inp = in(g, 1, N * I, 1), *weight = in(g, 2, O * I, 1), *bias = in(g, 3, O, 1);
        float *dout = in(g, 4, N * O, 1), *out = zeroes(g, N * O), *dinp = zeroes(g, N * I);
        float *dweight = zeroes(g, O * I), *dbias = zeroes(g, O);
        k->linear_forward(k, out, inp, weight, bias, N, I, O);
        k->linear_backward_input(k, dinp, dout, weight, N, I, O);
        k->linear_backward_weight(k, dweight, dbias, dout, inp, N, I, O);
        char name[48];
#define NAMED(output) (snprintf(name, sizeof name, "linear." output "/%s", cases[i].name), name)
        assert_golden(g, NAMED("out"), out, N * O);
        assert_golden(g, NAMED("dinp"), dinp, N * I);
        assert_golden(g, NAMED("dweight"), dweight, O * I);
        assert_golden(g, NAMED("dbias"), dbias, O);
#undef NAMED
    }
}

TEST(embedding_is_pytorchs, .teardown_func = end_test)
{
    struct golden *g = *state;
    const struct kernels *k = g->k;
    const int64_t times[] = {1, 63, 65}, B = 2, C = 33, V = 29;
    for (int i = 0; i < 3; i++) {
        int64_t T = times[i];
        int32_t *tokens = arrays_integers(&g->arrays, 5, B * T, V);
        float *wte = in(g, 6, V * C, 1), *wpe = in(g, 7, T * C, 1), *dout = in(g, 8, B * T * C, 1);
        float *out = zeroes(g, B * T * C), *dwte = zeroes(g, V * C), *dwpe = zeroes(g, T * C);
        k->embedding_forward(k, out, tokens, wte, wpe, B, T, C, 0, V, V);
        k->embedding_backward(k, dwte, dwpe, tokens, dout, B, T, C, 0, V, V);
        char name[48];
        assert_golden(g, named(name, "embedding.out", "T", T), out, B * T * C);
        assert_golden(g, named(name, "embedding.dwte", "T", T), dwte, V * C);
        assert_golden(g, named(name, "embedding.dwpe", "T", T), dwpe, T * C);
    }
}

TEST(layernorm_is_pytorchs, .teardown_func = end_test)
{
    struct golden *g = *state;
    const struct kernels *k = g->k;
    const int64_t widths[] = {5, 33, 768}, N = 19;
    for (int i = 0; i < 3; i++) {
        int64_t C = widths[i];
        float *inp = in(g, 9, N * C, 3), *gamma = in(g, 10, C, 1), *beta = in(g, 11, C, 1);
        float *dout = in(g, 12, N * C, 1), *out = zeroes(g, N * C), *dinp = zeroes(g, N * C);
        float *mean = zeroes(g, N), *rstd = zeroes(g, N);
        float *dgamma = zeroes(g, C), *dbeta = zeroes(g, C);
        k->layernorm_forward(k, out, mean, rstd, inp, gamma, beta, N, C);
        k->layernorm_backward(k, dinp, dgamma, dbeta, dout, inp, mean, rstd, gamma, N, C);
        char name[48];
        assert_golden(g, named(name, "layernorm.out", "C", C), out, N * C);
        assert_golden(g, named(name, "layernorm.dinp", "C", C), dinp, N * C);
        assert_golden(g, named(name, "layernorm.dgamma", "C", C), dgamma, C);
        assert_golden(g, named(name, "layernorm.dbeta", "C", C), dbeta, C);
    }
}

TEST(rmsnorm_is_pytorchs, .teardown_func = end_test)
{
    struct golden *g = *state;
    const struct kernels *k = g->k;
    const int64_t widths[] = {5, 33, 768}, N = 19;
    for (int i = 0; i < 3; i++) {
        int64_t C = widths[i];
        float *inp = in(g, 31, N * C, 3), *gamma = in(g, 32, C, 1), *dout = in(g, 33, N * C, 1);
        float *out = zeroes(g, N * C), *dinp = zeroes(g, N * C), *rstd = zeroes(g, N);
        float *dgamma = zeroes(g, C);
        k->rmsnorm_forward(k, out, rstd, inp, gamma, N, C);
        k->rmsnorm_backward(k, dinp, dgamma, dout, inp, rstd, gamma, N, C);
        char name[48];
        assert_golden(g, named(name, "rmsnorm.out", "C", C), out, N * C);
        assert_golden(g, named(name, "rmsnorm.dinp", "C", C), dinp, N * C);
        assert_golden(g, named(name, "rmsnorm.dgamma", "C", C), dgamma, C);
    }
}

TEST(rope_is_pytorchs, .teardown_func = end_test)
{
    struct golden *g = *state;
    const struct kernels *k = g->k;
    const int64_t sizes[] = {2, 34, 64}, B = 2, T = 70, H = 4, G = 2;
    for (int i = 0; i < 3; i++) {
        int64_t S = sizes[i], n = B * T * (H + 2 * G) * S;
        struct kernels_rope rope = rope_of(1e4, S);
        float *qkv = in(g, 34, n, 1), *dqkv = in(g, 35, n, 1);
        k->rope_forward(k, qkv, &rope, B, T, H * S, H, G);
        k->rope_backward(k, dqkv, &rope, B, T, H * S, H, G);
        char name[48];
        assert_golden(g, named(name, "rope.out", "S", S), qkv, n);
        assert_golden(g, named(name, "rope.dqkv", "S", S), dqkv, n);
    }
}

TEST(swiglu_is_pytorchs, .teardown_func = end_test)
{
    struct golden *g = *state;
    const struct kernels *k = g->k;
    const int64_t n = 1001;
    float *gate = in(g, 36, n, 6), *up = in(g, 37, n, 2), *dout = in(g, 38, n, 1);
    float *out = zeroes(g, n), *inp = zeroes(g, 2 * n), *dinp = zeroes(g, 2 * n);
    memcpy(inp, gate, (size_t)n * sizeof *inp);
    memcpy(inp + n, up, (size_t)n * sizeof *inp);
    k->swiglu_forward(k, out, inp, 1, n);
    k->swiglu_backward(k, dinp, dout, inp, 1, n);
    assert_golden(g, "swiglu.out/", out, n);
    assert_golden(g, "swiglu.dgate/", dinp, n);
    assert_golden(g, "swiglu.dup/", dinp + n, n);
}

TEST(attention_is_pytorchs, .teardown_func = end_test)
{
    struct golden *g = *state;
    const struct kernels *k = g->k;
    const struct {
        const char *name;
        bool causal;
        int64_t T, H, size;
    } cases[] = {{"causal", true, 1, 3, 16},
                 {"causal", true, 63, 3, 16},
                 {"causal", true, 65, 3, 16},
                 {"causal", true, 130, 2, 64},
                 {"all", false, 65, 3, 16}};
    for (int i = 0; i < 5; i++) {
        int64_t B = 2, T = cases[i].T, H = cases[i].H, C = H * cases[i].size, n = B * T * C;
        float *qkv = in(g, 13, 3 * n, 2), *dout = in(g, 14, n, 1), *out = zeroes(g, n);
        float *lse = zeroes(g, B * H * T), *dqkv = zeroes(g, 3 * n);
        void *scratch = arrays_take(&g->arrays, k->attention_scratch_bytes(k, T, C, H));
        k->attention_forward(k, out, lse, scratch, qkv, cases[i].causal, B, T, C, H, H);
        k->attention_backward(k, dqkv, scratch, dout, out, lse, qkv, cases[i].causal, B, T, C, H,
                              H);
        char name[48];
        assert_golden(g, named(name, "attention.out", cases[i].name, T), out, n);
        assert_golden(g, named(name, "attention.lse", cases[i].name, T), lse, B * H * T);
        assert_golden(g, named(name, "attention.dqkv", cases[i].name, T), dqkv, 3 * n);
    }
}

TEST(activations_are_pytorchs, .teardown_func = end_test)
{
    struct golden *g = *state;
    const struct kernels *k = g->k;
    const int64_t n = 1001;
    float *inp = in(g, 15, n, 6), *dout = in(g, 16, n, 1);
    float *out = zeroes(g, n), *dinp = zeroes(g, n);
    k->gelu_forward(k, out, inp, n);
    k->gelu_backward(k, dinp, dout, inp, n);
    assert_golden(g, "gelu.out/", out, n);
    assert_golden(g, "gelu.dinp/", dinp, n);
    k->relu_forward(k, out, inp, n);
    k->relu_backward(k, dinp, dout, out, n);
    assert_golden(g, "relu.out/", out, n);
    assert_golden(g, "relu.dinp/", dinp, n);
    k->tanh_forward(k, out, inp, n);
    k->tanh_backward(k, dinp, dout, out, n);
    assert_golden(g, "tanh.out/", out, n);
    assert_golden(g, "tanh.dinp/", dinp, n);
}

TEST(classifier_is_pytorchs, .teardown_func = end_test)
{
    struct golden *g = *state;
    const struct kernels *k = g->k;
    const int64_t rows[] = {5, 2}, vocabularies[] = {3, 50257};
    for (int i = 0; i < 2; i++) {
        int64_t N = rows[i], V = vocabularies[i], Vp = V + 47;
        float *logits = in(g, 17, N * Vp, 10), *losses = zeroes(g, N);
        int32_t *targets = arrays_integers(&g->arrays, 18, N, V);
        k->classifier_forward_backward(k, losses, NULL, logits, targets, 1, N, V, Vp);
        char name[48];
        assert_golden(g, named(name, "classifier.losses", "V", V), losses, N);
        assert_golden(g, named(name, "classifier.dlogits", "V", V), logits, N * Vp);
    }
}

TEST(bf16_is_pytorchs, .teardown_func = end_test)
{
    struct golden *g = *state;
    float *x = in(g, 19, 1000, 1e4f);
    uint16_t bytes[1000];
    g->k->cast_to_bf16(g->k, bytes, x, 1000);
    g->k->cast_from_bf16(g->k, x, bytes, 1000);
    assert_golden(g, "bf16.value/", x, 1000);
}

/* Five steps with gradients scaled by a half. */
TEST(sgd_is_pytorchs, .teardown_func = end_test)
{
    struct golden *g = *state;
    const struct kernels *k = g->k;
    const int64_t n = 513;
    const struct kernels_sgd sgd = {0.5f, 0.1f, 0.1f};
    float *w = in(g, 20, n, 1);
    for (uint32_t step = 0; step < 5; step++)
        k->sgd(k, w, NULL, KERNELS_NONE, in(g, 21 + step, n, 0.1f), &sgd, n);
    assert_golden(g, "sgd.w/", w, n);
}

TEST(momentum_is_pytorchs, .teardown_func = end_test)
{
    struct golden *g = *state;
    const struct kernels *k = g->k;
    const int64_t n = 513;
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        const struct kernels_momentum momentum = {0.5f, 0.1f, 0.1f, 0.9f, nesterov};
        float *w = in(g, 20, n, 1), *m = zeroes(g, n);
        for (uint32_t step = 0; step < 5; step++)
            k->momentum(k, w, m, NULL, KERNELS_NONE, in(g, 21 + step, n, 0.1f), &momentum, n);
        assert_golden(g, nesterov ? "nesterov.w/" : "momentum.w/", w, n);
        assert_golden(g, nesterov ? "nesterov.m/" : "momentum.m/", m, n);
    }
}

TEST(adamw_is_pytorchs, .teardown_func = end_test)
{
    struct golden *g = *state;
    const struct kernels *k = g->k;
    const int64_t n = 513;
    float *w = in(g, 20, n, 1), *m = zeroes(g, n), *v = zeroes(g, n);
    for (uint32_t step = 0; step < 5; step++) {
        const struct kernels_adamw adamw = {
            .scale = 0.5f,
            .decay = (float)(1 - 0.01 * 0.1),
            .beta1 = 0.9f,
            .one_minus_beta1 = (float)(1 - 0.9),
            .beta2 = 0.95f,
            .one_minus_beta2 = (float)(1 - 0.95),
            .rate = (float)(0.01 / (1 - pow(0.9, step + 1))),
            .root = (float)(1 / sqrt(1 - pow(0.95, step + 1))),
            .eps = 1e-8f,
        };
        k->adamw(k, w, m, v, NULL, KERNELS_NONE, in(g, 21 + step, n, 0.1f), &adamw, n);
    }
    assert_golden(g, "adamw.w/", w, n);
    assert_golden(g, "adamw.m/", m, n);
    assert_golden(g, "adamw.v/", v, n);
}

TEST(every_record_was_compared)
{
    struct golden *g = *state;
    struct header header;
    int records = 0;
    for (size_t at = 0; at < g->size; at += sizeof header + header.stored * sizeof(float)) {
        memcpy(&header, g->bytes + at, sizeof header);
        records++;
    }
    assert_int_equal(g->compared, records);
}

int main(void)
{
    return unit_run(read_golden, free_golden);
}
