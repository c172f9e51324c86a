/* Rare things that come together. A *state* lasts: a run that a coordinator has not adopted yet, a
 * cut that is pending. An *event* happens in it: a drain, a crash. Left to chance such pairs are
 * met once in tens of thousands of seeds, so a scenario plans some (struct meeting): when the state
 * begins, the event follows soon after. Planned or not, the event counts for each state that it
 * meets; `sim --seeds` prints in how many seeds each pair was met. */
#ifndef ROOST_TESTS_SIM_PAIRS_H
#define ROOST_TESTS_SIM_PAIRS_H

#include "tests/sim/scenario.h"

struct sim;

struct pairs {
    uint32_t states;     /* that held after the newest event, as bits */
    uint64_t begun_term; /* the newest whose coordinator has adopted a run */
    struct {
        bool caused, over; /* its state was brought about; its event follows */
    } meetings[SIM_MEETINGS_MAX];
    bool met[STATE_COUNT][MEETING_COUNT]; /* in this seed */
};

/* After each event: the events of meetings whose state has just begun are to follow. */
void pairs_look(struct sim *sim);
/* Meetings are still to come. */
bool pairs_awaited(const struct sim *sim);
/* That is about to happen. */
void pairs_event(struct sim *sim, enum meeting_event event);

const char *state_text(enum state state);
const char *meeting_text(enum meeting_event event);

#endif
