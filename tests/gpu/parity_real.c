/* Attention as large as in training, where the CPU takes too long for all of it: some rows and some
 * columns, in double. */
#include "tests/gpu/parity.h"

#ifdef EMULATED
enum { BATCH = 1, ROWS_IN_TRAINING = 140, HEADS = 3 };
#else
enum { BATCH = 2, ROWS_IN_TRAINING = 1024, HEADS = 12 };
#endif

enum { PLACES = 9, TRIALS = 3, VALUES_MAX = TRIALS * PLACES * 128 };

/* Rows of (H + 2 G) heads: queries, keys, values. */
enum { OUT, LSE, QKV, DQKV, DOUT };

static void attention_both_ways(const struct call *c, const struct kernels *k, void *const *a)
{
    void *scratch = k->alloc(k, k->attention_scratch_bytes(k, c->T, c->C, c->H));
    assert_non_null(scratch);
    k->attention_forward(k, a[OUT], a[LSE], scratch, a[QKV], true, c->B, c->T, c->C, c->H, c->G);
    k->attention_backward(k, a[DQKV], scratch, a[DOUT], a[OUT], a[LSE], a[QKV], true, c->B, c->T,
                          c->C, c->H, c->G);
    k->free(k, scratch);
}

/* -- the reference ----------------------------------------------------------------------------- */

/* One head of one sample, and which of its group's queries are looked at. */
struct head {
    const struct call *call;
    int64_t b, h, size;
};

static const float *result(const struct head *head, int array)
{
    return head->call->arrays[array].second;
}

/* Where a query's, key's or value's channels begin in a row of qkv. */
static int64_t query_at(const struct head *head, int64_t row)
{
    const struct call *c = head->call;
    return ((head->b * c->T + row) * (c->H + 2 * c->G) + head->h) * head->size;
}

static int64_t key_at(const struct head *head, int64_t row)
{
    const struct call *c = head->call;
    int64_t group = head->h / (c->H / c->G);
    return ((head->b * c->T + row) * (c->H + 2 * c->G) + c->H + group) * head->size;
}

static int64_t value_at(const struct head *head, int64_t row)
{
    return key_at(head, row) + head->call->G * head->size;
}

