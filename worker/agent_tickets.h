/* The agent's tickets: acquired, computed, completed. For agent*.c only.
 *
 * A ticket's record is free, or the ticket is held, or it is over and its COMPLETE is due. Tickets
 * are computed in lanes: a lane has an executor, with weights of one version, and has one ticket at
 * a time, until all that it pushed is acknowledged. It goes on for a while with one that is over.
 * There is one lane, and one ticket; in a mesh with a delay there are several of both (S9). The
 * oldest ticket gets the next free lane, and takes that of a younger one if none is free: else two
 * members could each wait for a lease that the other one has no lane for.
 *
 * Invariants (agent_tickets_check):
 *  1 a lane's ticket is held, its compute has begun, and has ended unless the lane computes;
 *  2 a cancel is due only while a ticket that is over is computed;
 *  3 nothing is acquired without a free record. */
#ifndef ROOST_WORKER_AGENT_TICKETS_H
#define ROOST_WORKER_AGENT_TICKETS_H

#include "worker/agent_backoff.h"
#include "worker/agent_effects.h"

enum agent_ticket_state { AGENT_TICKET_FREE, AGENT_TICKET_HELD, AGENT_TICKET_OVER };

struct agent_ticket {
    enum agent_ticket_state state;
    struct ticket ticket;
    struct place place;
    bool compute_begun, compute_ended;
    uint32_t lane; /* when it has begun */
    bool placed;   /* the executor is that of the place */
    struct agent_result result;
    struct complete_request complete; /* when it is over */
    uint64_t boots[WIRE_SERVERS_MAX]; /* that `complete` names */
};

struct agent_lane {
    bool computing;              /* its executor runs … */
    struct agent_ticket *ticket; /* … for this ticket; NULL: there is none, or it is over */
    bool cancel_due;
    uint32_t stage, rank;         /* this and the next: of its newest ticket */
    uint64_t generation, version; /* of the weights */
};

struct agent_tickets {
    const struct agent_config *config; /* borrowed */
    uint32_t count;                    /* of the records below */
    struct agent_ticket all[AGENT_TICKETS_MAX];
    struct agent_lane lanes[AGENT_LANES_MAX];

    bool acquiring;
    uint64_t acquire_at; /* not before */
    unsigned acquire_failures;
    uint64_t sequence; /* of Acquire */
};

void agent_tickets_init(struct agent_tickets *tickets, const struct agent_config *config);
/* The most that any stage has. */
uint32_t agent_lanes_max(const struct agent_config *config);

/* A new membership may acquire at once. */
void agent_tickets_begin(struct agent_tickets *tickets);

/* The first in that state; NULL: none. */
struct agent_ticket *agent_tickets_find(struct agent_tickets *tickets,
                                        enum agent_ticket_state state);
bool agent_tickets_any(const struct agent_tickets *tickets, enum agent_ticket_state state);

void agent_tickets_acquired(struct agent_tickets *tickets);
void agent_tickets_acquire_failed(struct agent_tickets *tickets, uint64_t now_ms,
                                  struct rand_state *jitter);
/* The next is asked for a little later. */
void agent_tickets_pause(struct agent_tickets *tickets, uint64_t now_ms, struct rand_state *jitter);
/* Into a free record. */
struct agent_ticket *agent_tickets_hold(struct agent_tickets *tickets,
                                        const struct acquire_reply *reply);
/* The ticket whose compute is to begin, and in which lane; NULL: none. */
struct agent_ticket *agent_tickets_to_compute(struct agent_tickets *tickets, uint32_t *ret_lane);
void agent_tickets_compute(struct agent_tickets *tickets, struct agent_ticket *ticket,
                           uint32_t lane, struct agent_effect *effect);
bool agent_tickets_computing(const struct agent_tickets *tickets); /* in any lane */
/* S9: a ticket in a lane that an older one waits for; NULL: none. It has to begin again later, or
 * to end. */
struct agent_ticket *agent_tickets_to_yield(struct agent_tickets *tickets);
void agent_tickets_yield(struct agent_tickets *tickets, struct agent_ticket *ticket);
/* What the lane computes; NULL: nothing, or a ticket that is over. */
struct agent_ticket *agent_tickets_computed(const struct agent_tickets *tickets, uint32_t lane);

/* The lane's executor has ended. Returns the ticket that it computed; NULL: that ticket is over. */
struct agent_ticket *agent_tickets_end_compute(struct agent_tickets *tickets, uint32_t lane);
/* It is over, its COMPLETE is due with that outcome, less the sender's name and secret, and a
 * compute for it ends soon. */
void agent_tickets_end(struct agent_tickets *tickets, struct agent_ticket *ticket,
                       enum err outcome);
/* Forgets a held ticket, without COMPLETE. */
void agent_tickets_drop(struct agent_tickets *tickets, struct agent_ticket *ticket);
/* Forgets the COMPLETEs that are due: nobody would count them. */
void agent_tickets_forget_completes(struct agent_tickets *tickets);

/* The effects COMPLETE, ACQUIRE (`request` is what it asks, less the sequence) and CANCEL, when
 * each is due. */
bool agent_tickets_next_complete(struct agent_tickets *tickets, struct agent_effect *effect);
bool agent_tickets_next_acquire(struct agent_tickets *tickets, uint64_t now_ms,
                                const struct acquire_request *request, struct agent_effect *effect);
bool agent_tickets_next_cancel(struct agent_tickets *tickets, struct agent_effect *effect);
/* When ACQUIRE will be due; UINT64_MAX: never. */
uint64_t agent_tickets_wake_ms(const struct agent_tickets *tickets);

void agent_tickets_check(const struct agent_tickets *tickets);

#endif
