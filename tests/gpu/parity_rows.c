/* What computes row by row: embedding, LayerNorm, RMSNorm, the classifier. */
#include "tests/gpu/parity.h"

/* -- embedding --------------------------------------------------------------------------------- */

static void embedding_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->embedding_forward(k, a[0], a[1], a[2], a[3], c->B, c->T, c->C, 0, c->V, c->V);
}

static void embedding_backward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->embedding_backward(k, a[0], a[1], a[2], a[3], c->B, c->T, c->C, 0, c->V, c->V);
}

/* Without positions, of some of the table's rows. */
static void embedding_of_some(const struct call *c, const struct kernels *k, void *const *a)
{
    int64_t first = c->V / 4, rows = (c->V + 1) / 2;
    k->embedding_forward(k, a[0], a[2], a[3], NULL, c->B, c->T, c->C, first, rows, c->V);
    k->embedding_backward(k, a[1], NULL, a[2], a[4], c->B, c->T, c->C, first, rows, c->V);
}

static void embedding_at(const struct tables *tables, int64_t B, int64_t T, int64_t C, int64_t V)
{
    struct call forward = {
        .elements = 0xd, .operate = embedding_forward, .B = B, .T = T, .C = C, .V = V};
    call_output_floats(&forward, "embedding.out", SAME, B * T * C);
    call_integers(&forward, B * T, V, false);
    call_input(&forward, V * C, 1);
    call_input(&forward, T * C, 1);
    call_compare(&forward, tables);
    struct call backward = {
        .elements = 0x8, .operate = embedding_backward, .B = B, .T = T, .C = C, .V = V};
    call_inout(&backward, "embedding.dwte", SAME, V * C);
    call_inout(&backward, "embedding.dwpe", SAME, T * C);
    call_integers(&backward, B * T, V, false);
    call_input(&backward, B * T * C, 1);
    call_compare(&backward, tables);
    struct call some = {
        .elements = 0x19, .operate = embedding_of_some, .B = B, .T = T, .C = C, .V = V};
    call_output_floats(&some, "embedding.out", SAME, B * T * C);
    call_inout(&some, "embedding.dwte", SAME, V * C);
    call_integers(&some, B * T, V, false);
    call_input(&some, V * C, 1);
    call_input(&some, B * T * C, 1);
    call_compare(&some, tables);
}

PARITY(embedding_has_the_cpus_bits)
{
    embedding_at(*state, 1, 1, 1, 1);
    embedding_at(*state, 2, 63, 64, 29);
    embedding_at(*state, 3, 65, 768, 256);
    embedding_at(*state, 2, 65, 8, 50257);
    embedding_at(*state, 5, 130, 1, 2); /* tokens with more rows than a block has threads */
    embedding_at(*state, 2, 1100, 3, 40);
    embedding_at(*state, 3, 701, 8, 3); /* more rows of a token than are kept at once */
    embedding_at(*state, 11, 100, 24, 1);
    embedding_at(*state, 1, 32000, 1, 300000); /* more chunks than there is room to count in */
}

/* -- layernorm --------------------------------------------------------------------------------- */

static void layernorm_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->layernorm_forward(k, a[0], a[1], a[2], a[3], a[4], a[5], c->N, c->C);
}

static void layernorm_backward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->layernorm_backward(k, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], c->N, c->C);
}

static void layernorm_at(const struct tables *tables, int64_t N, int64_t C)
{
    struct call forward = {.elements = 0x39, .operate = layernorm_forward, .N = N, .C = C};
    call_output_floats(&forward, "layernorm.out", NEAR, N * C);
    call_output_floats(&forward, "layernorm.mean", NEAR, N);
    call_output_floats(&forward, "layernorm.rstd", NEAR, N);
    call_input(&forward, N * C, 3);
    call_input(&forward, C, 1);
    call_input(&forward, C, 1);
    call_compare(&forward, tables);
    struct call backward = {
        .elements = 0x99, .operate = layernorm_backward, .N = N, .C = C, .terms = (double)N};
    call_inout(&backward, "layernorm.dinp", NEAR, N * C);
    call_inout(&backward, "layernorm.dgamma", NEAR, C);
    call_inout(&backward, "layernorm.dbeta", NEAR, C);
    for (int i = 0; i < 2; i++)
        call_input(&backward, N * C, 1);
    for (int i = 0; i < 2; i++)
        call_input(&backward, N, 1);
    call_input(&backward, C, 1);
    call_compare(&backward, tables);
}

