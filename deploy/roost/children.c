#include "deploy/roost/children.h"

#include "common/file.h"
#include "common/thread.h"
#include "common/time.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RESTART_MS = 1000,
    LASTING_MS = 10000, /* who was up for so long did start */
    POLL_US = 10000,
    EXIT_NO_PROGRAM = 127
};

static uint64_t now_ms(void)
{
    return time_now_ns() / 1000000;
}

enum err children_program(const char *name, char *ret_path, size_t ret_bytes, struct reason *reason)
{
    static const char *const places[] = {".", "../../server", "../../worker", "../../reference",
                                         "../lib/roost"};
    char self[512];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        return reason_set(reason, ERR_IO, "/proc/self/exe cannot be read");
    self[length] = 0;
    *strrchr(self, '/') = 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        int bytes = snprintf(ret_path, ret_bytes, "%s/%s/%s", self, places[i], name);
        if (bytes > 0 && (size_t)bytes < ret_bytes && access(ret_path, X_OK) == 0)
            return ERR_OK;
    }
    return reason_set(reason, ERR_NOT_FOUND, "program %s is not beside %s", name, self);
}

/* ---- one child ---- */

/* Somebody may have removed its folder. Without a log the child works all the same. */
static int open_log(struct child *child)
{
    char folder[sizeof child->log_path];
    struct reason *why = &child->unlogged;
    snprintf(folder, sizeof folder, "%s", child->log_path);
    *strrchr(folder, '/') = 0;
    *why = (struct reason){{0}};
    if (file_make_dirs(folder, 0755, why) != ERR_OK)
        return open("/dev/null", O_WRONLY | O_CLOEXEC);
    int log = open(child->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log >= 0)
        return log;
    ignore(reason_set(why, ERR_IO, "cannot open %s: %s", child->log_path, strerror(errno)));
    return open("/dev/null", O_WRONLY | O_CLOEXEC);
}

__attribute__((noreturn)) static void become(const struct child *child, int log, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0); /* Ctrl-C is ours to handle; children are told in order */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_NO_PROGRAM);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (log < 0 || null < 0)
        _exit(EXIT_NO_PROGRAM);
    dup2(null, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(child->arguments[0], child->arguments);
    _exit(EXIT_NO_PROGRAM);
}

enum err child_start(struct child *child, struct reason *reason)
{
    pid_t parent = getpid();
    if (child->pid != 0)
        return ERR_OK;
    int log = open_log(child);
    pid_t pid = fork();
    if (pid == 0)
        become(child, log, parent);
    int failed = errno;
    if (log >= 0)
        close(log);
    if (pid < 0)
        return reason_set(reason, ERR_IO, "%s cannot be started: %s", child->name,
                          strerror(failed));
    child->pid = pid;
    child->restart = true;
    child->starts++;
    child->started_ms = now_ms();
    return ERR_OK;
}

static void note_end(struct child *child, int status, const struct rusage *usage)
{
    uint64_t resident = (uint64_t)usage->ru_maxrss * 1024;
    child->pid = 0;
    child->resident_bytes = resident > child->resident_bytes ? resident : child->resident_bytes;
    child->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    uint64_t lasted_ms = now_ms() - child->started_ms;
    if (lasted_ms >= LASTING_MS)
        child->starts = 0;
    child->up_ms += lasted_ms;
    child->restart_at_ms = now_ms() + RESTART_MS;
}

static bool child_ended(struct child *child)
{
    int status;
    struct rusage usage;
    if (child->pid == 0 || wait4(child->pid, &status, WNOHANG, &usage) != child->pid)
        return false;
    note_end(child, status, &usage);
    return true;
}

void child_kill(struct child *child, bool stays)
{
    int status = 0;
    struct rusage usage = {0};
    child->restart = !stays;
    child->starts = 0;
    if (child->pid == 0)
        return;
    kill(child->pid, SIGKILL);
    while (wait4(child->pid, &status, 0, &usage) < 0 && errno == EINTR)
        ;
    note_end(child, status, &usage);
}

