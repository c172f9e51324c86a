/* The CPU kernels against their formulas in double: forward passes directly, backward passes
 * against central differences of the formula. */
#include "tests/unit/test_kernels.h"

#define TOLERANCE 2e-6 /* of the output's norm; fp32 sums of up to a few hundred terms */

/* The formula of an operation: out (outputs) from x (inputs), all it depends on in one vector. */
struct formula {
    void (*run)(const struct formula *formula, double *out, const double *x);
    int64_t inputs, outputs;
    int64_t B, T, C, H;
    bool causal;
    const int32_t *integers;
    bool centred;
};

static double *doubles(struct arrays *arrays, int64_t n)
{
    return arrays_take(arrays, (size_t)n * sizeof(double));
}

/* `count` arrays of floats one after another, as doubles. */
static double *joined(struct arrays *arrays, int count, const float *const *parts,
                      const int64_t *lengths)
{
    int64_t n = 0;
    for (int i = 0; i < count; i++)
        n += lengths[i];
    double *x = doubles(arrays, n), *at = x;
    for (int i = 0; i < count; i++)
        for (int64_t j = 0; j < lengths[i]; j++)
            *at++ = parts[i][j];
    return x;
}

static double *as_doubles(struct arrays *arrays, const float *x, int64_t n)
{
    return joined(arrays, 1, &x, &n);
}

/* dx (inputs): derivatives of sum(dout * out) by central differences. */
static double *differences(struct arrays *arrays, const struct formula *formula, double *x,
                           const float *dout)
{
    const double h = 1e-5;
    double *dx = doubles(arrays, formula->inputs);
    double *above = doubles(arrays, formula->outputs), *below = doubles(arrays, formula->outputs);
    for (int64_t i = 0; i < formula->inputs; i++) {
        double kept = x[i];
        x[i] = kept + h;
        formula->run(formula, above, x);
        x[i] = kept - h;
        formula->run(formula, below, x);
        x[i] = kept;
        for (int64_t o = 0; o < formula->outputs; o++)
            dx[i] += dout[o] * (above[o] - below[o]) / (2 * h);
    }
    return dx;
}

static void assert_near(const char *what, const float *x, const double *expected, int64_t n)
{
    double d = distance(x, expected, n);
    if (!(d <= TOLERANCE))
        fail_msg("%s is %.2e away", what, d);
}

/* -- linear ------------------------------------------------------------------------------------ */

static void linear_formula(const struct formula *f, double *out, const double *x)
{
    int64_t N = f->B, I = f->T, O = f->C;
    const double *weight = x + N * I, *bias = weight + O * I;
    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < O; o++) {
            out[n * O + o] = bias[o];
            for (int64_t i = 0; i < I; i++)
                out[n * O + o] += x[n * I + i] * weight[o * I + i];
        }
}

static void check_linear(const struct kernels *k, int64_t N, int64_t I, int64_t O)
{
    scoped(arrays_release) struct arrays a = {0};
    float *inp = arrays_floats(&a, 1, N * I, 1), *weight = arrays_floats(&a, 2, O * I, 1);
    float *bias = arrays_floats(&a, 3, O, 1), *dout = arrays_floats(&a, 4, N * O, 1);
    float *out = arrays_floats(&a, 5, N * O, NAN), *dinp = arrays_floats(&a, 5, N * I, NAN);
    float *dweight = arrays_floats(&a, 0, O * I, 0), *dbias = arrays_floats(&a, 0, O, 0);
    double *x = joined(&a, 3, (const float *[]){inp, weight, bias}, (int64_t[]){N * I, O * I, O});
    struct formula f = {linear_formula, N * I + O * I + O, N * O, .B = N, .T = I, .C = O};
    double *expected = doubles(&a, N * O);
    linear_formula(&f, expected, x);
    k->linear_forward(k, out, inp, weight, bias, N, I, O);
    assert_near("out", out, expected, N * O);

    double *dx = differences(&a, &f, x, dout);
    k->linear_backward_input(k, dinp, dout, weight, N, I, O);
    k->linear_backward_weight(k, dweight, dbias, dout, inp, N, I, O);
    assert_near("dinp", dinp, dx, N * I);
    assert_near("dweight", dweight, dx + N * I, O * I);
    assert_near("dbias", dbias, dx + N * I + O * I, O);

    memset(x + N * I + O * I, 0, (size_t)O * sizeof *x);
    linear_formula(&f, expected, x);
    for (int64_t i = 0; i < N * O; i++)
        out[i] = NAN; /* overwritten, whatever it was */
    k->linear_forward(k, out, inp, weight, NULL, N, I, O);
    assert_near("out without bias", out, expected, N * O);
}

