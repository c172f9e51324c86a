/* What the validator refuses, and that it says where. */
#include "tests/unit/unit.h"

#include "common/scoped.h"
#include "worker/program/program.h"

#include <string.h>

/* "" when the text is a valid program, else what the validator says. */
static void judged(const char *text, const char *wanted)
{
    scoped(program_release) struct program program = {0};
    struct reason reason = {.text = ""};
    struct slice slice = {(const uint8_t *)text, strlen(text)};
    assert_int_equal(program_parse(slice, &program, &reason), ERR_OK);
    enum err err = program_validate(&program, &reason);
    assert_int_equal(err, wanted[0] ? ERR_INVALID : ERR_OK);
    if (!strstr(reason.text, wanted))
        fail_msg("\"%s\" is said, not \"%s\"", reason.text, wanted);
}

#define START "0UNSHARD,1UNSHARD,0F0,1F0,"
#define START2 START "0F1,1F1,"

TEST(other_orders_than_the_generators_are_fine)
{
    judged(START "1B0,0B0,0REDUCE_GRAD,1REDUCE_GRAD", "");
    judged(START2 "1B0,1B1,0B0,0B1,0REDUCE_GRAD,1REDUCE_GRAD", "");
    judged(START2 "1B0,0B0,1B1,0B1,0REDUCE_GRAD,1REDUCE_GRAD", "");
}

TEST(a_unit_is_pulled_before_it_is_used_and_only_once)
{
    judged("0F0,0UNSHARD,0B0,0REDUCE_GRAD", "row 1 (F of unit 0, microbatch 0): the unit is not");
    judged("0UNSHARD,0UNSHARD,0F0,0B0,0REDUCE_GRAD", "row 2 (PULL of unit 0): the unit is pulled");
}

TEST(every_forward_comes_before_its_backward)
{
    judged("0UNSHARD,1UNSHARD,0F0,0B0,1F0,1B0", "row 4 (B of unit 0, microbatch 0): the forward");
    judged("0UNSHARD,1UNSHARD,1F0,0F0,1B0,0B0", "row 3 (F of unit 1, microbatch 0): the previous");
    judged(START "0B0,1B0", "row 5 (B of unit 0, microbatch 0): the next unit's");
}

TEST(nothing_runs_twice)
{
    judged(START "0F0,1B0", "row 5 (F of unit 0, microbatch 0): this forward has run already");
    judged(START "1B0,1B0", "row 6 (B of unit 1, microbatch 0): this backward has run already");
}

TEST(microbatches_add_up_in_order)
{
    judged(START2 "1B1,0B1,1B0", "row 7 (B of unit 1, microbatch 1): microbatches add up");
    judged("0UNSHARD,1UNSHARD,0F0,0F1,1F1,1F0,1B0,0B0",
           "row 5 (F of unit 1, microbatch 1): the last");
}

TEST(dropped_activations_are_recomputed_once)
{
    judged("0UNSHARD,1UNSHARD,0F0,0DROP0,1F0,1B0,0RC0,0B0,0REDUCE_GRAD,1REDUCE_GRAD", "");
    judged("0UNSHARD,1UNSHARD,0F0,0DROP0,1F0,1B0,0B0",
           "row 7 (B of unit 0, microbatch 0): the acti");
    judged(START "1B0,0RC0,0B0", "row 6 (RC of unit 0, microbatch 0): the activations were not");
    judged(START "1DROP0,1RC0,1B0", "row 6 (RC of unit 1, microbatch 0): the last unit");
    judged(START "0DROP0,0DROP0,1B0", "row 6 (DROP of unit 0, microbatch 0): there are no");
}

TEST(every_unit_is_pushed_once_after_its_last_backward)
{
    judged(START2 "1B0,1REDUCE_GRAD,1B1", "row 8 (PUSH of unit 1): not all");
    judged(START "1B0,0B0,1REDUCE_GRAD", "ends after row 7: unit 0 is not pushed");
    judged(START "1B0,1REDUCE_GRAD,1REDUCE_GRAD", "row 7 (PUSH of unit 1): the unit is pushed");
}

TEST(a_hole_between_numbers_does_not_cost_memory)
{
    judged("0UNSHARD,4095F65535", "too few for 4096 units and 65536 microbatches");
    judged("", "no units");
}

TEST(rows_of_our_own_making_are_judged_too)
{
    struct row rows[4] = {{ACT_PULL, 0, 0}, {ACT_F, 1, 0}, {ACT_F, 0, 0}, {ACT_B, 0, 0}};
    struct program program = {.units = 1, .microbatches = 1, .rows_count = 4, .rows = rows};
    struct reason reason;
    assert_int_equal(program_validate(&program, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "row 2 (F of unit 1, microbatch 0): no such unit"));
    rows[1] = (struct row){ACT_F, 0, 1};
    assert_int_equal(program_validate(&program, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "row 2 (F of unit 0, microbatch 1): no such microbatch"));
    rows[1] = (struct row){ACT_COUNT, 0, 0};
    assert_int_equal(program_validate(&program, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "row 2 (? of unit 0, microbatch 0): no such act"));
}
