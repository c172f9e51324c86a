/* Whose turn it is at the device: lanes compute one after another, each in its own thread. The lane
 * that has the turn keeps it from act to act, gives it back while it waits for weights or values,
 * and offers it before each act. Of those who want it the oldest ticket gets it (S9).
 *
 * The oldest ticket's forwards never wait. A forward of a younger ticket waits while all lanes
 * together keep as many activations as the place has room for (turn_room). Begun earlier, it would
 * delay the oldest ticket's acts, for which neighbours wait, and take memory. So tickets follow each
 * other as the microbatches of their schedule do. The wait ends when the ticket is cancelled, or after
 * TURN_PATIENCE forwards' time, and none begins again before a backward act is done: a wait in one
 * lease never blocks another (S9).
 *
 * A struct of its mutex: any thread, and each lane from its own. */
#ifndef ROOST_WORKER_TURN_H
#define ROOST_WORKER_TURN_H

#include "common/thread.h"
#include "worker/agent_effects.h"
#include "worker/turn_rules.h"

enum { TURN_PATIENCE = 64 /* forwards: more than pass between a forward and its backward */ };

struct turn {
    struct thread_mutex mutex; /* guards the rest */
    struct thread_cond changed;
    bool taken;
    bool in_vain;        /* a forward waited, and nothing went backward since */
    uint64_t longest_ns; /* of forwards */
    struct turn_lane {
        const struct ticket *ticket; /* that it computes; borrowed; NULL: none */
        bool wants;
        uint32_t stored;     /* activations that it keeps now */
        enum act act;        /* the newest that computes, */
        uint32_t microbatch; /* and of which */
        uint64_t begun_ns;   /* the act at hand; later by what it waited without the turn */
        uint64_t given_ns;   /* while it has given the turn back */
        bool cancelled;      /* its forwards wait for nobody's backward */
    } lanes[AGENT_LANES_MAX];
};

void turn_init(struct turn *turn);
void turn_release(struct turn *turn);

/* A ticket begins, which lives to its end: waits for the turn. */
void turn_begin(struct turn *turn, uint32_t lane, const struct ticket *ticket);
/* Of the lane that has the turn. */
void turn_end(struct turn *turn, uint32_t lane);
/* Before the lane waits, and after that. */
void turn_give(struct turn *turn, uint32_t lane);
void turn_take(struct turn *turn, uint32_t lane);
/* Around each row of a place with so much room. */
void turn_begin_row(struct turn *turn, uint32_t lane, const struct program_row *row,
                    struct turn_room room);
void turn_end_row(struct turn *turn, uint32_t lane, const struct program_row *row);
/* Before the lane's next ticket (false), and when its ticket is cancelled: it may not have begun. */
void turn_cancel(struct turn *turn, uint32_t lane, bool cancelled);

#endif
