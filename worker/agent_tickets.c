#include "worker/agent_tickets.h"

_Static_assert((int)AGENT_TICKETS_MAX >= SPEC_PLACE_LEASES_MAX, "a member may hold all its leases");

void agent_tickets_init(struct agent_tickets *tickets, const struct agent_config *config)
{
    tickets->config = config;
    tickets->count = spec_mesh_is_shared(&config->mesh) && config->leases > 1 ? config->leases : 1;
    check(tickets->count <= AGENT_TICKETS_MAX);
}

static uint32_t lanes_of(const struct agent_config *config, uint32_t stage)
{
    bool several = spec_mesh_is_shared(&config->mesh) && stage < config->mesh.stages;
    return several && config->lanes[stage] > 1 ? config->lanes[stage] : 1;
}

uint32_t agent_lanes_max(const struct agent_config *config)
{
    uint32_t most = 1;
    for (uint32_t stage = 0; stage < config->mesh.stages; stage++)
        if (lanes_of(config, stage) > most)
            most = lanes_of(config, stage);
    check(most <= AGENT_LANES_MAX);
    return most;
}

void agent_tickets_begin(struct agent_tickets *tickets)
{
    tickets->acquire_at = 0;
    tickets->acquire_failures = 0;
    tickets->sequence++;
}

struct agent_ticket *agent_tickets_find(struct agent_tickets *tickets,
                                        enum agent_ticket_state state)
{
    for (uint32_t i = 0; i < tickets->count; i++)
        if (tickets->all[i].state == state)
            return &tickets->all[i];
    return NULL;
}

bool agent_tickets_any(const struct agent_tickets *tickets, enum agent_ticket_state state)
{
    for (uint32_t i = 0; i < tickets->count; i++)
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
    agent_tickets_pause(tickets, now_ms, jitter);
}

void agent_tickets_pause(struct agent_tickets *tickets, uint64_t now_ms, struct rand_state *jitter)
{
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
    held->placed = !place_is_shared(&reply->place); /* there is one executor */
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
    for (uint32_t i = 0; i < AGENT_LANES_MAX; i++) {
        if (!tickets->lanes[i].cancel_due)
            continue;
        tickets->lanes[i].cancel_due = false;
        effect->kind = AGENT_CANCEL;
        effect->lane = i;
        return true;
    }
    return false;
}

bool agent_tickets_computing(const struct agent_tickets *tickets)
{
    for (uint32_t i = 0; i < AGENT_LANES_MAX; i++)
        if (tickets->lanes[i].computing)
            return true;
    return false;
}

struct agent_ticket *agent_tickets_computed(const struct agent_tickets *tickets, uint32_t lane)
{
    check(lane < AGENT_LANES_MAX);
    return tickets->lanes[lane].computing ? tickets->lanes[lane].ticket : NULL;
}

static struct agent_ticket *oldest_waiting(struct agent_tickets *tickets)
{
    struct agent_ticket *oldest = NULL;
    for (uint32_t i = 0; i < tickets->count; i++) {
        struct agent_ticket *ticket = &tickets->all[i];
        if (ticket->state == AGENT_TICKET_HELD && !ticket->compute_begun &&
            (oldest == NULL || ticket_is_older(&ticket->ticket, &oldest->ticket)))
            oldest = ticket;
    }
    return oldest;
}

static bool has_weights(const struct agent_lane *lane, const struct ticket *ticket)
{
    return lane->generation == ticket->generation && lane->version == ticket->version;
}

/* Of the free lanes the one that has the weights, else the one whose weights are the oldest. All
 * lanes that are used are of one stage and rank: their executors are made and freed together. */
static struct agent_lane *free_lane(struct agent_tickets *tickets,
                                    const struct agent_ticket *ticket)
{
    uint32_t count = lanes_of(tickets->config, ticket->place.stage);
    struct agent_lane *best = NULL;
    for (uint32_t i = 0; i < AGENT_LANES_MAX; i++) {
        struct agent_lane *lane = &tickets->lanes[i];
        bool used = lane->computing || lane->ticket != NULL;
        if (used && (lane->stage != ticket->place.stage || lane->rank != ticket->place.rank))
            return NULL; /* what is over ends first */
        if (used || i >= count)
            continue;
        if (best == NULL || has_weights(lane, &ticket->ticket) ||
            (lane->version < best->version && !has_weights(best, &ticket->ticket)))
            best = lane;
    }
    return best;
}

