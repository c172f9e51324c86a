/* The directories of runs: their names, which is taken, which is the newest. */
#include "tests/unit/folder.h"

#include "common/files/run_directory.h"

/* ---- names ---- */

TEST(a_directory_has_one_name_however_it_is_spelled)
{
    static const struct {
        const char *spelled, *name;
    } rows[] = {{"/srv/run", "/srv/run"},
                {"/srv/run/", "/srv/run"},
                {"//srv/./run//.", "/srv/run"},
                {"/srv/.run/a.b/...", "/srv/.run/a.b/..."},
                {"/srv/link/../run/", "/srv/link/../run"},
                {"run", "/var/lib/roost/run"},
                {"./run/run-2/", "/var/lib/roost/run/run-2"},
                {".", "/var/lib/roost"},
                {"/", "/"},
                {"/.", "/"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        assert_int_equal(
            run_directory_name(rows[i].spelled, "/var/lib//roost/", name, sizeof name, NULL),
            ERR_OK);
        assert_string_equal(name, rows[i].name);
    }
}

TEST(a_name_takes_no_more_bytes_than_there_are)
{
    struct reason reason;
    char name[9] = "", shorter[8] = "";
    assert_int_equal(run_directory_name("/srv/run/", "/", name, sizeof name, &reason), ERR_OK);
    assert_string_equal(name, "/srv/run");
    assert_int_equal(run_directory_name("/srv/run/", "/", shorter, sizeof shorter, &reason),
                     ERR_INVALID);
    assert_non_null(strstr(reason.text, "longer than 7"));
}

TEST(a_relative_one_has_no_name_without_a_folder_that_it_begins_in)
{
    struct reason reason;
    char name[64];
    assert_int_equal(run_directory_name("run", ".", name, sizeof name, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "was removed"));
    assert_int_equal(run_directory_name("/run", ".", name, sizeof name, NULL), ERR_OK);
}
