/* Attention by row blocks: per head, the scores of at most ROWS queries with all their keys are
 * one GEMM into scratch; the (T,T) matrix never exists as a whole. A causal block stops at its own
 * last column. The backward pass makes each block's probabilities again from qkv and lse, as
 * FlashAttention does (Dao et al. 2022, algorithm 4). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/softmax.h"

/* Queries a block. Forward + backward of 12 heads of 64, B T = 1024, on one EPYC 9005 core, in ms
 * with 32, 64 and 128 rows: at T 64 5.1 6.2 6.6, at T 256 12.8 12.8 15.3, at T 1024 46.9 41.3 41.8.
 * With 64 and T = 1024 the two score blocks are 512 KiB: half an L2. */
#define ROWS 64

/* One head of one sample: where its pieces are. Rows of q, k, v are `wide` apart, of out C. */
struct attention_head {
    const struct gemm *gemm;
    int64_t T, C, size; /* size = C/H */
    int64_t wide;       /* a row of qkv */
    int64_t shares;     /* queries that share a key and a value */
    int64_t stride;     /* of a score row */
    float scale;
    bool causal;
};

static struct attention_head head_of(const struct kernels *k, int64_t T, int64_t C, int64_t H,
                                     int64_t G, bool causal)
{
    int64_t size = C / H;
    check(size * H == C);
    check(H % G == 0);
    return (struct attention_head){
        .gemm = &k->state->gemm,
        .T = T,
        .C = C,
        .size = size,
        .wide = (H + 2 * G) * size,
        .shares = H / G,
        .stride = (T + LANES - 1) / LANES * LANES,
        .scale = 1 / __builtin_sqrtf((float)size),
        .causal = causal,
    };
}

/* Where a head of a sample begins in qkv and in dqkv. */
struct places {
    int64_t queries, keys, values;
};

static struct places places_of(const struct attention_head *head, int64_t b, int64_t h)
{
    int64_t sample = b * head->T * head->wide, keys = sample + head->C;
    int64_t values = keys + (head->wide - head->C) / 2, shared = h / head->shares * head->size;
    return (struct places){sample + h * head->size, keys + shared, values + shared};
}

static int64_t block_rows(const struct attention_head *head, int64_t first)
{
    return head->T - first < ROWS ? head->T - first : ROWS;
}

/* Columns that any row of the block sees. */
static int64_t block_columns(const struct attention_head *head, int64_t first)
{
    return head->causal ? first + block_rows(head, first) : head->T;
}

/* Columns that row `row` of the block sees. */
static int64_t row_columns(const struct attention_head *head, int64_t first, int64_t row)
{
    return head->causal ? first + row + 1 : head->T;
}

static struct gemm_matrix qkv_rows(const struct attention_head *head, const float *data)
{
    return (struct gemm_matrix){data, head->wide, GEMM_AS_IS};
}

static struct gemm_matrix out_rows(const struct attention_head *head, const float *data)
{
    return (struct gemm_matrix){data, head->C, GEMM_AS_IS};
}

static struct gemm_matrix score_rows(const struct attention_head *head, const float *data)
{
    return (struct gemm_matrix){data, head->stride, GEMM_AS_IS};
}

static struct gemm_matrix transposed(struct gemm_matrix matrix)
{
    matrix.transpose = GEMM_TRANSPOSED;
    return matrix;
}

static void zero_values(float *x, int64_t n)
{
    memset(x, 0, (size_t)n * sizeof *x);
}

/* Two blocks of scores and, per row, a sum. */
size_t VARIANT(attention_scratch_bytes)(SELF, int64_t T, int64_t C, int64_t H)
{
    struct attention_head head = head_of(k, T, C, H, H, true);
    return (size_t)(2 * ROWS * head.stride + ROWS) * sizeof(float);
}

/* Scores become e^(score - largest), 0 in columns a row does not see; sums gets each row's sum and
 * lse its largest score. */
static void exponentiate(const struct attention_head *head, float *scores, float *sums, float *lse,
                         int64_t first)
{
    int64_t rows = block_rows(head, first), columns = block_columns(head, first);
    for (int64_t row = 0; row < rows; row++) {
        float *score = scores + row * head->stride;
        int64_t seen = row_columns(head, first, row);
        lse[row] = row_largest(score, seen);
        sums[row] = row_exp(score, score, lse[row], seen);
        zero_values(score + seen, columns - seen);
    }
}

/* out (rows, size) = P V, lse (rows). Rows are divided by their sum after the product, where they
 * are shortest. */
