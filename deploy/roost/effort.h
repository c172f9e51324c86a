/* What a run cost and what it was worth: who came and went, and where the workers' time went.
 *
 *     goodput = useful slot time / the time that workers were up
 *
 * Up: from a worker process's start to its end or the run's, summed. Useful: the time from lease to
 * completion of the first counted attempt of each ticket (pulling, computing and pushing; training
 * and held-out), by the coordinator's clock, as steps.jsonl has it for the steps that stayed: what
 * a rewind undid and was done again counts once. The rest, each a share of the time up:
 *
 *     starting  up, and no member yet or no longer: start, joining, what a dead coordinator and
 *               its successor did not see
 *     waiting   a member without a ticket: the end of a step, servers that are lost or rewind
 *     redone    attempts that were lost with their worker, came second, or were undone by a rewind
 *
 * A killed coordinator forgets its counters: what it said last counts, so up to a look's time
 * (0.2 s) of each is missing from `waiting` and `redone`, and is in `starting`. Never is more
 * counted as useful than was. */
#ifndef ROOST_DEPLOY_ROOST_EFFORT_H
#define ROOST_DEPLOY_ROOST_EFFORT_H

#include "common/files/step_times.h"
#include "proto/wire.h"

/* A counter that begins again at 0 when who counts is started again. */
struct effort_counter {
    uint64_t newest, before;
};

struct effort {
    struct effort_counter joined, lost, redone, duplicates; /* workers, workers, slots, pushes */
    /* as the coordinators saw them */
    struct effort_counter member_ms, wasted_ms, useful_ms, audit_ms;
    uint64_t up_ms;
    struct step_times kept; /* of the steps that stayed: useful time */
    bool has_kept;          /* false: it is not known */
};

/* Each look's status, in order. */
void effort_see(struct effort *effort, const struct status_reply *status);
uint64_t effort_total(const struct effort_counter *counter);

struct effort_shares {
    /* 0 to 1; all 0 when nobody was up; goodput and redone NAN without `kept` */
    double goodput, starting, waiting, redone, audited;
};
struct effort_shares effort_shares(const struct effort *effort);

#endif
