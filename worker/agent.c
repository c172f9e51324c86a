/* The agent puts its parts together: membership, map, tickets, leases and traffic, each in its file. An
 * event goes to the part that it is about. This file decides what the event means for the other
 * parts, and agent_next.c what is done next. */
#include "worker/agent.h"

#include "worker/agent_core.h"

#include <stdlib.h>

/* ---- life ---- */

void agent_free(struct agent *agent)
{
    if (agent == NULL)
        return;
    agent_traffic_release(&agent->traffic);
    agent_leases_release(&agent->leases);
    free(agent);
}

enum err agent_new(const struct agent_config *config, struct agent **ret_agent)
{
    struct agent *agent = calloc(1, sizeof *agent);
    if (agent == NULL)
        return ERR_NOMEM;
    agent->config = *config;
    agent->jitter = (struct rand_state){config->seed};
    agent->give_back_at = UINT64_MAX;
    agent_tickets_init(&agent->tickets, &agent->config);
    enum err err = agent_traffic_init(&agent->traffic, &agent->config, &agent->jitter);
    if (err == ERR_OK)
        err = agent_leases_init(&agent->leases, &agent->config);
    if (err != ERR_OK) {
        agent_free(agent);
        return err;
    }
    *ret_agent = agent;
    return ERR_OK;
}

/* ---- ends: of a ticket, of a membership, of the agent ---- */

static void end_ticket(struct agent *agent, struct agent_ticket *ticket, enum err outcome)
{
    check(outcome != ERR_OK || agent_traffic_is_done(&agent->traffic, ticket));
    agent_tickets_end(&agent->tickets, ticket, outcome);
    ticket->complete.member = agent->member.member;
    ticket->complete.secret = agent->member.secret;
    if (agent->config.async && outcome == ERR_OK) {
        agent_traffic_boots(&agent->traffic, ticket, agent->map.server_count, ticket->boots);
        ticket->complete.boot_count = agent->map.server_count;
        ticket->complete.boots = ticket->boots;
    }
    agent_traffic_stop(&agent->traffic, ticket);
}

/* Without COMPLETE. */
static void drop_ticket(struct agent *agent, struct agent_ticket *ticket)
{
    agent_traffic_stop(&agent->traffic, ticket);
    agent_tickets_drop(&agent->tickets, ticket);
}

void agent_end_tickets(struct agent *agent, enum err outcome)
{
    struct agent_ticket *ticket;
    while ((ticket = agent_tickets_find(&agent->tickets, AGENT_TICKET_HELD)) != NULL)
        end_ticket(agent, ticket, outcome);
}

void agent_give_up(struct agent *agent, struct agent_ticket *ticket)
{
    agent_leases_forget(&agent->leases, ticket->ticket.attempt);
    end_ticket(agent, ticket, ERR_CANCELLED);
}

/* Whether the ticket is computed and all its pieces are acknowledged. */
static void settle(struct agent *agent, struct agent_ticket *ticket)
{
    if (ticket->compute_ended && agent_traffic_is_done(&agent->traffic, ticket))
        end_ticket(agent, ticket, ERR_OK);
}

/* Ends the membership; the agent joins again. */
static void go_away(struct agent *agent, uint64_t now_ms)
{
    if (agent_has_stopped(agent))
        return;
    agent_end_tickets(agent, ERR_UNKNOWN_MEMBER);
    agent_tickets_forget_completes(&agent->tickets); /* the coordinator would not know the member */
    agent->tickets.acquiring = false;
    agent_leases_clear(&agent->leases);
    agent_member_away(&agent->member, now_ms, &agent->jitter);
}

bool agent_has_stopped(const struct agent *agent)
{
    return agent->member.phase == AGENT_PHASE_STOPPED;
}

/* Ends everything. STOP with that reason follows when the compute under way has ended. */
void agent_stop(struct agent *agent, enum err err)
{
    if (agent_has_stopped(agent))
        return;
    agent_member_stop(&agent->member, err);
    struct agent_ticket *ticket;
    while ((ticket = agent_tickets_find(&agent->tickets, AGENT_TICKET_HELD)) != NULL)
        drop_ticket(agent, ticket);
}

/* Reacts to an error of a peer, about that ticket or (NULL) about all of them. */
static void react(struct agent *agent, uint64_t now_ms, struct agent_ticket *ticket, enum err err)
{
    if (err_reaction(err) == REACT_REJOIN)
        go_away(agent, now_ms);
    else if (err_reaction(err) == REACT_DROP && ticket != NULL)
        end_ticket(agent, ticket, err);
    else if (err_reaction(err) == REACT_DROP && agent_holds_ticket(agent))
        agent_end_tickets(agent, err);
    else
        agent_stop(agent, err);
}