TEST_ON_CPU(linear_is_its_formula)
{
    check_linear(k, 5, 17, 33);
}

TEST_ON_CPU(linear_of_one_row_is_its_formula)
{
    check_linear(k, 1, 17, 33);
    check_linear(k, 1, 150, 3); /* more than four sums, and a rest */
}

/* A piece's arrays begin where the pieces before it end. */
TEST_ON_CPU(one_row_has_the_same_bits_wherever_it_lies)
{
    enum { I = 150, O = 21, SHIFTS = 16 };
    scoped(arrays_release) struct arrays a = {0};
    float *inp = arrays_floats(&a, 1, I + SHIFTS, 1);
    float *weight = arrays_floats(&a, 2, O * I + SHIFTS, 1);
    float *dout = arrays_floats(&a, 3, O + SHIFTS, 1);
    float first[O], first_dinp[I];
    for (int64_t shift = 0; shift < SHIFTS; shift++) {
        float out[O + SHIFTS], dinp[I + SHIFTS];
        k->linear_forward(k, out + shift, inp + shift, weight + shift, NULL, 1, I, O);
        k->linear_backward_input(k, dinp + shift, dout + shift, weight + shift, 1, I, O);
        if (shift == 0) {
            memcpy(first, out, sizeof first);
            memcpy(first_dinp, dinp, sizeof first_dinp);
        }
        assert_memory_equal(out + shift, first, sizeof first);
        assert_memory_equal(dinp + shift, first_dinp, sizeof first_dinp);
        memmove(inp + shift + 1, inp + shift, I * sizeof *inp);
        memmove(weight + shift + 1, weight + shift, O * I * sizeof *weight);
        memmove(dout + shift + 1, dout + shift, O * sizeof *dout);
    }
}

TEST_ON_CPU(weight_gradients_accumulate)
{
    scoped(arrays_release) struct arrays a = {0};
    float *inp = arrays_floats(&a, 1, 4, 1), *dout = arrays_floats(&a, 2, 4, 1);
    float *dweight = arrays_floats(&a, 0, 4, 0), *dbias = arrays_floats(&a, 0, 2, 0);
    float once_weight[4], once_bias[2];
    k->linear_backward_weight(k, dweight, dbias, dout, inp, 2, 2, 2);
    memcpy(once_weight, dweight, sizeof once_weight);
    memcpy(once_bias, dbias, sizeof once_bias);
    k->linear_backward_weight(k, dweight, dbias, dout, inp, 2, 2, 2);
    k->linear_backward_weight(k, dweight, NULL, dout, inp, 2, 2, 2);
    for (int i = 0; i < 4; i++)
        assert_true(fabsf(dweight[i] - 3 * once_weight[i]) < 1e-6f);
    for (int i = 0; i < 2; i++)
        assert_true(fabsf(dbias[i] - 2 * once_bias[i]) < 1e-6f);
}

/* -- embedding --------------------------------------------------------------------------------- */

enum { VOCABULARY = 11 };

static void embedding_formula(const struct formula *f, double *out, const double *x)
{
    const double *wpe = x + VOCABULARY * f->C;
    for (int64_t row = 0; row < f->B * f->T; row++)
        for (int64_t c = 0; c < f->C; c++)
            out[row * f->C + c] = x[f->integers[row] * f->C + c] + wpe[row % f->T * f->C + c];
}

