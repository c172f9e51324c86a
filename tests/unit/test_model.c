/* Parameters, units, the grid and the initial values. */
#include "tests/unit/unit.h"

#include "common/rand.h"
#include "tests/models.h"

static struct spec_model gpt_settings(uint32_t layers, uint32_t heads, uint32_t width,
                                      uint32_t context, uint32_t vocabulary)
{
    return (struct spec_model){.kind = SPEC_GPT,
                               .layers = layers,
                               .heads = heads,
                               .width = width,
                               .context = context,
                               .vocabulary = vocabulary};
}

static struct spec_model mlp_settings(const uint32_t *sizes, uint32_t count)
{
    struct spec_model settings = {.kind = SPEC_MLP, .sizes_count = count};
    memcpy(settings.sizes, sizes, count * sizeof *sizes);
    return settings;
}

static struct model made_mlp(uint32_t a, uint32_t b, uint32_t c)
{
    return model_of(mlp_settings((const uint32_t[]){a, b, c}, 3));
}

static const struct model_parameter *named(const struct model *model, const char *name)
{
    uint32_t parameter = parameter_named(model, name);
    assert_true(parameter < model->parameters_count);
    return &model->parameters[parameter];
}

/* The published sizes of GPT-2 (nanoGPT's counts). */
TEST(gpt2_has_as_many_weights_as_published)
{
    static const struct {
        uint32_t layers, heads, width;
        uint64_t weights;
    } rows[] = {{12, 12, 768, 124439808},
                {24, 16, 1024, 354823168},
                {36, 20, 1280, 774030080},
                {48, 25, 1600, 1557611200}};
    for (size_t i = 0; i < 4; i++) {
        scoped(model_release) struct model model =
            model_of(gpt_settings(rows[i].layers, rows[i].heads, rows[i].width, 1024, 50257));
        assert_int_equal(model.weights_logical, rows[i].weights);
        assert_int_equal(model.weights, rows[i].weights + 47 * rows[i].width);
        assert_int_equal(model.parameters_count, 5 + 12 * rows[i].layers);
    }
}

TEST(parameters_have_hub_names_shapes_and_rules)
{
    scoped(model_release) struct model model = model_of(gpt_settings(12, 12, 768, 1024, 50257));
    const struct model_parameter *wte = named(&model, "wte.weight");
    assert_int_equal(wte->shape[0], 50257);
    assert_int_equal(wte->rows, 50304);
    assert_int_equal(wte->parts, 2);
    assert_int_equal(wte->part_units[0], 0);
    assert_int_equal(wte->part_units[1], 13);
    assert_true(wte->decay);
    const struct model_parameter *c_attn = named(&model, "h.11.attn.c_attn.weight");
    assert_int_equal(c_attn->rows, 2304);
    assert_int_equal(c_attn->cols, 768);
    assert_int_equal(c_attn->part_units[0], 12);
    assert_true(c_attn->decay);
    assert_false(named(&model, "h.0.attn.c_attn.bias")->decay);
    assert_false(named(&model, "ln_f.weight")->decay);
    assert_int_equal(named(&model, "h.0.mlp.c_fc.bias")->rows, 3072);
    assert_int_equal(named(&model, "h.0.mlp.c_fc.bias")->dims, 1);
    assert_int_equal(parameter_named(&model, "lm_head.weight"), model.parameters_count);

    const struct model_parameter *loss = &model.parameters[model.loss_parameter];
    assert_string_equal(loss->name, "loss");
    assert_int_equal(model.loss_parameter, model.parameters_count - 1);
    assert_int_equal(loss->rule, MODEL_NONE);
    assert_int_equal(loss->weights, 4);
    assert_int_equal(loss->chunks_count, 1);
    for (uint32_t i = 0; i < model.loss_parameter; i++)
        assert_int_equal(model.parameters[i].rule, MODEL_OPTIMIZER);
}

/* Two vectors of each block are names that others know; a mistake in one is found by the sorted
 * list of all. */
