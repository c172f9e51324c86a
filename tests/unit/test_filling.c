/* How much of a device a run's products fill. */
#include "worker/filling.h"

#include "tests/unit/unit.h"

#include <math.h>

enum { H200 = 132 /* multiprocessors */ };

static double share(uint32_t context, uint32_t samples)
{
    const struct spec_model gpt2 = {.kind = SPEC_GPT,
                                    .layers = 12,
                                    .heads = 12,
                                    .kv_heads = 12,
                                    .width = 768,
                                    .context = context,
                                    .vocabulary = 50257,
                                    .tensor_max = 8};
    scoped(model_release) struct model model;
    assert_int_equal(model_init(&model, &gpt2, NULL), ERR_OK);
    return filling_share(&model, samples, H200);
}

/* c_attn, c_proj, c_fc and mlp.c_proj have 3, 1, 4 and 4 parts in 12 of a layer's operations, and 18,
 * 6, 24 and 6 tiles for each 128 tokens. */
TEST(few_tokens_leave_most_of_a_device_idle)
{
    double expected = 2 * (3 * 18 + 1 * 6 + 4 * 24 + 4 * 6) / (12.0 * H200);
    assert_true(fabs(share(256, 1) - expected) < 1e-12);
    assert_true(expected < 0.25);
}

TEST(each_product_fills_it_once_at_most)
{
    double expected = (3 + 1 * 48.0 / H200 + 4 + 4 * 48.0 / H200) / 12;
    assert_true(fabs(share(1024, 1) - expected) < 1e-12);
    assert_true(share(1024, 32) == 1);
}
