#include "worker/model/classifier.h"

#include "worker/carve.h"
#include "worker/model/piece_sum.h"

/* Rows of logits at once. All blocks but the last are equal, so the bits depend on
 * logits_bytes_max: it is a setting of the run. */
static int64_t block_rows(const struct kernels *k, const struct classifier *c,
                          uint64_t logits_bytes_max)
{
    int64_t rows = (int64_t)(logits_bytes_max / ((uint64_t)c->Vp * k->element_bytes));
    if (rows < 1)
        rows = 1;
    return rows < c->N ? rows : c->N;
}

/* A block's arrays: the logits of one piece after those of another; a row's numbers of all pieces. */
struct block {
    int64_t row, rows;
    element *logits;       /* (pieces that are here, rows, Vp / pieces) */
    float *largest, *sums; /* (pieces, rows) */
    float *logit;          /* (rows), the targets' */
    void *scratch;         /* of the sum over pieces */
};

/* Pieces that are here. */
static uint32_t held(const struct classifier *c)
{
    return c->pieces / c->ranks;
}

static struct block place_block(const struct kernels *k, const struct classifier *c, int64_t rows,
                                struct carve *carve)
{
    struct block block = {.rows = rows};
    uint64_t numbers = (uint64_t)rows * sizeof(float);
    if (c->pieces <= 1) {
        block.logits = carve->base != NULL ? (element *)(void *)carve->base : NULL;
        carve->bytes += (uint64_t)(rows * c->Vp) * k->element_bytes;
        return block;
    }
    block.logits = carve_take(carve, (uint64_t)(rows * c->Vp / c->ranks) * k->element_bytes);
    block.largest = carve_take(carve, c->pieces * numbers);
    block.sums = carve_take(carve, c->pieces * numbers);
    block.logit = carve_take(carve, numbers);
    block.scratch = carve_take(carve, piece_sum_bytes(k, held(c), rows * c->C));
    return block;
}

uint64_t classifier_scratch_bytes(const struct kernels *k, const struct classifier *c,
                                  uint64_t logits_bytes_max)
{
    struct carve carve = {.base = NULL};
    place_block(k, c, block_rows(k, c, logits_bytes_max), &carve);
    return carve.bytes;
}

/* ---- as a whole ---- */

static void backward(const struct kernels *k, const struct classifier *c, const struct block *b)
{
    const element *input = kernels_at(k, c->input, b->row * c->C);
    k->linear_backward_weight(k, c->dweight, c->dbias, b->logits, input, b->rows, c->C, c->Vp);
    if (c->dinput != NULL) /* last: it may overwrite the input */
        k->linear_backward_input(k, kernels_at(k, c->dinput, b->row * c->C), b->logits, c->weight,
                                 b->rows, c->C, c->Vp);
}

static void classify(const struct kernels *k, const struct classifier *c, const struct block *b,
                     const int32_t *targets, float *losses, int32_t *correct)
{
    const element *input = kernels_at(k, c->input, b->row * c->C);
    k->linear_forward(k, b->logits, input, c->weight, c->bias, b->rows, c->C, c->Vp);
    if (c->dweight == NULL) {
        k->classifier_forward(k, losses, correct, b->logits, targets, b->rows, c->V, c->Vp);
        return;
    }
    k->classifier_forward_backward(k, losses, correct, b->logits, targets, c->dloss, b->rows, c->V,
                                   c->Vp);
    backward(k, c, b);
}

/* ---- a piece ---- */

/* One piece of a block. */
struct piece {
    int64_t first, V, Vp; /* its classes, and with padding */
    int64_t row;          /* of the weight that is here */
    int64_t numbers;      /* its place in (pieces, rows) */
    element *logits;
    const element *weight, *bias;
};

static struct piece piece_of(const struct kernels *k, const struct classifier *c,
                             const struct block *b, uint32_t number)
{
    struct piece p = {.Vp = c->Vp / c->pieces};
    p.row = number * p.Vp;
    p.first = (int64_t)c->rank * held(c) * p.Vp + p.row;
    p.V = c->V - p.first < 0 ? 0 : c->V - p.first < p.Vp ? c->V - p.first : p.Vp;
    p.numbers = p.first / p.Vp * b->rows;
    p.logits = kernels_at(k, b->logits, p.row * b->rows);
    p.weight = kernels_at(k, c->weight, p.row * c->C);
    p.bias = c->bias != NULL ? kernels_at(k, c->bias, p.row) : NULL;
    return p;
}

/* ---- what members exchange: of a block, and of all ---- */

static void exchange_largest(const struct classifier *c, const struct block *b)
{
    if (c->ranks > 1)
        c->exchange->largest(c->exchange->context, b->largest, b->logit, b->rows);
}

static void exchange_totals(const struct classifier *c, const struct block *b, int32_t *correct)
{
    if (c->ranks > 1)
        c->exchange->totals(c->exchange->context, b->sums, correct, b->rows);
}

static void exchange_block(const struct classifier *c, const struct block *b, element *dinput)
{
    if (c->ranks > 1 && !c->ranged)
        c->exchange->sum(c->exchange->context, dinput, b->rows * c->C);
}

/* By ranges each member gets other rows, of all of them. */
static void exchange_ranges(const struct classifier *c, element *dinput)
{
    if (c->ranks > 1 && c->ranged)
        c->exchange->sum(c->exchange->context, dinput, c->N * c->C);
}

