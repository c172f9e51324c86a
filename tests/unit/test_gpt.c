/* The gpt model: gradients, names, padding. */
#include "tests/models.h"
#include "tests/unit/gradient_fixture.h"

#include "worker/model/unit.h"

TEST(gradients_are_the_slopes_of_the_loss)
{
    gradient_check_all(fixture_gpt());
    struct spec_model one = fixture_gpt();
    one.layers = 1;
    one.heads = 4;
    one.context = 1;
    one.vocabulary = 130;
    gradient_check_all(one);
}

/* gpt.c takes a unit's weights by place, not by name. */
TEST(units_use_parameters_in_the_order_of_the_code)
{
    static const char *const names[] = {
        "wte.weight",
        "wpe.weight",
        "h.0.ln_1.weight",
        "h.0.ln_1.bias",
        "h.0.attn.c_attn.weight",
        "h.0.attn.c_attn.bias",
        "h.0.attn.c_proj.weight",
        "h.0.attn.c_proj.bias",
        "h.0.ln_2.weight",
        "h.0.ln_2.bias",
        "h.0.mlp.c_fc.weight",
        "h.0.mlp.c_fc.bias",
        "h.0.mlp.c_proj.weight",
        "h.0.mlp.c_proj.bias",
        "ln_f.weight",
        "ln_f.bias",
        "wte.weight",
        "loss",
    };
    struct executor_fixture f = {.settings = fixture_gpt()};
    f.settings.layers = 1;
    executor_set_up(&f);
    assert_int_equal(f.model.uses_count, sizeof names / sizeof *names);
    for (uint32_t use = 0; use < f.model.uses_count; use++)
        assert_string_equal(f.model.parameters[f.model.uses[use].parameter].name, names[use]);
    executor_tear_down(&f);
}

TEST_F(padded_vocabulary_has_no_gradient_and_no_influence, executor, .settings = fixture_gpt())
{
    uint32_t wte = parameter_named(&f->model, "wte.weight");
    const struct model_parameter *p = &f->model.parameters[wte];
    uint64_t first = (uint64_t)p->shape[0] * p->cols;
    assert_true(first < p->weights);
    struct executor_loss before = fixture_run(f, f->executor, fixture_ticket(0, 0, 0));
    for (uint32_t part = 0; part < 2; part++)
        for (uint64_t i = first; i < p->weights; i++)
            assert_true(executor_gradient(f->executor, wte, part)[i] == 0);
    for (uint64_t i = first; i < p->weights; i++)
        executor_weights(f->executor, wte)[i] = 9;
    struct executor_loss after = fixture_run(f, f->executor, fixture_ticket(0, 0, 0));
    assert_true(after.loss_sum == before.loss_sum);
}
