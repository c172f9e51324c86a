/* The README's tables and its tour are the code's: they are compared, so that neither can change
 * alone. */
#include "tests/unit/unit.h"

#include "common/file.h"
#include "common/scoped.h"
#include "common/settings/spec.h"

#include <string.h>

#define WAY_BACK "\n**And the weights back:**"

static void read_readme(struct buf *ret_text)
{
    struct reason reason = {0};
    assert_int_equal(file_read(README_FILE, 1 << 20, ret_text, &reason), ERR_OK);
    assert_int_equal(buf_append(ret_text, "", 1), ERR_OK);
}

TEST(the_readme_has_the_reference_of_the_spec)
{
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

TEST(the_readme_lists_every_error)
{
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

/* What is between the next two backticks from `*text` on, which moves behind them; NULL: nothing
 * more in this line. Ends the word and the line in place. */
static char *next_quoted(char **text)
{
    char *word = *text + strcspn(*text, "`\n");
    if (*word != '`')
        return NULL;
    word++;
    char *end = strchr(word, '`');
    assert_non_null(end);
    *end = 0;
    *text = end + 1;
    return word;
}

static void read_source(const char *name, struct buf *text)
{
    char path[512];
    struct reason reason = {0};
    snprintf(path, sizeof path, "%s/%s", SOURCE_ROOT, name);
    buf_clear(text);
    if (file_read(path, 1 << 20, text, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    assert_int_equal(buf_append(text, "", 1), ERR_OK);
}

TEST(the_functions_of_the_tour_are_in_the_files_that_it_names)
{
    scoped(buf_release) struct buf readme = {0};
    read_readme(&readme);
    char *rest = strstr((char *)readme.data, "## The tour: follow one gradient");
    assert_non_null(rest);
    *strstr(rest, WAY_BACK) = 0;
    int found = 0;
    for (char *row; (row = strstr(rest, "\n| `")) != NULL;) {
        rest = row + 1;
        char *cell_end = strstr(rest + 1, " |");
        *cell_end = '\n';
        const char *name = next_quoted(&rest), *function;
        char call[128];
        scoped(buf_release) struct buf file = {0};
        read_source(name, &file);
        for (; (function = next_quoted(&rest)) != NULL; found++) {
            snprintf(call, sizeof call, "%s(", function);
            if (strstr((char *)file.data, call) == NULL)
                fail_msg("%s lacks %s", name, function);
        }
        rest = cell_end + 1;
    }
    assert_true(found > 10);
}

/* Sentences, in which a name with a slash is a file and one without a function of the last file. */
TEST(so_are_those_of_the_weights_way_back)
{
    scoped(buf_release) struct buf readme = {0};
    scoped(buf_release) struct buf file = {0};
    read_readme(&readme);
    char *rest = strstr((char *)readme.data, WAY_BACK) + strlen(WAY_BACK);
    *strstr(rest, "\n\n") = 0;
    for (char *end; (end = strchr(rest, '\n')) != NULL;)
        *end = ' ';
    int found = 0;
    for (const char *name; (name = next_quoted(&rest)) != NULL;) {
        char call[128];
        if (strchr(name, '/') != NULL) {
            read_source(name, &file);
            continue;
        }
        snprintf(call, sizeof call, "%s(", name);
        if (strstr((char *)file.data, call) == NULL)
            fail_msg("what is named before `%s` lacks it", name);
        found++;
    }
    assert_true(found > 3);
}
