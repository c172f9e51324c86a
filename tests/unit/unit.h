/* What a test file begins with: cmocka, the headers that most tests need, and a test that registers
 * itself.
 *
 *     TEST(the_last_reference_releases_counted_bytes)
 *     {
 *         ...
 *     }
 *
 * The name is a sentence and stands here only: no table lists it. A name that begins with p1_ …
 * p12_ is a test of that rule of the protocol. A test that needs something before and after it has
 * a fixture:
 *
 *     TEST_F(an_acquire_asked_again_gets_the_same_lease, coordinator)
 *     TEST_F(async_pushes_name_their_boots, agent, .async = true)
 *
 * `f` in the body is a `struct coordinator_fixture *`: all zero but for the settings that follow
 * the name, then given to coordinator_set_up(f), and after the test, also after a failed one, to
 * coordinator_tear_down(f).
 *
 * The program runs its tests in the order in which they stand. A program without a test fails. */
#ifndef ROOST_TESTS_UNIT_UNIT_H
#define ROOST_TESTS_UNIT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "common/buf.h"
#include "common/scoped.h"

struct unit_test {
    struct unit_test *next;
    const char *file;
    int line;
    struct CMUnitTest test;
};

static inline struct slice slice_of(const char *text)
{
    return (struct slice){(const uint8_t *)text, strlen(text)};
}

/* The larger error; NaN is larger than any and stays: fmax() would drop it. */
static inline double worst_of(double worst, double next)
{
    return next <= worst || worst != worst ? worst : next;
}

/* Before main(), one call a test. */
void unit_register(struct unit_test *test);

/* Zeroed memory of the fixture's size with `settings` in it; cmocka's allocator, which fails the
 * test that leaks. */
void *unit_fixture_new(const void *settings, size_t bytes);

/* Of `only PATTERN…` or `without PATTERN…` on a program's command line: which tests will run. With `list`
 * before these: prints their names and ends the program. */
void unit_choose(int words_count, char **words);

/* Runs the registered tests; the program's exit status. Both functions may be NULL. A program that
 * is linked with no main() of its own has one that does this. */
int unit_run(CMFixtureFunction before_all, CMFixtureFunction after_all);

/* `state` in the body is cmocka's. After the name: .setup_func, .teardown_func, .initial_state of
 * cmocka. */
#define TEST(title, ...)                                                                           \
    static void title(void **state);                                                               \
    UNIT_REGISTER(title, .test_func = title, ##__VA_ARGS__)                                        \
    static void title(void **state __attribute__((unused)))

#define TEST_F(title, fixture, ...)                                                                \
    static void title(struct fixture##_fixture *f);                                                \
    static void title##_run(void **state)                                                          \
    {                                                                                              \
        title(*state);                                                                             \
    }                                                                                              \
    static int title##_set_up(void **state)                                                        \
    {                                                                                              \
        const struct fixture##_fixture settings = {__VA_ARGS__};                                   \
        *state = unit_fixture_new(&settings, sizeof settings);                                     \
        fixture##_set_up(*state);                                                                  \
        return 0;                                                                                  \
    }                                                                                              \
    static int title##_tear_down(void **state)                                                     \
    {                                                                                              \
        fixture##_tear_down(*state);                                                               \
        test_free(*state);                                                                         \
        return 0;                                                                                  \
    }                                                                                              \
    UNIT_REGISTER(title, .test_func = title##_run, .setup_func = title##_set_up,                   \
                  .teardown_func = title##_tear_down)                                              \
    static void title(struct fixture##_fixture *f __attribute__((unused)))

/* Linux 5.14 and later: whether bytes of a map can be read is told beforehand (file_map_load()). */
static inline bool unit_kernel_loads_maps(void)
{
    static const char page[1] = "";
    return madvise((void *)((uintptr_t)page & ~(uintptr_t)4095), 4096,
                   22 /* MADV_POPULATE_READ */) == 0;
}

#define UNIT_REGISTER(title, ...)                                                                  \
    __attribute__((constructor)) static void title##_register(void)                                \
    {                                                                                              \
        static struct unit_test test = {                                                           \
            .file = __FILE__, .line = __LINE__, .test = {.name = #title, __VA_ARGS__}};            \
        unit_register(&test);                                                                      \
    }

#endif
