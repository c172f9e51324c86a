/* Whose turn it is at the device: lanes compute one after another, each in its own thread. The lane
 * that has the turn keeps it from act to act, gives it back while it waits for weights or values, and
 * offers it between acts. Of those who want it the oldest ticket gets it (S9), so a wait in one
 * lease never blocks another.
 *
 * A struct of its mutex: any thread, and each lane from its own. */
#ifndef ROOST_WORKER_TURN_H
#define ROOST_WORKER_TURN_H

#include "common/thread.h"
#include "worker/agent_effects.h"

struct turn {
    struct thread_mutex mutex; /* guards the rest */
    struct thread_cond changed;
    bool taken;
    struct turn_lane {
        bool wants;
        const struct ticket *ticket; /* that it computes; borrowed */
    } lanes[AGENT_LANES_MAX];
};

void turn_init(struct turn *turn);
void turn_release(struct turn *turn);

/* Waits for the turn, for that ticket, which lives until the lane takes it for another. */
void turn_take(struct turn *turn, uint32_t lane, const struct ticket *ticket);
/* The lane, which has it, needs it no more. */
void turn_give(struct turn *turn);
/* The lane, which has it, lets an older ticket's act come first. */
void turn_offer(struct turn *turn, uint32_t lane);

#endif
