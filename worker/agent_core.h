/* The agent's state, and the ends of tickets and of the agent. For agent.c and agent_next.c
 * only. */
#ifndef ROOST_WORKER_AGENT_CORE_H
#define ROOST_WORKER_AGENT_CORE_H

#include "common/check_account.h"
#include "worker/agent_leases.h"
#include "worker/agent_map.h"
#include "worker/agent_member.h"
#include "worker/agent_traffic.h"

struct agent {
    struct agent_config config;
    struct rand_state jitter;
    struct agent_member member;
    struct agent_map_state map;
    struct agent_tickets tickets;
    struct agent_leases leases;
    struct agent_traffic traffic;
    bool lent;             /* some of the weights are */
    uint64_t give_back_at; /* UINT64_MAX: none are, or a ticket is held or computed */
    struct check_account check_account;
    uint64_t check_turn; /* events; the server whose turn it is: agent_check_event() */
};

static inline bool agent_is_member(const struct agent *agent)
{
    return agent->member.phase == AGENT_PHASE_MEMBER;
}

static inline bool agent_holds_ticket(const struct agent *agent)
{
    return agent_tickets_any(&agent->tickets, AGENT_TICKET_HELD);
}

/* All that are held. */
void agent_end_tickets(struct agent *agent, enum err outcome);
/* Gives the place of a lease back. */
void agent_give_up(struct agent *agent, struct agent_ticket *ticket);
/* Ends everything. STOP with that reason follows when the compute under way has ended. */
void agent_stop(struct agent *agent, enum err err);

#endif