PARITY(layernorm_is_the_cpus)
{
    layernorm_at(*state, 1, 1);
    layernorm_at(*state, 63, 5);
    layernorm_at(*state, 65, 64);
    layernorm_at(*state, 9, 768);
    layernorm_at(*state, 9, 1000); /* the most that registers hold is 1024 */
    layernorm_at(*state, 9, 1600);
    layernorm_at(*state, 1030, 33);
    layernorm_at(*state, 9, 6152); /* more columns than a block adds */
    layernorm_at(*state, 4200, 8);
}

/* -- rmsnorm ----------------------------------------------------------------------------------- */

static void rmsnorm_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->rmsnorm_forward(k, a[0], a[1], a[2], a[3], c->N, c->C);
}

static void rmsnorm_backward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->rmsnorm_backward(k, a[0], a[1], a[2], a[3], a[4], a[5], c->N, c->C);
}

static void rmsnorm_at(const struct tables *tables, int64_t N, int64_t C)
{
    struct call forward = {.elements = 0xd, .operate = rmsnorm_forward, .N = N, .C = C};
    call_output_floats(&forward, "rmsnorm.out", NEAR, N * C);
    call_output_floats(&forward, "rmsnorm.rstd", NEAR, N);
    call_input(&forward, N * C, 3);
    call_input(&forward, C, 1);
    call_compare(&forward, tables);
    struct call backward = {
        .elements = 0x2d, .operate = rmsnorm_backward, .N = N, .C = C, .terms = (double)N};
    call_inout(&backward, "rmsnorm.dinp", NEAR, N * C);
    call_inout(&backward, "rmsnorm.dgamma", NEAR, C);
    for (int i = 0; i < 2; i++)
        call_input(&backward, N * C, 1);
    call_input(&backward, N, 1);
    call_input(&backward, C, 1);
    call_compare(&backward, tables);
}

PARITY(rmsnorm_is_the_cpus)
{
    rmsnorm_at(*state, 1, 1);
    rmsnorm_at(*state, 63, 5);
    rmsnorm_at(*state, 65, 64);
    rmsnorm_at(*state, 9, 768);
    rmsnorm_at(*state, 9, 1000);
    rmsnorm_at(*state, 9, 1600);
    rmsnorm_at(*state, 1030, 33);
    rmsnorm_at(*state, 9, 6152);
    rmsnorm_at(*state, 4200, 8);
}

/* -- classifier -------------------------------------------------------------------------------- */

static void classifier_forward(const struct call *c, const struct kernels *k, void *const *a)
{
    k->classifier_forward(k, a[0], c->flag ? a[1] : NULL, a[3], a[2], c->N, c->V, c->V + c->C);
}

static void classifier_forward_backward(const struct call *c, const struct kernels *k,
                                        void *const *a)
{
    k->classifier_forward_backward(k, a[0], c->flag ? a[1] : NULL, a[3], a[2], 0.25f, c->N, c->V,
                                   c->V + c->C);
}

/* `shift`: of all logits, which softmax does not mind. */
static void classifier_at(const struct tables *tables, int64_t N, int64_t V, int64_t padding,
                          bool with_correct, float shift)
{
    int64_t Vp = V + padding;
    for (int backward = 0; backward < 2; backward++) {
        struct call call = {.elements = 0x8,
                            .operate = backward ? classifier_forward_backward : classifier_forward,
                            .N = N,
                            .V = V,
                            .C = padding,
                            .flag = with_correct};
        call_output_floats(&call, "classifier.losses", NEAR, N);
        call_output(&call, "classifier.correct", SAME, (size_t)N * sizeof(int32_t));
        call_integers(&call, N, V, true);
        call_inout(&call, "classifier.dlogits", backward ? NEAR : SAME, N * Vp);
        float *logits = call.arrays[3].start;
        const int32_t *targets = call.arrays[2].start;
        for (int64_t i = 0; i < N * Vp; i++)
            logits[i] *= 10;
        for (int64_t row = 0; row < N; row += 2) /* every other one's target is the largest … */
            if (targets[row] >= 0)
                logits[row * Vp + targets[row]] = 11;
        if (V > 1 && targets[0] > 0)
            logits[0] = 11; /* … but here a lower index is as large */
        for (int64_t i = 0; i < N * Vp; i++)
            logits[i] += shift;
        call_compare(&call, tables);
    }
}

