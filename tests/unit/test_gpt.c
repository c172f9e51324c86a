/* The gpt model: gradients, names, padding. */
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
    struct executor_fixture f = {.settings = fixture_gpt()};
    f.settings.layers = 1;
    executor_set_up(&f);
    assert_int_equal(f.model.uses_count, GPT_NAMES + 2);
    for (uint32_t use = 0; use < f.model.uses_count; use++) {
        const char *name = use < GPT_NAMES    ? gpt_name(use)
                           : use == GPT_NAMES ? "wte.weight"
                                              : "loss";
        assert_string_equal(f.model.parameters[f.model.uses[use].parameter].name, name);
    }
    executor_tear_down(&f);
}

TEST_F(padded_vocabulary_has_no_gradient_and_no_influence, executor, .settings = fixture_gpt())
{
    padding_check(f, "wte.weight");
}
