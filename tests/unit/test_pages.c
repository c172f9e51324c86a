/* The tables of docs/ are the code's: they are compared, so that neither can change alone. */
#include "tests/unit/unit.h"

#include "common/file.h"
#include "common/settings/spec.h"

static void read_page(const char *name, struct buf *ret_text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/docs/%s", SOURCE_ROOT, name);
    assert_int_equal(file_read(path, 1 << 20, ret_text, NULL), ERR_OK);
    assert_int_equal(buf_append(ret_text, "", 1), ERR_OK);
}

TEST(spec_md_has_every_key_of_the_spec)
{
    scoped(buf_release) struct buf page = {0};
    scoped(buf_release) struct buf reference = {0};
    read_page("spec.md", &page);
    assert_int_equal(spec_print_reference(&reference), ERR_OK);
    assert_int_equal(buf_append(&reference, "", 1), ERR_OK);
    char *rest = (char *)reference.data, *line;
    while ((line = strsep(&rest, "\n")) != NULL)
        if (strstr((char *)page.data, line) == NULL)
            fail_msg("docs/spec.md lacks: %s", line);
}

TEST(errors_md_has_every_error)
{
    scoped(buf_release) struct buf page = {0};
    read_page("errors.md", &page);
    for (int code = 0; code < ERR_COUNT; code++) {
        char line[256];
        enum err err = err_from_wire((unsigned)code);
        snprintf(line, sizeof line, "| %d | %s | %s | %s |", code, err_name(err),
                 reaction_name(err_reaction(err)), err_text(err));
        if (strstr((char *)page.data, line) == NULL)
            fail_msg("docs/errors.md lacks: %s", line);
    }
}