TEST_ON_CPU(embedding_is_its_formula)
{
    int64_t B = 3, T = 7, C = 19, V = VOCABULARY;
    scoped(arrays_release) struct arrays a = {0};
    int32_t *tokens = arrays_integers(&a, 1, B * T, V);
    float *wte = arrays_floats(&a, 2, V * C, 1), *wpe = arrays_floats(&a, 3, T * C, 1);
    float *out = arrays_floats(&a, 0, B * T * C, 0), *dout = arrays_floats(&a, 4, B * T * C, 1);
    float *dwte = arrays_floats(&a, 0, V * C, 0), *dwpe = arrays_floats(&a, 0, T * C, 0);
    double *x = joined(&a, 2, (const float *[]){wte, wpe}, (int64_t[]){V * C, T * C});
    struct formula f = {embedding_formula, (V + T) * C, B * T * C, B, T, C, .integers = tokens};
    double *expected = doubles(&a, B * T * C);
    embedding_formula(&f, expected, x);
    k->embedding_forward(k, out, tokens, wte, wpe, B, T, C, 0, V, V);
    assert_near("out", out, expected, B * T * C);
    double *dx = differences(&a, &f, x, dout);
    k->embedding_backward(k, dwte, dwpe, tokens, dout, B, T, C, 0, V, V);
    assert_near("dwte", dwte, dx, V * C);
    assert_near("dwpe", dwpe, dx + V * C, T * C);
    memset(x + V * C, 0, (size_t)(T * C) * sizeof *x); /* without positions */
    embedding_formula(&f, expected, x);
    k->embedding_forward(k, out, tokens, wte, NULL, B, T, C, 0, V, V);
    assert_near("out", out, expected, B * T * C);
    memset(dwte, 0, (size_t)(V * C) * sizeof *dwte);
    k->embedding_backward(k, dwte, NULL, tokens, dout, B, T, C, 0, V, V);
    assert_near("dwte", dwte, dx, V * C);
}

/* Who has some of the table's rows makes what they make, and zeros. */
TEST_ON_CPU(an_embedding_of_some_rows_makes_only_theirs)
{
    enum { N = 6, C = 3, V = 5, FIRST = 2, ROWS = 2 };
    const int32_t tokens[N] = {0, 2, 3, 2, 4, 3};
    float wte[V * C], wpe[N * C], whole[N * C], some[N * C], dwte[V * C] = {0}, dsome[V * C] = {0};
    float dwpe[N * C] = {0};
    for (int i = 0; i < V * C; i++)
        wte[i] = -(float)i;
    for (int i = 0; i < N * C; i++)
        wpe[i] = 0.25F * (float)i;
    k->embedding_forward(k, whole, tokens, wte, wpe, 1, N, C, 0, V, V);
    k->embedding_forward(k, some, tokens, wte + FIRST * C, wpe, 1, N, C, FIRST, ROWS, V);
    k->embedding_backward(k, dwte, dwpe, tokens, whole, 1, N, C, 0, V, V);
    k->embedding_backward(k, dsome, NULL, tokens, whole, 1, N, C, FIRST, ROWS, V);
    for (int i = 0; i < N * C; i++) {
        bool here = tokens[i / C] >= FIRST && tokens[i / C] < FIRST + ROWS;
        assert_true(some[i] == (here ? whole[i] : 0));
    }
    for (int i = 0; i < V * C; i++)
        assert_true(dsome[i] == (i < ROWS * C ? dwte[FIRST * C + i] : 0));
}

/* -- layernorm and rmsnorm --------------------------------------------------------------------- */

/* `centred`: the mean is subtracted and beta added. */
static void norm_formula(const struct formula *f, double *out, const double *x)
{
    int64_t N = f->B, C = f->C;
    const double *gamma = x + N * C, *beta = gamma + C;
    for (int64_t n = 0; n < N; n++, x += C, out += C) {
        double mean = 0, variance = 0;
        for (int64_t c = 0; c < C && f->centred; c++)
            mean += x[c] / (double)C;
        for (int64_t c = 0; c < C; c++)
            variance += (x[c] - mean) * (x[c] - mean) / (double)C;
        for (int64_t c = 0; c < C; c++)
            out[c] = (x[c] - mean) / sqrt(variance + 1e-5) * gamma[c] + (f->centred ? beta[c] : 0);
    }
}

