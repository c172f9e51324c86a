/* The generator for one stage. */
#include "tests/unit/unit.h"

#include "common/scoped.h"
#include "worker/program/program.h"

static void printed(const struct program *program, const char *text)
{
    scoped(buf_release) struct buf buf = {0};
    assert_int_equal(program_print(program, &buf), ERR_OK);
    assert_int_equal(buf_append(&buf, "", 1), ERR_OK);
    assert_string_equal((const char *)buf.data, text);
}

TEST(one_stage_pulls_upwards_and_pushes_downwards)
{
    scoped(program_release) struct program program = {0};
    assert_int_equal(program_generate(&program, 2, 2, false), ERR_OK);
    printed(&program, "0UNSHARD,0F0,1UNSHARD,1F0,1B0,0B0,0F1,1F1,1B1,1REDUCE_GRAD,0B1,"
                      "0REDUCE_GRAD\n");
}

TEST(recompute_drops_after_f_and_computes_again_before_b)
{
    scoped(program_release) struct program program = {0};
    assert_int_equal(program_generate(&program, 3, 1, true), ERR_OK);
    printed(&program, "0UNSHARD,0F0,0DROP0,1UNSHARD,1F0,1DROP0,2UNSHARD,2F0,2B0,2REDUCE_GRAD,"
                      "1RC0,1B0,1REDUCE_GRAD,0RC0,0B0,0REDUCE_GRAD\n");
}

TEST(what_is_generated_is_valid_and_counted)
{
    for (uint32_t units = 1; units < 6; units++) {
        for (uint32_t microbatches = 1; microbatches < 5; microbatches++) {
            for (int recompute = 0; recompute < 2; recompute++) {
                scoped(program_release) struct program program = {0};
                struct reason reason;
                assert_int_equal(program_generate(&program, units, microbatches, recompute),
                                 ERR_OK);
                assert_int_equal(program_validate(&program, &reason), ERR_OK);
                assert_int_equal(program_count(&program, ACT_F), units * microbatches);
                assert_int_equal(program_count(&program, ACT_B), units * microbatches);
                assert_int_equal(program_count(&program, ACT_RC),
                                 recompute ? (units - 1) * microbatches : 0);
                assert_int_equal(program_count(&program, ACT_PULL), units);
                assert_int_equal(program_count(&program, ACT_PUSH), units);
            }
        }
    }
}