PARITY(classifier_is_the_cpus)
{
    classifier_at(*state, 1, 1, 0, true, 0);
    classifier_at(*state, 63, 3, 5, true, 0);
    classifier_at(*state, 9, 256, 0, false, 0);
    classifier_at(*state, 5, 50257, 47, true, 0);
    for (int sign = -1; sign <= 1; sign += 2) { /* beyond what a float's powers hold */
        classifier_at(*state, 3, 16, 0, true, (float)sign * 256);
        classifier_at(*state, 3, 8192, 0, true, (float)sign * 256);
    }
}

/* -- classifier by pieces ---------------------------------------------------------------------- */

/* Both pieces of a block, whose logits lie one after the other. */
static void classifier_pieces(const struct call *c, const struct kernels *k, void *const *a)
{
    float *largest = a[4], *sums = a[5], *losses = a[0];
    for (int step = 0; step < 3; step++)
        for (int64_t piece = 0; piece < 2; piece++) {
            int64_t Vp = c->C, first = piece * Vp, V = piece == 0 ? Vp : c->V - Vp,
                    n = piece * c->N;
            element *logits = kernels_at(k, a[3], n * Vp);
            if (step == 0)
                k->pieces_largest(k, largest + n, a[6], logits, a[2], first, c->N, V, Vp);
            else if (step == 1)
                k->pieces_exponentials(k, sums + n, a[1], logits, largest, a[2], first, 2, c->N, V,
                                       Vp);
            else
                k->pieces_gradient(k, losses, logits, largest, sums, a[6], a[2], 0.25f, first, 2,
                                   c->N, V, Vp);
        }
}

/* C columns a piece, V classes in both. */
static void classifier_pieces_at(const struct tables *tables, int64_t N, int64_t C, int64_t V)
{
    struct call call = {.elements = 0x8, .operate = classifier_pieces, .N = N, .V = V, .C = C};
    call_output_floats(&call, "classifier.losses", NEAR, N);
    call_output(&call, "classifier.correct", SAME, (size_t)N * sizeof(int32_t));
    call_integers(&call, N, V, true);
    call_inout(&call, "classifier.dlogits", NEAR, 2 * N * C);
    call_output_floats(&call, "classifier.losses", SAME, 2 * N);
    call_output_floats(&call, "classifier.losses", NEAR, 2 * N);
    call_input(&call, N, 1);
    float *logits = call.arrays[3].start;
    const int32_t *targets = call.arrays[2].start;
    for (int64_t row = 0; row < N; row += 2) /* the target's is the largest … */
        if (targets[row] >= 0)
            logits[(targets[row] / C * N + row) * C + targets[row] % C] = 2;
    if (targets[0] > 0)
        logits[0] = 2; /* … but here a lower index is as large */
    call_compare(&call, tables);
}

PARITY(classifier_by_pieces_is_the_cpus)
{
    classifier_pieces_at(*state, 1, 1, 2);
    classifier_pieces_at(*state, 63, 8, 11);
    classifier_pieces_at(*state, 9, 128, 256);
    classifier_pieces_at(*state, 5, 25152, 50257);
    classifier_pieces_at(*state, 5, 64, 64); /* the second piece is padding */
}

/* -- as large as in training ------------------------------------------------------------------- */

#ifndef EMULATED
PARITY(at_real_shapes_rows_are_the_cpus)
{
    embedding_at(*state, 16, 1024, 768, 50257);
    layernorm_at(*state, 16384, 768);
    classifier_at(*state, 512, 50257, 47, true, 0);
}
#endif

/* Runs last: no GPU computes for a process again that has had this. */
PARITY(a_token_that_does_not_exist_is_reported)
{
    const struct kernels *k = ((struct tables *)*state)->gpu;
    const int32_t token = 5;
    int32_t *tokens = k->alloc(k, sizeof token);
    float *memory = k->alloc(k, 8 * sizeof *memory);
    k->copy_in(k, tokens, &token, sizeof token);
    assert_null(k->synchronize(k));
    k->embedding_forward(k, memory, tokens, memory, memory, 1, 1, 1, 0, 5, 5);
    const char *failure = k->synchronize(k);
    assert_non_null(failure);
    print_message("# %s\n", failure);
}
