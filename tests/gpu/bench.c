/* How long each CUDA operation takes at GPT-2 124M's shapes: bench [B T C H V [REPEATS]]
 *
 * The median of REPEATS (default 21) calls, each between two synchronize(). Beside it what it moves
 * a second if every input is read and every output written once, and what it computes a second; the
 * device's own limits are near what `add` moves and what `head forward` computes. One call's launch
 * and wait are inside: some microseconds. */
#include "common/time.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

enum { REPEATS_MAX = 1001 };

/* Device memory that all operations share, and the dims. */
struct bench {
    const struct kernels *k;
    int repeats;
    int64_t B, T, C, H, V, Vp, N;
    float *logits;                  /* (N,Vp) */
    float *wide[2];                 /* (N,4C) */
    float *narrow[3];               /* (N,C) */
    float *rows[2];                 /* (N); also lse (B,H,T) */
    float *parameters[4];           /* (Vp,C) */
    int32_t *tokens, *rows_correct; /* (N) */
    void *scratch, *host;
};

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median seconds of a call. */
static double measure(const struct bench *b, void (*call)(const struct bench *b))
{
    double times[REPEATS_MAX];
    for (int i = -2; i < b->repeats; i++) { /* two to warm up */
        uint64_t begun = time_now_ns();
        call(b);
        const char *failure = b->k->synchronize(b->k);
        if (failure) {
            printf("%s\n", failure);
            exit(EXIT_FAILURE);
        }
        if (i >= 0)
            times[i] = (double)(time_now_ns() - begun) * 1e-9;
    }
    qsort(times, (size_t)b->repeats, sizeof *times, compare_times);
    return times[b->repeats / 2];
}

/* -- one call each ----------------------------------------------------------------------------- */

static void gelu_forward(const struct bench *b)
{
    b->k->gelu_forward(b->k, b->wide[0], b->wide[1], b->N * 4 * b->C);
}

static void add(const struct bench *b)
{
    b->k->add(b->k, b->wide[0], b->wide[0], b->wide[1], b->N * 4 * b->C);
}

static void gelu_backward(const struct bench *b)
{
    b->k->gelu_backward(b->k, b->wide[0], b->wide[0], b->wide[1], b->N * 4 * b->C);
}

static void linear_forward(const struct bench *b)
{
    b->k->linear_forward(b->k, b->wide[0], b->narrow[0], b->parameters[0], b->parameters[1], b->N,
                         b->C, 4 * b->C);
}

static void linear_backward_input(const struct bench *b)
{
    b->k->linear_backward_input(b->k, b->narrow[0], b->wide[0], b->parameters[0], b->N, b->C,
                                4 * b->C);
}

static void linear_backward_weight(const struct bench *b)
{
    b->k->linear_backward_weight(b->k, b->parameters[0], NULL, b->wide[0], b->narrow[0], b->N, b->C,
                                 4 * b->C);
}

static void linear_backward_weight_and_bias(const struct bench *b)
{
    b->k->linear_backward_weight(b->k, b->parameters[0], b->parameters[1], b->wide[0], b->narrow[0],
                                 b->N, b->C, 4 * b->C);
}

static void head_forward(const struct bench *b)
{
    b->k->linear_forward(b->k, b->logits, b->narrow[0], b->parameters[0], NULL, b->N, b->C, b->Vp);
}

static void classifier(const struct bench *b)
{
    b->k->classifier_forward_backward(b->k, b->rows[0], b->rows_correct, b->logits, b->tokens, 1,
                                      b->N, b->V, b->Vp);
}

static void attention_forward(const struct bench *b)
{
    b->k->attention_forward(b->k, b->narrow[0], b->rows[0], b->scratch, b->wide[0], true, b->B,
                            b->T, b->C, b->H, b->H);
}

static void attention_backward(const struct bench *b)
{
    b->k->attention_backward(b->k, b->wide[1], b->scratch, b->narrow[1], b->narrow[0], b->rows[0],
                             b->wide[0], true, b->B, b->T, b->C, b->H, b->H);
}

static void layernorm_forward(const struct bench *b)
{
    b->k->layernorm_forward(b->k, b->narrow[0], b->rows[0], b->rows[1], b->narrow[1],
                            b->parameters[0], b->parameters[1], b->N, b->C);
}

