/* The error table. */
#include "tests/unit/unit.h"

#include "common/err.h"

#include <errno.h>

TEST(every_error_has_a_name_a_text_and_a_reaction)
{
    for (unsigned code = 0; code < ERR_COUNT; code++) {
        enum err err = err_from_wire(code);
        assert_int_equal(err, code);
        assert_non_null(err_name(err));
        assert_true(strlen(err_text(err)) > 1);
        assert_non_null(reaction_name(err_reaction(err)));
    }
    assert_string_equal(err_name(ERR_OLD_GENERATION), "OLD_GENERATION");
    assert_string_equal(reaction_name(err_reaction(ERR_OLD_GENERATION)), "rejoin");
}

TEST(numbers_on_the_wire_do_not_change)
{
    assert_int_equal(ERR_OK, 0);
    assert_int_equal(ERR_BUSY, 6);
    assert_int_equal(ERR_OLD_GENERATION, 11);
    assert_int_equal(ERR_NON_FINITE, 31);
    assert_int_equal(ERR_BEYOND, 34);
    assert_int_equal(ERR_NO_GRANT, 35);
}

TEST(an_unknown_number_from_a_peer_is_malformed)
{
    assert_int_equal(err_from_wire(ERR_COUNT), ERR_MALFORMED);
    assert_int_equal(err_from_wire(~0u), ERR_MALFORMED);
}

TEST(a_full_disk_is_told_from_other_failures)
{
    assert_int_equal(err_from_errno(ENOSPC), ERR_NO_SPACE);
    assert_int_equal(err_from_errno(EDQUOT), ERR_NO_SPACE);
    assert_int_equal(err_from_errno(ENOENT), ERR_NOT_FOUND);
    assert_int_equal(err_from_errno(ENOTDIR), ERR_NOT_FOUND);
    assert_int_equal(err_from_errno(EISDIR), ERR_INVALID);
    assert_int_equal(err_from_errno(EIO), ERR_IO);
}

static enum err passes_up(enum err err)
{
    TRY(err);
    return ERR_EXISTS;
}

TEST(try_returns_an_error_and_goes_on_without_one)
{
    assert_int_equal(passes_up(ERR_BUSY), ERR_BUSY);
    assert_int_equal(passes_up(ERR_OK), ERR_EXISTS);
}

TEST(a_reason_is_cut_to_its_room)
{
    struct reason reason;
    char longer[2 * sizeof reason.text];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(reason_set(&reason, ERR_IO, "%s", longer), ERR_IO);
    assert_int_equal(strlen(reason.text), sizeof reason.text - 1);
    assert_int_equal(reason_set(NULL, ERR_IO, "nobody asks"), ERR_IO);
    assert_int_equal(reason_set(&reason, ERR_IO, "cannot read %s", "\x1b[2J\n\xc3\xa9\xc3"),
                     ERR_IO);
    assert_string_equal(reason.text, "cannot read ?[2J?\xc3\xa9?");
}

TEST(people_read_the_reason_or_the_error_s_own_words)
{
    struct reason reason = {.text = ""};
    assert_string_equal(reason_text(ERR_DENIED, &reason), err_text(ERR_DENIED));
    ignore(reason_set(&reason, ERR_DENIED, "cannot make folder /srv/x: Permission denied"));
    assert_string_equal(reason_text(ERR_DENIED, &reason),
                        "cannot make folder /srv/x: Permission denied");
}