/* ---- by pieces ---- */

static void find_largest(const struct kernels *k, const struct classifier *c, const struct block *b,
                         const int32_t *targets)
{
    const element *input = kernels_at(k, c->input, b->row * c->C);
    if (c->ranks > 1) /* where no piece that is here has the target */
        k->zero(k, b->logit, (size_t)b->rows * sizeof *b->logit);
    for (uint32_t i = 0; i < held(c); i++) {
        const struct piece p = piece_of(k, c, b, i);
        k->linear_forward(k, p.logits, input, p.weight, p.bias, b->rows, c->C, p.Vp);
        k->pieces_largest(k, b->largest + p.numbers, b->logit, p.logits, targets, p.first, b->rows,
                          p.V, p.Vp);
    }
    exchange_largest(c, b);
}

static void sum_exponentials(const struct kernels *k, const struct classifier *c,
                             const struct block *b, const int32_t *targets, int32_t *correct)
{
    if (c->ranks > 1)
        k->zero(k, correct, (size_t)b->rows * sizeof *correct);
    for (uint32_t i = 0; i < held(c); i++) {
        const struct piece p = piece_of(k, c, b, i);
        k->pieces_exponentials(k, b->sums + p.numbers, correct, p.logits, b->largest, targets,
                               p.first, c->pieces, b->rows, p.V, p.Vp);
    }
    exchange_totals(c, b, correct);
}

/* The losses of all pieces are the same. */
static void differentiate(const struct kernels *k, const struct classifier *c,
                          const struct block *b, const int32_t *targets, float *losses)
{
    uint32_t count = c->dweight != NULL ? held(c) : 1;
    for (uint32_t i = 0; i < count; i++) {
        const struct piece p = piece_of(k, c, b, i);
        k->pieces_gradient(k, i == 0 ? losses : NULL, c->dweight != NULL ? p.logits : NULL,
                           b->largest, b->sums, b->logit, targets, c->dloss, p.first, c->pieces,
                           b->rows, p.V, p.Vp);
    }
}

struct backward {
    const struct kernels *k;
    const struct classifier *c;
    const struct block *b;
};

static void piece_backward(const void *context, uint32_t number, element *dinput)
{
    const struct backward *at = context;
    const struct piece p = piece_of(at->k, at->c, at->b, number);
    at->k->linear_backward_input(at->k, dinput, p.logits, p.weight, at->b->rows, at->c->C, p.Vp);
}

static void pieces_backward(const struct kernels *k, const struct classifier *c,
                            const struct block *b)
{
    const struct backward at = {k, c, b};
    const element *input = kernels_at(k, c->input, b->row * c->C);
    for (uint32_t i = 0; i < held(c); i++) {
        const struct piece p = piece_of(k, c, b, i);
        k->linear_backward_weight(k, c->dweight + p.row * c->C,
                                  c->dbias != NULL ? c->dbias + p.row : NULL, p.logits, input,
                                  b->rows, c->C, p.Vp);
    }
    if (c->dinput == NULL)
        return;
    element *dinput =
        kernels_at(k, c->dinput, b->row * c->C); /* last: it may overwrite the input */
    piece_sum(k, dinput, b->scratch, held(c), b->rows * c->C, piece_backward, &at);
    exchange_block(c, b, dinput);
}

static void classify_by_pieces(const struct kernels *k, const struct classifier *c,
                               const struct block *b, const int32_t *targets, float *losses,
                               int32_t *correct)
{
    find_largest(k, c, b, targets);
    sum_exponentials(k, c, b, targets, correct);
    differentiate(k, c, b, targets, losses);
    if (c->dweight != NULL)
        pieces_backward(k, c, b);
}

/* The block of at most so many rows that begins where `block` does; false: there is none. */
static bool next_block(const struct classifier *c, int64_t rows_max, struct block *block)
{
    int64_t rest = c->N - block->row;
    block->rows = rest < rows_max ? rest : rows_max;
    return rest > 0;
}

void classifier_exchange(const struct kernels *k, const struct classifier *c,
                         uint64_t logits_bytes_max, bool has_dinput)
{
    int64_t rows_max = block_rows(k, c, logits_bytes_max);
    struct block block = {.row = 0};
    for (; next_block(c, rows_max, &block); block.row += rows_max) {
        exchange_largest(c, &block);
        exchange_totals(c, &block, NULL);
        if (has_dinput)
            exchange_block(c, &block, NULL);
    }
    if (has_dinput)
        exchange_ranges(c, NULL);
}

void classifier(const struct kernels *k, const struct classifier *c, uint64_t logits_bytes_max,
                const int32_t *targets, float *losses, int32_t *correct, element *scratch)
{
    int64_t rows_max = block_rows(k, c, logits_bytes_max);
    struct carve carve = {.base = (uint8_t *)scratch};
    struct block block = place_block(k, c, rows_max, &carve);
    for (; next_block(c, rows_max, &block); block.row += rows_max) {
        int64_t row = block.row;
        if (c->pieces > 1)
            classify_by_pieces(k, c, &block, targets + row, losses + row, correct + row);
        else
            classify(k, c, &block, targets + row, losses + row, correct + row);
    }
    if (c->dinput != NULL)
        exchange_ranges(c, c->dinput);
}
