/* Programs as text. */
#include "tests/unit/unit.h"

#include "common/program/program.h"

TEST(what_is_printed_parses_to_the_same)
{
    scoped(program_release) struct program made = {0}, parsed = {0};
    scoped(buf_release) struct buf buf = {0};
    const struct program_shape shape = {5, 3, .local_steps = 7, .recompute = true};
    assert_int_equal(program_training(&made, &shape), ERR_OK);
    assert_int_equal(program_print(&made, &buf), ERR_OK);
    assert_int_equal(program_parse(buf_slice(&buf), &parsed, NULL), ERR_OK);
    assert_int_equal(parsed.units, made.units);
    assert_int_equal(parsed.microbatches, made.microbatches);
    assert_int_equal(parsed.local_steps, 7);
    assert_int_equal(parsed.places_count, 1);
    const struct program_place *place = made.places, *again = parsed.places;
    assert_int_equal(again->rows_count, place->rows_count);
    assert_int_equal(again->body_first, place->body_first);
    assert_int_equal(again->body_end, place->body_end);
    assert_memory_equal(again->rows, place->rows, place->rows_count * sizeof *place->rows);
}

TEST(no_program_is_no_text)
{
    scoped(program_release) struct program none = {0}, parsed = {0};
    scoped(buf_release) struct buf buf = {0};
    assert_int_equal(program_print(&none, &buf), ERR_OK);
    assert_int_equal(buf.bytes, 0);
    assert_int_equal(program_parse(buf_slice(&buf), &parsed, NULL), ERR_OK);
    assert_int_equal(parsed.places_count, 0);
}

TEST(blanks_and_empty_cells_are_skipped)
{
    scoped(program_release) struct program parsed = {0};
    assert_int_equal(program_parse(slice_of(",, 0UNSHARD , ,0F0,,\r\n\n"), &parsed, NULL), ERR_OK);
    assert_int_equal(parsed.places_count, 1);
    assert_int_equal(parsed.places->rows_count, 2);
    assert_int_equal(parsed.places->rows[1].act, ACT_F);
}

static void refused(const char *text, const char *wanted)
{
    struct program untouched = {.units = 77};
    struct reason reason;
    assert_int_equal(program_parse(slice_of(text), &untouched, &reason), ERR_MALFORMED);
    assert_int_equal(untouched.units, 77);
    if (!strstr(reason.text, wanted))
        fail_msg("\"%s\" is said, not \"%s\"", reason.text, wanted);
}

TEST(what_is_wrong_is_named_with_line_and_column)
{
    refused("0F0,F1", "line 1, column 5: this act names a unit");
    refused("0F0,1ZERO", "line 1, column 6: this act names no unit");
    refused("4096F0", "line 1, column 5: a unit's number is below 4096");
    refused("99999999999999999999F0", "line 1, column 1: a cell begins with a number up to 65536");
    refused("0F0,1Q0", "line 1, column 6: no such act");
    refused("0FF0", "line 1, column 2: no such act");
    refused("0F,1F0", "line 1, column 3: this act ends with a microbatch's number");
    refused("0F65536", "line 1, column 3: ");
    refused("0UNSHARD0", "line 1, column 9: a comma");
    refused("0F0 1F0", "line 1, column 5: a comma");
    refused("0F0\n\n 1Q0", "line 3, column 3: no such act");
}

TEST(a_line_is_a_place)
{
    scoped(program_release) struct program parsed = {0};
    assert_int_equal(program_parse(slice_of("0F0,0B0\n\n1F0\n"), &parsed, NULL), ERR_OK);
    assert_int_equal(parsed.places_count, 2);
    assert_int_equal(parsed.places[0].rows_count, 2);
    assert_int_equal(parsed.places[1].rows_count, 1);
    assert_int_equal(parsed.places[1].rows[0].unit, 1);
    assert_int_equal(parsed.units, 2);
}

TEST(a_body_begins_and_ends_once)
{
    refused("0(,STEP,)", "line 1, column 2: a place has one body, walked once or more");
    refused("65537(,STEP,)", "line 1, column 1: ");
    refused("2(,2(,STEP", "line 1, column 5: a place has one body");
    refused("2(,STEP,),2(,STEP,)", "line 1, column 12: a place has one body");
    refused("2(,STEP,)\n3(,STEP,)", "line 2, column 2: bodies are walked equally often");
    refused("2(,STEP", "line 1, column 8: the body does not end");
    refused("STEP,)", "line 1, column 6: there is no body to end");
    refused("2(,)", "line 1, column 4: there is no body to end");
}
