/* One call of each operation, and what it comes to. */
#include "tests/gpu/bench.h"

/* Of a product of (N,C) and (outputs,C). */
static double product(const struct bench *b, int64_t outputs)
{
    return 2.0 * (double)narrow(b) * (double)outputs;
}

static struct work gelu_forward(const struct bench *b)
{
    b->k->gelu_forward(b->k, b->wide_out, b->wide[0], wide(b));
    return work(b, 2 * wide(b), 0, 0);
}

static struct work gelu_backward(const struct bench *b)
{
    b->k->gelu_backward(b->k, b->wide_out, b->wide[0], b->wide[1], wide(b));
    return work(b, 3 * wide(b), 0, 0);
}

static struct work relu_forward(const struct bench *b)
{
    b->k->relu_forward(b->k, b->wide_out, b->wide[0], wide(b));
    return work(b, 2 * wide(b), 0, 0);
}

static struct work relu_backward(const struct bench *b)
{
    b->k->relu_backward(b->k, b->wide_out, b->wide[0], b->wide[1], wide(b));
    return work(b, 3 * wide(b), 0, 0);
}

static struct work tanh_forward(const struct bench *b)
{
    b->k->tanh_forward(b->k, b->wide_out, b->wide[0], wide(b));
    return work(b, 2 * wide(b), 0, 0);
}

static struct work tanh_backward(const struct bench *b)
{
    b->k->tanh_backward(b->k, b->wide_out, b->wide[0], b->wide[1], wide(b));
    return work(b, 3 * wide(b), 0, 0);
}

static struct work swiglu_forward(const struct bench *b)
{
    b->k->swiglu_forward(b->k, b->wide_out, b->wide[0], b->B * b->T, 2 * b->C);
    return work(b, wide(b) + wide(b) / 2, 0, 0);
}

static struct work swiglu_backward(const struct bench *b)
{
    b->k->swiglu_backward(b->k, b->wide_out, b->wide[1], b->wide[0], b->B * b->T, 2 * b->C);
    return work(b, 2 * wide(b) + wide(b) / 2, 0, 0);
}

static struct work linear_forward(const struct bench *b)
{
    b->k->linear_forward(b->k, b->wide_out, b->narrow[0], b->weights[0], b->weights[1], b->N, b->C,
                         4 * b->C);
    return work(b, narrow(b) + 4 * b->C * b->C + wide(b), 0, product(b, 4 * b->C));
}

static struct work linear_add_forward(const struct bench *b)
{
    b->k->linear_add_forward(b->k, b->narrow_out, b->narrow[1], b->wide[0], b->weights[0],
                             b->weights[1], b->N, 4 * b->C, b->C);
    return work(b, 2 * narrow(b) + 4 * b->C * b->C + wide(b), 0, product(b, 4 * b->C));
}

/* `pre` goes where logits will be. */
static struct work linear_gelu_forward(const struct bench *b)
{
    b->k->linear_gelu_forward(b->k, b->wide_out, b->logits, b->narrow[0], b->weights[0],
                              b->weights[1], b->N, b->C, 4 * b->C);
    return work(b, narrow(b) + 4 * b->C * b->C + 2 * wide(b), 0, product(b, 4 * b->C));
}

static struct work linear_backward_input(const struct bench *b)
{
    b->k->linear_backward_input(b->k, b->narrow_out, b->wide[0], b->weights[0], b->N, b->C,
                                4 * b->C);
    return work(b, narrow(b) + 4 * b->C * b->C + wide(b), 0, product(b, 4 * b->C));
}

static struct work linear_gelu_backward_input(const struct bench *b)
{
    b->k->linear_gelu_backward_input(b->k, b->wide_out, b->narrow[0], b->weights[0], b->wide[0],
                                     b->N, 4 * b->C, b->C);
    return work(b, narrow(b) + 4 * b->C * b->C + 2 * wide(b), 0, product(b, 4 * b->C));
}

static struct work linear_backward_weight(const struct bench *b)
{
    b->k->linear_backward_weight(b->k, b->gradients[0], NULL, b->wide[0], b->narrow[0], b->N, b->C,
                                 4 * b->C);
    return work(b, narrow(b) + wide(b), 8 * b->C * b->C, product(b, 4 * b->C));
}

