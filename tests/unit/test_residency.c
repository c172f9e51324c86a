/* Streamed weights: what is asked for, pulled and forgotten when, and what a place then holds. */
#include "tests/unit/program_rows.h"
#include "tests/unit/unit.h"

#include "common/program/passes.h"
#include "worker/program/memory.h"
#include "worker/program/mesh.h"

/* One place of three units, two microbatches. */
static void streamed(enum schedule_kind schedule, struct residency residency, const char *wanted)
{
    scoped(program_release) struct program compute = {0}, resident = {0}, program = {0};
    scoped(buf_release) struct buf text = {0};
    const uint32_t cuts[] = {0, 3};
    const struct schedule_shape shape = {schedule, 1, 1, 3, 2, 1};
    struct reason reason = {.text = ""};
    assert_int_equal(schedule_generate(&shape, cuts, &compute), ERR_OK);
    if (residency.by_unit)
        residency_order(&compute);
    assert_int_equal(passes_complete(&compute, &(struct passes_options){0}, &resident), ERR_OK);
    assert_int_equal(residency_stream(&resident, &residency, &program), ERR_OK);
    if (program_validate(&program, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    assert_int_equal(program_print(&program, &text), ERR_OK);
    assert_int_equal(buf_append(&text, "", 1), ERR_OK);
    assert_string_equal((const char *)text.data, wanted);
}

TEST(units_are_pulled_for_forward_and_backward)
{
    streamed(SCHEDULE_GPIPE, (struct residency){.streamed = true, .by_unit = true},
             "LOAD,0UNSHARD,0F0,0F1,0RESHARD,1UNSHARD,1F0,1F1,1RESHARD,2CLEAR,2UNSHARD,2F0,2F1,"
             "2B0,2B1,2RESHARD,2SUM,2LOSS,2REDUCE_GRAD,2FREE,1CLEAR,1UNSHARD,1B0,1B1,1RESHARD,"
             "1REDUCE_GRAD,1FREE,0CLEAR,0B0,0B1,0REDUCE_GRAD\n");
}

/* The last unit is asked for when the first, which may share its weights, is in place. */
TEST(the_next_unit_is_asked_for_while_one_is_computed)
{
    streamed(SCHEDULE_GPIPE, (struct residency){.streamed = true, .by_unit = true, .prefetch = 1},
             "LOAD,0UNSHARD,1ASK,0F0,0F1,0RESHARD,1UNSHARD,2ASK,1F0,1F1,1RESHARD,2CLEAR,2UNSHARD,"
             "1ASK,2F0,2F1,2B0,2B1,2RESHARD,2SUM,2LOSS,2REDUCE_GRAD,1CLEAR,1UNSHARD,1B0,1B1,"
             "1RESHARD,1REDUCE_GRAD,2FREE,0CLEAR,0B0,0B1,0REDUCE_GRAD\n");
    streamed(SCHEDULE_GPIPE, (struct residency){.streamed = true, .by_unit = true, .prefetch = 9},
             "LOAD,0UNSHARD,1ASK,2ASK,0F0,0F1,0RESHARD,1UNSHARD,1F0,1F1,1RESHARD,1ASK,2CLEAR,"
             "2UNSHARD,2F0,2F1,2B0,2B1,2RESHARD,2SUM,2LOSS,2REDUCE_GRAD,1CLEAR,1UNSHARD,1B0,1B1,"
             "1RESHARD,1REDUCE_GRAD,0CLEAR,0B0,0B1,0REDUCE_GRAD\n");
}

TEST(weights_may_be_kept_for_the_backward)
{
    streamed(SCHEDULE_1F1B, (struct residency){.streamed = true, .keep_after_forward = true},
             "LOAD,0UNSHARD,0F0,1UNSHARD,1F0,2CLEAR,2UNSHARD,2F0,2B0,2RESHARD,1CLEAR,1B0,1RESHARD,"
             "0CLEAR,0B0,0F1,0RESHARD,1UNSHARD,1F1,2UNSHARD,2F1,2B1,2RESHARD,2SUM,2LOSS,"
             "2REDUCE_GRAD,1B1,1RESHARD,1REDUCE_GRAD,0B1,0REDUCE_GRAD\n");
}

/* Two units that follow each other never take more than both: of one the gradients are computed,
 * the other's are pushed. */
TEST(a_place_holds_the_weights_and_gradients_of_two_units)
{
    static const uint64_t weights[] = {100, 1000, 1000, 1000, 1000, 300};
    struct program_sizes sizes[6] = {{0}};
    scoped(program_release) struct program compute = {0}, resident = {0}, program = {0};
    scoped(program_memory_release) struct program_memory memory = {0};
    const uint32_t cuts[] = {0, 6};
    const struct schedule_shape shape = {SCHEDULE_GPIPE, 1, 1, 6, 4, 1};
    const struct residency residency = {.streamed = true, .by_unit = true, .prefetch = 1};
    for (uint32_t unit = 0; unit < 6; unit++) {
        sizes[unit].weights = weights[unit];
        sizes[unit].gradients = 2 * weights[unit];
    }
    assert_int_equal(schedule_generate(&shape, cuts, &compute), ERR_OK);
    residency_order(&compute);
    assert_int_equal(passes_complete(&compute, &(struct passes_options){0}, &resident), ERR_OK);
    assert_int_equal(program_memory_plan(&resident, resident.places, sizes, &memory), ERR_OK);
    assert_int_equal(memory.weights_bytes, 0);
    assert_int_equal(memory.gradients_bytes, 0);
    program_memory_release(&memory);
    assert_int_equal(residency_stream(&resident, &residency, &program), ERR_OK);
    assert_int_equal(program_memory_plan(&program, program.places, sizes, &memory), ERR_OK);
    assert_int_equal(memory.weights_bytes, 2 * 1024);
    assert_int_equal(memory.gradients_bytes, 2 * 2048);
}

/* Microbatch by microbatch all gradients begin before the first are pushed; slots' sums stay. */
TEST(gradients_that_are_needed_are_not_freed)
{
    streamed(SCHEDULE_1F1B, (struct residency){.streamed = true},
             "LOAD,0UNSHARD,0F0,0RESHARD,1UNSHARD,1F0,1RESHARD,2CLEAR,2UNSHARD,2F0,2B0,2RESHARD,"
             "1CLEAR,1UNSHARD,1B0,1RESHARD,0CLEAR,0B0,0UNSHARD,0F1,0RESHARD,1UNSHARD,1F1,1RESHARD,"
             "2UNSHARD,2F1,2B1,2RESHARD,2SUM,2LOSS,2REDUCE_GRAD,1UNSHARD,1B1,1RESHARD,"
             "1REDUCE_GRAD,0B1,0REDUCE_GRAD\n");
    scoped(program_release) struct program compute = {0}, resident = {0}, program = {0};
    const uint32_t cuts[] = {0, 3};
    const struct schedule_shape shape = {SCHEDULE_GPIPE, 1, 1, 3, 4, 2};
    const struct residency residency = {.streamed = true, .by_unit = true};
    assert_int_equal(schedule_generate(&shape, cuts, &compute), ERR_OK);
    residency_order(&compute);
    assert_int_equal(passes_complete(&compute, &(struct passes_options){0}, &resident), ERR_OK);
    assert_int_equal(residency_stream(&resident, &residency, &program), ERR_OK);
    assert_int_equal(rows_of(&program, ACT_PUSH), 6);
    assert_int_equal(rows_of(&program, ACT_FREE), 0);
}

TEST(what_is_not_pulled_or_pushed_is_not_there)
{
    static const struct {
        const char *text, *wanted;
    } rows[] = {
        {"LOAD,0UNSHARD,0CLEAR,0F0,0RESHARD,0B0,0SUM,0LOSS,0REDUCE_GRAD", ""},
        {"LOAD,0ASK,0CLEAR,0F0", "row 4 (F of unit 0, microbatch 0): the unit is not pulled yet"},
        {"LOAD,0ASK,0ASK", "row 3 (ASK of unit 0): the unit is asked for already"},
        {"LOAD,0RESHARD", "row 2 (FORGET of unit 0): the unit is not pulled yet"},
        {"LOAD,0UNSHARD,0CLEAR,0F0,0B0,0SUM,0LOSS,0REDUCE_GRAD,0ASK",
         "unit 0 is asked for, and not pulled"},
        {"LOAD,0UNSHARD,0CLEAR,0F0,0B0,0FREE",
         "row 6 (FREE of unit 0): the unit is not pushed yet"},
        {"LOAD,0UNSHARD,0CLEAR,0F0,0B0,0SUM,0LOSS,0REDUCE_GRAD,0FREE,0FREE",
         "row 10 (FREE of unit 0): the unit's gradients are freed already"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scoped(program_release) struct program program = {0};
        struct reason reason = {.text = ""};
        assert_int_equal(program_parse(slice_of(rows[i].text), &program, NULL), ERR_OK);
        enum err err = program_validate(&program, &reason);
        assert_int_equal(err, *rows[i].wanted == 0 ? ERR_OK : ERR_INVALID);
        if (strstr(reason.text, rows[i].wanted) == NULL)
            fail_msg("%s", reason.text);
    }
}
