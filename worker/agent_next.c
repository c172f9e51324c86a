/* What the agent does next, and what must hold of it. */
#include "worker/agent.h"
#include "worker/agent_core.h"

/* ---- effects ---- */

/* A ticket's end is reported before LEAVE. */
static bool next_leave(struct agent *agent, uint64_t now_ms, struct agent_effect *effect)
{
    struct agent_member *member = &agent->member;
    if (!member->leaving || member->leave_sent)
        return false;
    bool late = now_ms >= member->leave_at;
    if (late)
        agent_end_tickets(agent, ERR_CANCELLED);
    if (agent_holds_ticket(agent) || agent_tickets_any(&agent->tickets, AGENT_TICKET_OVER))
        return false;
    if (agent_leases_count(&agent->leases) > 0 && agent_is_member(agent) && !late)
        return false; /* S3: who leaves stays until its leases are over */
    bool known = agent_is_member(agent);
    agent_stop(agent, ERR_OK);
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
    return agent_is_member(agent) && !agent->member.leaving &&
           agent_tickets_next_acquire(&agent->tickets, now_ms, &request, effect);
}

/* Neighbours may ask from the compute's first act on, so LEASE comes first; after the compute
 * before, which ends when it is cancelled. */
static bool next_compute(struct agent *agent, struct agent_effect *effect)
{
    uint32_t lane;
    struct agent_ticket *ticket = agent_tickets_to_compute(&agent->tickets, &lane);
    if (ticket == NULL)
        return agent_tickets_next_cancel(&agent->tickets, effect);
    effect->lane = lane;
    if (agent_leases_next_first(&agent->leases, ticket->ticket.attempt, effect))
        return true;
    agent_tickets_compute(&agent->tickets, ticket, lane, effect);
    agent_traffic_start(&agent->traffic, ticket, lane);
    return true;
}

/* S9: the older ticket gets the lane. S6: of several members that compute a place together none
 * begins again alone, as the others keep no sums for it: it gives its seat up, and all of them get
 * a new try. */
static void yield_lane(struct agent *agent)
{
    struct agent_ticket *younger = agent_tickets_to_yield(&agent->tickets);
    if (younger == NULL)
        return;
    if (younger->place.ranks > 1) {
        agent_give_up(agent, younger);
        return;
    }
    agent_traffic_stop(&agent->traffic, younger);
    agent_leases_again(&agent->leases, younger->ticket.attempt);
    agent_tickets_yield(&agent->tickets, younger);
}

/* A server keeps a version as long as a worker has it, and workers that wait for a ticket may each have
 * another one: so a worker without a ticket gives its own back. */
static bool next_give_back(struct agent *agent, uint64_t now_ms, struct agent_effect *effect)
{
    bool waits =
        agent->lent && !agent_holds_ticket(agent) && !agent_tickets_computing(&agent->tickets);
    if (!waits)
        agent->give_back_at = UINT64_MAX;
    else if (agent->give_back_at == UINT64_MAX)
        agent->give_back_at = now_ms + AGENT_LENT_MS_MAX;
    if (now_ms < agent->give_back_at)
        return false;
    agent->lent = false;
    agent->give_back_at = UINT64_MAX;
    agent_pull_forget_lent(&agent->traffic);
    effect->kind = AGENT_GIVE_BACK;
    return true;
}

static bool next_effect(struct agent *agent, uint64_t now_ms, struct agent_effect *ret_effect)
{
    struct agent_tickets *tickets = &agent->tickets;
    yield_lane(agent);
    if (agent_tickets_next_cancel(tickets, ret_effect) || next_leave(agent, now_ms, ret_effect) ||
        agent_leases_next(&agent->leases, ret_effect))
        return true;
    if (agent_has_stopped(agent))
        return !agent_tickets_computing(tickets) &&
               agent_member_next_stop(&agent->member, ret_effect);
    if (agent_member_next_join(&agent->member, now_ms, ret_effect) ||
        agent_tickets_next_complete(tickets, ret_effect) || next_acquire(agent, now_ms, ret_effect))
        return true;
    if (next_give_back(agent, now_ms, ret_effect))
        return true;
    if (!agent_is_member(agent))
        return false;
    return agent_tickets_next_cancel(tickets, ret_effect) || next_compute(agent, ret_effect) ||
           agent_pull_next_copy(&agent->traffic, ret_effect) ||
           agent_pull_next_unit(&agent->traffic, ret_effect) ||
           agent_push_next_unit(&agent->traffic, ret_effect) ||
           agent_map_next(&agent->map, now_ms, ret_effect) ||
           agent_traffic_next(&agent->traffic, now_ms, agent_map_is_known(&agent->map), ret_effect);
}

