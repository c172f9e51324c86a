/* The README's tables are the code's: they are compared, so that neither can change alone. */
#include "tests/unit/unit.h"

#include "common/file.h"
#include "common/scoped.h"
#include "common/spec.h"

#include <string.h>

static void read_readme(struct buf *ret_text)
{
    struct reason reason = {0};
    assert_int_equal(file_read(README_FILE, 1 << 20, ret_text, &reason), ERR_OK);
    assert_int_equal(buf_append(ret_text, "", 1), ERR_OK);
}

static void the_readme_has_the_reference_of_the_spec(void **state)
{
    (void)state;
    scoped(buf_release) struct buf readme = {0};
    scoped(buf_release) struct buf reference = {0};
    read_readme(&readme);
    assert_int_equal(spec_print_reference(&reference), ERR_OK);
    assert_int_equal(buf_append(&reference, "", 1), ERR_OK);
    char *rest = (char *)reference.data, *line;
    while ((line = strsep(&rest, "\n")) != NULL)
        if (strstr((char *)readme.data, line) == NULL)
            fail_msg("README.md lacks: %s", line);
}

static void the_readme_lists_every_error(void **state)
{
    (void)state;
    scoped(buf_release) struct buf readme = {0};
    read_readme(&readme);
    for (int code = 0; code < ERR_COUNT; code++) {
        char line[256];
        enum err err = err_from_wire((unsigned)code);
        snprintf(line, sizeof line, "| %d | %s | %s | %s |", code, err_name(err),
                 reaction_name(err_reaction(err)), err_text(err));
        if (strstr((char *)readme.data, line) == NULL)
            fail_msg("README.md lacks: %s", line);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_readme_has_the_reference_of_the_spec),
        cmocka_unit_test(the_readme_lists_every_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