static struct work linear_backward_weight_and_bias(const struct bench *b)
{
    b->k->linear_backward_weight(b->k, b->gradients[0], b->gradients[1], b->wide[0], b->narrow[0],
                                 b->N, b->C, 4 * b->C);
    return work(b, narrow(b) + 2 * wide(b), 8 * b->C * b->C, product(b, 4 * b->C));
}

static struct work head_forward(const struct bench *b)
{
    b->k->linear_forward(b->k, b->logits, b->narrow[0], b->weights[0], NULL, b->N, b->C, b->Vp);
    return work(b, narrow(b) + table(b) + b->N * b->Vp, 0, product(b, b->Vp));
}

static struct work head_backward_input(const struct bench *b)
{
    b->k->linear_backward_input(b->k, b->narrow_out, b->logits, b->weights[0], b->N, b->C, b->Vp);
    return work(b, narrow(b) + table(b) + b->N * b->Vp, 0, product(b, b->Vp));
}

static struct work head_backward_weight(const struct bench *b)
{
    b->k->linear_backward_weight(b->k, b->gradients[0], NULL, b->logits, b->narrow[0], b->N, b->C,
                                 b->Vp);
    return work(b, narrow(b) + b->N * b->Vp, 2 * table(b), product(b, b->Vp));
}

static struct work classifier_forward(const struct bench *b)
{
    b->k->classifier_forward(b->k, b->rows[0], b->correct, b->logits, b->tokens, b->N, b->V, b->Vp);
    return work(b, b->N * b->Vp, b->N, 0);
}

static struct work classifier_forward_backward(const struct bench *b)
{
    b->k->classifier_forward_backward(b->k, b->rows[0], b->correct, b->logits, b->tokens, 1, b->N,
                                      b->V, b->Vp);
    return work(b, 2 * b->N * b->Vp, b->N, 0);
}

/* Of one causal product of all queries and keys. */
static double scores(const struct bench *b)
{
    return (double)narrow(b) * (double)b->T;
}

static struct work attention_forward(const struct bench *b)
{
    b->k->attention_forward(b->k, b->narrow_out, b->lse, b->scratch, b->wide[0], true, b->B, b->T,
                            b->C, b->H, b->H);
    return work(b, 4 * narrow(b), b->N * b->H, 2 * scores(b));
}

/* Its output need not be the forward's to take as long. */
static struct work attention_backward(const struct bench *b)
{
    b->k->attention_backward(b->k, b->wide_out, b->scratch, b->narrow[0], b->narrow[1], b->lse,
                             b->wide[0], true, b->B, b->T, b->C, b->H, b->H);
    return work(b, 8 * narrow(b), b->N * b->H, 5 * scores(b));
}

static int64_t key_heads(const struct bench *b)
{
    return b->H % 4 == 0 ? b->H / 4 : 1;
}

/* Four queries share a key and a value. */
static struct work grouped_attention_forward(const struct bench *b)
{
    b->k->attention_forward(b->k, b->narrow_out, b->lse, b->scratch, b->wide[0], true, b->B, b->T,
                            b->C, b->H, key_heads(b));
    return work(b, 2 * narrow(b) + 2 * b->N * key_heads(b) * (b->C / b->H), b->N * b->H,
                2 * scores(b));
}

static struct work grouped_attention_backward(const struct bench *b)
{
    b->k->attention_backward(b->k, b->wide_out, b->scratch, b->narrow[0], b->narrow[1], b->lse,
                             b->wide[0], true, b->B, b->T, b->C, b->H, key_heads(b));
    return work(b, 4 * narrow(b) + 4 * b->N * key_heads(b) * (b->C / b->H), b->N * b->H,
                5 * scores(b));
}

/* In place; turning changes no length. */
static struct work rope_forward(const struct bench *b)
{
    b->k->rope_forward(b->k, b->wide[1], &b->rope, b->B, b->T, b->C, b->H, b->H);
    return work(b, 4 * narrow(b), 0, 0); /* queries and keys, read and written */
}

static struct work rope_backward(const struct bench *b)
{
    b->k->rope_backward(b->k, b->wide[1], &b->rope, b->B, b->T, b->C, b->H, b->H);
    return work(b, 4 * narrow(b), 0, 0);
}

static struct work layernorm_forward(const struct bench *b)
{
    b->k->layernorm_forward(b->k, b->narrow_out, b->rows[0], b->rows[1], b->narrow[0],
                            b->weights[0], b->weights[1], b->N, b->C);
    return work(b, 2 * narrow(b), 2 * b->N, 0);
}