TEST(a_block_has_the_twelve_names_of_the_hub)
{
    scoped(model_release) struct model model = model_of(gpt_settings(1, 2, 32, 16, 256));
    assert_int_equal(model.parameters_count, GPT_NAMES + 1);
    for (uint32_t i = 0; i < GPT_NAMES; i++)
        assert_string_equal(model.parameters[i].name, gpt_name(i));
    assert_string_equal(model.parameters[GPT_NAMES].name, "loss");
}

TEST(units_are_the_layers_and_say_what_they_use)
{
    scoped(model_release) struct model gpt = model_of(gpt_settings(2, 4, 128, 64, 256));
    static const char *const names[] = {"embedding", "h.0", "h.1", "head"};
    static const uint32_t uses[] = {2, 12, 12, 4};
    assert_int_equal(gpt.units_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(gpt.units[i].name, names[i]);
        assert_int_equal(gpt.units[i].uses_count, uses[i]);
    }
    const struct model_use *head = &gpt.uses[gpt.units[3].use_first];
    assert_string_equal(gpt.parameters[head[0].parameter].name, "ln_f.weight");
    assert_string_equal(gpt.parameters[head[2].parameter].name, "wte.weight");
    assert_int_equal(head[2].part, 1);
    assert_int_equal(head[3].parameter, gpt.loss_parameter);

    scoped(model_release) struct model mlp = made_mlp(2, 100, 3);
    assert_int_equal(mlp.units_count, 2);
    assert_int_equal(mlp.units[0].uses_count, 2);
    assert_int_equal(mlp.units[1].uses_count, 3);
    assert_string_equal(mlp.parameters[2].name, "fc2.weight");
    assert_int_equal(mlp.parameters[2].rows, 3);
    assert_int_equal(mlp.parameters[2].cols, 100);
}

/* Each weight of each parameter lies in one chunk; counted, not derived. */
static void expect_exact_cover(const struct model *model)
{
    model_check(model);
    model_check_tables(model);
    for (uint32_t p = 0; p < model->parameters_count; p++) {
        const struct model_parameter *parameter = &model->parameters[p];
        scoped(free_scoped) uint8_t *seen = calloc(parameter->weights, 1);
        assert_non_null(seen);
        for (uint32_t c = parameter->chunk_first;
             c < parameter->chunk_first + parameter->chunks_count; c++) {
            const struct model_chunk *chunk = &model->chunks[c];
            assert_true(chunk->weights <= MODEL_CHUNK_WEIGHTS_MAX);
            for (uint32_t r = 0; r < chunk->rows; r++)
                for (uint32_t i = 0; i < chunk->cols; i++)
                    seen[model_row_offset(model, c, r) + i]++;
        }
        for (uint64_t i = 0; i < parameter->weights; i++)
            if (seen[i] != 1)
                fail_msg("%s: weight %llu is in %d chunks", parameter->name, (unsigned long long)i,
                         seen[i]);
    }
}

TEST(chunks_cover_every_weight_once)
{
    static const uint32_t odd[] = {7, 1, 33, 129, 1000, 3};
    static const uint32_t wide[] = {300000, 3, 140001, 2};
    struct spec_model settings[] = {gpt_settings(12, 12, 768, 1024, 50257),
                                    gpt_settings(4, 4, 128, 128, 256),
                                    gpt_settings(1, 1, 1, 1, 2),
                                    gpt_settings(3, 5, 65, 17, 1000),
                                    gpt_settings(2, 25, 1600, 333, 50257),
                                    mlp_settings(odd, 6),
                                    mlp_settings(wide, 4),
                                    gpt_settings(1, 4, 128, 64, 256),
                                    gpt_settings(1, 64, 256, 64, 256)};
    settings[7].tensor_max = 1;
    settings[8].tensor_max = 64;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        scoped(model_release) struct model model = model_of(settings[i]);
        expect_exact_cover(&model);
    }
}

