/* Layers that are computed by pieces: where their weights lie, and what comes out. */
#include "tests/unit/cut_models.h"
#include "tests/unit/gradient_fixture.h"

#include "tests/unit/program_rows.h"
#include "worker/model/piece_sum.h"

static uint32_t pieces_of(const struct model *model, const char *name)
{
    return model->parameters[parameter_named(model, name)].pieces;
}

TEST(what_the_grid_splits_is_in_pieces)
{
    struct model gpt = model_of(cut_gpt(4)), llama = model_of(cut_llama(2));
    struct model mlp = model_of(cut_mlp(2)), small = model_of(fixture_gpt());
    assert_int_equal(pieces_of(&gpt, "h.1.attn.c_attn.weight"), 4);
    assert_int_equal(pieces_of(&gpt, "h.1.attn.c_attn.bias"), 4);
    assert_int_equal(pieces_of(&gpt, "h.0.mlp.c_proj.weight"), 4);
    assert_int_equal(pieces_of(&gpt, "h.0.mlp.c_proj.bias"), 1);
    assert_int_equal(pieces_of(&gpt, "h.0.ln_1.weight"), 1);
    assert_int_equal(pieces_of(&gpt, "wte.weight"), 4);
    assert_int_equal(pieces_of(&llama, "model.layers.0.mlp.gate_up_proj.weight"), 2);
    assert_int_equal(pieces_of(&llama, "lm_head.weight"), 2);
    assert_int_equal(pieces_of(&mlp, "fc2.weight"), 2);
    assert_int_equal(pieces_of(&mlp, "fc3.weight"), 2);
    assert_int_equal(pieces_of(&small, "h.0.mlp.c_fc.weight"), 1);
    model_release(&gpt);
    model_release(&llama);
    model_release(&mlp);
    model_release(&small);
}

/* The second linear is too small for the grid, the last would be a classifier by columns. */
TEST(half_a_pair_is_whole)
{
    struct spec_model settings = {.kind = SPEC_MLP,
                                  .sizes_count = 5,
                                  .sizes = {64, 256, 8, 2048, 64},
                                  .tensor_max = 8,
                                  .pieces = 4};
    struct model model = model_of(settings);
    for (uint32_t i = 0; i < model.parameters_count; i++)
        assert_int_equal(model.parameters[i].pieces, 1);
    model_release(&model);
}

static void count_once(const struct model *model, uint32_t parameter)
{
    const struct model_parameter *p = &model->parameters[parameter];
    scoped(free_scoped) uint8_t *seen = calloc(p->weights, sizeof *seen);
    for (uint32_t c = p->chunk_first; c < p->chunk_first + p->chunks_count; c++)
        for (uint32_t r = 0; r < model->chunks[c].rows; r++)
            for (uint32_t i = 0; i < model->chunks[c].cols; i++)
                seen[pieces_row_offset(model, c, r) + i]++;
    for (uint64_t i = 0; i < p->weights; i++)
        assert_int_equal(seen[i], 1);
}

TEST(every_weight_has_one_place_in_the_pieces)
{
    for (uint32_t m = 0; m < CUT_MODELS; m++)
        for (uint32_t pieces = 1; pieces <= 4; pieces *= 2) {
            struct model model = model_of(cut_models[m](pieces));
            for (uint32_t p = 0; p < model.parameters_count; p++)
                count_once(&model, p);
            model_release(&model);
        }
}

/* Where row r of a parameter lies, its storage's row. */
static uint64_t lies_at(const struct model *model, const char *name, uint32_t row)
{
    const struct model_parameter *p = &model->parameters[parameter_named(model, name)];
    for (uint32_t c = p->chunk_first;; c++)
        if (row - model->chunks[c].row < model->chunks[c].rows && model->chunks[c].col == 0)
            return pieces_row_offset(model, c, row - model->chunks[c].row) / p->cols;
}