static void norm_at(int64_t C, bool centred)
{
    scoped(kernels_free_scoped) const struct kernels *k = kernels_for(KERNELS_ISA_AUTO);
    int64_t N = 4;
    int weights = centred ? 2 : 1;
    scoped(arrays_release) struct arrays a = {0};
    float *inp = arrays_floats(&a, 1, N * C, 1), *gamma = arrays_floats(&a, 2, C, 1);
    float *beta = arrays_floats(&a, 3, C, 1), *dout = arrays_floats(&a, 4, N * C, 1);
    float *out = arrays_floats(&a, 0, N * C, 0), *dinp = arrays_floats(&a, 5, N * C, 1);
    float *mean = arrays_floats(&a, 0, N, 0), *rstd = arrays_floats(&a, 0, N, 0);
    float *dgamma = arrays_floats(&a, 6, C, 1), *dbeta = arrays_floats(&a, 7, C, 1);
    double *before =
        joined(&a, 1 + weights, (const float *[]){dinp, dgamma, dbeta}, (int64_t[]){N * C, C, C});
    double *x =
        joined(&a, 1 + weights, (const float *[]){inp, gamma, beta}, (int64_t[]){N * C, C, C});
    struct formula f = {norm_formula, N * C + weights * C, N * C, .B = N, .C = C};
    f.centred = centred;
    double *expected = doubles(&a, N * C);
    norm_formula(&f, expected, x);
    if (centred)
        k->layernorm_forward(k, out, mean, rstd, inp, gamma, beta, N, C);
    else
        k->rmsnorm_forward(k, out, rstd, inp, gamma, N, C);
    assert_near("out", out, expected, N * C);
    double *dx = differences(&a, &f, x, dout);
    for (int64_t i = 0; i < f.inputs; i++)
        dx[i] += before[i]; /* all of them accumulate */
    if (centred)
        k->layernorm_backward(k, dinp, dgamma, dbeta, dout, inp, mean, rstd, gamma, N, C);
    else
        k->rmsnorm_backward(k, dinp, dgamma, dout, inp, rstd, gamma, N, C);
    assert_near("dinp", dinp, dx, N * C);
    assert_near("dgamma", dgamma, dx + N * C, C);
    if (centred)
        assert_near("dbeta", dbeta, dx + N * C + C, C);
}

TEST(layernorm_is_its_formula)
{
    norm_at(16, true);
    norm_at(33, true);
    norm_at(100, true);
}

TEST(rmsnorm_is_its_formula)
{
    norm_at(16, false);
    norm_at(33, false);
    norm_at(100, false);
}

/* -- rope -------------------------------------------------------------------------------------- */

enum { ROPE_GROUPS = 2 };

/* Values are not turned. */
static void rope_formula(const struct formula *f, double *out, const double *x)
{
    int64_t S = f->C / f->H, heads = f->H + 2 * ROPE_GROUPS, turned = f->H + ROPE_GROUPS;
    for (int64_t row = 0; row < f->B * f->T; row++)
        for (int64_t head = 0; head < heads; head++, x += S, out += S)
            for (int64_t i = 0; i < S / 2; i++) {
                double angle = (double)(row % f->T) * pow(1e4, (double)(-2 * i) / (double)S);
                double cosine = head < turned ? cos(angle) : 1;
                double sine = head < turned ? sin(angle) : 0;
                out[i] = x[i] * cosine - x[i + S / 2] * sine;
                out[i + S / 2] = x[i + S / 2] * cosine + x[i] * sine;
            }
}

static void rope_at(int64_t T, int64_t S)
{
    scoped(kernels_free_scoped) const struct kernels *k = kernels_for(KERNELS_ISA_AUTO);
    int64_t B = 2, H = 4, C = H * S, n = B * T * (H + 2 * ROPE_GROUPS) * S;
    struct kernels_rope rope = rope_of(1e4, S);
    scoped(arrays_release) struct arrays a = {0};
    float *qkv = arrays_floats(&a, 1, n, 1), *dqkv = arrays_floats(&a, 2, n, 1);
    float *dout = arrays_floats(&a, 2, n, 1);
    double *x = as_doubles(&a, qkv, n), *expected = doubles(&a, n);
    struct formula f = {rope_formula, n, n, B, T, C, H, false, NULL};
    rope_formula(&f, expected, x);
    k->rope_forward(k, qkv, &rope, B, T, C, H, ROPE_GROUPS);
    assert_near("out", qkv, expected, n);
    if (n < 3000) {
        double *dx = differences(&a, &f, x, dout);
        k->rope_backward(k, dqkv, &rope, B, T, C, H, ROPE_GROUPS);
        assert_near("dqkv", dqkv, dx, n);
    }
    k->rope_backward(k, qkv, &rope, B, T, C, H, ROPE_GROUPS);
    assert_near("turned and turned back", qkv, x, n);
}

TEST(rope_is_its_formula)
{
    rope_at(1, 2);
    rope_at(9, 6);
    rope_at(3, 34);
    rope_at(5000, 34); /* angles that a single float would not hold */
    rope_at(3, 2 * KERNELS_ROPE_PAIRS_MAX);
}

