/* What a line of the log looks like. */
#include "tests/unit/unit.h"

#include "common/log.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WALL_NS 1709210096789000000

static void assert_line(const struct log_field *fields, const char *expected)
{
    scoped(buf_release) struct buf line = {0};
    assert_int_equal(log_format(&line, WALL_NS, LOG_LEVEL_WARNING, "push refused", fields), ERR_OK);
    assert_int_equal(buf_append(&line, "", 1), ERR_OK);
    assert_string_equal((const char *)line.data, expected);
}

#define FIELDS(...) ((struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){0}})

TEST(an_event_is_one_line_of_keys_and_values)
{
    assert_line(FIELDS(), "2024-02-29T12:34:56.789Z warning push refused\n");
    assert_line(FIELDS(log_uint("worker", 7), log_int("delta", -3), log_real("loss", 2.5),
                       log_text("err", "OLD_GENERATION")),
                "2024-02-29T12:34:56.789Z warning push refused  worker=7 delta=-3 loss=2.5 "
                "err=OLD_GENERATION\n");
}

TEST(values_are_quoted_when_needed)
{
    static const char *const rows[][2] = {
        {"plain:1/2", "plain:1/2"},
        {"two words", "\"two words\""},
        {"", "\"\""},
        {NULL, "-"},
        {"a=b", "\"a=b\""},
        {"say \"no\"", "\"say \\\"no\\\"\""},
        {"back\\slash", "\"back\\\\slash\""},
        {"two\nlines", "\"two\\nlines\""},
        {"\x1b[31m", "\"\\x1b[31m\""},
        {"\xc3\xa4", "\xc3\xa4"},
        {"\xc2\x9b[31m", "\"\\xc2\\x9b[31m\""}, /* C1 */
        {"\xe2\x80\xae"
         "etats",
         "\"\\xe2\\x80\\xaeetats\""}, /* right to left */
        {"cut \xe2\x82", "\"cut \\xe2\\x82\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char expected[128];
        snprintf(expected, sizeof expected,
                 "2024-02-29T12:34:56.789Z warning push refused  why=%s\n", rows[i][1]);
        assert_line(FIELDS(log_text("why", rows[i][0])), expected);
    }
}

/* What a logger writes, without its moment. */
static void read_lines(int fd, char *lines, size_t room)
{
    ssize_t got = read(fd, lines, room - 1);
    lines[got > 0 ? got : 0] = 0;
}

TEST(events_above_the_level_are_not_written)
{
    int ends[2];
    char lines[8192];
    assert_int_equal(pipe(ends), 0);
    struct logger logger = {.level = LOG_LEVEL_INFO, .fd = ends[1]};
    log_debug(&logger, "not this");
    log_info(&logger, "but this", log_uint("n", 1));
    log_error(&logger, "and this");
    read_lines(ends[0], lines, sizeof lines);
    assert_null(strstr(lines, "not this"));
    assert_non_null(strstr(lines, " info but this  n=1\n"));
    assert_non_null(strstr(lines, " error and this\n"));
    close(ends[0]);
    close(ends[1]);
}

TEST(the_journal_gets_priorities)
{
    int ends[2];
    struct stat status;
    char lines[8192], stream[64];
    assert_int_equal(fstat(STDERR_FILENO, &status), 0);
    snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
    assert_false(log_stderr(LOG_LEVEL_DEBUG, "").journal);
    assert_false(log_stderr(LOG_LEVEL_DEBUG, "1:1").journal); /* another process's */
    struct logger logger = log_stderr(LOG_LEVEL_DEBUG, stream);
    assert_true(logger.journal);
    assert_int_equal(pipe(ends), 0);
    logger.fd = ends[1];
    log_error(&logger, "one");
    log_warning(&logger, "two");
    log_info(&logger, "three");
    log_debug(&logger, "four");
    read_lines(ends[0], lines, sizeof lines);
    static const char *const marks[] = {"<3>2", "\n<4>2", "\n<6>2", "\n<7>2"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        assert_non_null(strstr(lines, marks[i]));
    close(ends[0]);
    close(ends[1]);
}

TEST(a_line_that_is_too_long_is_cut_but_ends)
{
    int ends[2];
    char lines[8192], longer[6000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(pipe(ends), 0);
    struct logger logger = {.level = LOG_LEVEL_INFO, .fd = ends[1]};
    log_warning(&logger, "long", log_uint("worker", 7), log_text("why", longer));
    log_warning(&logger, "long", log_text("why", longer), log_text("quoted", " "));
    read_lines(ends[0], lines, sizeof lines);
    char *first_end = strchr(lines, '\n');
    assert_non_null(first_end);
    assert_true(first_end - lines < 4096);
    assert_non_null(strstr(lines, "worker=7"));
    assert_int_equal(lines[strlen(lines) - 1], '\n');
    close(ends[0]);
    close(ends[1]);
}

TEST(a_logger_without_a_file_is_silent)
{
    const struct logger logger = {.level = LOG_LEVEL_DEBUG, .fd = -1};
    int ends[2], status;
    char said[64];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL); /* or the child says it, too */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        log_error(&logger, "nobody reads this");
        _exit(fflush(NULL));
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], said, sizeof said), 0); /* its end */
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}
