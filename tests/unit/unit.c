/* The list of a program's tests. */
#include "tests/unit/unit.h"

#include <fnmatch.h>
#include <stdbool.h>

static struct unit_test *first;
static size_t count;

/* A compiler may call the constructors of a file in any order: the line decides. A test goes after
 * the last one of its file that stands above it, or to the end. */
void unit_register(struct unit_test *test)
{
    struct unit_test **at = &first;
    while (*at != NULL && (strcmp((*at)->file, test->file) != 0 || (*at)->line <= test->line))
        at = &(*at)->next;
    test->next = *at;
    *at = test;
    count++;
}

void *unit_fixture_new(const void *settings, size_t bytes)
{
    void *fixture = test_malloc(bytes);
    assert_non_null(fixture);
    memcpy(fixture, settings, bytes);
    return fixture;
}

static char **chosen_words;
static int chosen_count;

static bool is_chosen(const char *name)
{
    bool matches = false;
    for (int i = 1; i < chosen_count; i++)
        matches = matches || fnmatch(chosen_words[i], name, 0) == 0;
    return chosen_count == 0 || matches == (strcmp(chosen_words[0], "only") == 0);
}

void unit_choose(int words_count, char **words)
{
    bool list = words_count > 1 && strcmp(words[1], "list") == 0;
    chosen_words = words + 1 + list;
    chosen_count = words_count - 1 - list;
    if (!list)
        return;
    for (const struct unit_test *test = first; test != NULL; test = test->next)
        if (is_chosen(test->test.name))
            puts(test->test.name);
    exit(EXIT_SUCCESS);
}

int unit_run(CMFixtureFunction before_all, CMFixtureFunction after_all)
{
    struct CMUnitTest *tests = calloc(count + 1, sizeof *tests);
    size_t listed = 0;
    if (tests == NULL || count == 0) {
        fputs("no TEST() in this program\n", stderr);
        free(tests);
        return 1;
    }
    for (const struct unit_test *test = first; test != NULL; test = test->next)
        if (is_chosen(test->test.name))
            tests[listed++] = test->test;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* what is killed has said what it did */
    int failed = _cmocka_run_group_tests("tests", tests, listed, before_all, after_all);
    free(tests);
    return failed;
}