struct agent_ticket *agent_tickets_to_compute(struct agent_tickets *tickets, uint32_t *ret_lane)
{
    struct agent_ticket *ticket = oldest_waiting(tickets);
    const struct agent_lane *lane = ticket != NULL ? free_lane(tickets, ticket) : NULL;
    if (lane == NULL)
        return NULL;
    *ret_lane = (uint32_t)(lane - tickets->lanes);
    return ticket;
}

void agent_tickets_compute(struct agent_tickets *tickets, struct agent_ticket *ticket,
                           uint32_t lane, struct agent_effect *effect)
{
    tickets->lanes[lane] = (struct agent_lane){.computing = true,
                                               .ticket = ticket,
                                               .stage = ticket->place.stage,
                                               .rank = ticket->place.rank,
                                               .generation = ticket->ticket.generation,
                                               .version = ticket->ticket.version};
    ticket->compute_begun = true;
    ticket->lane = lane;
    effect->kind = AGENT_COMPUTE;
    effect->lane = lane;
    effect->ticket = ticket->ticket;
    effect->place = ticket->place;
}

static void leave_lane(struct agent_tickets *tickets, const struct agent_ticket *ticket)
{
    if (!ticket->compute_begun)
        return;
    struct agent_lane *lane = &tickets->lanes[ticket->lane];
    lane->ticket = NULL;
    lane->cancel_due = lane->computing;
}

struct agent_ticket *agent_tickets_to_yield(struct agent_tickets *tickets)
{
    const struct agent_ticket *waiting = oldest_waiting(tickets);
    struct agent_ticket *youngest = NULL;
    uint32_t count = waiting != NULL ? lanes_of(tickets->config, waiting->place.stage) : 0;
    for (uint32_t i = 0; i < count; i++) {
        struct agent_ticket *ticket = tickets->lanes[i].ticket;
        if (ticket == NULL)
            return NULL; /* the lane is free, or will be soon */
        if (youngest == NULL || ticket_is_older(&youngest->ticket, &ticket->ticket))
            youngest = ticket;
    }
    return youngest != NULL && ticket_is_older(&waiting->ticket, &youngest->ticket) ? youngest
                                                                                    : NULL;
}

void agent_tickets_yield(struct agent_tickets *tickets, struct agent_ticket *ticket)
{
    leave_lane(tickets, ticket);
    ticket->compute_begun = ticket->compute_ended = ticket->placed = false;
    ticket->result = (struct agent_result){0};
}

struct agent_ticket *agent_tickets_end_compute(struct agent_tickets *tickets, uint32_t lane)
{
    check(lane < AGENT_LANES_MAX && tickets->lanes[lane].computing);
    tickets->lanes[lane].computing = tickets->lanes[lane].cancel_due = false;
    return tickets->lanes[lane].ticket;
}

/* ---- the end ---- */

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
        .replicated = ticket->result.replicated,
    };
    leave_lane(tickets, ticket);
}

void agent_tickets_drop(struct agent_tickets *tickets, struct agent_ticket *ticket)
{
    check(ticket->state == AGENT_TICKET_HELD);
    ticket->state = AGENT_TICKET_FREE;
    leave_lane(tickets, ticket);
}

void agent_tickets_forget_completes(struct agent_tickets *tickets)
{
    for (uint32_t i = 0; i < tickets->count; i++)
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
    effect->lane = over->compute_begun ? over->lane : AGENT_LANES_MAX;
    effect->complete = over->complete;
    return true;
}

void agent_tickets_check(const struct agent_tickets *tickets)
{
    for (uint32_t i = 0; i < AGENT_LANES_MAX; i++) {
        const struct agent_lane *lane = &tickets->lanes[i];
        const struct agent_ticket *ticket = lane->ticket;
        check(ticket == NULL || ticket->state == AGENT_TICKET_HELD);
        check(ticket == NULL || (ticket->compute_begun && ticket->lane == i));
        check(ticket == NULL || ticket->compute_ended == !lane->computing);
        check(!lane->cancel_due || (lane->computing && ticket == NULL));
    }
    check(!tickets->acquiring || agent_tickets_any(tickets, AGENT_TICKET_FREE));
}
