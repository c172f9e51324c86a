/* The agent puts its parts together: membership, map, tickets and traffic, each in its file. An
 * event goes to the part that it is about. This file decides what the event means for the other
 * parts. */
#include "worker/agent.h"

#include "common/check_account.h"
#include "worker/agent_map.h"
#include "worker/agent_member.h"
#include "worker/agent_traffic.h"

#include <stdlib.h>

struct agent {
    struct agent_config config;
    struct rand_state jitter;
    struct agent_member member;
    struct agent_map_state map;
    struct agent_tickets tickets;
    struct agent_traffic traffic;
    struct check_account check_account;
    uint64_t check_turn; /* events; the server whose turn it is: agent_check_event() */
};

/* ---- life ---- */

void agent_free(struct agent *agent)
{
    if (agent == NULL)
        return;
    agent_traffic_release(&agent->traffic);
    free(agent);
}

enum err agent_new(const struct agent_config *config, struct agent **ret_agent)
{
    struct agent *agent = calloc(1, sizeof *agent);
    if (agent == NULL)
        return ERR_NOMEM;
    agent->config = *config;
    agent->jitter = (struct rand_state){config->seed};
    enum err err = agent_traffic_init(&agent->traffic, &agent->config, &agent->jitter);
    if (err != ERR_OK) {
        agent_free(agent);
        return err;
    }
    *ret_agent = agent;
    return ERR_OK;
}

/* ---- ends: of a ticket, of a membership, of the agent ---- */

static bool is_member(const struct agent *agent)
{
    return agent->member.phase == AGENT_PHASE_MEMBER;
}

static bool holds_ticket(const struct agent *agent)
{
    return agent_tickets_any(&agent->tickets, AGENT_TICKET_HELD);
}

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

static void end_tickets(struct agent *agent, enum err outcome)
{
    struct agent_ticket *ticket;
    while ((ticket = agent_tickets_find(&agent->tickets, AGENT_TICKET_HELD)) != NULL)
        end_ticket(agent, ticket, outcome);
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
    if (agent->member.phase == AGENT_PHASE_STOPPED)
        return;
    end_tickets(agent, ERR_UNKNOWN_MEMBER);
    agent_tickets_forget_completes(&agent->tickets); /* the coordinator would not know the member */
    agent->tickets.acquiring = false;
    agent_member_away(&agent->member, now_ms, &agent->jitter);
}

/* Ends everything. STOP with that reason follows when the compute under way has ended. */
static void stop(struct agent *agent, enum err err)
{
    if (agent->member.phase == AGENT_PHASE_STOPPED)
        return;
    agent_member_stop(&agent->member, err);
    struct agent_ticket *ticket;
    while ((ticket = agent_tickets_find(&agent->tickets, AGENT_TICKET_HELD)) != NULL) {
        agent_traffic_stop(&agent->traffic, ticket);
        agent_tickets_drop(&agent->tickets, ticket);
    }
}

/* Reacts to an error of a peer, about that ticket or (NULL) about all of them. */
static void react(struct agent *agent, uint64_t now_ms, struct agent_ticket *ticket, enum err err)
{
    if (err_reaction(err) == REACT_REJOIN)
        go_away(agent, now_ms);
    else if (err_reaction(err) == REACT_DROP && ticket != NULL)
        end_ticket(agent, ticket, err);
    else if (err_reaction(err) == REACT_DROP && holds_ticket(agent))
        end_tickets(agent, err);
    else
        stop(agent, err);
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
        stop(agent, err);
        return;
    }
    agent_map_begin(&agent->map, map, reply->generation);
    agent_tickets_begin(&agent->tickets);
    agent_member_joined(&agent->member, reply);
}

void agent_join_failed(struct agent *agent, uint64_t now_ms, enum err err)
{
    if (agent->member.phase != AGENT_PHASE_JOINING)
        return;
    if (!agent_member_join_failed(&agent->member, now_ms, err, &agent->jitter))
        stop(agent, err);
}

void agent_member_lost(struct agent *agent, uint64_t now_ms)
{
    if (is_member(agent))
        go_away(agent, now_ms);
}

/* ---- the map ---- */

bool agent_takes_map(const struct agent *agent, uint64_t generation, uint64_t number)
{
    return is_member(agent) && agent->map.asking && generation == agent->member.generation &&
           number > agent->map.number;
}

void agent_mapped(struct agent *agent, uint64_t now_ms, const struct agent_map *map)
{
    if (!is_member(agent) || !agent->map.asking)
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
        stop(agent, err);
    else
        agent_map_take(&agent->map, map);
}

void agent_map_failed(struct agent *agent, uint64_t now_ms, enum err err)
{
    if (!is_member(agent) || !agent->map.asking)
        return;
    if (agent_backoff_helps(err))
        agent_map_later(&agent->map, now_ms, &agent->jitter);
    else
        react(agent, now_ms, NULL, err);
}

/* ---- tickets ---- */

static void hold_ticket(struct agent *agent, const struct ticket *ticket)
{
    struct agent_ticket *held = agent_tickets_hold(&agent->tickets, ticket);
    agent_traffic_start(&agent->traffic, held, (uint32_t)(held - agent->tickets.all));
}

