/* Watching a run to its end: progress, Ctrl-C, the summary. */
#ifndef ROOST_DEPLOY_ROOST_WATCH_H
#define ROOST_DEPLOY_ROOST_WATCH_H

#include "deploy/roost/client.h"
#include "deploy/roost/effort.h"
#include "deploy/roost/predict.h"
#include "deploy/roost/progress.h"

/* Ctrl-C, SIGTERM and SIGHUP, from their thread. While there is a sentence `ending`, the first one
 * prints it and ends the process at once; with NULL they are counted: those that come within 400 ms
 * of one are that one. */
struct watch_signals;
enum err watch_signals_start(const char *ending, struct watch_signals **ret_signals) MUST_USE;
void watch_signals_set_ending(struct watch_signals *signals, const char *ending);
void watch_signals_free(struct watch_signals *signals);
unsigned watch_signals_count(const struct watch_signals *signals);
/* The exit code of a command whose run was stopped before its end, by somebody else. */
enum { EXIT_STOPPED = 4 };

/* Of a command that signals interrupted: as if the first one had ended it. 0: there was none. */
int watch_exit_code(const struct watch_signals *signals);

struct watch {
    struct client *client;
    uint64_t run; /* its number; 0: that of the first status that has one */
    struct progress *progress;
    const struct watch_signals *signals;
    bool detaches; /* the first signal ends the watch, and the run goes on */
    /* Called at each look, some times a second; an error ends the watch. May be NULL. */
    enum err (*look)(void *context, uint64_t now_ms, struct reason *reason);
    /* Called with each status that was got, before it is shown. May be NULL. */
    void (*see)(void *context, const struct status_reply *status);
    void *context;
};

/* Until the run is ended, stopped or failed, or until a watch that detaches is interrupted: ERR_OK
 * and the last status (its texts live in `answer`), or {0} if the coordinator did not answer then. A
 * signal is heard at once, whether or not it answers. Else the first Ctrl-C stops the run after a
 * checkpoint, as soon as a coordinator takes that, and the second gives up (ERR_CANCELLED).
 * ERR_UNREACHABLE: no answer for half a minute. ERR_NOT_FOUND: the cluster has another run by now, or
 * none for half a minute, so that nobody here knows how this one ended. */
enum err watch_run(const struct watch *watch, struct client_answer *answer,
                   struct status_reply *ret_status, struct reason *reason) MUST_USE;

/* The run is ended, stopped or failed. */
bool watch_is_over(const struct status_reply *status);

struct summary {
    const struct status_reply *status;
    const struct effort *effort;         /* NULL: not known */
    const char *directory;               /* NULL: not on this machine */
    const struct prediction *prediction; /* of what places do; NULL: not asked for */
    const char *digest;                  /* hexadecimal; NULL: not known */
    double unigram_entropy;              /* 0: not known */
    uint64_t resident_bytes;             /* the most that a worker's process had; 0: not known */
    uint64_t sample_tokens;
};

/* The summary on stdout: for people, or one line of JSON. */
void summary_print(const struct summary *summary, bool json);

#endif
