/* What a failed check leaves in the log, and how the process ends. */
#include "tests/unit/unit.h"

#include "common/check.h"
#include "common/check_account.h"
#include "common/scene.h"
#include "common/thread.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct ending {
    int status; /* waitpid()'s */
    char text[4096];
};

static void describe(const void *object, char *text, size_t bytes)
{
    snprintf(text, bytes, "count=%d", *(const int *)object);
}

static void fail_inside(void)
{
    const int count = 3;
    scoped(scene_leave) struct scene outer = {.event = "batch", .number = 1};
    scene_enter(&outer);
    {
        scoped(scene_leave) struct scene over = {.event = "push", .number = 6};
        scene_enter(&over);
    }
    scoped(scene_leave) struct scene scene = {"commit", 7, describe, &count};
    scene_enter(&scene);
    check(count == 4);
}

static void fail_in(void *argument)
{
    (void)argument;
    fail_inside();
}

static void fail_in_another_thread(void)
{
    struct thread thread;
    assert_int_equal(thread_start(&thread, "other", fail_in, NULL), ERR_OK);
    thread_join(&thread);
}

/* A process whose check fails there; it remembers so in `path`. NULL: it does not. */
static struct ending failing(const char *path, void (*where)(void))
{
    struct ending ending = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        struct scene_memory memory = {.path = path};
        if (path != NULL)
            scene_remember(&memory);
        where();
        _exit(0);
    }
    close(ends[1]);
    size_t bytes = 0;
    for (ssize_t got = 1; got > 0; bytes += (size_t)got)
        got = read(ends[0], ending.text + bytes, sizeof ending.text - 1 - bytes);
    close(ends[0]);
    assert_int_equal(waitpid(child, &ending.status, 0), child);
    return ending;
}

TEST(a_failed_check_prints_the_state_and_the_event)
{
    struct ending ending = failing(NULL, fail_inside);
    assert_true(WIFSIGNALED(ending.status) && WTERMSIG(ending.status) == SIGABRT);
    assert_non_null(strstr(ending.text, "check failed: count == 4 at"));
    const char *inner = strstr(ending.text, "event=\"commit\" number=7 state=\"count=3\"");
    const char *outer = strstr(ending.text, "event=\"batch\" number=1 state=\"\"");
    assert_true(inner != NULL && outer != NULL && inner < outer);
    assert_null(strstr(ending.text, "push")); /* that scene was left */
}

TEST(one_that_fails_again_right_after_the_restart_is_not_to_be_started_again)
{
    char path[] = "/tmp/roost-test-scene-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    unlink(path);
    struct ending first = failing(path, fail_inside);
    assert_true(WIFSIGNALED(first.status));
    struct ending second = failing(path, fail_inside);
    assert_true(WIFEXITED(second.status));
    assert_int_equal(WEXITSTATUS(second.status), SCENE_EXIT_AGAIN);
    assert_non_null(strstr(second.text, "state=\"count=3\""));
    /* A failure of long ago says nothing. */
    const struct timespec ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, path, ago, 0), 0);
    struct ending third = failing(path, fail_inside);
    assert_true(WIFSIGNALED(third.status));
    unlink(path);
}

TEST(a_thread_remembers_where_the_one_that_started_it_does)
{
    char path[] = "/tmp/roost-test-scene-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    struct ending again = failing(path, fail_in_another_thread);
    assert_true(WIFEXITED(again.status));
    assert_int_equal(WEXITSTATUS(again.status), SCENE_EXIT_AGAIN);
    assert_non_null(strstr(again.text, "state=\"count=3\""));
    unlink(path);
}

TEST(events_pay_for_a_check_that_walks_over_everything)
{
    struct check_account account = {0};
    uint32_t made = 0;
    for (uint32_t i = 0; i < 1000; i++)
        made += check_is_due(&account, 10 * CHECK_STEPS_PAID);
    assert_int_equal(made, 100);
    for (uint32_t i = 0; i < 1000; i++)
        assert_false(check_is_due(&account, CHECK_STEPS_MAX + 1)); /* the next event would wait */
}
