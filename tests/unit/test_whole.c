/* What async pushes: whole chunks and one scale. */
#include "tests/unit/executor_fixture.h"

#include "worker/whole.h"

#include <math.h>

static float whole_value(const struct executor_fixture *f, uint32_t chunk, uint32_t i)
{
    float sum[MODEL_CHUNK_WEIGHTS_MAX], part[MODEL_CHUNK_WEIGHTS_MAX];
    uint32_t parts = f->model.parameters[f->model.chunks[chunk].parameter].parts;
    executor_encode(f->executor, chunk, 0, CODEC_FP32, sum);
    assert_int_equal(executor_encoded(f->executor), ERR_OK);
    for (uint32_t p = 1; p < parts; p++) {
        executor_encode(f->executor, chunk, p, CODEC_FP32, part);
        assert_int_equal(executor_encoded(f->executor), ERR_OK);
        sum[i] += part[i];
    }
    return sum[i];
}

TEST_F(tied_parts_are_added, executor, .settings = fixture_gpt())
{
    scoped(whole_release) struct whole whole = {0};
    uint32_t tied = 0;
    fixture_run(f, f->executor, fixture_ticket(0, 0, 1));
    assert_int_equal(whole_init(&whole, f->executor, &f->model), ERR_OK);
    for (uint32_t chunk = 0; chunk < f->model.chunks_count; chunk++) {
        float values[MODEL_CHUNK_WEIGHTS_MAX];
        uint16_t halves[MODEL_CHUNK_WEIGHTS_MAX], expected[MODEL_CHUNK_WEIGHTS_MAX];
        uint32_t n = f->model.chunks[chunk].weights;
        assert_int_equal(whole_encode(&whole, chunk, CODEC_FP32, values), ERR_OK);
        assert_true(values[n / 2] == whole_value(f, chunk, n / 2));
        if (f->model.chunks[chunk].parameter == f->model.loss_parameter)
            continue; /* always fp32 */
        assert_int_equal(whole_encode(&whole, chunk, CODEC_BF16, halves), ERR_OK);
        f->k->cast_to_bf16(f->k, expected, values, n);
        assert_memory_equal(halves, expected, n * sizeof *halves);
        tied += f->model.parameters[f->model.chunks[chunk].parameter].parts > 1;
    }
    assert_true(tied > 0);
}

static float scale_of(const struct whole *whole, double clip_norm)
{
    float scale = -1;
    assert_int_equal(whole_scale(whole, clip_norm, 4, &scale), ERR_OK);
    return scale;
}

TEST_F(the_scale_is_that_of_the_whole_gradients_norm, executor, .settings = fixture_gpt())
{
    scoped(whole_release) struct whole whole = {0};
    double sum = 0;
    fixture_run(f, f->executor, fixture_ticket(0, 0, 1));
    assert_int_equal(whole_init(&whole, f->executor, &f->model), ERR_OK);
    for (uint32_t chunk = 0; chunk < f->model.chunks_count; chunk++)
        for (uint32_t i = 0; i < f->model.chunks[chunk].weights &&
                             f->model.chunks[chunk].parameter != f->model.loss_parameter;
             i++) {
            double value = (double)whole_value(f, chunk, i);
            sum += value * value;
        }
    double norm = sqrt(sum) / 4;
    double scale = (double)scale_of(&whole, norm / 3);
    assert_true(fabs(scale - 1.0 / 3) < 1e-4);
    assert_true(scale_of(&whole, norm * 2) == 1);
    assert_true(scale_of(&whole, 0) == 1);
}

TEST_F(a_gradient_that_is_not_finite_has_scale_0, executor, .settings = fixture_mlp())
{
    scoped(whole_release) struct whole whole = {0};
    executor_weights(f->executor, 0)[0] = __builtin_nanf("");
    fixture_run(f, f->executor, fixture_ticket(0, 0, 1));
    assert_int_equal(whole_init(&whole, f->executor, &f->model), ERR_OK);
    assert_true(scale_of(&whole, 1) == 0);
    assert_true(scale_of(&whole, 0) == 0);
}
