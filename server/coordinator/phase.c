/* The phases of a run. */
#include "server/coordinator/phase.h"

static const bool may_follow[PHASES][PHASES] = {
    /* [from] = to: NONE, GATHER, STORE, PREPARE, FIRST_CUT, STEPS, LAST */
    [PHASE_NONE] = {false, false, false, false, false, false, false}, /* a start makes it anew */
    [PHASE_GATHER] = {true, true, true, false, false, true, true},    /* adopted, it goes on (P7) */
    [PHASE_STORE] = {true, true, false, true, false, false, false},   /* P10: stored, it begins */
    [PHASE_PREPARE] = {true, true, false, false, true, false, false}, /* all are ready, or again */
    [PHASE_FIRST_CUT] = {true, true, false, false, false, true, true}, /* P9: 0 is recorded */
    [PHASE_STEPS] = {true, true, true, false, false, true, true}, /* async: servers change (P12) */
    [PHASE_LAST] = {true, true, false, false, false, false, false},
};

void phase_enter(struct run *run, enum phase phase)
{
    check(may_follow[run->phase][phase]);
    run->phase = phase;
}

static const bool state_may_follow[RUN_STATE_COUNT][RUN_STATE_COUNT] = {
    [RUN_STARTING] = {[RUN_TRAINING] = true, [RUN_STOPPED] = true, [RUN_FAILED] = true},
    [RUN_TRAINING] = {[RUN_TRAINING] = true, /* again, after a rewind */
                      [RUN_ENDED] = true,
                      [RUN_STOPPED] = true,
                      [RUN_FAILED] = true},
};

void phase_enter_state(struct run *run, enum run_state state)
{
    check(state_may_follow[run->state][state]);
    run->state = state;
}
