/* Churn on demand: which worker or server of `roost up` goes or comes next, and when.
 *
 * Two sources of the same events. At a rate, from a seed: losses and arrivals as a Poisson process
 * (independent of each other, as many a second on average), each of one process drawn at random: a
 * worker that is up is lost, one that is down comes; the last worker stays. A server that is
 * lost comes again by itself, because `roost up` starts it again as systemd would. Or a recorded
 * trace: CSV lines `milliseconds,add|remove,node`, in order of time, blank lines and lines that
 * begin with # aside; nodes become workers 0, 1, 2 … in the order in which they are first named.
 *
 * What is lost is killed: no notice, no good-bye. Times are milliseconds since the run's start. The
 * events are a function of settings and seed, or of the trace, and of nothing else. Pure; one
 * owner. */
#ifndef ROOST_DEPLOY_ROOST_CHURN_H
#define ROOST_DEPLOY_ROOST_CHURN_H

#include "common/buf.h"
#include "common/rand.h"

#include <stdbool.h>

enum { CHURN_PROCESSES_MAX = 1024, CHURN_EVENTS_MAX = 1 << 20 };

enum churn_kind { CHURN_WORKER_COMES, CHURN_WORKER_GOES, CHURN_SERVER_GOES };

struct churn_event {
    uint64_t at_ms;
    enum churn_kind kind;
    uint32_t number; /* of the worker or server */
};

struct churn_rate {
    double rate; /* events a second; above 0 */
    uint64_t seed;
    uint32_t workers; /* all of them up at the start */
    uint32_t servers; /* 0: they are left alone */
};

struct churn {
    /* at a rate */
    struct churn_rate settings;
    struct rand_state rand;
    double drawn_ms; /* of the newest draw */
    /* a trace */
    struct churn_event *events; /* NULL: at a rate */
    size_t event_count, event_next;
    uint32_t node_count;
    /* both: workers */
    bool up[CHURN_PROCESSES_MAX];
    uint32_t up_count;
    uint32_t up_most; /* of up_count, at any time */
};

struct churn churn_at_rate(const struct churn_rate *settings);
/* `name` (the file's) begins a reason: "NAME:LINE: …". Times are divided by `speed`, above 0.
 * ERR_INVALID: a line that is none, goes back in time, adds a node that is there or removes one
 * that is not; more than CHURN_PROCESSES_MAX nodes or CHURN_EVENTS_MAX lines; no node ever comes.
 */
enum err churn_of_trace(const char *name, struct slice text, double speed, struct churn *ret_churn,
                        struct reason *reason) MUST_USE;
void churn_release(struct churn *churn); /* {0} is fine */

/* The next event, if it is due by `now_ms`. After the last line of a trace: none. */
bool churn_next(struct churn *churn, uint64_t now_ms, struct churn_event *ret_event);

#endif
