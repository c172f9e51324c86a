/* The numerics probe: it computes what a step computes. A kernels table of the test's own notes
 * every product with its shape, and can spoil the result of one kind of them. */
#include "tests/unit/executor_fixture.h"

#include "kernels/cpu/cpu.h"
#include "worker/fingerprint.h"

enum product_kind {
    FORWARD,
    ADD_FORWARD,
    GELU_FORWARD,
    BACKWARD_INPUT,
    GELU_BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    ATTENTION_FORWARD,
    ATTENTION_BACKWARD,
    KINDS
};

struct product {
    enum product_kind kind;
    int64_t shape[5];
};

enum { PRODUCTS_MAX = 256 };
static struct {
    const struct kernels *k;
    struct product seen[PRODUCTS_MAX];
    uint32_t count;
    enum product_kind spoiled; /* KINDS: none */
    size_t taken, most;        /* bytes of the device */
    uint8_t rubbish;           /* what its memory has at first */
} real;

static bool is_noted(const struct product *product)
{
    for (uint32_t i = 0; i < real.count; i++)
        if (memcmp(&real.seen[i], product, sizeof *product) == 0)
            return true;
    return false;
}

/* `out`: what the product has just made. */
static void note(enum product_kind kind, float *out, const int64_t shape[static 5])
{
    struct product product;
    memset(&product, 0, sizeof product);
    product.kind = kind;
    memcpy(product.shape, shape, sizeof product.shape);
    if (!is_noted(&product)) {
        assert_true(real.count < PRODUCTS_MAX);
        real.seen[real.count++] = product;
    }
    if (kind == real.spoiled)
        *out += 1;
}

static void forward(const struct kernels *k, element *out, const element *inp,
                    const element *weight, const element *bias, int64_t N, int64_t I, int64_t O)
{
    (void)k;
    real.k->linear_forward(real.k, out, inp, weight, bias, N, I, O);
    note(FORWARD, out, (int64_t[5]){N, I, O});
}

static void add_forward(const struct kernels *k, element *out, const element *residual,
                        const element *inp, const element *weight, const element *bias, int64_t N,
                        int64_t I, int64_t O)
{
    (void)k;
    real.k->linear_add_forward(real.k, out, residual, inp, weight, bias, N, I, O);
    note(ADD_FORWARD, out, (int64_t[5]){N, I, O});
}

static void gelu_forward(const struct kernels *k, element *out, element *pre, const element *inp,
                         const element *weight, const element *bias, int64_t N, int64_t I,
                         int64_t O)
{
    (void)k;
    real.k->linear_gelu_forward(real.k, out, pre, inp, weight, bias, N, I, O);
    note(GELU_FORWARD, pre, (int64_t[5]){N, I, O});
}

static void backward_input(const struct kernels *k, element *dinp, const element *dout,
                           const element *weight, int64_t N, int64_t I, int64_t O)
{
    (void)k;
    real.k->linear_backward_input(real.k, dinp, dout, weight, N, I, O);
    note(BACKWARD_INPUT, dinp, (int64_t[5]){N, I, O});
}

static void gelu_backward_input(const struct kernels *k, element *dpre, const element *dout,
                                const element *weight, const element *pre, int64_t N, int64_t I,
                                int64_t O)
{
    (void)k;
    real.k->linear_gelu_backward_input(real.k, dpre, dout, weight, pre, N, I, O);
    note(GELU_BACKWARD_INPUT, dpre, (int64_t[5]){N, I, O});
}

static void backward_weight(const struct kernels *k, float *dweight, float *dbias,
                            const element *dout, const element *inp, int64_t N, int64_t I,
                            int64_t O)
{
    (void)k;
    real.k->linear_backward_weight(real.k, dweight, dbias, dout, inp, N, I, O);
    note(BACKWARD_WEIGHT, dweight, (int64_t[5]){N, I, O});
}

/* Of a sample's head: pieces are more samples, which have some of the heads. */
static void attention_forward(const struct kernels *k, element *out, float *lse, void *scratch,
                              const element *qkv, bool causal, int64_t B, int64_t T, int64_t C,
                              int64_t H, int64_t G)
{
    (void)k;
    real.k->attention_forward(real.k, out, lse, scratch, qkv, causal, B, T, C, H, G);
    note(ATTENTION_FORWARD, out, (int64_t[5]){T, C / H, H / G});
}

static void attention_backward(const struct kernels *k, element *dqkv, void *scratch,
                               const element *dout, const element *out, const float *lse,
                               const element *qkv, bool causal, int64_t B, int64_t T, int64_t C,
                               int64_t H, int64_t G)
{
    (void)k;
    real.k->attention_backward(real.k, dqkv, scratch, dout, out, lse, qkv, causal, B, T, C, H, G);
    note(ATTENTION_BACKWARD, dqkv, (int64_t[5]){T, C / H, H / G});
}

static void *take(const struct kernels *k, size_t bytes)
{
    (void)k;
    real.taken += bytes;
    real.most = real.taken > real.most ? real.taken : real.most;
    void *memory = real.k->alloc(real.k, bytes);
    if (memory != NULL)
        memset(memory, real.rubbish, bytes);
    return memory;
}