/* llama: 8 heads of 6 channels, 4 of keys; a piece has 4 and 2 of them: 24 + 12 + 12 rows. */
TEST(a_piece_has_its_queries_keys_and_values)
{
    struct model gpt = model_of(cut_gpt(4)), llama = model_of(cut_llama(2));
    const char *qkv = "model.layers.0.self_attn.qkv_proj.weight";
    const uint32_t rows[][2] = {{0, 0},   {23, 23}, {24, 48}, {47, 71},
                                {48, 24}, {60, 72}, {72, 36}, {84, 84}};
    for (int i = 0; i < 8; i++)
        assert_int_equal(lies_at(&llama, qkv, rows[i][0]), rows[i][1]);
    assert_int_equal(lies_at(&gpt, "h.0.attn.c_attn.weight", 48), 12); /* the first key */
    assert_int_equal(lies_at(&gpt, "h.0.attn.c_attn.weight", 12), 36); /* the second query head */
    assert_int_equal(lies_at(&gpt, "wte.weight", 299), 299);
    model_release(&gpt);
    model_release(&llama);
}

/* What a rank pushes of a parameter: bit r for each rank that has a chunk of it. */
static uint32_t ranks_of(const struct model *model, const char *name, uint32_t ranks)
{
    const struct model_parameter *p = &model->parameters[parameter_named(model, name)];
    uint32_t have = 0;
    for (uint32_t c = p->chunk_first; c < p->chunk_first + p->chunks_count; c++)
        have |= 1U << pieces_chunk_rank(model, c, ranks);
    return have;
}

TEST(what_is_whole_is_pushed_by_rank_0_and_each_rank_pushes_its_pieces)
{
    struct model gpt = model_of(cut_gpt(4)), whole = model_of(cut_gpt(1));
    assert_int_equal(ranks_of(&gpt, "h.0.attn.c_attn.weight", 4), 15);
    assert_int_equal(ranks_of(&gpt, "h.0.attn.c_attn.bias", 4), 15);
    assert_int_equal(ranks_of(&gpt, "h.0.mlp.c_proj.weight", 2), 3);
    assert_int_equal(ranks_of(&gpt, "h.0.mlp.c_proj.weight", 1), 1);
    assert_int_equal(ranks_of(&gpt, "h.0.mlp.c_proj.weight", 0), 1);
    assert_int_equal(ranks_of(&gpt, "h.0.mlp.c_proj.bias", 4), 1);
    assert_int_equal(ranks_of(&gpt, "h.0.ln_1.weight", 4), 1);
    assert_int_equal(ranks_of(&gpt, "wpe.weight", 4), 1);
    assert_int_equal(ranks_of(&gpt, "loss", 4), 1);
    assert_int_equal(ranks_of(&whole, "h.0.attn.c_attn.weight", 4), 1);
    model_release(&gpt);
    model_release(&whole);
}

/* A member of rank r keeps the p / T pieces from r p / T on: nothing else, and all of them. */
static void check_own_pieces(const struct model *model, uint32_t ranks)
{
    for (uint32_t c = 0; c < model->chunks_count; c++) {
        const struct model_parameter *p = &model->parameters[model->chunks[c].parameter];
        uint64_t share = p->weights / (p->pieces > 1 ? ranks : 1);
        for (uint32_t r = 0; r < model->chunks[c].rows; r++) {
            uint64_t first = pieces_row_offset(model, c, r);
            uint64_t last = first + model->chunks[c].cols - 1;
            assert_int_equal(pieces_chunk_rank(model, c, ranks), first / share);
            assert_int_equal(pieces_chunk_rank(model, c, ranks), last / share);
        }
    }
}

TEST(a_rank_s_chunks_are_consecutive_pieces_of_the_storage)
{
    for (uint32_t m = 0; m < CUT_MODELS; m++)
        for (uint32_t ranks = 1; ranks <= 4; ranks *= 2) {
            struct model model = model_of(cut_models[m](4));
            check_own_pieces(&model, ranks);
            model_release(&model);
        }
}

/* The fixture's matrices are made for the smallest models: here the loss would be too bent. */
static void set_up_gentle(struct executor_fixture *f)
{
    executor_set_up(f);
    for (uint32_t p = 0; p < f->model.loss_parameter; p++)
        for (uint64_t i = 0; f->model.parameters[p].dims == 2 && i < f->model.parameters[p].weights;
             i++)
            executor_weights(f->executor, p)[i] *= 0.25F;
}

