#include "worker/agent_tickets.h"

void agent_tickets_begin(struct agent_tickets *tickets)
{
    tickets->acquire_at = 0;
    tickets->acquire_failures = 0;
    tickets->sequence++;
}

struct agent_ticket *agent_tickets_find(struct agent_tickets *tickets,
                                        enum agent_ticket_state state)
{
    for (uint32_t i = 0; i < AGENT_TICKETS_MAX; i++)
        if (tickets->all[i].state == state)
            return &tickets->all[i];
    return NULL;
}

bool agent_tickets_any(const struct agent_tickets *tickets, enum agent_ticket_state state)
{
    for (uint32_t i = 0; i < AGENT_TICKETS_MAX; i++)
        if (tickets->all[i].state == state)
            return true;
    return false;
}

/* ---- acquiring ---- */

void agent_tickets_acquired(struct agent_tickets *tickets)
{
    tickets->acquiring = false;
    tickets->acquire_failures = 0;
    tickets->sequence++;
}

void agent_tickets_acquire_failed(struct agent_tickets *tickets, uint64_t now_ms,
                                  struct rand_state *jitter)
{
    tickets->acquiring = false;
    tickets->acquire_at = now_ms + agent_backoff_ms(jitter, tickets->acquire_failures++);
}

struct agent_ticket *agent_tickets_hold(struct agent_tickets *tickets,
                                        const struct acquire_reply *reply)
{
    struct agent_ticket *held = agent_tickets_find(tickets, AGENT_TICKET_FREE);
    check(held != NULL);
    held->state = AGENT_TICKET_HELD;
    held->ticket = reply->ticket;
    held->place = reply->place;
    held->placed = reply->place.stages <= 1; /* there is one executor */
    held->compute_begun = held->compute_ended = false;
    held->result = (struct agent_result){0};
    return held;
}

bool agent_tickets_next_acquire(struct agent_tickets *tickets, uint64_t now_ms,
                                const struct acquire_request *request, struct agent_effect *effect)
{
    if (now_ms < agent_tickets_wake_ms(tickets))
        return false;
    tickets->acquiring = true;
    effect->kind = AGENT_ACQUIRE;
    effect->acquire = *request;
    effect->acquire.sequence = tickets->sequence;
    return true;
}

uint64_t agent_tickets_wake_ms(const struct agent_tickets *tickets)
{
    bool may = !tickets->acquiring && agent_tickets_any(tickets, AGENT_TICKET_FREE);
    return may ? tickets->acquire_at : UINT64_MAX;
}

/* ---- computing ---- */

bool agent_tickets_next_cancel(struct agent_tickets *tickets, struct agent_effect *effect)
{
    if (!tickets->cancel_due)
        return false;
    tickets->cancel_due = false;
    effect->kind = AGENT_CANCEL;
    return true;
}

static struct agent_ticket *to_compute(struct agent_tickets *tickets)
{
    for (uint32_t i = 0; i < AGENT_TICKETS_MAX && !tickets->computing; i++) {
        struct agent_ticket *ticket = &tickets->all[i];
        if (ticket->state == AGENT_TICKET_HELD && !ticket->compute_begun)
            return ticket;
    }
    return NULL;
}

const struct agent_ticket *agent_tickets_to_compute(struct agent_tickets *tickets)
{
    return to_compute(tickets);
}

bool agent_tickets_next_compute(struct agent_tickets *tickets, struct agent_effect *effect)
{
    struct agent_ticket *ticket = to_compute(tickets);
    if (ticket == NULL)
        return false;
    ticket->compute_begun = true;
    tickets->computing = true;
    tickets->computed = ticket;
    effect->kind = AGENT_COMPUTE;
    effect->ticket = ticket->ticket;
    effect->place = ticket->place;
    return true;
}

struct agent_ticket *agent_tickets_computed(struct agent_tickets *tickets)
{
    struct agent_ticket *ticket = tickets->computed;
    check(tickets->computing);
    tickets->computing = tickets->cancel_due = false;
    tickets->computed = NULL;
    return ticket;
}

/* ---- the end ---- */

static void end_compute(struct agent_tickets *tickets, const struct agent_ticket *ticket)
{
    if (tickets->computed != ticket)
        return;
    tickets->computed = NULL;
    tickets->cancel_due = true;
}

void agent_tickets_end(struct agent_tickets *tickets, struct agent_ticket *ticket, enum err outcome)
{
    check(ticket->state == AGENT_TICKET_HELD);
    ticket->state = AGENT_TICKET_OVER;
    ticket->complete = (struct complete_request){
        .ticket = ticket->ticket,
        .outcome = outcome,
        .loss_sum = ticket->result.loss_sum,
        .sample_count = ticket->result.sample_count,
        .correct_count = ticket->result.correct_count,
        .place = ticket->place,
        .boundary_count = ticket->result.sums.count,
        .boundaries = ticket->result.sums.list,
    };
    end_compute(tickets, ticket);
}

void agent_tickets_drop(struct agent_tickets *tickets, struct agent_ticket *ticket)
{
    check(ticket->state == AGENT_TICKET_HELD);
    ticket->state = AGENT_TICKET_FREE;
    end_compute(tickets, ticket);
}

void agent_tickets_forget_completes(struct agent_tickets *tickets)
{
    for (uint32_t i = 0; i < AGENT_TICKETS_MAX; i++)
        if (tickets->all[i].state == AGENT_TICKET_OVER)
            tickets->all[i].state = AGENT_TICKET_FREE;
}

bool agent_tickets_next_complete(struct agent_tickets *tickets, struct agent_effect *effect)
{
    struct agent_ticket *over = agent_tickets_find(tickets, AGENT_TICKET_OVER);
    if (over == NULL)
        return false;
    over->state = AGENT_TICKET_FREE;
    effect->kind = AGENT_COMPLETE;
    effect->complete = over->complete;
    return true;
}

void agent_tickets_check(const struct agent_tickets *tickets)
{
    const struct agent_ticket *computed = tickets->computed;
    check(computed == NULL || tickets->computing);
    check(computed == NULL || computed->state == AGENT_TICKET_HELD);
    check(computed == NULL || (computed->compute_begun && !computed->compute_ended));
    check(!tickets->cancel_due || (tickets->computing && computed == NULL));
    check(!tickets->acquiring || agent_tickets_any(tickets, AGENT_TICKET_FREE));
}