/* Checks each effect that leaves the agent. */
static void check_effect(const struct agent *agent, const struct agent_effect *effect)
{
    bool live = agent_is_member(agent) && agent_holds_ticket(agent);
    switch (effect->kind) {
    case AGENT_JOIN:
        check(agent->member.phase == AGENT_PHASE_JOINING);
        break;
    case AGENT_ACQUIRE:
        check(agent_is_member(agent));
        check(effect->acquire.generation == agent->member.generation); /* P2 */
        break;
    case AGENT_COMPUTE:
        check(live && agent_tickets_computed(&agent->tickets, effect->lane) != NULL);
        check(effect->ticket.generation == agent->member.generation);
        check(!place_is_shared(&effect->place) ||
              agent_leases_told(&agent->leases, effect->ticket.attempt));
        break;
    case AGENT_LEASE:
        check(live && !agent->tickets.lanes[effect->lane].computing);
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
    case AGENT_GIVE_BACK:
        check(!agent_holds_ticket(agent) && !agent_tickets_computing(&agent->tickets));
        break;
    case AGENT_STOP:
        check(agent_has_stopped(agent));
        check(!agent_tickets_computing(&agent->tickets));
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
    if (agent_has_stopped(agent))
        return UINT64_MAX;
    uint64_t wake = agent->give_back_at;
    if (agent->member.phase == AGENT_PHASE_AWAY)
        wake = earlier(wake, agent->member.join_at);
    if (agent->member.leaving && agent_is_member(agent))
        wake = earlier(wake, agent->member.leave_at);
    if (!agent_is_member(agent))
        return wake;
    if (!agent->member.leaving)
        wake = earlier(wake, agent_tickets_wake_ms(&agent->tickets));
    wake = earlier(wake, agent_map_wake_ms(&agent->map));
    return earlier(wake, agent_traffic_wake_ms(&agent->traffic, agent_map_is_known(&agent->map)));
}

/* The invariants of the whole. The parts check their own. */
static void check_whole(const struct agent *agent)
{
    agent_member_check(&agent->member);
    agent_map_check(&agent->map);
    agent_tickets_check(&agent->tickets);
    agent_leases_check(&agent->leases);
    check(!agent_holds_ticket(agent) || agent_is_member(agent));
    for (uint32_t i = 0; i < agent->tickets.count; i++) {
        const struct agent_ticket *ticket = &agent->tickets.all[i];
        check(ticket->state != AGENT_TICKET_HELD || !place_is_shared(&ticket->place) ||
              agent_leases_has(&agent->leases, ticket->ticket.attempt));
        check(ticket->state != AGENT_TICKET_HELD || !ticket->compute_begun ||
              !place_is_shared(&ticket->place) ||
              agent_leases_told(&agent->leases, ticket->ticket.attempt));
    }
}

void agent_check(const struct agent *agent)
{
    check_whole(agent);
    agent_traffic_check(&agent->traffic);
}

void agent_check_event(struct agent *agent)
{
    uint64_t steps = 64 + agent_traffic_check_steps(&agent->traffic);
    if (check_is_due(&agent->check_account, steps)) {
        agent_check(agent);
        return;
    }
    check_whole(agent);
    agent_traffic_check_in_turn(&agent->traffic, agent->check_turn++);
}

void agent_describe(const void *object, char *text, size_t bytes)
{
    const struct agent *agent = object;
    const struct agent_tickets *tickets = &agent->tickets;
    const struct agent_ticket *held = &tickets->all[0];
    snprintf(text, bytes,
             "phase=%d member=%llu generation=%llu leaving=%d map=%llu named=%llu acquiring=%d "
             "computing=%d ticket=%d step=%llu version=%llu begun=%d ended=%d servers=%u "
             "pieces=%u left=%u last_id=%llu stage=%u/%u placed=%d attempt=%llu leases=%u",
             (int)agent->member.phase, (unsigned long long)agent->member.member,
             (unsigned long long)agent->member.generation, agent->member.leaving,
             (unsigned long long)agent->map.number, (unsigned long long)agent->map.named,
             tickets->acquiring, agent_tickets_computing(tickets), (int)held->state,
             (unsigned long long)held->ticket.step, (unsigned long long)held->ticket.version,
             held->compute_begun, held->compute_ended, agent->traffic.server_count,
             agent->traffic.piece_count, agent->traffic.flows[0].pieces_left,
             (unsigned long long)agent->traffic.last_id, held->place.stage, held->place.stages,
             held->placed, (unsigned long long)held->ticket.attempt,
             agent_leases_count(&agent->leases));
}
