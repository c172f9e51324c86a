/* The generator for one stage. */
#include "tests/unit/unit.h"

#include "tests/unit/program_rows.h"

static void printed(const struct program *program, const char *what, const char *text)
{
    scoped(buf_release) struct buf buf = {0};
    assert_int_equal(program_print(program, &buf), ERR_OK);
    assert_int_equal(buf_append(&buf, "", 1), ERR_OK);
    if (strcmp((const char *)buf.data, text) != 0)
        fail_msg("%s: %s", what, (const char *)buf.data);
}

TEST(programs_of_one_stage)
{
    static const struct {
        const char *what;
        struct program_shape shape;
        const char *text;
    } rows[] = {
        {"pulls upwards and pushes downwards",
         {2, 2},
         "LOAD,ZERO,0UNSHARD,0F0,1UNSHARD,1F0,1B0,0B0,0F1,1F1,1B1,1SUM,1LOSS,1REDUCE_GRAD,0B1,"
         "0REDUCE_GRAD\n"},
        {"recompute drops after F and computes again before B",
         {3, 1, .recompute = true},
         "LOAD,ZERO,0UNSHARD,0F0,0DROP0,1UNSHARD,1F0,1DROP0,2UNSHARD,2F0,2B0,2SUM,2LOSS,"
         "2REDUCE_GRAD,1RC0,1B0,1REDUCE_GRAD,0RC0,0B0,0REDUCE_GRAD\n"},
        {"local steps are a body between pull and push",
         {2, 2, .local_steps = 9},
         "0UNSHARD,0OWN,1UNSHARD,1OWN,9(,LOAD,ZERO,0F0,1F0,1B0,0B0,0F1,1F1,1B1,1SUM,0B1,STEP,),"
         "1DIFF,1LOSS,1REDUCE_GRAD,0DIFF,0REDUCE_GRAD\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        scoped(program_release) struct program program = {0};
        assert_int_equal(program_training(&program, &rows[i].shape), ERR_OK);
        printed(&program, rows[i].what, rows[i].text);
    }
}

TEST(validation_goes_forward_alone)
{
    scoped(program_release) struct program program = {0};
    const struct program_shape shape = {2, 2, .local_steps = 9, .recompute = true};
    assert_int_equal(program_validation(&program, &shape), ERR_OK);
    printed(&program, "validation", "LOAD,0UNSHARD,0E0,1UNSHARD,1E0,0E1,1E1,1SUM\n");
}

TEST(every_act_has_facts)
{
    for (int act = 0; act < ACT_COUNT; act++) {
        const struct act_facts *facts = act_facts((enum act)act);
        assert_non_null(facts->name);
        assert_non_null(facts->text);
        struct act_arrays arrays = act_arrays((enum act)act, (struct act_unit){true, true});
        assert_true((arrays.reads | arrays.writes | arrays.begins | arrays.adds) != 0);
    }
}

static void counted(struct program_shape shape)
{
    scoped(program_release) struct program program = {0}, validation = {0};
    uint32_t cells = shape.units * shape.microbatches;
    assert_int_equal(program_training(&program, &shape), ERR_OK);
    assert_int_equal(program_validate(&program, NULL), ERR_OK);
    assert_int_equal(rows_of(&program, ACT_F), cells);
    assert_int_equal(rows_of(&program, ACT_B), cells);
    assert_int_equal(rows_of(&program, ACT_RC), shape.recompute ? cells - shape.microbatches : 0);
    assert_int_equal(rows_of(&program, ACT_PULL), shape.units);
    assert_int_equal(rows_of(&program, ACT_PUSH), shape.units);
    assert_int_equal(rows_of(&program, ACT_STEP), shape.local_steps > 0);
    assert_int_equal(program_validation(&validation, &shape), ERR_OK);
    assert_int_equal(program_validate(&validation, NULL), ERR_OK);
    assert_int_equal(rows_of(&validation, ACT_E), cells);
}

TEST(what_is_generated_is_valid_and_counted)
{
    for (uint32_t units = 1; units < 6; units++)
        for (uint32_t microbatches = 1; microbatches < 5; microbatches++)
            for (uint32_t local_steps = 0; local_steps < 3; local_steps++) {
                counted((struct program_shape){units, microbatches, local_steps, false});
                counted((struct program_shape){units, microbatches, local_steps, true});
            }
}
