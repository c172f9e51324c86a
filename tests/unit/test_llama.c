/* The llama model: gradients, names, tensors, the grid of grouped heads. */
#include "tests/unit/gradient_fixture.h"

TEST(gradients_are_the_slopes_of_the_loss)
{
    gradient_check_all(fixture_llama());
    struct spec_model one = fixture_llama();
    one.layers = 1;
    one.kv_heads = 1;
    one.hidden = 9; /* odd rows of gate and up */
    one.context = 1;
    one.vocabulary = 130;
    gradient_check_all(one);
    one.kv_heads = one.heads;
    gradient_check_all(one);
}

/* llama.c's operations name a unit's uses by place. */
TEST(units_use_parameters_in_the_order_of_the_operations)
{
    static const char *const names[] = {
        "model.embed_tokens.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.qkv_proj.weight",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.mlp.gate_up_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.norm.weight",
        "lm_head.weight",
        "loss",
    };
    struct spec_model settings = fixture_llama();
    settings.layers = 1;
    scoped(model_release) struct model model = model_of(settings);
    model_check(&model);
    model_check_tables(&model);
    assert_int_equal(model.uses_count, sizeof names / sizeof *names);
    for (uint32_t use = 0; use < model.uses_count; use++)
        assert_string_equal(model.parameters[model.uses[use].parameter].name, names[use]);
}

/* The shapes of meta-llama/Llama-2-7b-hf (32 heads) and of a block of Meta-Llama-3-8B (8 heads of
 * keys and values), and their published sizes. */
TEST(llamas_have_as_many_weights_as_published)
{
    static const struct {
        uint32_t kv_heads, hidden, vocabulary;
        uint64_t weights;
    } rows[] = {{32, 11008, 32000, 6738415616}, {8, 14336, 128256, 8030261248}};
    for (size_t i = 0; i < 2; i++) {
        struct spec_model settings = {SPEC_LLAMA, .layers = 32, .heads = 32, .width = 4096};
        settings.kv_heads = rows[i].kv_heads;
        settings.hidden = rows[i].hidden;
        settings.vocabulary = rows[i].vocabulary;
        scoped(model_release) struct model model = model_of(settings);
        assert_int_equal(model.weights_logical, rows[i].weights);
    }
}

TEST(fused_parameters_are_several_tensors)
{
    static const struct {
        const char *name;
        uint32_t row, rows, cols;
    } rows[] = {{"model.layers.1.self_attn.q_proj.weight", 0, 16, 16},
                {"model.layers.1.self_attn.k_proj.weight", 16, 8, 16},
                {"model.layers.1.self_attn.v_proj.weight", 24, 8, 16},
                {"model.layers.1.self_attn.o_proj.weight", 0, 16, 16},
                {"model.layers.1.mlp.gate_proj.weight", 0, 24, 16},
                {"model.layers.1.mlp.up_proj.weight", 24, 24, 16},
                {"model.layers.1.mlp.down_proj.weight", 0, 16, 24},
                {"model.layers.1.input_layernorm.weight", 0, 16, 1},
                {"model.embed_tokens.weight", 0, 37, 16},
                {"lm_head.weight", 0, 37, 16}};
    scoped(model_release) struct model model = model_of(fixture_llama());
    assert_int_equal(model.tensors_count, 1 + 9 * 2 + 2);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t number = model_find_tensor(&model, rows[i].name);
        assert_true(number < model.tensors_count);
        const struct model_tensor *tensor = &model.tensors[number];
        assert_int_equal(tensor->row, rows[i].row);
        assert_int_equal(tensor->shape[0], rows[i].rows);
        assert_int_equal(tensor->shape[1], rows[i].cols);
        assert_false(tensor->transpose);
    }
}

/* A cut of the parameter's dim at each multiple of `length`. */
static void assert_cuts(const struct model *model, const char *name, bool rows, uint32_t length)
{
    const struct model_parameter *p = &model->parameters[parameter_named(model, name)];
    uint32_t end = rows ? p->rows : p->cols;
    for (uint32_t at = 0; at < end; at += length) {
        bool begins = false;
        for (uint32_t c = p->chunk_first; c < p->chunk_first + p->chunks_count; c++)
            begins |= (rows ? model->chunks[c].row : model->chunks[c].col) == at;
        assert_true(begins);
    }
}

/* Each of two tensor ranks has half the query heads, half the key and half the value heads, and
 * half the gates with half the ups. */
TEST(a_degree_cuts_between_heads_of_keys_and_halves_gate_and_up_apart)
{
    scoped(model_release) struct model model =
        model_of((struct spec_model){SPEC_LLAMA, .layers = 1, .heads = 6, .kv_heads = 2,
                                     .width = 96, .hidden = 100, .vocabulary = 256});
    model_check(&model);
    assert_cuts(&model, "model.layers.0.self_attn.qkv_proj.weight", true, 16);
    assert_cuts(&model, "model.layers.0.self_attn.o_proj.weight", false, 48);
    assert_cuts(&model, "model.layers.0.mlp.gate_up_proj.weight", true, 25);
    assert_cuts(&model, "model.layers.0.mlp.down_proj.weight", false, 25);
}

TEST_F(padded_vocabulary_has_no_gradient_and_no_influence, executor, .settings = fixture_llama())
{
    padding_check(f, "lm_head.weight");
}