/* -- attention --------------------------------------------------------------------------------- */

/* One query row: its outputs (size) and lse. */
static double attend(const struct formula *f, double *out, const double *qkv, int64_t head,
                     int64_t t)
{
    int64_t size = f->C / f->H, seen = f->causal ? t + 1 : f->T, stride = 3 * f->C;
    const double *q = qkv + t * stride + head * size;
    double score[256], sum = 0;
    check(seen <= 256);
    memset(out, 0, (size_t)size * sizeof *out);
    for (int64_t s = 0; s < seen; s++) {
        const double *key = qkv + s * stride + f->C + head * size;
        score[s] = 0;
        for (int64_t i = 0; i < size; i++)
            score[s] += q[i] * key[i] / sqrt((double)size);
        sum += exp(score[s]);
    }
    for (int64_t s = 0; s < seen; s++)
        for (int64_t i = 0; i < size; i++)
            out[i] += exp(score[s]) / sum * qkv[s * stride + 2 * f->C + head * size + i];
    return log(sum);
}

static void attention_formula(const struct formula *f, double *out, const double *x)
{
    for (int64_t b = 0; b < f->B; b++)
        for (int64_t t = 0; t < f->T; t++)
            for (int64_t h = 0; h < f->H; h++)
                attend(f, out + (b * f->T + t) * f->C + h * (f->C / f->H), x + b * f->T * 3 * f->C,
                       h, t);
}

static void attention_at(int64_t T, bool causal)
{
    scoped(kernels_free_scoped) const struct kernels *k = kernels_for(KERNELS_ISA_AUTO);
    int64_t B = 2, H = 2, C = 4, n = B * T * C;
    scoped(arrays_release) struct arrays a = {0};
    float *qkv = arrays_floats(&a, 1, 3 * n, 2), *dout = arrays_floats(&a, 2, n, 1);
    float *out = arrays_floats(&a, 3, n, NAN), *lse = arrays_floats(&a, 3, B * H * T, NAN);
    float *dqkv = arrays_floats(&a, 3, 3 * n, NAN);
    void *scratch = arrays_take(&a, k->attention_scratch_bytes(k, T, C, H));
    double *x = as_doubles(&a, qkv, 3 * n), *expected = doubles(&a, n), row[8];
    struct formula f = {attention_formula, 3 * n, n, B, T, C, H, causal, NULL};
    attention_formula(&f, expected, x);
    k->attention_forward(k, out, lse, scratch, qkv, causal, B, T, C, H, H);
    assert_near("out", out, expected, n);
    assert_true(fabs(lse[B * H * T - 1] - attend(&f, row, x + (B - 1) * T * 3 * C, H - 1, T - 1)) <
                1e-5);
    double *dx = differences(&a, &f, x, dout);
    k->attention_backward(k, dqkv, scratch, dout, out, lse, qkv, causal, B, T, C, H, H);
    assert_near("dqkv", dqkv, dx, 3 * n);
}

TEST(causal_attention_is_its_formula)
{
    attention_at(1, true);
    attention_at(15, true);
    attention_at(65, true);
}

TEST(attention_to_all_columns_is_its_formula)
{
    attention_at(1, false);
    attention_at(66, false);
}

/* -- activations ------------------------------------------------------------------------------- */

static void gelu_formula(const struct formula *f, double *out, const double *x)
{
    for (int64_t i = 0; i < f->outputs; i++)
        out[i] = 0.5 * x[i] * (1 + tanh(sqrt(2 / M_PI) * (x[i] + 0.044715 * x[i] * x[i] * x[i])));
}

static void relu_formula(const struct formula *f, double *out, const double *x)
{
    for (int64_t i = 0; i < f->outputs; i++)
        out[i] = x[i] > 0 ? x[i] : 0;
}

static void tanh_formula(const struct formula *f, double *out, const double *x)
{
    for (int64_t i = 0; i < f->outputs; i++)
        out[i] = tanh(x[i]);
}

typedef void activation_forward(const struct kernels *, float *, const float *, int64_t);
typedef void activation_backward(const struct kernels *, float *, const float *, const float *,
                                 int64_t);