static int64_t out_at(const struct head *head, int64_t row)
{
    return ((head->b * head->call->T + row) * head->call->H + head->h) * head->size;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static double score(const struct head *head, int64_t row, int64_t column)
{
    const float *qkv = head->call->arrays[QKV].start;
    return dot(qkv + query_at(head, row), qkv + key_at(head, column), head->size) /
           sqrt((double)head->size);
}

/* out (S) and *lse of one row */
static void forward_of(const struct head *head, int64_t row, double *out, double *lse)
{
    const float *qkv = head->call->arrays[QKV].start;
    double largest = score(head, row, 0), sum = 0;
    for (int64_t j = 1; j <= row; j++)
        largest = fmax(largest, score(head, row, j));
    memset(out, 0, (size_t)head->size * sizeof *out);
    for (int64_t j = 0; j <= row; j++) {
        double p = exp(score(head, row, j) - largest);
        sum += p;
        for (int64_t i = 0; i < head->size; i++)
            out[i] += p * (double)qkv[value_at(head, j) + i];
    }
    for (int64_t i = 0; i < head->size; i++)
        out[i] /= sum;
    *lse = largest + log(sum);
}

/* Of the pair's score: its share, and its gradient, from what the device's forward left. */
struct pair {
    double share, gradient;
};

static struct pair pair_of(const struct head *head, int64_t row, int64_t column)
{
    const struct call *c = head->call;
    const float *qkv = c->arrays[QKV].start, *dout = c->arrays[DOUT].start;
    const float *d = dout + out_at(head, row);
    double lse = (double)result(head, LSE)[(head->b * c->H + head->h) * c->T + row];
    struct pair pair = {.share = exp(score(head, row, column) - lse)};
    pair.gradient = pair.share * (dot(d, qkv + value_at(head, column), head->size) -
                                  dot(d, result(head, OUT) + out_at(head, row), head->size));
    return pair;
}

static void add_scaled(double *sum, double factor, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += factor * (double)x[i];
}

/* dq (S) of one row */
static void backward_of_row(const struct head *head, int64_t row, double *dq)
{
    const float *qkv = head->call->arrays[QKV].start;
    memset(dq, 0, (size_t)head->size * sizeof *dq);
    for (int64_t j = 0; j <= row; j++)
        add_scaled(dq, pair_of(head, row, j).gradient / sqrt((double)head->size),
                   qkv + key_at(head, j), head->size);
}

/* dk (S) and dv (S) of one column, over all queries of its group */
static void backward_of_column(struct head head, int64_t column, double *dk, double *dv)
{
    const struct call *c = head.call;
    const float *qkv = c->arrays[QKV].start, *dout = c->arrays[DOUT].start;
    int64_t queries = c->H / c->G, first = head.h / queries * queries;
    memset(dk, 0, (size_t)head.size * sizeof *dk);
    memset(dv, 0, (size_t)head.size * sizeof *dv);
    for (head.h = first; head.h < first + queries; head.h++) {
        for (int64_t row = column; row < c->T; row++) {
            struct pair pair = pair_of(&head, row, column);
            add_scaled(dk, pair.gradient / sqrt((double)head.size), qkv + query_at(&head, row),
                       head.size);
            add_scaled(dv, pair.share, dout + out_at(&head, row), head.size);
        }
    }
}

/* -- comparing --------------------------------------------------------------------------------- */

/* Values of the device's and of the reference's, of all rows that were looked at. */
struct looked_at {
    float values[VALUES_MAX];
    double expected[VALUES_MAX];
    int64_t n;
};

enum { SEEN_OUT, SEEN_LSE, SEEN_DQ, SEEN_DK, SEEN_DV, SEEN };

static double *look(struct looked_at *looked_at, const float *values, int64_t n)
{
    double *expected = looked_at->expected + looked_at->n;
    check(looked_at->n + n <= VALUES_MAX);
    memcpy(looked_at->values + looked_at->n, values, (size_t)n * sizeof *values);
    looked_at->n += n;
    return expected;
}

static void look_at_row(const struct head *head, int64_t row, struct looked_at *seen)
{
    const struct call *c = head->call;
    const float *lse = result(head, LSE) + (head->b * c->H + head->h) * c->T + row;
    double *expected = look(&seen[SEEN_OUT], result(head, OUT) + out_at(head, row), head->size);
    forward_of(head, row, expected, look(&seen[SEEN_LSE], lse, 1));
    const float *gradients = result(head, DQKV);
    expected = look(&seen[SEEN_DQ], gradients + query_at(head, row), head->size);
    backward_of_row(head, row, expected);
    expected = look(&seen[SEEN_DK], gradients + key_at(head, row), head->size);
    backward_of_column(*head, row, expected,
                       look(&seen[SEEN_DV], gradients + value_at(head, row), head->size));
}

static void compare_rows(const struct call *call, bool in_bf16)
{
    static const char *const names[] = {"out", "lse", "dq", "dk", "dv"};
    static struct looked_at seen[SEEN];
    const int64_t T = call->T, H = call->H;
    const int64_t places[PLACES] = {0, 1, 63, 64, T / 2 - 1, T / 2, T - 65, T - 2, T - 1};
    const int64_t heads[TRIALS][2] = {{0, 0}, {BATCH - 1, H - 1}, {BATCH - 1, H / 2}};
    memset(seen, 0, sizeof seen);
    for (int trial = 0; trial < TRIALS; trial++) {
        const struct head head = {call, heads[trial][0], heads[trial][1], call->C / H};
        for (int place = 0; place < PLACES; place++)
            look_at_row(&head, places[place], seen);
    }
    for (int i = 0; i < SEEN; i++) {
        double away = distance(seen[i].values, seen[i].expected, seen[i].n);
        double limit = !in_bf16 ? 4e-6 : i == SEEN_LSE ? 4e-3 : 1e-2;
        print_message("# %s: %.1e (limit %.0e)\n", names[i], away, limit);
        assert_true(away <= limit);
    }
}

static void attention_at(const struct kernels *k, int64_t G, int64_t size)
{
    const int64_t T = ROWS_IN_TRAINING, H = HEADS, tokens = BATCH * T;
    struct call call = {.elements = 1 << OUT | 1 << QKV | 1 << DQKV | 1 << DOUT,
                        .operate = attention_both_ways,
                        .B = BATCH,
                        .T = T,
                        .C = H * size,
                        .H = H,
                        .G = G};
    print_message("# attention, %d rows, %d (%d) heads of %d\n", (int)T, (int)H, (int)G, (int)size);
    call_output_floats(&call, "out", NEAR, tokens * H * size);
    call_output_floats(&call, "lse", NEAR, BATCH * H * T);
    call_input(&call, tokens * (H + 2 * G) * size, 2);
    call_output_floats(&call, "dqkv", NEAR, tokens * (H + 2 * G) * size);
    call_input(&call, tokens * H * size, 1);
    call_repeat(&call, k);
    compare_rows(&call, k->element_bytes == 2);
    arrays_release(&call.host);
}

PARITY(at_real_shapes_attention_is_right)
{
    const struct tables *tables = *state;
    attention_at(tables->bf16, HEADS, 64);
    attention_at(tables->bf16, HEADS / 3, 64);
    attention_at(tables->bf16, HEADS, 128);
    attention_at(tables->gpu, HEADS / 3, 64);
}
