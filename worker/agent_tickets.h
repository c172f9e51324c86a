/* The agent's tickets: acquired, computed, completed. For agent*.c only.
 *
 * A ticket's record is free, or the ticket is held, or it is over and its COMPLETE is due. There is
 * one executor: it computes one ticket at a time, and goes on for a while with one that is over.
 *
 * Invariants (agent_tickets_check):
 *  1 the ticket that is computed is held, and its compute has begun and not ended;
 *  2 a cancel is due only while a ticket that is over is computed;
 *  3 nothing is acquired without a free record. */
#ifndef ROOST_WORKER_AGENT_TICKETS_H
#define ROOST_WORKER_AGENT_TICKETS_H

#include "worker/agent_backoff.h"
#include "worker/agent_effects.h"

enum { AGENT_TICKETS_MAX = 1 };

enum agent_ticket_state { AGENT_TICKET_FREE, AGENT_TICKET_HELD, AGENT_TICKET_OVER };

struct agent_ticket {
    enum agent_ticket_state state;
    struct ticket ticket;
    struct place place;
    bool compute_begun, compute_ended;
    bool placed; /* the executor is that of the place */
    struct agent_result result;
    struct complete_request complete; /* when it is over */
    uint64_t boots[WIRE_SERVERS_MAX]; /* that `complete` names */
};

struct agent_tickets {
    struct agent_ticket all[AGENT_TICKETS_MAX];

    bool acquiring;
    uint64_t acquire_at; /* not before */
    unsigned acquire_failures;
    uint64_t sequence; /* of Acquire */

    bool computing;                /* the executor runs … */
    struct agent_ticket *computed; /* … for this ticket; NULL: for one that is over */
    bool cancel_due;
};

/* A new membership may acquire at once. */
void agent_tickets_begin(struct agent_tickets *tickets);

/* The first in that state; NULL: none. */
struct agent_ticket *agent_tickets_find(struct agent_tickets *tickets,
                                        enum agent_ticket_state state);
bool agent_tickets_any(const struct agent_tickets *tickets, enum agent_ticket_state state);

void agent_tickets_acquired(struct agent_tickets *tickets);
void agent_tickets_acquire_failed(struct agent_tickets *tickets, uint64_t now_ms,
                                  struct rand_state *jitter);
/* Into a free record. */
struct agent_ticket *agent_tickets_hold(struct agent_tickets *tickets,
                                        const struct acquire_reply *reply);
/* The ticket whose compute is to begin; NULL: none. */
const struct agent_ticket *agent_tickets_to_compute(struct agent_tickets *tickets);

/* The executor has ended. Returns the ticket that it computed; NULL when that ticket is over. */
struct agent_ticket *agent_tickets_computed(struct agent_tickets *tickets);
/* It is over, its COMPLETE is due with that outcome, less the sender's name and secret, and a
 * compute for it ends soon. */
void agent_tickets_end(struct agent_tickets *tickets, struct agent_ticket *ticket,
                       enum err outcome);
/* Forgets a held ticket, without COMPLETE. */
void agent_tickets_drop(struct agent_tickets *tickets, struct agent_ticket *ticket);
/* Forgets the COMPLETEs that are due: nobody would count them. */
void agent_tickets_forget_completes(struct agent_tickets *tickets);

/* The effects COMPLETE, ACQUIRE (`request` is what it asks, less the sequence), CANCEL and COMPUTE,
 * when each is due. */
bool agent_tickets_next_complete(struct agent_tickets *tickets, struct agent_effect *effect);
bool agent_tickets_next_acquire(struct agent_tickets *tickets, uint64_t now_ms,
                                const struct acquire_request *request, struct agent_effect *effect);
bool agent_tickets_next_cancel(struct agent_tickets *tickets, struct agent_effect *effect);
bool agent_tickets_next_compute(struct agent_tickets *tickets, struct agent_effect *effect);
/* When ACQUIRE will be due; UINT64_MAX: never. */
uint64_t agent_tickets_wake_ms(const struct agent_tickets *tickets);

void agent_tickets_check(const struct agent_tickets *tickets);

#endif