static void give(const struct kernels *k, void *memory)
{
    (void)k;
    real.taken = 0; /* one piece at a time */
    real.k->free(real.k, memory);
}

static bool is_seen(enum product_kind kind)
{
    bool seen = false;
    for (uint32_t i = 0; i < real.count; i++)
        seen = seen || real.seen[i].kind == kind;
    return seen;
}

static struct kernels noting(const struct kernels *k)
{
    memset(&real, 0, sizeof real);
    real.k = k;
    real.spoiled = KINDS;
    struct kernels table = *k;
    table.linear_forward = forward;
    table.linear_add_forward = add_forward;
    table.linear_gelu_forward = gelu_forward;
    table.linear_backward_input = backward_input;
    table.linear_gelu_backward_input = gelu_backward_input;
    table.linear_backward_weight = backward_weight;
    table.attention_forward = attention_forward;
    table.attention_backward = attention_backward;
    table.alloc = take;
    table.free = give;
    return table;
}

static struct digest probe(const struct executor_fixture *f, const struct kernels *table)
{
    struct digest digest;
    struct reason reason = {.text = ""};
    const struct fingerprint_options options = {
        .kernels = table, .model = &f->model, .train = &f->train, .held_out = f->samples.held_out};
    assert_int_equal(fingerprint_probe(&options, &digest, &reason), ERR_OK);
    return digest;
}

/* Of a ticket, and of all tickets of a validation. */
static void compute(struct executor_fixture *f, const struct kernels *table)
{
    const struct kernels *before = f->k;
    static const struct executor_hooks none = {0};
    struct executor_loss loss;
    f->k = table;
    struct executor *executor = fixture_executor(f, 1);
    fixture_run(f, executor, fixture_ticket(0, 0, 0));
    for (uint32_t slot = 0; slot < 3; slot++) {
        struct ticket ticket = {.kind = TICKET_VALIDATE, .node = {0, slot}};
        assert_int_equal(executor_run(executor, &ticket, &f->samples, &none, &loss), ERR_OK);
    }
    f->k = before;
}

/* Blocks of four rows of logits, the last of two; the last microbatch of validation has one
 * sample. */
static struct spec_train train(void)
{
    struct spec_train settings = fixture_train();
    settings.logits_bytes_max = 4 * MODEL_VOCABULARY_MULTIPLE * sizeof(float);
    return settings;
}

static void check_products(struct spec_model settings)
{
    struct executor_fixture f = {.settings = settings, .train = train()};
    executor_set_up(&f);
    f.samples.held_out = 11;
    struct kernels table = noting(f.k);
    probe(&f, &table);
    uint32_t probed = real.count;
    compute(&f, &table);
    if (real.count > probed) {
        const struct product *missing = &real.seen[probed];
        fail_msg("a step makes %u products more; the first is of kind %d, %lld %lld %lld",
                 real.count - probed, (int)missing->kind, (long long)missing->shape[0],
                 (long long)missing->shape[1], (long long)missing->shape[2]);
    }
    executor_tear_down(&f);
}

TEST(every_product_of_a_step_is_probed_in_its_shape)
{
    check_products(fixture_gpt());
    check_products(fixture_llama());
    check_products(fixture_mlp());
}

/* Large enough that the grid cuts its units. */
static struct spec_model wide_gpt(uint32_t pieces)
{
    struct spec_model settings = fixture_gpt();
    settings.heads = 4;
    settings.width = 64;
    settings.vocabulary = 700;
    settings.pieces = pieces;
    return settings;
}

/* In ranges of tokens, too. */
static struct spec_model ranged_gpt(void)
{
    struct spec_model settings = wide_gpt(4);
    settings.context = 8;
    settings.norms = SPEC_NORMS_SPLIT;
    return settings;
}

TEST(every_product_of_a_step_by_pieces_is_probed_in_its_shape)
{
    check_products(wide_gpt(1));
    check_products(wide_gpt(4));
    check_products(ranged_gpt());
}

static struct spec_model wide_mlp(void)
{
    return (struct spec_model){.kind = SPEC_MLP,
                               .sizes_count = 7,
                               .sizes = {2, 128, 256, 128, 128, 128, 3},
                               .activation = SPEC_TANH,
                               .tensor_max = 8,
                               .pieces = 2};
}

static struct spec_model wide_llama(void)
{
    struct spec_model settings = fixture_llama();
    settings.heads = 4;
    settings.kv_heads = 4;
    settings.width = 64;
    settings.hidden = 128;
    settings.vocabulary = 700;
    settings.pieces = 4;
    return settings;
}

TEST(what_memory_had_before_is_not_in_the_fingerprint)
{
    const struct spec_model models[] = {wide_gpt(1), wide_gpt(4), ranged_gpt(), wide_mlp(),
                                        wide_llama()};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct executor_fixture f = {.settings = models[i], .train = train()};
        executor_set_up(&f);
        struct kernels table = noting(f.k);
        const struct digest zeros = probe(&f, &table);
        real.rubbish = 0x41;
        const struct digest other = probe(&f, &table);
        assert_memory_equal(&other, &zeros, sizeof zeros);
        executor_tear_down(&f);
    }
}

