#include "worker/model/classifier.h"

/* Rows of logits at once. All blocks but the last are equal, so the bits depend on
 * logits_bytes_max: it is a setting of the run. */
static int64_t block_rows(const struct kernels *k, int64_t N, int64_t Vp, uint64_t logits_bytes_max)
{
    int64_t rows = (int64_t)(logits_bytes_max / ((uint64_t)Vp * k->element_bytes));
    if (rows < 1)
        rows = 1;
    return rows < N ? rows : N;
}

uint64_t classifier_scratch_bytes(const struct kernels *k, int64_t N, int64_t Vp,
                                  uint64_t logits_bytes_max)
{
    return (uint64_t)block_rows(k, N, Vp, logits_bytes_max) * (uint64_t)Vp * k->element_bytes;
}

static void backward(const struct kernels *k, const struct classifier *c, int64_t row, int64_t rows,
                     const element *dlogits)
{
    const element *input = kernels_at(k, c->input, row * c->C);
    k->linear_backward_weight(k, c->dweight, c->dbias, dlogits, input, rows, c->C, c->Vp);
    if (c->dinput != NULL) /* last: it may overwrite the input */
        k->linear_backward_input(k, kernels_at(k, c->dinput, row * c->C), dlogits, c->weight, rows,
                                 c->C, c->Vp);
}

void classifier(const struct kernels *k, const struct classifier *c, uint64_t logits_bytes_max,
                const int32_t *targets, float *losses, int32_t *correct, element *scratch)
{
    int64_t rows_max = block_rows(k, c->N, c->Vp, logits_bytes_max);
    for (int64_t row = 0; row < c->N; row += rows_max) {
        int64_t rows = c->N - row < rows_max ? c->N - row : rows_max;
        const element *input = kernels_at(k, c->input, row * c->C);
        k->linear_forward(k, scratch, input, c->weight, c->bias, rows, c->C, c->Vp);
        if (c->dweight == NULL) {
            k->classifier_forward(k, losses + row, correct + row, scratch, targets + row, rows,
                                  c->V, c->Vp);
            continue;
        }
        k->classifier_forward_backward(k, losses + row, correct + row, scratch, targets + row,
                                       c->dloss, rows, c->V, c->Vp);
        backward(k, c, row, rows, scratch);
    }
}
