/* Where activations lie: never two alive in one place, and the predicted peak. */
#include "tests/unit/unit.h"

#include "worker/program/memory.h"

enum { KB = 1024 };

/* Like a gpt: embedding, blocks in place, head. */
static const struct program_sizes gpt[4] = {
    {.output = 1 * KB},
    {.output = 1 * KB, .saved = 15 * KB, .in_place = true},
    {.output = 1 * KB, .saved = 15 * KB, .in_place = true},
    {.saved = 1 * KB, .dinput = 1 * KB},
};

/* A program, and where its activations lie. */
struct plan_fixture {
    struct program_shape shape; /* of a training program of gpt; no units: the test makes it */
    struct program program;
    struct program_memory memory;
};

static void plan(struct plan_fixture *f, const struct program_sizes *sizes)
{
    assert_int_equal(program_memory_plan(&f->program, f->program.places, sizes, &f->memory),
                     ERR_OK);
}

static void plan_set_up(struct plan_fixture *f)
{
    if (f->shape.units == 0)
        return;
    assert_int_equal(program_training(&f->program, &f->shape), ERR_OK);
    plan(f, gpt);
}

static void plan_tear_down(struct plan_fixture *f)
{
    program_release(&f->program);
    program_memory_release(&f->memory);
}

TEST_F(the_peak_of_a_microbatch_is_what_it_keeps, plan, .shape = {4, 3})
{
    /* 3 outputs, 2 blocks, the head's, one gradient; whatever the number of microbatches. */
    assert_int_equal(f->memory.live_bytes_max, (3 + 2 * 15 + 1 + 1) * KB);
    assert_int_equal(f->memory.arena_bytes, f->memory.live_bytes_max);
}

TEST_F(recompute_keeps_inputs_and_one_block, plan, .shape = {4, 2, .recompute = true})
{
    assert_int_equal(f->memory.live_bytes_max, (3 + 15 + 1) * KB);
    assert_int_equal(f->memory.arena_bytes, f->memory.live_bytes_max);
}

TEST_F(rows_find_what_earlier_rows_left, plan)
{
    const char *text =
        "LOAD,ZERO,0UNSHARD,1UNSHARD,2UNSHARD,0F0,1F0,0F1,2F0,2B0,1F1,2F1,1B0,2B1,1B1,0B0,0B1,"
        "0REDUCE_GRAD,1REDUCE_GRAD,2SUM,2LOSS,2REDUCE_GRAD";
    const struct program_sizes sizes[3] = {
        {.output = 100, .saved = 10},
        {.output = 200, .saved = 20, .dinput = 100},
        {.saved = 30, .dinput = 200},
    };
    assert_int_equal(program_parse(slice_of(text), &f->program, NULL), ERR_OK);
    assert_int_equal(program_validate(&f->program, NULL), ERR_OK);
    plan(f, sizes);
    const struct program_offsets *rows = f->memory.rows;
    assert_true(rows[6].input == rows[5].output);    /* 1F0 reads 0F0's output */
    assert_true(rows[8].input == rows[6].output);    /* 2F0 1F0's */
    assert_true(rows[10].input == rows[7].output);   /* 1F1 0F1's */
    assert_true(rows[12].saved == rows[6].saved);    /* 1B0 what 1F0 left */
    assert_true(rows[12].doutput == rows[9].dinput); /* 1B0 2B0's gradient */
    assert_true(rows[9].dinput == rows[8].dinput);   /* begun in 2F0 */
    assert_true(rows[15].doutput == rows[12].dinput);
    assert_true(rows[15].dinput == PROGRAM_NOWHERE);
    assert_true(rows[5].output != rows[7].output); /* both microbatches alive */
    assert_true(rows[0].output == PROGRAM_NOWHERE);
    for (uint32_t i = 0; i < f->program.places->rows_count; i++)
        assert_true(rows[i].output == PROGRAM_NOWHERE || rows[i].output % 64 == 0);
}

/* Every array alive at a row: who wrote it last? Writes a mark into each place that a row makes
 * and looks for it in each row that reads it. */
TEST_F(no_place_is_given_away_while_it_is_needed, plan, .shape = {4, 2, .recompute = true})
{
    static uint32_t arena[64 * KB];
    for (uint32_t i = 0; i < f->program.places->rows_count; i++) {
        struct program_row row = f->program.places->rows[i];
        struct program_offsets p = f->memory.rows[i];
        uint32_t name = 1000 * row.microbatch + row.unit;
        bool middle = row.unit == 1 || row.unit == 2;
        if (row.act == ACT_F || row.act == ACT_RC) {
            if (row.unit > 0)
                assert_int_equal(arena[p.input], 10000 + name - 1);
            if (p.output != PROGRAM_NOWHERE)
                arena[p.output] = 10000 + name;
            if (p.saved != PROGRAM_NOWHERE)
                arena[p.saved] = 20000 + name;
        } else if (row.act == ACT_B) {
            if (row.unit > 0)
                assert_int_equal(arena[p.input], 10000 + name - 1);
            if (middle)
                assert_int_equal(arena[p.saved], 20000 + name);
            if (row.unit < 3)
                assert_int_equal(arena[p.doutput], 30000 + name + 1);
            if (p.dinput != PROGRAM_NOWHERE)
                arena[p.dinput] = 30000 + name;
        }
    }
}

TEST_F(validation_keeps_one_result_and_what_its_reader_needs, plan)
{
    const struct program_shape shape = {4, 3};
    assert_int_equal(program_validation(&f->program, &shape), ERR_OK);
    plan(f, gpt);
    assert_int_equal(f->memory.live_bytes_max, (2 + 15) * KB);
    assert_int_equal(f->memory.arena_bytes, (2 + 15) * KB);
}

TEST(local_steps_need_the_memory_of_one)
{
    scoped(program_release) struct program once = {0}, often = {0};
    scoped(program_memory_release) struct program_memory one = {0}, more = {0};
    const struct program_shape shape = {4, 3}, local = {4, 3, .local_steps = 50};
    assert_int_equal(program_training(&once, &shape), ERR_OK);
    assert_int_equal(program_training(&often, &local), ERR_OK);
    assert_int_equal(program_memory_plan(&once, once.places, gpt, &one), ERR_OK);
    assert_int_equal(program_memory_plan(&often, often.places, gpt, &more), ERR_OK);
    assert_int_equal(more.live_bytes_max, one.live_bytes_max);
    assert_int_equal(more.arena_bytes, one.arena_bytes);
}