/* Whether [begin, end) of the parameter's rows (or columns) is a union of whole chunks. */
static bool is_union(const struct model *model, const char *name, bool cols, uint32_t begin,
                     uint32_t end)
{
    const struct model_parameter *parameter = named(model, name);
    for (uint32_t i = 0; i < parameter->chunks_count; i++) {
        const struct model_chunk *chunk = &model->chunks[parameter->chunk_first + i];
        uint32_t from = cols ? chunk->col : chunk->row;
        uint32_t to = from + (cols ? chunk->cols : chunk->rows);
        if (from < end && to > begin && (from < begin || to > end))
            return false;
    }
    return true;
}

/* Rank r of n on a tensor axis of a block: its heads of q, k and v, its channels of the mlp. */
static void expect_tensor_rank(const struct model *model, uint32_t n, uint32_t r)
{
    uint32_t width = model->settings.width, part = width / n;
    for (uint32_t qkv = 0; qkv < 3; qkv++) {
        uint32_t begin = qkv * width + r * part;
        assert_true(is_union(model, "h.0.attn.c_attn.weight", false, begin, begin + part));
        assert_true(is_union(model, "h.0.attn.c_attn.bias", false, begin, begin + part));
    }
    assert_true(is_union(model, "h.0.attn.c_proj.weight", true, r * part, (r + 1) * part));
    uint32_t inner = 4 * part;
    assert_true(is_union(model, "h.0.mlp.c_fc.weight", false, r * inner, (r + 1) * inner));
    assert_true(is_union(model, "h.0.mlp.c_fc.bias", false, r * inner, (r + 1) * inner));
    assert_true(is_union(model, "h.0.mlp.c_proj.weight", true, r * inner, (r + 1) * inner));
    uint32_t words = model->parameters[0].rows / n;
    assert_true(is_union(model, "wte.weight", false, r * words, (r + 1) * words));
}

TEST(a_placement_of_any_admissible_degree_is_a_union_of_chunks)
{
    struct spec_model settings[] = {gpt_settings(1, 8, 768, 64, 50257),
                                    gpt_settings(1, 8, 128, 64, 256)};
    for (size_t i = 0; i < 2; i++) {
        scoped(model_release) struct model model = model_of(settings[i]);
        for (uint32_t n = 1; n <= 8; n *= 2)
            for (uint32_t r = 0; r < n; r++)
                expect_tensor_rank(&model, n, r);
        /* 2-D: both dims of every matrix in halves */
        static const char *const matrices[] = {"wte.weight", "h.0.attn.c_attn.weight",
                                               "h.0.attn.c_proj.weight", "h.0.mlp.c_fc.weight",
                                               "h.0.mlp.c_proj.weight"};
        for (size_t m = 0; m < sizeof matrices / sizeof matrices[0]; m++) {
            const struct model_parameter *matrix = named(&model, matrices[m]);
            if (m != 1)
                assert_true(is_union(&model, matrices[m], false, 0, matrix->rows / 2));
            assert_true(is_union(&model, matrices[m], true, 0, matrix->cols / 2));
        }
        assert_true(is_union(&model, "wpe.weight", true, 0, settings[i].width / 2));
    }
}

TEST(heads_are_never_cut_in_two_by_a_degree)
{
    scoped(model_release) struct model model = model_of(gpt_settings(1, 3, 192, 64, 256));
    assert_int_equal(named(&model, "h.0.attn.c_attn.weight")->split_pieces, 1);
    assert_int_equal(named(&model, "h.0.attn.c_proj.weight")->split_pieces, 1);
    assert_int_equal(named(&model, "h.0.mlp.c_fc.weight")->split_pieces, 8);
    scoped(model_release) struct model one = model_of(gpt_settings(1, 1, 192, 64, 256));
    assert_int_equal(named(&one, "h.0.attn.c_attn.weight")->split_pieces, 1);
}

TEST(a_small_unit_is_not_cut)
{
    scoped(model_release) struct model model = made_mlp(2, 100, 3);
    assert_int_equal(model.chunks_count, 5); /* four parameters and the loss */
    scoped(model_release) struct model larger = made_mlp(2, 8192, 3);
    assert_int_equal(named(&larger, "fc1.weight")->chunks_count, 8 * 2);
    assert_int_equal(named(&larger, "fc1.bias")->chunks_count, 8);
    assert_int_equal(named(&larger, "fc2.weight")->chunks_count, 8);
    assert_int_equal(named(&larger, "fc2.bias")->chunks_count, 1);
}