TEST_F(another_result_of_any_product_is_another_fingerprint, executor, .settings = fixture_gpt(),
       .train = train())
{
    struct kernels table = noting(f->k);
    const struct digest right = probe(f, &table), again = probe(f, &table);
    assert_memory_equal(&again, &right, sizeof right);
    for (enum product_kind kind = 0; kind < KINDS; kind++) {
        real.spoiled = kind;
        struct digest wrong = probe(f, &table);
        if (memcmp(&wrong, &right, sizeof right) == 0)
            fail_msg("products of kind %d are not in the fingerprint", (int)kind);
    }
}

static size_t memory_of(struct spec_model settings)
{
    struct executor_fixture f = {.settings = settings, .train = train()};
    executor_set_up(&f);
    struct kernels table = noting(f.k);
    probe(&f, &table);
    assert_true(real.most < executor_memory(f.executor).total);
    executor_tear_down(&f);
    return real.most;
}

TEST(the_probe_needs_the_memory_of_one_unit)
{
    struct spec_model one = fixture_gpt(), six = fixture_gpt();
    one.layers = 1;
    six.layers = 6;
    assert_int_equal(memory_of(one), memory_of(six));
}

TEST(the_probe_needs_the_memory_of_one_piece_of_it)
{
    assert_true(2 * memory_of(wide_gpt(4)) < memory_of(wide_gpt(1)));
}

TEST_F(another_result_of_any_product_of_a_piece_is_another_fingerprint, executor,
       .settings = wide_gpt(4), .train = train())
{
    struct kernels table = noting(f->k);
    const struct digest right = probe(f, &table), again = probe(f, &table);
    assert_memory_equal(&again, &right, sizeof right);
    for (enum product_kind kind = 0; kind < KINDS; kind++) {
        real.spoiled = kind;
        struct digest wrong = probe(f, &table);
        if (is_seen(kind) && memcmp(&wrong, &right, sizeof right) == 0)
            fail_msg("products of kind %d are not in the fingerprint", (int)kind);
    }
}

/* ---- fingerprints that every machine has ---- */

/* c = alpha * a b + beta * c, with sums of exact products from first to last: OpenBLAS's bits are a
 * machine's, while all other kernels have the same everywhere. */
static void multiply(int order, int transpose_a, int transpose_b, int M, int N, int K, float alpha,
                     const float *a, int lda, const float *b, int ldb, float beta, float *c,
                     int ldc)
{
    (void)order;
    for (int m = 0; m < M; m++) {
        for (int n = 0; n < N; n++) {
            double sum = 0;
            for (int k = 0; k < K; k++) {
                float of_a = transpose_a == GEMM_TRANSPOSED ? a[k * lda + m] : a[m * lda + k];
                float of_b = transpose_b == GEMM_TRANSPOSED ? b[n * ldb + k] : b[k * ldb + n];
                sum += (double)of_a * (double)of_b;
            }
            float product = alpha * (float)sum;
            c[m * ldc + n] = beta == 0 ? product : product + beta * c[m * ldc + n];
        }
    }
}

static void check_fingerprint(struct spec_model settings, const char *expected)
{
    struct executor_fixture f = {.settings = settings, .train = train()};
    const struct kernels *scalar;
    char why[256];
    executor_set_up(&f);
    f.samples.held_out = 11;
    assert_true(kernels_new(&(struct kernels_options){.isa = KERNELS_ISA_SCALAR}, &scalar, why,
                            sizeof why));
    scalar->state->gemm.sgemm = multiply;
    struct kernels table = *scalar;
    table.numerics = "made up";
    const struct digest digest = probe(&f, &table);
    assert_string_equal(digest_to_hex(&digest).text, expected);
    kernels_free(scalar);
    executor_tear_down(&f);
}

/* Exact runs keep theirs: where one of these changes, workers of a new build cannot join them. */
TEST(the_fingerprint_of_a_model_stays_what_it_is)
{
    check_fingerprint(fixture_gpt(),
                      "a25ade0afbc50a6cde26df08b5e423a6799283da1ade8968ce75b64d52ca458a");
    check_fingerprint(fixture_llama(),
                      "fc2d9941cf87c480ef9159487a2cf15af7adf3a7d713c57feeb1c96da951ee46");
    check_fingerprint(fixture_mlp(),
                      "9f62db28f296f685ebfb8aa142a80e9594d321cac6cd9d0a2e9005a2d9570e76");
    check_fingerprint(ranged_gpt(),
                      "9f5ca1783746d43007e5e846d55204d62bd87c25767b134ea069cfcf2cb6a92b");
    check_fingerprint(wide_mlp(),
                      "d6a6901126d9ff242c562cbf8bc1b7ece328bf8f07f587014002d28cfaabbda6");
}
