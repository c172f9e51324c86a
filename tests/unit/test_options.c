/* A program's end: whether what it printed was taken. */
#include "common/settings/options.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* What options_printed() says in a program that prints to `output`; one that shows a run has flushed
 * its summary before. */
static int printed_to(int output, bool flushed_before)
{
    int status;
    fflush(NULL); /* or the child says it, too */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct reason reason;
        signal(SIGPIPE, SIG_IGN);
        dup2(output, STDOUT_FILENO);
        printf("a line\n");
        if (flushed_before)
            fflush(stdout);
        _exit((int)options_printed(&reason));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(a_reader_that_went_away_wanted_no_more)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(printed_to(ends[1], false), ERR_OK);
    assert_int_equal(printed_to(ends[1], true), ERR_OK);
    close(ends[1]);
}

TEST(a_full_disk_is_said_whenever_it_refused)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    assert_int_equal(printed_to(full, false), ERR_NO_SPACE);
    assert_int_equal(printed_to(full, true), ERR_NO_SPACE);
    close(full);
}

TEST(what_was_taken_is_no_error)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(printed_to(ends[1], false), ERR_OK);
    assert_int_equal(printed_to(ends[1], true), ERR_OK);
    close(ends[0]);
    close(ends[1]);
}