static void check_slopes(struct spec_model settings)
{
    struct executor_fixture f = {.settings = settings};
    set_up_gentle(&f);
    fixture_run(&f, f.executor, fixture_ticket(0, 0, 0));
    for (uint32_t p = 0; p < f.model.loss_parameter; p++)
        gradient_check(&f, p);
    executor_tear_down(&f);
}

TEST(gradients_by_pieces_are_the_slopes_of_the_loss)
{
    for (uint32_t m = 0; m < CUT_MODELS; m++)
        for (uint32_t pieces = 2; pieces <= 4; pieces *= 2)
            check_slopes(cut_models[m](pieces));
}

TEST(gradients_by_ranges_are_the_slopes_of_the_loss)
{
    for (uint32_t m = 0; m < RANGED_MODELS; m++)
        check_slopes(ranged_models[m](4));
}

static void give_number(const void *context, uint32_t piece, element *out)
{
    *out = ((const float *)context)[piece];
}

/* One after another, each of the small ones would vanish beside the 1. */
TEST_F(products_are_added_in_the_tree, executor, .settings = fixture_mlp())
{
    const float numbers[8] = {1,        0x1p-24F, 0x1p-24F, 0x1p-24F,
                              0x1p-24F, 0x1p-24F, 0x1p-24F, 0x1p-24F};
    float sum = 0, scratch[3 * 16];
    assert_true(piece_sum_bytes(f->k, 8, 1) <= sizeof scratch);
    piece_sum(f->k, &sum, scratch, 1, 1, give_number, numbers);
    assert_true(sum == 1);
    piece_sum(f->k, &sum, scratch, 8, 1, give_number, numbers);
    /* e = 2^-24: ((1 + e) + (e + e)) + ((e + e) + (e + e)), of which 1 + e is 1 */
    assert_true(sum == (1 + 0x1p-23F) + 0x1p-22F);
}

/* All gradients as the wire has them, whatever the storage. */
static float *wire_gradients(const struct executor_fixture *f, struct executor *executor,
                             uint64_t *ret_count)
{
    float *all = malloc((2 * f->model.weights + MODEL_LOSS_WEIGHTS) * sizeof *all);
    *ret_count = 0;
    for (uint32_t c = 0; c < f->model.chunks_count; c++) {
        const struct model_chunk *chunk = &f->model.chunks[c];
        for (uint32_t part = 0; part < f->model.parameters[chunk->parameter].parts; part++) {
            executor_encode(executor, c, part, CODEC_FP32, all + *ret_count);
            *ret_count += chunk->weights;
        }
    }
    return all;
}

static double difference(const float *a, const float *b, uint64_t n)
{
    double most = 0, largest = 0;
    for (uint64_t i = 0; i < n; i++) {
        most = worst_of(most, fabs((double)a[i] - (double)b[i]));
        largest = worst_of(largest, fabs((double)b[i]));
    }
    return most / largest;
}

static void check_near_whole(uint32_t m, uint32_t pieces)
{
    struct executor_fixture whole = {.settings = cut_models[m](1)};
    struct executor_fixture cut = {.settings = cut_models[m](pieces)};
    uint64_t n = 0;
    set_up_gentle(&whole);
    set_up_gentle(&cut);
    struct executor_loss a = fixture_run(&whole, whole.executor, fixture_ticket(0, 1, 1));
    struct executor_loss b = fixture_run(&cut, cut.executor, fixture_ticket(0, 1, 1));
    scoped(free_scoped) float *of_whole = wire_gradients(&whole, whole.executor, &n);
    scoped(free_scoped) float *of_cut = wire_gradients(&cut, cut.executor, &n);
    assert_int_equal(a.correct, b.correct);
    assert_true(fabs(a.loss_sum - b.loss_sum) < 1e-6 * fabs(a.loss_sum));
    assert_true(difference(of_cut, of_whole, n) < 1e-5);
    executor_tear_down(&whole);
    executor_tear_down(&cut);
}

TEST(pieces_agree_with_the_whole)
{
    for (uint32_t m = 0; m < CUT_MODELS; m++)
        for (uint32_t pieces = 2; pieces <= 4; pieces *= 2)
            check_near_whole(m, pieces);
}