static void layernorm_backward(const struct bench *b)
{
    b->k->layernorm_backward(b->k, b->narrow[0], b->parameters[0], b->parameters[1], b->narrow[1],
                             b->narrow[2], b->rows[0], b->rows[1], b->parameters[2], b->N, b->C);
}

static void embedding_forward(const struct bench *b)
{
    b->k->embedding_forward(b->k, b->narrow[0], b->tokens, b->parameters[0], b->parameters[1], b->B,
                            b->T, b->C, b->V);
}

static void embedding_backward(const struct bench *b)
{
    b->k->embedding_backward(b->k, b->parameters[0], b->parameters[1], b->tokens, b->narrow[0],
                             b->B, b->T, b->C, b->V);
}

static void adamw(const struct bench *b)
{
    static const struct kernels_adamw step = {1, 0.999f, 0.9f, 0.1f, 0.95f, 0.05f, 1e-3f, 1, 1e-8f};
    b->k->adamw(b->k, b->parameters[0], b->parameters[1], b->parameters[2], NULL, KERNELS_NONE,
                b->parameters[3], &step, b->Vp * b->C);
}

static void sum_squares(const struct bench *b)
{
    double sum;
    b->k->sum_squares(b->k, &sum, b->parameters[0], b->Vp * b->C);
}

static void pull(const struct bench *b)
{
    b->k->copy_in(b->k, b->parameters[0], b->host, (size_t)(b->Vp * b->C) * sizeof(float));
}

static void push(const struct bench *b)
{
    b->k->copy_out(b->k, b->host, b->parameters[0], (size_t)(b->Vp * b->C) * sizeof(float));
}

static void push_bf16(const struct bench *b)
{
    b->k->cast_to_bf16(b->k, b->host, b->parameters[0], b->Vp * b->C);
}

/* -- the table --------------------------------------------------------------------------------- */

static void report(const struct bench *b, const char *name, void (*call)(const struct bench *b),
                   int64_t floats, double flops)
{
    double seconds = measure(b, call);
    printf("%-34s %10.1f us %8.0f GB/s", name, seconds * 1e6,
           (double)floats * sizeof(float) / seconds * 1e-9);
    if (flops > 0)
        printf(" %8.1f TFLOP/s", flops / seconds * 1e-12);
    printf("\n");
    fflush(stdout);
}

static void report_all(const struct bench *b)
{
    int64_t wide = b->N * 4 * b->C, narrow = b->N * b->C, weights = 4 * b->C * b->C;
    int64_t table = b->Vp * b->C, logits = b->N * b->Vp;
    double product = 2.0 * (double)b->N * (double)weights;
    double scores = 2.0 * (double)b->N * (double)b->T * (double)b->C / 2; /* one causal product */
    report(b, "gelu forward", gelu_forward, 2 * wide, 0);
    report(b, "add", add, 3 * wide, 0);
    report(b, "gelu backward", gelu_backward, 3 * wide, 0);
    report(b, "linear forward", linear_forward, narrow + weights + wide, product);
    report(b, "linear backward input", linear_backward_input, narrow + weights + wide, product);
    report(b, "linear backward weight", linear_backward_weight, narrow + 2 * weights + wide,
           product);
    report(b, "linear backward weight and bias", linear_backward_weight_and_bias,
           narrow + 2 * weights + 2 * wide, product);
    report(b, "head forward", head_forward, narrow + table + logits,
           2.0 * (double)b->N * (double)table);
    report(b, "classifier", classifier, 2 * logits, 0);
    report(b, "attention forward", attention_forward, 4 * narrow, 2 * scores);
    report(b, "attention backward", attention_backward, 8 * narrow, 5 * scores);
    report(b, "layernorm forward", layernorm_forward, 2 * narrow, 0);
    report(b, "layernorm backward", layernorm_backward, 6 * narrow, 0);
    report(b, "embedding forward", embedding_forward, 2 * narrow, 0);
    report(b, "embedding backward", embedding_backward, 4 * narrow, 0);
    report(b, "adamw", adamw, 7 * table, 0);
    report(b, "sum of squares", sum_squares, table, 0);
    report(b, "copy in (pageable)", pull, table, 0);
    report(b, "copy out (pageable)", push, table, 0);
    report(b, "copy out as bf16 (pageable)", push_bf16, table, 0);
}

