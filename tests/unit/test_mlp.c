/* The mlp model: gradients of any depth and both activations. */
#include "tests/unit/gradient_fixture.h"

TEST(gradients_are_the_slopes_of_the_loss)
{
    struct spec_model settings = fixture_mlp();
    gradient_check_all(settings);
    settings.activation = SPEC_RELU;
    gradient_check_all(settings);
    settings.sizes_count = 3;
    gradient_check_all(settings);
    settings.sizes_count = 2; /* a single linear is first and last unit at once */
    gradient_check_all(settings);
    settings.sizes_count = 7;
    settings.activation = SPEC_TANH;
    memcpy(settings.sizes, (const uint32_t[]){3, 8, 1, 17, 6, 5, 2}, 7 * sizeof(uint32_t));
    gradient_check_all(settings);
}

TEST_F(logits_in_blocks_of_a_row_give_the_same_gradients, executor, .settings = fixture_mlp())
{
    f->train.logits_bytes_max = 1;
    struct executor *blocked = fixture_executor(f, 1);
    fixture_run(f, f->executor, fixture_ticket(0, 0, 1));
    fixture_run(f, blocked, fixture_ticket(0, 0, 1));
    float *whole = fixture_gradients(f, f->executor), *rows = fixture_gradients(f, blocked);
    for (size_t i = 0; i < fixture_gradient_floats(f); i++)
        assert_true(fabsf(whole[i] - rows[i]) < 1e-5F);
    free(whole);
    free(rows);
}