/* The program's rows of the four units of a gpt, both microbatches; `halves`: I and W apart. */
static void write_rows(char *text, size_t bytes, bool halves)
{
    size_t at = (size_t)snprintf(text, bytes, "LOAD,ZERO,0UNSHARD,1UNSHARD,2UNSHARD,3UNSHARD");
    for (int m = 0; m < 2; m++) {
        for (int u = 0; u < 4; u++)
            at += (size_t)snprintf(text + at, bytes - at, ",%dF%d", u, m);
        for (int u = 3; u >= 0; u--)
            at += (size_t)snprintf(text + at, bytes - at, halves ? ",%dI%d,%dW%d" : ",%dB%d", u, m,
                                   u, m);
    }
    snprintf(text + at, bytes - at,
             ",3SUM,3LOSS,3REDUCE_GRAD,2REDUCE_GRAD,1REDUCE_GRAD,0REDUCE_GRAD");
}

TEST_F(both_halves_of_backward_have_its_bits, executor, .settings = cut_gpt(4))
{
    float *gradients[2];
    for (int halves = 0; halves < 2; halves++) {
        char text[512];
        scoped(program_release) struct program program = {0};
        struct executor *executor = NULL;
        struct reason reason = {.text = ""};
        write_rows(text, sizeof text, halves);
        enum err err = program_parse(slice_of(text), &program, &reason);
        if (err != ERR_OK)
            fail_msg("%s", reason.text);
        const struct executor_options options = {.kernels = f->k,
                                                 .model = &f->model,
                                                 .train = &f->train,
                                                 .node_slots_max = 8,
                                                 .program = &program};
        err = executor_new(&options, &executor, &reason);
        if (err != ERR_OK)
            fail_msg("%s", reason.text);
        fixture_weights(f, executor);
        fixture_run(f, executor, fixture_ticket(0, 0, 1));
        gradients[halves] = fixture_gradients(f, executor);
        executor_free(executor);
    }
    assert_memory_equal(gradients[0], gradients[1], fixture_gradient_floats(f) * sizeof(float));
    free(gradients[0]);
    free(gradients[1]);
}

TEST_F(recompute_by_pieces_gives_the_same_bits, executor, .settings = cut_llama(4))
{
    f->train.recompute = SPEC_RECOMPUTE_ALL;
    struct executor *again = fixture_executor(f, 8);
    fixture_run(f, f->executor, fixture_ticket(0, 1, 1));
    fixture_run(f, again, fixture_ticket(0, 1, 1));
    scoped(free_scoped) float *a = fixture_gradients(f, f->executor);
    scoped(free_scoped) float *b = fixture_gradients(f, again);
    assert_memory_equal(a, b, fixture_gradient_floats(f) * sizeof(float));
}

/* Logits of two rows at a time: the blocks are those of one piece. */
TEST_F(all_pieces_logits_of_a_block_are_within_their_limit, executor, .settings = cut_gpt(1))
{
    f->train.logits_bytes_max = 2 * 384 * sizeof(float);
    uint64_t whole = executor_memory(fixture_executor(f, 8)).logits;
    struct executor_fixture cut = {.settings = cut_gpt(4), .train = f->train};
    executor_set_up(&cut);
    fixture_run(&cut, cut.executor, fixture_ticket(0, 0, 0));
    /* beside them: a number a row and piece twice, one a row, two levels of (2, width) */
    assert_int_equal(executor_memory(cut.executor).logits, whole + 3 * 64 + 2 * 2 * 48 * 4);
    executor_tear_down(&cut);
}

TEST(pieces_that_do_not_divide_what_is_split_are_refused)
{
    struct model model;
    struct reason reason = {.text = ""};
    struct spec_model settings = cut_gpt(8);
    assert_int_equal(model_init(&model, &settings, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "train.pieces (8) must divide the 4 pieces that "));
    settings = fixture_gpt(); /* nothing is cut */
    settings.pieces = 8;
    assert_int_equal(model_init(&model, &settings, &reason), ERR_OK);
    model_release(&model);
}

static bool is_ranged(const struct model *model, const char *unit, uint8_t array)
{
    uint32_t u = 0;
    while (strcmp(model->units[u].name, unit) != 0)
        u++;
    return model->units[u].arrays[array].ranged;
}