TEST(a_grid_too_fine_is_refused)
{
    struct spec_model settings = gpt_settings(1024, 64, 1024, 64, 256);
    settings.tensor_max = 64;
    struct model model;
    struct reason reason = {{0}};
    assert_int_equal(model_init(&model, &settings, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "model.tensor_max"));
}

TEST(scatter_undoes_gather)
{
    scoped(model_release) struct model model = model_of(gpt_settings(1, 4, 64, 32, 300));
    for (uint32_t p = 0; p < model.parameters_count; p++) {
        const struct model_parameter *parameter = &model.parameters[p];
        scoped(free_scoped) float *whole = calloc(parameter->weights, sizeof *whole);
        scoped(free_scoped) float *again = calloc(parameter->weights, sizeof *again);
        scoped(free_scoped) float *block = calloc(MODEL_CHUNK_WEIGHTS_MAX, sizeof *block);
        for (uint64_t i = 0; i < parameter->weights; i++)
            whole[i] = (float)i;
        for (uint32_t i = 0; i < parameter->chunks_count; i++) {
            uint32_t c = parameter->chunk_first + i;
            gather_chunk(&model, c, block, whole);
            assert_true(block[0] == (float)model_row_offset(&model, c, 0));
            model_scatter(&model, c, again, block);
        }
        assert_memory_equal(whole, again, parameter->weights * sizeof *whole);
    }
}

/* The parameter's initial values, assembled. The caller frees. */
static float *initial(const struct model *model, uint64_t seed, const char *name)
{
    const struct model_parameter *parameter = named(model, name);
    float *whole = calloc(parameter->weights, sizeof *whole);
    scoped(free_scoped) float *block = calloc(MODEL_CHUNK_WEIGHTS_MAX, sizeof *block);
    for (uint32_t i = 0; i < parameter->chunks_count; i++) {
        model_initial(model, seed, parameter->chunk_first + i, block);
        model_scatter(model, parameter->chunk_first + i, whole, block);
    }
    return whole;
}

TEST(initial_values_do_not_depend_on_the_grid)
{
    struct spec_model settings = gpt_settings(1, 4, 64, 32, 300);
    scoped(model_release) struct model fine = model_of(settings);
    settings.tensor_max = 1;
    scoped(model_release) struct model coarse = model_of(settings);
    assert_true(fine.chunks_count > coarse.chunks_count);
    for (uint32_t p = 0; p < fine.parameters_count; p++) {
        scoped(free_scoped) float *a = initial(&fine, 7, fine.parameters[p].name);
        scoped(free_scoped) float *b = initial(&coarse, 7, fine.parameters[p].name);
        assert_memory_equal(a, b, fine.parameters[p].weights * sizeof *a);
    }
}

TEST(initial_values_are_keyed_by_seed_parameter_and_place)
{
    scoped(model_release) struct model model = model_of(gpt_settings(2, 4, 64, 32, 300));
    uint32_t p = parameter_named(&model, "h.1.mlp.c_fc.weight");
    scoped(free_scoped) float *weights = initial(&model, 7, "h.1.mlp.c_fc.weight");
    scoped(free_scoped) float *other_seed = initial(&model, 8, "h.1.mlp.c_fc.weight");
    scoped(free_scoped) float *other_layer = initial(&model, 7, "h.0.mlp.c_fc.weight");
    for (uint32_t i = 0; i < 256 * 64; i += 97)
        assert_true(weights[i] ==
                    model.parameters[p].initial_std * rand_normal(rand_key(7, RAND_WEIGHTS, p), i));
    assert_memory_not_equal(weights, other_seed, 256 * 64 * sizeof *weights);
    assert_memory_not_equal(weights, other_layer, 256 * 64 * sizeof *weights);
}

