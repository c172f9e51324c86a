/* The processes that `roost up` starts: servers and workers, each with a log file, ended with us.
 */
#ifndef ROOST_DEPLOY_ROOST_CHILDREN_H
#define ROOST_DEPLOY_ROOST_CHILDREN_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { CHILDREN_MAX = 1024 + 64, CHILD_ARGUMENTS_MAX = 24 };

struct child {
    char name[32];      /* "server-0", "worker-2" */
    char log_path[512]; /* stdout and stderr, appended; its folder is made where there is none */
    struct reason unlogged; /* why the newest start writes none; "": it does */
    char *arguments[CHILD_ARGUMENTS_MAX + 1];
    pid_t pid;       /* 0: not running */
    int exit_code;   /* of the last end; 128 + signal when killed */
    unsigned starts; /* in a row that did not last; since child_kill() */
    uint64_t started_ms;
    uint64_t up_ms;          /* of its earlier starts, likewise: */
    uint64_t resident_bytes; /* the most that one had in memory */
    uint64_t restart_at_ms;
    bool restart; /* when it ends by itself */
};

struct children {
    uint32_t count;
    struct child list[CHILDREN_MAX];
};

/* The path of one of our programs: beside this one, or in the build's folder. */
enum err children_program(const char *name, char *ret_path, size_t ret_bytes,
                          struct reason *reason) MUST_USE;

/* Before the first child: whoever started us may have left us SIGCHLD ignored, and then nobody can
 * wait for a child's end. */
void children_init(struct children *children);
/* Adds and starts a child; `arguments` ends with NULL and is copied. It gets SIGKILL when this
 * process ends. ERR_IO with a reason. */
enum err children_start(struct children *children, const char *name, const char *log_path,
                        const char *const *arguments, bool restart, struct reason *reason) MUST_USE;
/* Notices ended children; starts again those that shall be, a second later. The next one that has
 * ended since the last call, or NULL. */
struct child *children_poll(struct children *children, uint64_t now_ms);
/* NULL: there is none of that name. */
struct child *children_find(struct children *children, const char *name);
/* Kills it, if it runs, and waits for its end, which children_poll() does not tell of. It is
 * started again a second later, as if it had ended by itself, or (`stays` away) only by
 * child_start(). */
void child_kill(struct child *child, bool stays);
/* Starts it, if it does not run; from now on again when it ends. ERR_IO with a reason. */
enum err child_start(struct child *child, struct reason *reason) MUST_USE;
/* How long those that start with `prefix` have been up, summed. */
uint64_t children_up_ms(const struct children *children, const char *prefix);
/* The most that one of them had in memory, of those starts that have ended. */
uint64_t children_resident_bytes(const struct children *children, const char *prefix);
/* Signals all that run and start with `prefix`. */
void children_signal(struct children *children, const char *prefix, int number);
/* Waits until all with `prefix` have ended. False: the time was over before. */
bool children_end_within(struct children *children, const char *prefix, uint64_t timeout_ms);
/* The same; when the time is over, kills them. */
void children_wait(struct children *children, const char *prefix, uint64_t timeout_ms);
void children_release(struct children *children); /* kills what runs */

#endif