static struct work layernorm_backward(const struct bench *b)
{
    b->k->layernorm_backward(b->k, b->narrow_out, b->gradients[0], b->gradients[1], b->narrow[0],
                             b->narrow[1], b->rows[0], b->rows[1], b->weights[0], b->N, b->C);
    return work(b, 4 * narrow(b), 2 * b->N, 0);
}

static struct work rmsnorm_forward(const struct bench *b)
{
    b->k->rmsnorm_forward(b->k, b->narrow_out, b->rows[0], b->narrow[0], b->weights[0], b->N, b->C);
    return work(b, 2 * narrow(b), b->N, 0);
}

static struct work rmsnorm_backward(const struct bench *b)
{
    b->k->rmsnorm_backward(b->k, b->narrow_out, b->gradients[0], b->narrow[0], b->narrow[1],
                           b->rows[0], b->weights[0], b->N, b->C);
    return work(b, 4 * narrow(b), b->N, 0);
}

static struct work embedding_forward(const struct bench *b)
{
    b->k->embedding_forward(b->k, b->narrow_out, b->tokens, b->weights[0], b->weights[1], b->B,
                            b->T, b->C, 0, b->V, b->V);
    return work(b, 2 * narrow(b) + b->T * b->C, 0, 0);
}

static struct work embedding_backward(const struct bench *b)
{
    b->k->embedding_backward(b->k, b->gradients[0], b->gradients[1], b->tokens, b->narrow[0], b->B,
                             b->T, b->C, 0, b->V, b->V);
    return work(b, 2 * narrow(b), 2 * b->T * b->C, 0); /* two readers of dout */
}

static struct work add(const struct bench *b)
{
    b->k->add(b->k, b->gradients[0], b->values[0], b->values[1], table(b));
    return work(b, 0, 3 * table(b), 0);
}

static struct work subtract(const struct bench *b)
{
    b->k->subtract(b->k, b->gradients[0], b->values[0], b->values[1], table(b));
    return work(b, 0, 3 * table(b), 0);
}

static struct work sum_squares(const struct bench *b)
{
    double sum;
    b->k->sum_squares(b->k, &sum, b->values[0], table(b));
    return work(b, 0, table(b), 0);
}

static struct work sgd(const struct bench *b)
{
    static const struct kernels_sgd step = {1, 1e-6f, 0};
    b->k->sgd(b->k, b->values[0], NULL, KERNELS_NONE, b->values[3], &step, table(b));
    return work(b, 0, 3 * table(b), 0);
}

static struct work momentum(const struct bench *b)
{
    static const struct kernels_momentum step = {1, 1e-6f, 0, 0.9f, false};
    b->k->momentum(b->k, b->values[0], b->values[1], NULL, KERNELS_NONE, b->values[3], &step,
                   table(b));
    return work(b, 0, 5 * table(b), 0);
}

/* The published bf16 weights go where logits were. */
static struct work adamw(const struct bench *b)
{
    static const struct kernels_adamw step = {1, 1, 0.9f, 0.1f, 0.95f, 0.05f, 1e-6f, 1, 1e-8f};
    b->k->adamw(b->k, b->values[0], b->values[1], b->values[2], b->logits, KERNELS_BF16,
                b->values[3], &step, table(b));
    return (struct work){.bytes = 30.0 * (double)table(b)};
}

static struct work mean(const struct bench *b)
{
    b->k->mean(b->k, b->gradients[0], NULL, KERNELS_NONE, b->values[3], 0.5f, table(b));
    return work(b, 0, 2 * table(b), 0);
}

static struct work zero(const struct bench *b)
{
    b->k->zero(b->k, b->gradients[0], (size_t)table(b) * sizeof(float));
    return work(b, 0, table(b), 0);
}

static struct work copy(const struct bench *b)
{
    b->k->copy(b->k, b->gradients[0], b->values[0], (size_t)table(b) * sizeof(float));
    return work(b, 0, 2 * table(b), 0);
}

static struct work copy_in(const struct bench *b)
{
    b->k->copy_in(b->k, b->gradients[0], b->host, (size_t)table(b) * sizeof(float));
    return crossing(4 * table(b));
}

static struct work copy_out(const struct bench *b)
{
    b->k->copy_out(b->k, b->host, b->values[0], (size_t)table(b) * sizeof(float));
    return crossing(4 * table(b));
}

static struct work cast_from_f32(const struct bench *b)
{
    b->k->cast_from_f32(b->k, b->logits, b->host, table(b));
    return crossing(4 * table(b));
}