/* ---- joining ---- */

void agent_joined(struct agent *agent, uint64_t now_ms, const struct join_reply *reply,
                  const struct agent_map *map)
{
    (void)now_ms;
    if (agent->member.phase != AGENT_PHASE_JOINING)
        return;
    enum err err = agent_traffic_begin(&agent->traffic, map);
    if (err != ERR_OK) {
        agent_stop(agent, err);
        return;
    }
    agent_map_begin(&agent->map, map, reply->generation);
    agent_tickets_begin(&agent->tickets);
    agent_leases_begin(&agent->leases, reply->generation);
    agent_member_joined(&agent->member, reply);
}

void agent_join_failed(struct agent *agent, uint64_t now_ms, enum err err)
{
    if (agent->member.phase != AGENT_PHASE_JOINING)
        return;
    if (!agent_member_join_failed(&agent->member, now_ms, err, &agent->jitter))
        agent_stop(agent, err);
}

void agent_member_lost(struct agent *agent, uint64_t now_ms)
{
    if (agent_is_member(agent))
        go_away(agent, now_ms);
}

/* ---- the map ---- */

bool agent_takes_map(const struct agent *agent, uint64_t generation, uint64_t number)
{
    return agent_is_member(agent) && agent->map.asking && generation == agent->member.generation &&
           number > agent->map.number;
}

void agent_mapped(struct agent *agent, uint64_t now_ms, const struct agent_map *map)
{
    if (!agent_is_member(agent) || !agent->map.asking)
        return;
    if (map->generation > agent->member.generation) {
        /* P2: another generation fences this one. A worker that waits for its ticket's map sends
         * nothing, so nobody answers it OLD_GENERATION: the map tells it. */
        react(agent, now_ms, NULL, ERR_OLD_GENERATION);
        return;
    }
    if (!agent_takes_map(agent, map->generation, map->number)) {
        agent_map_same(&agent->map, now_ms, &agent->jitter);
        return;
    }
    enum err err = agent_traffic_reroute(&agent->traffic, map);
    if (err != ERR_OK)
        agent_stop(agent, err);
    else
        agent_map_take(&agent->map, map);
}

void agent_map_failed(struct agent *agent, uint64_t now_ms, enum err err)
{
    if (!agent_is_member(agent) || !agent->map.asking)
        return;
    if (agent_member_waits(&agent->member, err))
        agent_map_later(&agent->map, now_ms, &agent->jitter);
    else
        react(agent, now_ms, NULL, err);
}

/* ---- tickets ---- */

/* The ticket of a lease that is held; NULL: it is over, or complete. */
static struct agent_ticket *ticket_of_lease(struct agent *agent, uint64_t attempt)
{
    for (uint32_t i = 0; i < agent->tickets.count; i++) {
        struct agent_ticket *ticket = &agent->tickets.all[i];
        if (ticket->state == AGENT_TICKET_HELD && ticket->ticket.attempt == attempt)
            return ticket;
    }
    return NULL;
}

/* The run's mesh is the coordinator's and ours, unless the run was continued with another. Who leaves
 * gives a place back at once: others wait for whoever has it. */
static void take_grant(struct agent *agent, const struct acquire_reply *reply)
{
    if (!agent_leases_fits(&agent->config, reply)) {
        agent_stop(agent, ERR_RUN_CHANGED);
        return;
    }
    struct agent_ticket *before = ticket_of_lease(agent, reply->ticket.attempt);
    if (place_is_shared(&reply->place) && before != NULL) /* S6: its place begins again */
        drop_ticket(agent, before);
    if ((agent->member.leaving && !place_is_shared(&reply->place)) ||
        !agent_leases_hold(&agent->leases, reply))
        return;
    struct agent_ticket *held = agent_tickets_hold(&agent->tickets, reply);
    if (agent->member.leaving)
        agent_give_up(agent, held);
}

/* Tickets of leases that are over. */
static void drop_ended(struct agent *agent)
{
    for (uint32_t i = 0; i < agent->tickets.count; i++) {
        struct agent_ticket *ticket = &agent->tickets.all[i];
        if (ticket->state == AGENT_TICKET_HELD && place_is_shared(&ticket->place) &&
            !agent_leases_has(&agent->leases, ticket->ticket.attempt))
            drop_ticket(agent, ticket);
    }
}