TEST(initial_values_have_their_kind_and_spread)
{
    scoped(model_release) struct model model = model_of(gpt_settings(8, 4, 64, 32, 300));
    assert_true(named(&model, "h.3.attn.c_attn.weight")->initial_std == 0.02f);
    assert_true(named(&model, "h.3.attn.c_proj.weight")->initial_std == 0.005f);
    assert_true(named(&model, "h.3.mlp.c_proj.weight")->initial_std == 0.005f);
    scoped(free_scoped) float *ones = initial(&model, 1, "ln_f.weight");
    scoped(free_scoped) float *zeros = initial(&model, 1, "h.0.mlp.c_fc.bias");
    for (int i = 0; i < 64; i++)
        assert_true(ones[i] == 1 && zeros[i] == 0);

    scoped(free_scoped) float *wte = initial(&model, 1, "wte.weight");
    double square = 0;
    for (int i = 0; i < 300 * 64; i++)
        square += (double)wte[i] * (double)wte[i];
    assert_true(square / (300 * 64) > 0.0196 * 0.0196 && square / (300 * 64) < 0.0204 * 0.0204);
    for (int i = 300 * 64; i < 384 * 64; i++)
        assert_true(wte[i] == 0); /* the vocabulary's padding */

    scoped(model_release) struct model mlp = made_mlp(2, 100, 3);
    assert_true(named(&mlp, "fc1.weight")->initial_std == 1);
    assert_true(named(&mlp, "fc2.weight")->initial_std == (float)0.1414213562373095);
}

TEST(flops_are_those_of_the_matrix_products)
{
    scoped(model_release) struct model gpt = model_of(gpt_settings(12, 12, 768, 1024, 50257));
    /* PaLM's count, forward: a token costs 2 N + 4 L T C, N the weights of matrix products */
    double weights = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
    double wanted = 1024 * (2 * weights + 4.0 * 12 * 1024 * 768);
    assert_true(gpt.flops_forward > 0.999999 * wanted && gpt.flops_forward < 1.000001 * wanted);
    assert_int_equal(gpt.sample_tokens, 1024);
    scoped(model_release) struct model mlp = made_mlp(2, 100, 3);
    assert_true(mlp.flops_forward == 2 * (2 * 100 + 100 * 3));
    assert_int_equal(mlp.sample_tokens, 1);
}

TEST(exported_parameters_have_the_hub_shapes)
{
    scoped(model_release) struct model model = model_of(gpt_settings(12, 12, 768, 1024, 50257));
    static const struct {
        const char *name;
        uint32_t rows, cols;
        bool transpose;
    } rows[] = {{"wte.weight", 50257, 768, false},
                {"wpe.weight", 1024, 768, false},
                {"h.3.ln_1.weight", 768, 1, false},
                {"h.3.attn.c_attn.weight", 768, 2304, true},
                {"h.3.attn.c_attn.bias", 2304, 1, false},
                {"h.3.attn.c_proj.weight", 768, 768, true},
                {"h.3.mlp.c_fc.weight", 768, 3072, true},
                {"h.3.mlp.c_proj.weight", 3072, 768, true},
                {"ln_f.bias", 768, 1, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t number = model_find_tensor(&model, rows[i].name);
        assert_true(number < model.tensors_count);
        const struct model_tensor *tensor = &model.tensors[number];
        assert_string_equal(model.parameters[tensor->parameter].name, rows[i].name);
        assert_int_equal(tensor->shape[0], rows[i].rows);
        assert_int_equal(tensor->shape[1], rows[i].cols);
        assert_int_equal(tensor->transpose, rows[i].transpose);
        assert_int_equal(tensor->dims, rows[i].cols == 1 ? 1 : 2);
    }
    assert_int_equal(model_find_tensor(&model, "loss"), model.tensors_count);
    scoped(model_release) struct model mlp = made_mlp(2, 100, 3);
    assert_int_equal(mlp.tensors_count, 4);
    assert_false(mlp.tensors[0].transpose);
}
