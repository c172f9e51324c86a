/* What the validator refuses, and that it says where. */
#include "tests/unit/unit.h"

#include "common/program/program.h"

/* "" when the text is a valid program, else what the validator says. */
static void judged(const char *text, const char *wanted)
{
    scoped(program_release) struct program program = {0};
    struct reason reason = {.text = ""};
    assert_int_equal(program_parse(slice_of(text), &program, &reason), ERR_OK);
    enum err err = program_validate(&program, &reason);
    assert_int_equal(err, wanted[0] ? ERR_INVALID : ERR_OK);
    if (!strstr(reason.text, wanted))
        fail_msg("\"%s\" is said, not \"%s\"", reason.text, wanted);
}

#define BEGIN "LOAD,ZERO,0UNSHARD,1UNSHARD,"
#define START BEGIN "0F0,1F0,"
#define START2 START "0F1,1F1,"
#define PUSH "1SUM,1LOSS,1REDUCE_GRAD,0REDUCE_GRAD"

TEST(other_orders_than_the_generators_are_fine)
{
    judged(START "1B0,0B0,0REDUCE_GRAD,1SUM,1LOSS,1REDUCE_GRAD", "");
    judged(START2 "1B0,1B1,0B0,0B1," PUSH, "");
    judged(START2 "1SUM,1B0,0B0,1B1,0B1,1LOSS,0REDUCE_GRAD,1REDUCE_GRAD", "");
}

TEST(a_unit_is_pulled_before_it_is_used_and_only_once)
{
    judged("LOAD,ZERO,0F0,0UNSHARD", "row 3 (F of unit 0, microbatch 0): the unit is not");
    judged("LOAD,ZERO,0UNSHARD,0UNSHARD,0F0", "row 4 (PULL of unit 0): the unit is pulled");
}

TEST(samples_are_loaded_and_gradients_begun_before_they_are_used)
{
    judged("ZERO,0UNSHARD,1UNSHARD,0F0,1F0",
           "row 4 (F of unit 0, microbatch 0): no samples are loaded");
    judged("LOAD,0UNSHARD,1UNSHARD,0F0,1F0",
           "row 5 (F of unit 1, microbatch 0): the gradients were not begun");
    judged("LOAD,LOAD,0F0", "row 2 (LOAD): samples are loaded already");
    judged("LOAD,ZERO,ZERO,0F0", "row 3 (ZERO): the gradients before were not used");
}

TEST(every_forward_comes_before_its_backward)
{
    judged(BEGIN "0F0,0B0,1F0", "row 6 (B of unit 0, microbatch 0): the next unit's backward");
    judged(BEGIN "0F0,1B0,1F0", "row 6 (B of unit 1, microbatch 0): its forward has not run");
    judged(BEGIN "1F0,0F0", "row 5 (F of unit 1, microbatch 0): the previous");
    judged(START "0B0,1B0", "row 7 (B of unit 0, microbatch 0): the next unit's");
}

TEST(nothing_runs_twice)
{
    judged(START "0F0,1B0", "row 7 (F of unit 0, microbatch 0): this forward has run already");
    judged(START "1B0,1B0", "row 8 (B of unit 1, microbatch 0): its forward has not run, or its "
                            "backward has");
    judged(START "1B0,0B0,0F0," PUSH, "unit 0 has a forward without a backward");
}

TEST(microbatches_add_up_in_order)
{
    judged(START2 "1B1,0B1,1B0", "row 9 (B of unit 1, microbatch 1): microbatches add up");
    judged(BEGIN "0F0,0F1,1F1,1F0", "row 7 (F of unit 1, microbatch 1): microbatches add up");
}

TEST(dropped_activations_are_recomputed_once)
{
    judged(BEGIN "0F0,0DROP0,1F0,1B0,0RC0,0B0," PUSH, "");
    judged(BEGIN "0F0,0DROP0,1F0,1B0,0B0",
           "row 9 (B of unit 0, microbatch 0): there are no activations");
    judged(START "1B0,0RC0,0B0", "row 8 (RC of unit 0, microbatch 0): the activations are there");
    judged(START "1DROP0,1RC0,1B0",
           "row 8 (RC of unit 1, microbatch 0): the gradient of its input");
    judged(START "0DROP0,0DROP0,1B0", "row 8 (DROP of unit 0, microbatch 0): there are no");
}