void agent_acquired(struct agent *agent, uint64_t now_ms, uint64_t sequence, enum err err,
                    const struct acquire_reply *reply)
{
    struct agent_tickets *tickets = &agent->tickets;
    if (!agent_is_member(agent) || !tickets->acquiring || sequence != tickets->sequence)
        return;
    if (err != ERR_OK && agent_member_waits(&agent->member, err)) {
        agent_tickets_acquire_failed(tickets, now_ms, &agent->jitter);
        return;
    }
    if (err != ERR_OK) {
        tickets->acquiring = false;
        react(agent, now_ms, NULL, err);
        return;
    }
    agent_tickets_acquired(tickets);
    agent_map_name(&agent->map, now_ms, reply->map_number);
    agent_leases_keep(&agent->leases, reply);
    drop_ended(agent);
    if (reply->result == ACQUIRE_TICKET)
        take_grant(agent, reply);
    else if (reply->result == ACQUIRE_END)
        agent_run_over(agent, now_ms);
}

void agent_places(struct agent *agent, uint64_t now_ms, const struct places *places)
{
    (void)now_ms;
    if (!agent_is_member(agent) || !agent_leases_hear(&agent->leases, places))
        return;
    struct agent_ticket *ticket = ticket_of_lease(agent, places->attempt);
    if (ticket != NULL)
        drop_ticket(agent, ticket);
}

bool agent_was_served(const struct agent *agent)
{
    return agent->member.was_served;
}

void agent_lease_failed(struct agent *agent, enum err err)
{
    agent_stop(agent, err);
}

/* A member that was replaced meanwhile is waited for no more. */
bool agent_waits_for(struct agent *agent, uint64_t attempt, uint64_t member)
{
    const struct agent_ticket *ticket = ticket_of_lease(agent, attempt);
    return ticket != NULL && !ticket->compute_ended &&
           agent_leases_names(&agent->leases, attempt, member);
}

void agent_placed(struct agent *agent, uint64_t now_ms, uint32_t lane)
{
    (void)now_ms;
    struct agent_ticket *ticket = agent_tickets_computed(&agent->tickets, lane);
    if (ticket != NULL) /* else of a dropped one */
        ticket->placed = true;
}

void agent_asked(struct agent *agent, uint64_t now_ms, uint32_t lane, uint32_t unit)
{
    (void)now_ms;
    if (agent_tickets_computed(&agent->tickets, lane) != NULL) /* else of a dropped one */
        agent_pull_unit(&agent->traffic, lane, unit);
}

void agent_gradient(struct agent *agent, uint64_t now_ms, uint32_t lane, uint32_t unit,
                    struct node node)
{
    (void)now_ms;
    const struct agent_ticket *ticket = agent_tickets_computed(&agent->tickets, lane);
    if (ticket == NULL || agent->config.async)
        return; /* of a dropped ticket, or its scale is not known yet */
    agent_push_unit(&agent->traffic, ticket, unit, node);
}

/* A peer that has no such value, or sends other bits than it said, is no better than one that does
 * not answer; one of a newer generation has heard of it first (S8). Samples that a server streams may
 * not come: then the ticket is another's, and this worker asks again a little later. */
static void compute_failed(struct agent *agent, uint64_t now_ms, struct agent_ticket *ticket,
                           const struct agent_result *result)
{
    if (err_reaction(result->err) == REACT_REJOIN) {
        go_away(agent, now_ms);
    } else if (result->blamed != 0) {
        end_ticket(agent, ticket, result->err);
        ticket->complete.unreachable = result->blamed;
    } else if (agent_member_waits(&agent->member, result->err)) {
        end_ticket(agent, ticket, ERR_STALE);
        agent_tickets_pause(&agent->tickets, now_ms, &agent->jitter);
    } else {
        agent_stop(agent, result->err);
    }
}

void agent_computed(struct agent *agent, uint64_t now_ms, const struct agent_result *result)
{
    struct agent_ticket *ticket = agent_tickets_end_compute(&agent->tickets, result->lane);
    if (ticket == NULL)
        return;
    if (result->err != ERR_OK) {
        compute_failed(agent, now_ms, ticket, result);
        return;
    }
    ticket->compute_ended = true;
    ticket->result = *result;
    if (agent->config.async && ticket->ticket.kind == TICKET_TRAIN)
        agent_push_all(&agent->traffic, ticket);
    settle(agent, ticket);
}

/* ---- streams ---- */