static struct work cast_from_bf16(const struct bench *b)
{
    b->k->cast_from_bf16(b->k, b->logits, b->host, table(b));
    return crossing(2 * table(b));
}

static struct work cast_to_bf16(const struct bench *b)
{
    b->k->cast_to_bf16(b->k, b->host, b->values[0], table(b));
    return crossing(2 * table(b));
}

/* The table's blocks of half its width, as the default grid of chunks has them: how many rows each. */
static int64_t block_rows(const struct bench *b)
{
    return KERNELS_BLOCK_BYTES_MAX / (int64_t)sizeof(float) / (b->C / 2);
}

/* All of its values cross, as fp32. */
static struct work blocks_out(const struct bench *b)
{
    int64_t cols = b->C / 2, rows = block_rows(b), crossed = 0;
    float *host = b->host;
    for (int64_t row = 0; row + rows <= b->Vp; row += rows)
        for (int64_t half = 0; half < 2; half++, crossed += rows * cols)
            b->k->encode_block(b->k, host + crossed, KERNELS_F32,
                               b->values[0] + row * b->C + half * cols, b->C, rows, cols);
    b->k->synchronize(b->k);
    return crossing(4 * crossed);
}

static struct work blocks_in(const struct bench *b)
{
    int64_t cols = b->C / 2, rows = block_rows(b), crossed = 0;
    const float *host = b->host;
    for (int64_t row = 0; row + rows <= b->Vp; row += rows)
        for (int64_t half = 0; half < 2; half++, crossed += rows * cols)
            b->k->decode_block(b->k, kernels_at(b->k, b->logits, row * b->C + half * cols), b->C,
                               host + crossed, KERNELS_F32, rows, cols);
    return crossing(4 * crossed);
}

static struct work add_f32(const struct bench *b)
{
    b->k->add_f32(b->k, b->gradients[0], b->host, table(b));
    return crossing(4 * table(b));
}

static struct work add_bf16(const struct bench *b)
{
    b->k->add_bf16(b->k, b->gradients[0], b->host, table(b));
    return crossing(2 * table(b));
}

const struct operation operations[] = {
    {"linear forward", linear_forward},
    {"linear add forward", linear_add_forward},
    {"linear gelu forward", linear_gelu_forward},
    {"linear backward input", linear_backward_input},
    {"linear gelu backward input", linear_gelu_backward_input},
    {"linear backward weight", linear_backward_weight},
    {"linear backward weight and bias", linear_backward_weight_and_bias},
    {"attention forward", attention_forward},
    {"attention backward", attention_backward},
    {"grouped attention forward", grouped_attention_forward},
    {"grouped attention backward", grouped_attention_backward},
    {"layernorm forward", layernorm_forward},
    {"layernorm backward", layernorm_backward},
    {"rmsnorm forward", rmsnorm_forward},
    {"rmsnorm backward", rmsnorm_backward},
    {"rope forward", rope_forward},
    {"rope backward", rope_backward},
    {"swiglu forward", swiglu_forward},
    {"swiglu backward", swiglu_backward},
    {"gelu forward", gelu_forward},
    {"gelu backward", gelu_backward},
    {"relu forward", relu_forward},
    {"relu backward", relu_backward},
    {"tanh forward", tanh_forward},
    {"tanh backward", tanh_backward},
    {"embedding forward", embedding_forward},
    {"embedding backward", embedding_backward},
    {"head forward", head_forward},
    {"head backward input", head_backward_input},
    {"head backward weight", head_backward_weight},
    {"classifier forward", classifier_forward},
    {"classifier forward backward", classifier_forward_backward},
    {"add", add},
    {"subtract", subtract},
    {"sum of squares, finite check", sum_squares},
    {"mean", mean},
    {"zero", zero},
    {"copy", copy},
    {"copy out", copy_out},
    {"blocks out", blocks_out},
    {"cast to bf16", cast_to_bf16}, /* the host's bytes are bf16 from here on … */
    {"cast from bf16", cast_from_bf16},
    {"add bf16", add_bf16},
    {"copy in", copy_in}, /* … and floats that nothing computes with */
    {"cast from f32", cast_from_f32},
    {"blocks in", blocks_in},
    {"add f32", add_f32},
    {"sgd", sgd},
    {"momentum", momentum},
    {"adamw and bf16 weights", adamw},
    {NULL, NULL},
};