static void forward_block(const struct attention_head *head, float *out, float *lse, float *scores,
                          const float *qkv, struct places at, int64_t first)
{
    int64_t rows = block_rows(head, first), columns = block_columns(head, first);
    struct gemm_matrix queries = qkv_rows(head, qkv + at.queries + first * head->wide);
    struct gemm_matrix keys = qkv_rows(head, qkv + at.keys),
                       values = qkv_rows(head, qkv + at.values);
    float *sums = scores + ROWS * head->stride;
    gemm_multiply(head->gemm, scores, head->stride, head->scale, queries, transposed(keys), 0, rows,
                  columns, head->size);
    exponentiate(head, scores, sums, lse, first);
    gemm_multiply(head->gemm, out, head->C, 1, score_rows(head, scores), values, 0, rows,
                  head->size, columns);
    for (int64_t row = 0; row < rows; row++)
        row_scale(out + row * head->C, 1 / sums[row], head->size);
    for (int64_t row = 0; row < rows; row += LANES) {
        vec log_sum = vec_log(vec_load(sums + row, rows - row));
        vec_store(lse + row, vec_add(vec_load(lse + row, rows - row), log_sum), rows - row);
    }
}

void VARIANT(attention_forward)(SELF, float *out, float *lse, void *scratch, const float *qkv,
                                bool causal, int64_t B, int64_t T, int64_t C, int64_t H, int64_t G)
{
    struct attention_head head = head_of(k, T, C, H, G, causal);
    for (int64_t b = 0; b < B; b++) {
        for (int64_t h = 0; h < H; h++) {
            for (int64_t first = 0; first < T; first += ROWS)
                forward_block(&head, out + (b * T + first) * C + h * head.size,
                              lse + (b * H + h) * T + first, scratch, qkv, places_of(&head, b, h),
                              first);
        }
    }
}

static float dot(const float *a, const float *b, int64_t n)
{
    vec sum = vec_zero();
    for (int64_t i = 0; i < n; i += LANES)
        sum = vec_fma(vec_load(a + i, n - i), vec_load(b + i, n - i), sum);
    return vec_sum(sum);
}

/* For one row: P = e^(score - lse) in place of its scores, dS = P * (dP - D) in place of dP, where
 * D = sum(dout * out) = sum(P * dP). */
static void differentiate_row(float *score, float *dscore, float lse, float D, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vec p = vec_exp(vec_sub(vec_load(score + i, n - i), vec_set(lse)));
        vec d = vec_mul(p, vec_sub(vec_load(dscore + i, n - i), vec_set(D)));
        vec_store(score + i, p, n - i);
        vec_store(dscore + i, d, n - i);
    }
}

/* The block's rows of dQ =, and dK, dV += (= when `overwrite`) for the columns it sees. */
static void backward_block(const struct attention_head *head, float *dqkv, float *scores,
                           const float *dout, const float *out, const float *lse, const float *qkv,
                           struct places at, int64_t first, bool overwrite)
{
    int64_t rows = block_rows(head, first), columns = block_columns(head, first), C = head->C;
    int64_t wide = head->wide, block = at.queries + first * wide;
    float *dscores = scores + ROWS * head->stride, beta = overwrite ? 0 : 1;
    struct gemm_matrix q = qkv_rows(head, qkv + block), keys = qkv_rows(head, qkv + at.keys);
    struct gemm_matrix values = qkv_rows(head, qkv + at.values), d = out_rows(head, dout);
    gemm_multiply(head->gemm, scores, head->stride, head->scale, q, transposed(keys), 0, rows,
                  columns, head->size);
    gemm_multiply(head->gemm, dscores, head->stride, 1, d, transposed(values), 0, rows, columns,
                  head->size);
    for (int64_t row = 0; row < rows; row++) {
        float *score = scores + row * head->stride, *dscore = dscores + row * head->stride;
        int64_t seen = row_columns(head, first, row);
        float D = dot(dout + row * C, out + row * C, head->size);
        differentiate_row(score, dscore, lse[row], D, seen);
        zero_values(score + seen, columns - seen);
        zero_values(dscore + seen, columns - seen);
    }
    struct gemm_matrix p = score_rows(head, scores), ds = score_rows(head, dscores);
    gemm_multiply(head->gemm, dqkv + block, wide, head->scale, ds, keys, 0, rows, head->size,
                  columns);
    gemm_multiply(head->gemm, dqkv + at.keys, wide, head->scale, transposed(ds), q, beta, columns,
                  head->size, rows);
    gemm_multiply(head->gemm, dqkv + at.values, wide, 1, transposed(p), d, beta, columns,
                  head->size, rows);
}

/* The last block of the first query head, which sees all columns, comes first: it overwrites dK and
 * dV. */
void VARIANT(attention_backward)(SELF, float *dqkv, void *scratch, const float *dout,
                                 const float *out, const float *lse, const float *qkv, bool causal,
                                 int64_t B, int64_t T, int64_t C, int64_t H, int64_t G)
{
    struct attention_head head = head_of(k, T, C, H, G, causal);
    int64_t last = (T - 1) / ROWS * ROWS;
    for (int64_t b = 0; b < B; b++) {
        for (int64_t h = 0; h < H; h++) {
            for (int64_t first = last; first >= 0; first -= ROWS) {
                int64_t row = (b * T + first) * C + h * head.size;
                backward_block(&head, dqkv, scratch, dout + row, out + row,
                               lse + (b * H + h) * T + first, qkv, places_of(&head, b, h), first,
                               first == last && h % head.shares == 0);
            }
        }
    }
}