static bool has_server(const struct agent *agent, uint32_t server)
{
    return agent_is_member(agent) && server < agent->traffic.server_count;
}

void agent_stream_up(struct agent *agent, uint64_t now_ms, uint32_t server, uint64_t boot)
{
    (void)now_ms;
    if (!has_server(agent, server))
        return;
    agent->member.was_served = true;
    agent_traffic_stream_up(&agent->traffic, server, boot);
    /* P12: a push computed on an older boot is recomputed: the ticket's weights may be lost with
     * that boot. */
    for (uint32_t i = 0; i < agent->tickets.count; i++) {
        struct agent_ticket *ticket = &agent->tickets.all[i];
        if (ticket->state == AGENT_TICKET_HELD &&
            agent_traffic_is_stale(&agent->traffic, ticket, server))
            end_ticket(agent, ticket, ERR_STALE);
    }
}

void agent_stream_lost(struct agent *agent, uint64_t now_ms, uint32_t server, enum err err)
{
    struct agent_ticket *pulling[AGENT_TICKETS_MAX] = {NULL};
    if (!has_server(agent, server))
        return;
    agent_traffic_stream_down(&agent->traffic, server);
    if (err != ERR_OK && !agent_member_waits(&agent->member, err)) {
        react(agent, now_ms, NULL, err);
        return;
    }
    for (uint32_t i = 0; i < agent->tickets.count; i++)
        if (agent_traffic_is_pulling(&agent->traffic, &agent->tickets.all[i], server))
            pulling[i] = &agent->tickets.all[i];
    agent_traffic_retry(&agent->traffic, now_ms, server);
    /* P11: a server that has no chunks left ends, and answers MOVED no more. */
    agent_map_want(&agent->map, now_ms);
    /* Async: a second pull might bring another version of the chunk. */
    for (uint32_t i = 0; agent->config.async && i < agent->tickets.count; i++)
        if (pulling[i] != NULL)
            end_ticket(agent, pulling[i], ERR_STALE);
}

/* Ignores answers about an earlier ticket, unless they report that the generation or the membership
 * has ended. */
static void heed(struct agent *agent, uint64_t now_ms, const struct agent_answer *answer)
{
    if (answer->map_is_doubted)
        agent_map_want(&agent->map, now_ms);
    if (answer->ticket == NULL) {
        if (err_reaction(answer->err) == REACT_REJOIN)
            go_away(agent, now_ms);
    } else if (answer->err != ERR_OK) {
        react(agent, now_ms, answer->ticket, answer->err);
    } else if (answer->end != ERR_OK) {
        end_ticket(agent, answer->ticket, answer->end);
    } else {
        settle(agent, answer->ticket);
    }
}

bool agent_weights(struct agent *agent, uint64_t now_ms, uint32_t server,
                   const struct weights *weights, uint32_t *ret_lane)
{
    (void)now_ms;
    return has_server(agent, server) &&
           agent_pull_weights(&agent->traffic, server, weights, ret_lane);
}

void agent_lent(struct agent *agent, uint32_t lane, uint32_t chunk)
{
    check(lane < agent->traffic.lanes && chunk < agent->config.model->chunks_count);
    agent->traffic.flows[lane].held[chunk].lent = true;
    agent->lent = true;
}

void agent_refused(struct agent *agent, uint64_t now_ms, uint32_t server,
                   const struct pull_refusal *refusal)
{
    if (!has_server(agent, server))
        return;
    struct agent_answer answer = agent_pull_refused(&agent->traffic, now_ms, server, refusal);
    heed(agent, now_ms, &answer);
}

void agent_acked(struct agent *agent, uint64_t now_ms, uint32_t server, const struct push_ack *ack)
{
    if (!has_server(agent, server))
        return;
    struct agent_answer answer = agent_push_acked(&agent->traffic, now_ms, server, ack);
    heed(agent, now_ms, &answer);
}

/* ---- the end ---- */

void agent_leave(struct agent *agent, uint64_t now_ms, uint64_t deadline_ms)
{
    agent_member_leave(&agent->member, now_ms, deadline_ms);
}

void agent_run_over(struct agent *agent, uint64_t now_ms)
{
    if (!agent_is_member(agent)) {
        agent_stop(agent, ERR_OK);
        return;
    }
    agent_end_tickets(agent, ERR_CANCELLED);
    agent_tickets_forget_completes(&agent->tickets); /* nobody counts these completes any more */
    /* a member that leaves does not count as lost */
    agent_member_leave(&agent->member, now_ms, now_ms);
}
