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

/* The page has the table, line for line, and no row more. Splits the table. */
static void assert_has_table(const char *name, struct buf *table)
{
    scoped(buf_release) struct buf page = {0};
    read_page(name, &page);
    assert_int_equal(buf_append(table, "", 1), ERR_OK);
    char *rest = (char *)table->data, *line = strsep(&rest, "\n");
    char *page_rest = strstr((char *)page.data, line);
    if (page_rest == NULL)
        fail_msg("docs/%s lacks: %s", name, line);
    for (; line != NULL; line = strsep(&rest, "\n")) {
        const char *page_line = strsep(&page_rest, "\n");
        if (page_line == NULL || strcmp(page_line, line) != 0)
            fail_msg("docs/%s has \"%s\" where the code has \"%s\"", name,
                     page_line != NULL ? page_line : "", line);
    }
}

TEST(spec_md_has_every_key_of_the_spec)
{
    scoped(buf_release) struct buf table = {0};
    assert_int_equal(spec_print_reference(&table), ERR_OK);
    assert_has_table("spec.md", &table);
}

TEST(errors_md_has_every_error)
{
    scoped(buf_release) struct buf table = {0};
    assert_int_equal(buf_printf(&table, "| number | name | what the caller does | text |\n"
                                        "|---|---|---|---|\n"),
                     ERR_OK);
    for (int code = 0; code < ERR_COUNT; code++) {
        enum err err = err_from_wire((unsigned)code);
        assert_int_equal(buf_printf(&table, "| %d | %s | %s | %s |\n", code, err_name(err),
                                    reaction_name(err_reaction(err)), err_text(err)),
                         ERR_OK);
    }
    assert_has_table("errors.md", &table);
}
