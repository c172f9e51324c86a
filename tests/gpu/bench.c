/* How long each CUDA operation takes at a GPT-2's shapes, and how far that is from the device's
 * limits:
 *
 *     bench COMPUTE [B T C H V [ROUNDS [GB/s [TFLOP/s [NAME]]]]]   default 32 1024 768 12 50257 11
 *     bench device                                                 its name, or why there is none
 *
 * A call's time is the median of ROUNDS, each CALLS calls between two synchronize(). Beside it
 * stands what it moves a second if every input is read and every output written once, what it
 * computes a second, and the larger of the two's shares of the limits. These are measured first, in
 * COMPUTE (fp32, tf32 or bf16): a stream that is read and written (`relu` over half of the logits), and
 * a large matrix product; where something else on the machine was seen to do better, its figures
 * are given. NAME: only operations whose names begin so. What crosses between host and device is compared
 * with a memcpy() on the host. */
#include "tests/gpu/bench.h"

#include "common/settings/options.h"
#include "common/time.h"
#include "tests/bench/tokens.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 1001, CALLS = 4, COMPUTES = 3, PRODUCT_MAX = 8192 };

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void wait_for(const struct bench *b)
{
    const char *failure = b->k->synchronize(b->k);
    if (failure) {
        printf("%s\n", failure);
        exit(EXIT_FAILURE);
    }
}

/* The median seconds of a call. */
static double measure(const struct bench *b, struct work (*call)(const struct bench *b))
{
    double times[ROUNDS_MAX];
    for (int round = -1; round < b->rounds; round++) { /* one to warm up */
        uint64_t begun = time_now_ns();
        for (int i = 0; i < CALLS; i++)
            call(b);
        wait_for(b);
        if (round >= 0)
            times[round] = (double)(time_now_ns() - begun) * 1e-9 / CALLS;
    }
    qsort(times, (size_t)b->rounds, sizeof *times, compare_times);
    return times[b->rounds / 2];
}

/* -- limits ------------------------------------------------------------------------------------ */

static struct work limit_stream(const struct bench *b)
{
    int64_t n = b->N * b->Vp / 2;
    b->k->relu_forward(b->k, kernels_at(b->k, b->logits, n), b->logits, n);
    return work(b, 2 * n, 0, 0);
}

/* The largest square matrices of a round size that the arrays hold. */
static int64_t square(const struct bench *b)
{
    int64_t side = PRODUCT_MAX;
    while (side > 1 && side * side > wide(b))
        side /= 2;
    return side;
}

static struct work limit_product(const struct bench *b)
{
    int64_t side = square(b);
    b->k->linear_forward(b->k, b->logits, b->wide[0], b->wide[1], NULL, side, side, side);
    return work(b, 3 * side * side, 0, 2.0 * (double)side * (double)side * (double)side);
}

static struct work limit_copy(const struct bench *b)
{
    memcpy((char *)b->host + table(b) * 2, b->host, (size_t)table(b) * 2);
    return crossing(2 * table(b));
}

static void measure_limits(struct bench *b, double known_bytes, double known_flops)
{
    double stream = limit_stream(b).bytes / measure(b, limit_stream);
    double flops = limit_product(b).flops / measure(b, limit_product);
    b->copy_limit = limit_copy(b).bytes / measure(b, limit_copy);
    printf("limits: stream %.0f GB/s (given %.0f), product of %d %.1f TFLOP/s (given %.1f), "
           "memcpy on the host %.1f GB/s\n",
           stream * 1e-9, known_bytes * 1e-9, (int)square(b), flops * 1e-12, known_flops * 1e-12,
           b->copy_limit * 1e-9);
    b->bytes_limit = fmax(stream, known_bytes);
    b->flops_limit = fmax(flops, known_flops);
}

/* -- the table --------------------------------------------------------------------------------- */

