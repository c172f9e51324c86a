/* The ends of things: a ticket, a membership, the worker; and the backoff before the next try. */
#include "worker/agent_core.h"

uint32_t agent_core_pieces(const struct agent *agent, uint32_t chunk)
{
    const struct model *model = agent->config.model;
    return agent->config.async ? 1 : model->parameters[model->chunks[chunk].parameter].parts;
}

uint64_t agent_backoff_ms(struct rand_state *jitter, unsigned failures)
{
    uint64_t ms = AGENT_BACKOFF_MS_MIN;
    while (failures-- > 0 && ms < AGENT_BACKOFF_MS_MAX)
        ms *= 2;
    if (ms > AGENT_BACKOFF_MS_MAX)
        ms = AGENT_BACKOFF_MS_MAX;
    return ms / 2 + rand_below(jitter, ms + 1);
}

uint64_t agent_core_backoff_ms(struct agent *agent, unsigned failures)
{
    return agent_backoff_ms(&agent->jitter, failures);
}

bool agent_core_is_passing(enum err err)
{
    enum reaction reaction = err_reaction(err);
    return err == ERR_CANCELLED || reaction == REACT_RETRY || reaction == REACT_WAIT;
}

/* ---- ends ---- */

/* Nothing of the ticket is to be sent or sent again; what was sent is forsaken. */
static void forget_traffic(struct agent *agent)
{
    for (uint32_t s = 0; s < agent->server_count; s++) {
        struct server *server = &agent->servers[s];
        server->pulls.count = 0;
        server->pushes.count = 0;
        server->busy = 0;
        for (uint32_t i = 0; i < WIRE_CREDITS; i++)
            server->push_slots[i].forsaken = true;
        for (uint32_t i = 0; i < PULL_SLOTS; i++)
            server->pull_slots[i].forsaken = true;
    }
    for (uint32_t c = 0; c < agent->config.model->chunks_count; c++)
        agent->chunks[c].asked = 0;
    for (uint32_t p = 0; p < agent->piece_count; p++)
        agent->pieces[p].state = PIECE_NONE;
}

void agent_core_stop(struct agent *agent, enum err err)
{
    if (agent->phase == STOPPED)
        return;
    agent->phase = STOPPED;
    agent->stop = err;
    agent->cancel_due = agent->computing && !agent->cancel_said;
    agent->has_ticket = false;
    forget_traffic(agent);
}

/* P12: `complete` names the boots that acknowledged, of the map's servers; of a server without
 * chunks its newest. */
static void name_boots(struct agent *agent)
{
    for (uint32_t s = 0; s < agent->map_servers; s++) {
        const struct server *server = &agent->servers[s];
        agent->complete_boots[s] = server->ticket_boot != 0 ? server->ticket_boot : server->boot;
    }
    agent->complete.boot_count = agent->map_servers;
    agent->complete.boots = agent->complete_boots;
}

void agent_core_end_ticket(struct agent *agent, enum err outcome)
{
    agent->has_ticket = false;
    agent->cancel_due = agent->computing && !agent->cancel_said;
    agent->complete_due = true;
    agent->complete = (struct complete_request){
        .member = agent->member,
        .ticket = agent->ticket,
        .outcome = outcome,
        .loss_sum = agent->result.loss_sum,
        .sample_count = agent->result.sample_count,
        .correct_count = agent->result.correct_count,
    };
    if (agent->config.async && outcome == ERR_OK)
        name_boots(agent);
    if (outcome == ERR_OK)
        agent->statistics.tickets++;
    else
        agent->statistics.dropped++;
    forget_traffic(agent);
}

void agent_core_settle(struct agent *agent)
{
    if (agent->has_ticket && agent->compute_ended && agent->pieces_left == 0)
        agent_core_end_ticket(agent, ERR_OK);
}

void agent_core_go_away(struct agent *agent, uint64_t now_ms)
{
    if (agent->phase == STOPPED)
        return;
    if (agent->has_ticket)
        agent_core_end_ticket(agent, ERR_UNKNOWN_MEMBER);
    agent->complete_due = false; /* nobody would know us */
    agent->acquiring = false;
    agent->phase = AWAY;
    agent->join_at = now_ms + agent_core_backoff_ms(agent, agent->join_failures++);
}

void agent_core_react(struct agent *agent, uint64_t now_ms, enum err err)
{
    if (err_reaction(err) == REACT_REJOIN)
        agent_core_go_away(agent, now_ms);
    else if (agent->has_ticket && err_reaction(err) == REACT_DROP)
        agent_core_end_ticket(agent, err);
    else
        agent_core_stop(agent, err);
}