/* `of_output`: the backward pass takes the forward's output instead of its input. */
static void activation_at(const struct kernels *k, activation_forward *forward,
                          activation_backward *backward, bool of_output,
                          void (*run)(const struct formula *, double *, const double *))
{
    int64_t n = 203;
    scoped(arrays_release) struct arrays a = {0};
    float *inp = arrays_floats(&a, 1, n, 4), *out = arrays_floats(&a, 0, n, 0);
    float *dout = arrays_floats(&a, 2, n, 1), *dinp = arrays_floats(&a, 0, n, 0);
    double *x = as_doubles(&a, inp, n), *expected = doubles(&a, n);
    struct formula f = {run, n, n};
    run(&f, expected, x);
    forward(k, out, inp, n);
    assert_near("out", out, expected, n);
    double *dx = differences(&a, &f, x, dout);
    backward(k, dinp, dout, of_output ? out : inp, n);
    assert_near("dinp", dinp, dx, n);
}

TEST_ON_CPU(activations_are_their_formulas)
{
    activation_at(k, k->gelu_forward, k->gelu_backward, false, gelu_formula);
    activation_at(k, k->relu_forward, k->relu_backward, true, relu_formula);
    activation_at(k, k->tanh_forward, k->tanh_backward, true, tanh_formula);
}

/* Rows of C gates and C ups. */
static void swiglu_formula(const struct formula *f, double *out, const double *x)
{
    for (int64_t i = 0; i < f->outputs; i++) {
        const double *gate = x + i / f->C * 2 * f->C + i % f->C;
        out[i] = *gate / (1 + exp(-*gate)) * gate[f->C];
    }
}

TEST_ON_CPU(swiglu_is_its_formula)
{
    int64_t N = 5, C = 41, n = N * C;
    scoped(arrays_release) struct arrays a = {0};
    float *inp = arrays_floats(&a, 1, 2 * n, 6), *dinp = arrays_floats(&a, 0, 2 * n, 0);
    float *dout = arrays_floats(&a, 3, n, 1), *out = arrays_floats(&a, 0, n, 0);
    double *x = joined(&a, 1, (const float *[]){inp}, (int64_t[]){2 * n});
    struct formula f = {swiglu_formula, 2 * n, n, .C = C};
    double *expected = doubles(&a, n), *dx = differences(&a, &f, x, dout);
    swiglu_formula(&f, expected, x);
    k->swiglu_forward(k, out, inp, N, C);
    assert_near("out", out, expected, n);
    k->swiglu_backward(k, dinp, dout, inp, N, C);
    assert_near("dinp", dinp, dx, 2 * n);
    k->swiglu_backward(k, inp, dout, inp, N, C); /* in place */
    assert_memory_equal(inp, dinp, (size_t)(2 * n) * sizeof *inp);
}

TEST_ON_CPU(swiglu_is_finite_far_out)
{
    const float inp[] = {-1e30f, -100, -88, -1e-20f, 0, 1e-20f, 88, 1e10f, 1, 1, 1, 1, 1, 1, 1, 1};
    const float *ones = inp + 8;
    float out[8], dinp[16];
    k->swiglu_forward(k, out, inp, 1, 8);
    k->swiglu_backward(k, dinp, ones, inp, 1, 8);
    for (int i = 0; i < 8; i++)
        assert_true(isfinite(out[i]) && isfinite(dinp[8 + i]));
    for (int i = 1; i < 8; i++)
        assert_true(isfinite(dinp[i]));
    assert_true(out[7] == 1e10f && dinp[7] == 1 && dinp[4] == 0.5f && fabsf(out[1]) < 1e-30f);
}

TEST_ON_CPU(gelu_keeps_its_precision_far_out)
{
    const float inp[] = {-1e30f, -20, -6, -4, -1e-20f, 0, 1e-20f, 5, 20, 1e10f};
    float out[10], dinp[10], ones[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    k->gelu_forward(k, out, inp, 10);
    k->gelu_backward(k, dinp, ones, inp, 10);
    for (int i = 0; i < 10; i++)
        assert_true(isfinite(out[i]));
    for (int i = 1; i < 9; i++)
        assert_true(isfinite(dinp[i]));
    assert_true(fabs(out[3] / (-4 / (1 + exp(2 * sqrt(2 / M_PI) * (4 + 0.044715 * 64)))) - 1) <
                2e-6);
    assert_true(out[9] == 1e10f && dinp[8] == 1 && dinp[5] == 0.5f);
    assert_true(dinp[1] == 0 || fabsf(dinp[1]) < 1e-30f);
}