TEST(the_residual_stream_is_in_ranges_when_norms_are_split)
{
    struct model gpt = model_of(ranged_gpt(2)), llama = model_of(ranged_llama(2));
    struct model whole = model_of(cut_gpt(2)), alone = model_of(ranged_gpt(1));
    enum { LN1 = MODEL_OWN_ARRAYS, QKV, MIXED, RESIDUAL };
    for (uint8_t array = MODEL_IN; array <= MODEL_DOUT; array++) {
        assert_true(is_ranged(&gpt, "h.1", array));
        assert_true(is_ranged(&llama, "layers.0", array));
        assert_false(is_ranged(&whole, "h.1", array));
        assert_false(is_ranged(&alone, "h.1", array));
    }
    assert_true(is_ranged(&gpt, "h.0", RESIDUAL));
    assert_false(is_ranged(&gpt, "h.0", LN1));
    assert_false(is_ranged(&gpt, "h.0", MIXED));
    assert_false(is_ranged(&gpt, "embedding", MODEL_IN));
    assert_true(is_ranged(&gpt, "embedding", MODEL_OUT));
    assert_true(is_ranged(&gpt, "head", MODEL_DIN));
    assert_false(is_ranged(&gpt, "head", MODEL_OUT));
    model_release(&gpt);
    model_release(&llama);
    model_release(&whole);
    model_release(&alone);
}

TEST(a_layer_that_is_whole_has_no_ranges)
{
    struct model model;
    struct reason reason = {.text = ""};
    struct spec_model settings = fixture_gpt();
    settings.pieces = 2;
    settings.norms = SPEC_NORMS_SPLIT;
    assert_int_equal(model_init(&model, &settings, &reason), ERR_INVALID);
    assert_string_equal(reason.text, "train.tensor_norms split needs layers in pieces, and h.0 is "
                                     "too small to be cut; whole works");
}

TEST(what_is_no_norm_computes_with_no_ranges)
{
    struct model model;
    struct reason reason = {.text = ""};
    struct spec_model settings = cut_mlp(2);
    settings.norms = SPEC_NORMS_SPLIT;
    assert_int_equal(model_init(&model, &settings, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "fc2"));
}

TEST(what_is_added_to_ranges_is_in_ranges)
{
    struct model gpt = model_of(ranged_gpt(2));
    struct reason reason = {.text = ""};
    assert_int_equal(pieces_choose(&gpt, &reason), ERR_OK);
    assert_int_equal(gpt.units[2].operations[3].with, MODEL_IN); /* c_proj */
    gpt.units[2].operations[3].with = MODEL_OWN_ARRAYS;
    assert_int_equal(pieces_choose(&gpt, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "h.1"));
    model_release(&gpt);
}

/* Other sums of the same numbers: the norms' gradients differ in the last bits, and nothing else. */
TEST(ranges_change_the_gradients_of_norms_alone)
{
    struct spec_model settings = ranged_llama(4);
    struct executor_fixture split = {.settings = settings};
    settings.norms = SPEC_NORMS_WHOLE;
    struct executor_fixture whole = {.settings = settings};
    uint32_t others = 0;
    executor_set_up(&split);
    executor_set_up(&whole);
    struct executor_loss a = fixture_run(&split, split.executor, fixture_ticket(0, 0, 1));
    struct executor_loss b = fixture_run(&whole, whole.executor, fixture_ticket(0, 0, 1));
    assert_true(a.loss_sum == b.loss_sum);
    for (uint32_t p = 0; p < whole.model.parameters_count; p++) {
        const struct model_parameter *parameter = &whole.model.parameters[p];
        const float *of_split = executor_gradient(split.executor, p, 0);
        const float *of_whole = executor_gradient(whole.executor, p, 0);
        bool same = memcmp(of_split, of_whole, parameter->weights * sizeof(float)) == 0;
        others += !same;
        assert_true(same || strstr(parameter->name, "norm") != NULL);
        assert_true(difference(of_split, of_whole, parameter->weights) < 1e-5);
    }
    assert_true(others > 0);
    executor_tear_down(&split);
    executor_tear_down(&whole);
}