static void *take(struct bench *b, int64_t floats)
{
    size_t bytes = (size_t)floats * sizeof(float);
    void *memory = b->k->alloc(b->k, bytes);
    if (!memory) {
        printf("out of device memory\n");
        exit(EXIT_FAILURE);
    }
    for (size_t at = 0; at < bytes; at += (size_t)(b->Vp * b->C) * sizeof(float)) {
        size_t most = (size_t)(b->Vp * b->C) * sizeof(float);
        b->k->copy_in(b->k, (char *)memory + at, b->host, bytes - at < most ? bytes - at : most);
    }
    return memory;
}

/* Small values that differ; tokens are common and rare ones as in text (about 1/rank). */
static void fill(struct bench *b)
{
    int64_t n = b->Vp * b->C;
    float *host = b->host = malloc((size_t)n * sizeof(float));
    int32_t *tokens = malloc((size_t)b->N * sizeof *tokens);
    check(host && tokens);
    uint32_t x = 1;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        host[i] = (float)(x >> 8) / 16777216.0f - 0.5f;
    }
    for (int64_t i = 0; i < b->N; i++) {
        x = x * 1664525u + 1013904223u;
        double u = (double)(x >> 8) / 16777216.0;
        tokens[i] = (int32_t)((double)(b->V - 1) * u * u * u * u);
    }
    b->tokens = take(b, b->N);
    b->k->copy_in(b->k, b->tokens, tokens, (size_t)b->N * sizeof *tokens);
    free(tokens);
}

static void take_all(struct bench *b)
{
    fill(b);
    b->logits = take(b, b->N * b->Vp);
    for (int i = 0; i < 2; i++)
        b->wide[i] = take(b, b->N * 4 * b->C);
    for (int i = 0; i < 3; i++)
        b->narrow[i] = take(b, b->N * b->C);
    for (int i = 0; i < 2; i++)
        b->rows[i] = take(b, b->N * b->H);
    for (int i = 0; i < 4; i++)
        b->parameters[i] = take(b, b->Vp * b->C);
    b->rows_correct = take(b, b->N);
    b->scratch = b->k->alloc(b->k, b->k->attention_scratch_bytes(b->k, b->T, b->C, b->H));
}

static void free_all(struct bench *b)
{
    void *const all[] = {b->tokens,        b->logits,        b->wide[0],       b->wide[1],
                         b->narrow[0],     b->narrow[1],     b->narrow[2],     b->rows[0],
                         b->rows[1],       b->parameters[0], b->parameters[1], b->parameters[2],
                         b->parameters[3], b->rows_correct,  b->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        b->k->free(b->k, all[i]);
    free(b->host);
}

static bool bench(struct bench b, enum kernels_compute compute)
{
    static const char *const names[] = {"fp32", "tf32", "bf16"};
    const struct kernels_options options = {.backend = KERNELS_CUDA, .compute = compute};
    char reason[256];
    if (!kernels_new(&options, &b.k, reason, sizeof reason)) {
        printf("%s\n", reason);
        return false;
    }
    take_all(&b);
    printf("# %s, %s, B %d T %d C %d H %d V %d, median of %d\n", b.k->name, names[compute],
           (int)b.B, (int)b.T, (int)b.C, (int)b.H, (int)b.V, b.repeats);
    report_all(&b);
    printf("# %s\n", b.k->numerics);
    free_all(&b);
    kernels_free(b.k);
    return true;
}

int main(int count, char **words)
{
    int64_t numbers[] = {8, 1024, 768, 12, 50257, 21};
    for (int i = 1; i < count && i <= 6; i++)
        numbers[i - 1] = strtoll(words[i], NULL, 10);
    struct bench b = {.B = numbers[0],
                      .T = numbers[1],
                      .C = numbers[2],
                      .H = numbers[3],
                      .V = numbers[4],
                      .repeats = (int)numbers[5]};
    b.N = b.B * b.T;
    b.Vp = (b.V + 127) / 128 * 128;
    check(b.repeats > 0);
    check(b.repeats <= REPEATS_MAX);
    check(b.Vp >= 4 * b.C); /* the tables of a linear's weights and of T positions lie in it */
    check(b.Vp >= b.T);
    for (int compute = KERNELS_COMPUTE_FP32; compute <= KERNELS_COMPUTE_BF16; compute++)
        if (!bench(b, (enum kernels_compute)compute))
            return EXIT_FAILURE;
    return EXIT_SUCCESS;
}