static void report(const struct bench *b, const struct operation *operation)
{
    struct work w = operation->call(b);
    double seconds = measure(b, operation->call);
    double bytes = w.bytes / seconds, flops = w.flops / seconds;
    double share =
        w.crosses ? bytes / b->copy_limit : fmax(bytes / b->bytes_limit, flops / b->flops_limit);
    printf("%-32s %10.1f us %8.0f GB/s %8.1f TFLOP/s %5.0f %% of %s\n", operation->name,
           seconds * 1e6, bytes * 1e-9, flops * 1e-12, share * 100,
           w.crosses                                         ? "memcpy"
           : bytes / b->bytes_limit > flops / b->flops_limit ? "stream"
                                                             : "product");
    fflush(stdout);
}

/* -- memory ------------------------------------------------------------------------------------ */

static void *take(const struct bench *b, size_t bytes)
{
    void *memory = b->k->alloc(b->k, bytes);
    if (!memory) {
        printf("out of device memory\n");
        exit(EXIT_FAILURE);
    }
    return memory;
}

/* The host's values again and again. */
static element *take_elements(const struct bench *b, int64_t n)
{
    element *array = take(b, (size_t)n * b->k->element_bytes);
    for (int64_t at = 0; at < n; at += table(b)) {
        int64_t count = n - at < table(b) ? n - at : table(b);
        b->k->cast_from_f32(b->k, kernels_at(b->k, array, at), b->host, count);
    }
    return array;
}

static float *take_floats(const struct bench *b, int64_t n)
{
    float *array = take(b, (size_t)n * sizeof *array);
    for (int64_t at = 0; at < n; at += table(b)) {
        int64_t count = n - at < table(b) ? n - at : table(b);
        b->k->copy_in(b->k, array + at, b->host, (size_t)count * sizeof *array);
    }
    return array;
}

/* Small values that differ. */
static void fill(struct bench *b)
{
    float *host = b->host = malloc((size_t)table(b) * sizeof(float));
    int32_t *tokens = malloc((size_t)b->N * sizeof *tokens);
    check(host && tokens);
    uint32_t x = 1;
    for (int64_t i = 0; i < table(b); i++) {
        x = x * 1664525u + 1013904223u;
        host[i] = (float)(x >> 8) / 16777216.0f - 0.5f;
    }
    for (int64_t i = 0; i < b->N; i++)
        tokens[i] = token_at((uint64_t)i, b->V);
    b->tokens = take(b, (size_t)b->N * sizeof *tokens);
    b->k->copy_in(b->k, b->tokens, tokens, (size_t)b->N * sizeof *tokens);
    free(tokens);
    int64_t size = b->C / b->H;
    for (int64_t i = 0; i < size / 2; i++)
        b->rope.high[i] = (float)(pow(1e4, -2.0 * (double)i / (double)size) / (2 * M_PI));
}

static void take_all(struct bench *b)
{
    fill(b);
    b->logits = take_elements(b, b->N * b->Vp);
    for (int i = 0; i < 2; i++)
        b->wide[i] = take_elements(b, wide(b));
    b->wide_out = take_elements(b, wide(b));
    for (int i = 0; i < 2; i++)
        b->narrow[i] = take_elements(b, narrow(b));
    b->narrow_out = take_elements(b, narrow(b));
    for (int i = 0; i < 2; i++)
        b->weights[i] = take_elements(b, table(b));
    for (int i = 0; i < 2; i++)
        b->gradients[i] = take_floats(b, table(b));
    for (int i = 0; i < 4; i++)
        b->values[i] = take_floats(b, table(b));
    b->k->zero(b->k, b->values[2], (size_t)table(b) * sizeof(float)); /* a variance */
    for (int i = 0; i < 2; i++)
        b->rows[i] = take_floats(b, b->N);
    b->lse = take_floats(b, b->N * b->H);
    b->correct = take(b, (size_t)b->N * sizeof *b->correct);
    b->scratch = take(b, b->k->attention_scratch_bytes(b->k, b->T, b->C, b->H));
}