static void child_release(struct child *child)
{
    for (size_t i = 0; child->arguments[i] != NULL; i++)
        free(child->arguments[i]);
}

/* ---- all of them ---- */

void children_init(struct children *children)
{
    *children = (struct children){0};
    signal(SIGCHLD, SIG_DFL);
}

enum err children_start(struct children *children, const char *name, const char *log_path,
                        const char *const *arguments, bool restart, struct reason *reason)
{
    if (children->count == CHILDREN_MAX)
        return reason_set(reason, ERR_INVALID, "more than %d processes", CHILDREN_MAX);
    struct child *child = &children->list[children->count];
    *child = (struct child){0};
    snprintf(child->name, sizeof child->name, "%s", name);
    snprintf(child->log_path, sizeof child->log_path, "%s", log_path);
    for (size_t i = 0; arguments[i] != NULL; i++) {
        check(i < CHILD_ARGUMENTS_MAX);
        child->arguments[i] = strdup(arguments[i]);
        if (child->arguments[i] == NULL) {
            child_release(child);
            return ERR_NOMEM;
        }
    }
    children->count++;
    TRY(child_start(child, reason));
    child->restart = restart;
    return ERR_OK;
}

struct child *children_poll(struct children *children, uint64_t now)
{
    for (uint32_t i = 0; i < children->count; i++) {
        struct child *child = &children->list[i];
        if (child_ended(child))
            return child;
        if (child->pid == 0 && child->restart && now >= child->restart_at_ms &&
            child_start(child, NULL) != ERR_OK)
            child->restart_at_ms = now + RESTART_MS;
    }
    return NULL;
}

static bool matches(const struct child *child, const char *prefix)
{
    return child->pid != 0 && strncmp(child->name, prefix, strlen(prefix)) == 0;
}

struct child *children_find(struct children *children, const char *name)
{
    for (uint32_t i = 0; i < children->count; i++)
        if (strcmp(children->list[i].name, name) == 0)
            return &children->list[i];
    return NULL;
}

uint64_t children_up_ms(const struct children *children, const char *prefix)
{
    uint64_t up_ms = 0;
    for (uint32_t i = 0; i < children->count; i++) {
        const struct child *child = &children->list[i];
        if (strncmp(child->name, prefix, strlen(prefix)) == 0)
            up_ms += child->up_ms + (child->pid != 0 ? now_ms() - child->started_ms : 0);
    }
    return up_ms;
}

uint64_t children_resident_bytes(const struct children *children, const char *prefix)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < children->count; i++) {
        const struct child *child = &children->list[i];
        if (strncmp(child->name, prefix, strlen(prefix)) == 0 && child->resident_bytes > most)
            most = child->resident_bytes;
    }
    return most;
}

void children_signal(struct children *children, const char *prefix, int number)
{
    for (uint32_t i = 0; i < children->count; i++)
        if (matches(&children->list[i], prefix))
            kill(children->list[i].pid, number);
}

static bool any_runs(struct children *children, const char *prefix)
{
    bool runs = false;
    for (uint32_t i = 0; i < children->count; i++)
        runs |= matches(&children->list[i], prefix) && !child_ended(&children->list[i]);
    return runs;
}

bool children_end_within(struct children *children, const char *prefix, uint64_t timeout_ms)
{
    uint64_t deadline = now_ms() + timeout_ms;
    while (any_runs(children, prefix)) {
        if (now_ms() >= deadline)
            return false;
        usleep(POLL_US);
    }
    return true;
}

void children_wait(struct children *children, const char *prefix, uint64_t timeout_ms)
{
    while (!children_end_within(children, prefix, timeout_ms)) {
        children_signal(children, prefix, SIGKILL);
        timeout_ms = POLL_US / 1000;
    }
}

void children_release(struct children *children)
{
    children_signal(children, "", SIGKILL);
    children_wait(children, "", 0);
    for (uint32_t i = 0; i < children->count; i++)
        child_release(&children->list[i]);
}