TEST(every_unit_is_pushed_once_after_its_last_backward)
{
    judged(START2 "1B0,1SUM,1LOSS,1REDUCE_GRAD,1B1", "row 12 (PUSH of unit 1): not all");
    judged(START "1B0,0B0,1SUM,1LOSS,1REDUCE_GRAD", "ends after row 11: unit 0 is not pushed");
    judged(START "1B0,1SUM,1LOSS,1REDUCE_GRAD,1REDUCE_GRAD",
           "row 11 (PUSH of unit 1): the unit is pushed");
}

TEST(losses_are_summed_when_all_are_there_and_before_they_are_pushed)
{
    judged(START "1B0,0B0,1REDUCE_GRAD", "row 9 (PUSH of unit 1): the loss is not there");
    judged(START "1LOSS", "row 7 (LOSS of unit 1): no losses are summed");
    judged(BEGIN "0F0,1F0,1SUM,0F1,1F1", "row 7 (SUM of unit 1): not all microbatches");
    judged(START "0SUM", "row 7 (SUM of unit 0): this act is the last unit's");
    judged("LOAD,0UNSHARD,1UNSHARD,0E0,1E0", "unit 1 has losses that are not summed");
}

TEST(validation_is_forward_alone)
{
    judged("LOAD,0UNSHARD,0E0,1UNSHARD,1E0,0E1,1E1,1SUM", "");
    judged("LOAD,0UNSHARD,0E0,1UNSHARD,1E0,1E0,1SUM",
           "row 6 (E of unit 1, microbatch 0): the previous unit's forward");
    judged("LOAD,ZERO,0UNSHARD,1UNSHARD,0E0,1E0,1SUM", "unit 0 is not pushed");
}

#define OWN "0UNSHARD,1UNSHARD,0OWN,1OWN,"
#define BODY "LOAD,ZERO,0F0,1F0,1B0,0B0,1SUM,"
#define DIFF "1DIFF,0DIFF,1LOSS,1REDUCE_GRAD,0REDUCE_GRAD"

TEST(local_steps_are_walked_again_and_again)
{
    judged(OWN "3(," BODY "STEP,)," DIFF, "");
    judged(OWN "1(," BODY "STEP,)," DIFF, "");
    judged(OWN "3(," BODY "),STEP," DIFF, "row 5 (LOAD): samples are loaded already");
    judged(OWN "3(," BODY "STEP,),1LOSS,1REDUCE_GRAD", "(PUSH of unit 1): the gradients were not");
    judged(OWN "LOAD,ZERO,0F0,3(,1F0,1B0,0B0,1SUM,STEP,)," DIFF,
           "the body begins or ends while unit 0, microbatch 0 is under way");
    judged("0UNSHARD,1UNSHARD,3(," BODY "STEP,)," DIFF, "row 5 (F of unit 0, microbatch 0): the "
                                                        "unit is not pulled yet");
    judged(OWN "3(," BODY "STEP,),1DIFF,1LOSS,1REDUCE_GRAD",
           "unit 0 has weights of the slot's own");
}

TEST(acts_of_local_steps_need_them)
{
    judged("0UNSHARD,0OWN,LOAD,ZERO,0F0", "row 2 (OWN of unit 0): the program has no local steps");
    judged(START "STEP", "row 7 (STEP): the program has no local steps");
}

TEST(a_hole_between_numbers_does_not_cost_memory)
{
    judged("0UNSHARD,4095F65535", "too few for 4096 units and 65536 microbatches");
    judged("", "no units");
}

TEST(rows_of_our_own_making_are_judged_too)
{
    struct program_row rows[4] = {{ACT_PULL, 0, 0}, {ACT_F, 1, 0}, {ACT_F, 0, 0}, {ACT_B, 0, 0}};
    struct program_place place = {.rows = rows, .rows_count = 4};
    struct program program = {
        .units = 1, .microbatches = 1, .slots = 1, .places_count = 1, .places = &place};
    struct reason reason;
    assert_int_equal(program_validate(&program, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "row 2 (F of unit 1, microbatch 0): no such unit"));
    rows[1] = (struct program_row){ACT_F, 0, 1};
    assert_int_equal(program_validate(&program, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "row 2 (F of unit 0, microbatch 1): no such microbatch"));
    rows[1] = (struct program_row){ACT_COUNT, 0, 0};
    assert_int_equal(program_validate(&program, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "row 2 (? of unit 0, microbatch 0): no such act"));
}