static void free_all(struct bench *b)
{
    void *const all[] = {
        b->logits,     b->wide[0],    b->wide[1],    b->wide_out,     b->narrow[0],    b->narrow[1],
        b->narrow_out, b->weights[0], b->weights[1], b->values[0],    b->values[1],    b->values[2],
        b->values[3],  b->rows[0],    b->rows[1],    b->gradients[0], b->gradients[1], b->lse,
        b->tokens,     b->correct,    b->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        b->k->free(b->k, all[i]);
    free(b->host);
}

static const char *const computes[COMPUTES] = {"fp32", "tf32", "bf16"};

static bool bench(struct bench b, enum kernels_compute compute, double bytes, double flops,
                  const char *only)
{
    const struct kernels_options options = {.backend = KERNELS_CUDA,
                                            .compute = compute,
                                            .python_path = options_environment("PATH", NULL)};
    char reason[256];
    if (!kernels_new(&options, &b.k, reason, sizeof reason)) {
        printf("%s\n", reason);
        return false;
    }
    take_all(&b);
    wait_for(&b);
    printf("# %s, %s, B %d T %d C %d H %d V %d, median of %d\n", b.k->name, computes[compute],
           (int)b.B, (int)b.T, (int)b.C, (int)b.H, (int)b.V, b.rounds);
    measure_limits(&b, bytes, flops);
    for (const struct operation *operation = operations; operation->name; operation++)
        if (strncmp(operation->name, only, strlen(only)) == 0)
            report(&b, operation);
    printf("# %s\n", b.k->numerics);
    free_all(&b);
    kernels_free(b.k);
    return true;
}

static int name_device(void)
{
    const struct kernels_options options = {.backend = KERNELS_CUDA,
                                            .python_path = options_environment("PATH", NULL)};
    const struct kernels *k;
    char reason[256];
    bool opened = kernels_new(&options, &k, reason, sizeof reason);
    printf("%s\n", opened ? k->name : reason);
    if (opened)
        kernels_free(k);
    return opened ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The tables of a linear's weights and of T positions lie in one of Vp rows, as many weights as C
 * where logits do. */
static bool fits(const struct bench *b)
{
    return b->B > 0 && b->T > 0 && b->C > 0 && b->H > 0 && b->C % b->H == 0 && b->N >= b->C &&
           b->Vp >= 4 * b->C && b->Vp >= b->T && b->rounds > 0 && b->rounds <= ROUNDS_MAX;
}

/* COMPUTES: it is none. */
static int compute_of(const char *word)
{
    int compute = 0;
    while (compute < COMPUTES && strcmp(word, computes[compute]) != 0)
        compute++;
    return compute;
}

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "device") == 0)
        return name_device();
    int compute = count > 1 ? compute_of(words[1]) : COMPUTES;
    double numbers[8] = {32, 1024, 768, 12, 50257, 11};
    for (int i = 2; i < count && i < 2 + (int)(sizeof numbers / sizeof *numbers); i++)
        numbers[i - 2] = strtod(words[i], NULL);
    struct bench b = {.B = (int64_t)numbers[0],
                      .T = (int64_t)numbers[1],
                      .C = (int64_t)numbers[2],
                      .H = (int64_t)numbers[3],
                      .V = (int64_t)numbers[4],
                      .rounds = (int)numbers[5]};
    b.N = b.B * b.T;
    b.Vp = (b.V + 127) / 128 * 128;
    if (compute == COMPUTES || !fits(&b)) {
        fprintf(
            stderr,
            "usage: bench device | bench fp32|tf32|bf16 [B T C H V ROUNDS [GB/s TFLOP/s [NAME]]]\n"
            "H divides C; B x T is at least C, V at least T and 4 C, ROUNDS at most %d\n",
            ROUNDS_MAX);
        return 2;
    }
    return bench(b, (enum kernels_compute)compute, numbers[6] * 1e9, numbers[7] * 1e12,
                 count > 10 ? words[10] : "")
               ? EXIT_SUCCESS
               : EXIT_FAILURE;
}