void agent_acquired(struct agent *agent, uint64_t now_ms, uint64_t sequence, enum err err,
                    const struct acquire_reply *reply)
{
    struct agent_tickets *tickets = &agent->tickets;
    if (!is_member(agent) || !tickets->acquiring || sequence != tickets->sequence)
        return;
    if (err != ERR_OK && agent_backoff_helps(err)) {
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
    if (reply->result == ACQUIRE_TICKET && !agent->member.leaving)
        hold_ticket(agent, &reply->ticket);
    else if (reply->result == ACQUIRE_END)
        agent_run_over(agent, now_ms);
}

void agent_asked(struct agent *agent, uint64_t now_ms, uint32_t unit)
{
    (void)now_ms;
    const struct agent_ticket *ticket = agent->tickets.computed;
    if (ticket != NULL) /* else of a dropped one */
        agent_pull_unit(&agent->traffic, agent_traffic_flow(&agent->traffic, ticket), unit);
}

void agent_gradient(struct agent *agent, uint64_t now_ms, uint32_t unit)
{
    (void)now_ms;
    const struct agent_ticket *ticket = agent->tickets.computed;
    if (ticket == NULL || agent->config.async)
        return; /* of a dropped ticket, or its scale is not known yet */
    agent_push_unit(&agent->traffic, ticket, unit);
}

void agent_computed(struct agent *agent, uint64_t now_ms, const struct agent_result *result)
{
    (void)now_ms;
    struct agent_ticket *ticket = agent_tickets_computed(&agent->tickets);
    if (ticket == NULL)
        return;
    if (result->err != ERR_OK) {
        stop(agent, result->err);
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
    return is_member(agent) && server < agent->traffic.server_count;
}

void agent_stream_up(struct agent *agent, uint64_t now_ms, uint32_t server, uint64_t boot)
{
    (void)now_ms;
    if (!has_server(agent, server))
        return;
    agent_traffic_stream_up(&agent->traffic, server, boot);
    /* P12: a push computed on an older boot is recomputed: the ticket's weights may be lost with
     * that boot. */
    for (uint32_t i = 0; i < AGENT_TICKETS_MAX; i++) {
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
    if (err != ERR_OK && !agent_backoff_helps(err)) {
        react(agent, now_ms, NULL, err);
        return;
    }
    for (uint32_t i = 0; i < AGENT_TICKETS_MAX; i++)
        if (agent_traffic_is_pulling(&agent->traffic, &agent->tickets.all[i], server))
            pulling[i] = &agent->tickets.all[i];
    agent_traffic_retry(&agent->traffic, now_ms, server);
    /* P11: a server that has no chunks left ends, and answers MOVED no more. */
    agent_map_want(&agent->map, now_ms);
    /* Async: a second pull might bring another version of the chunk. */
    for (uint32_t i = 0; agent->config.async && i < AGENT_TICKETS_MAX; i++)
        if (pulling[i] != NULL)
            end_ticket(agent, pulling[i], ERR_STALE);
}

/* Ignores answers about an earlier ticket, unless they report that the generation or the membership
 * has ended. */
static void heed(struct agent *agent, uint64_t now_ms, const struct agent_answer *answer)
{
    if (answer->moved)
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
                   const struct weights *weights)
{
    (void)now_ms;
    return has_server(agent, server) && agent_pull_weights(&agent->traffic, server, weights);
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
    if (!is_member(agent)) {
        stop(agent, ERR_OK);
        return;
    }
    end_tickets(agent, ERR_CANCELLED);
    agent_tickets_forget_completes(&agent->tickets); /* nobody counts these completes any more */
    /* a member that leaves does not count as lost */
    agent_member_leave(&agent->member, now_ms, now_ms);
}

/* ---- effects ---- */

/* A ticket's end is reported before LEAVE. */
static bool next_leave(struct agent *agent, uint64_t now_ms, struct agent_effect *effect)
{
    struct agent_member *member = &agent->member;
    if (!member->leaving || member->leave_sent)
        return false;
    if (now_ms >= member->leave_at)
        end_tickets(agent, ERR_CANCELLED);
    if (holds_ticket(agent) || agent_tickets_any(&agent->tickets, AGENT_TICKET_OVER))
        return false;
    bool known = is_member(agent);
    stop(agent, ERR_OK);
    member->leave_sent = true;
    effect->kind = AGENT_LEAVE;
    return known;
}

static bool next_acquire(struct agent *agent, uint64_t now_ms, struct agent_effect *effect)
{
    const struct acquire_request request = {.member = agent->member.member,
                                            .secret = agent->member.secret,
                                            .generation = agent->member.generation,
                                            .wait_ms = AGENT_ACQUIRE_WAIT_MS};
    return is_member(agent) &&
           agent_tickets_next_acquire(&agent->tickets, now_ms, &request, effect);
}

static bool next_effect(struct agent *agent, uint64_t now_ms, struct agent_effect *ret_effect)
{
    struct agent_tickets *tickets = &agent->tickets;
    if (agent_tickets_next_cancel(tickets, ret_effect) || next_leave(agent, now_ms, ret_effect))
        return true;
    if (agent->member.phase == AGENT_PHASE_STOPPED)
        return !tickets->computing && agent_member_next_stop(&agent->member, ret_effect);
    if (agent_member_next_join(&agent->member, now_ms, ret_effect) ||
        agent_tickets_next_complete(tickets, ret_effect) || next_acquire(agent, now_ms, ret_effect))
        return true;
    if (!is_member(agent))
        return false;
    return agent_tickets_next_cancel(tickets, ret_effect) ||
           agent_tickets_next_compute(tickets, ret_effect) ||
           agent_pull_next_unit(&agent->traffic, ret_effect) ||
           agent_map_next(&agent->map, now_ms, ret_effect) ||
           agent_traffic_next(&agent->traffic, now_ms, agent_map_is_known(&agent->map), ret_effect);
}

/* Checks each effect that leaves the agent. */
static void check_effect(const struct agent *agent, const struct agent_effect *effect)
{
    bool live = is_member(agent) && holds_ticket(agent);
    switch (effect->kind) {
    case AGENT_JOIN:
        check(agent->member.phase == AGENT_PHASE_JOINING);
        break;
    case AGENT_ACQUIRE:
        check(is_member(agent));
        check(effect->acquire.generation == agent->member.generation); /* P2 */
        break;
    case AGENT_COMPUTE:
        check(live && agent->tickets.computing);
        check(effect->ticket.generation == agent->member.generation);
        break;
    case AGENT_PULL:
        check(live && effect->server < agent->traffic.server_count);
        check(agent->traffic.servers[effect->server].open);
        check(effect->pull.generation == agent->member.generation); /* P2 */
        check(effect->pull.chunk_count > 0 && effect->pull.chunk_count <= WIRE_ENTRIES_MAX);
        break;
    case AGENT_PUSH:
        check(live && effect->server < agent->traffic.server_count);
        check(agent->traffic.servers[effect->server].open);
        check(effect->push.generation == agent->member.generation); /* P2 */
        check(effect->push.entry_count > 0);
        check(effect->push.entry_count <= WIRE_ENTRIES_MAX);
        break;
    case AGENT_STOP:
        check(agent->member.phase == AGENT_PHASE_STOPPED && !agent->tickets.computing);
        break;
    default:
        break;
    }
}

bool agent_next(struct agent *agent, uint64_t now_ms, struct agent_effect *ret_effect)
{
    bool more = next_effect(agent, now_ms, ret_effect);
    if (more)
        check_effect(agent, ret_effect);
    return more;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t agent_wake_ms(const struct agent *agent)
{
    uint64_t wake = UINT64_MAX;
    if (agent->member.phase == AGENT_PHASE_AWAY)
        wake = agent->member.join_at;
    if (agent->member.leaving && holds_ticket(agent))
        wake = earlier(wake, agent->member.leave_at);
    if (!is_member(agent))
        return wake;
    wake = earlier(wake, agent_tickets_wake_ms(&agent->tickets));
    wake = earlier(wake, agent_map_wake_ms(&agent->map));
    return earlier(wake, agent_traffic_wake_ms(&agent->traffic, agent_map_is_known(&agent->map)));
}

/* The invariants of the whole: no ticket without membership. The parts check their own. */
void agent_check(const struct agent *agent)
{
    agent_member_check(&agent->member);
    agent_map_check(&agent->map);
    agent_tickets_check(&agent->tickets);
    agent_traffic_check(&agent->traffic);
    check(!holds_ticket(agent) || is_member(agent));
}

void agent_check_event(struct agent *agent)
{
    uint64_t steps = 64 + agent_traffic_check_steps(&agent->traffic);
    if (check_is_due(&agent->check_account, steps)) {
        agent_check(agent);
        return;
    }
    agent_member_check(&agent->member);
    agent_map_check(&agent->map);
    agent_tickets_check(&agent->tickets);
    agent_traffic_check_in_turn(&agent->traffic, agent->check_turn++);
    check(!holds_ticket(agent) || is_member(agent));
}

void agent_describe(const void *object, char *text, size_t bytes)
{
    const struct agent *agent = object;
    const struct agent_tickets *tickets = &agent->tickets;
    const struct agent_ticket *held = &tickets->all[0];
    snprintf(text, bytes,
             "phase=%d member=%llu generation=%llu leaving=%d map=%llu named=%llu acquiring=%d "
             "computing=%d ticket=%d step=%llu version=%llu begun=%d ended=%d servers=%u "
             "pieces=%u left=%u last_id=%llu",
             (int)agent->member.phase, (unsigned long long)agent->member.member,
             (unsigned long long)agent->member.generation, agent->member.leaving,
             (unsigned long long)agent->map.number, (unsigned long long)agent->map.named,
             tickets->acquiring, tickets->computing, (int)held->state,
             (unsigned long long)held->ticket.step, (unsigned long long)held->ticket.version,
             held->compute_begun, held->compute_ended, agent->traffic.server_count,
             agent->traffic.piece_count, agent->traffic.flows[0].pieces_left,
             (unsigned long long)agent->traffic.last_id);
}
