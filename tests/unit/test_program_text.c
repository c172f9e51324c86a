/* Programs as text. */
#include "tests/unit/unit.h"

#include "common/scoped.h"
#include "worker/program/program.h"

#include <string.h>

static struct slice slice_of(const char *text)
{
    return (struct slice){(const uint8_t *)text, strlen(text)};
}

TEST(what_is_printed_parses_to_the_same)
{
    scoped(program_release) struct program made = {0}, parsed = {0};
    scoped(buf_release) struct buf buf = {0};
    assert_int_equal(program_generate(&made, 5, 3, true), ERR_OK);
    assert_int_equal(program_print(&made, &buf), ERR_OK);
    assert_int_equal(program_parse(buf_slice(&buf), &parsed, NULL), ERR_OK);
    assert_int_equal(parsed.units, made.units);
    assert_int_equal(parsed.microbatches, made.microbatches);
    assert_int_equal(parsed.rows_count, made.rows_count);
    assert_memory_equal(parsed.rows, made.rows, made.rows_count * sizeof *made.rows);
}

TEST(blanks_and_empty_cells_are_skipped)
{
    scoped(program_release) struct program parsed = {0};
    assert_int_equal(program_parse(slice_of(",, 0UNSHARD , ,0F0,,\r\n\n"), &parsed, NULL), ERR_OK);
    assert_int_equal(parsed.rows_count, 2);
    assert_int_equal(parsed.rows[1].act, ACT_F);
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
    refused("0F0,F1", "line 1, column 5: a cell begins with a unit's number");
    refused("4096F0", "line 1, column 1: a cell begins with a unit's number");
    refused("99999999999999999999F0", "line 1, column 1: ");
    refused("0F0,1Q0", "line 1, column 6: no such act");
    refused("0FF0", "line 1, column 2: no such act");
    refused("0F,1F0", "line 1, column 3: this act ends with a microbatch's number");
    refused("0F65536", "line 1, column 3: ");
    refused("0UNSHARD0", "line 1, column 9: a comma");
    refused("0F0 1F0", "line 1, column 5: a comma");
    refused("0F0\n\n 1F0", "line 3, column 2: a second rank");
}
