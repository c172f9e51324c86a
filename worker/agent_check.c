/* The invariants of an agent, as agent.h numbers them. */
#include "worker/agent_core.h"

static void check_server(const struct agent *agent, const struct server *server, uint32_t *waiting,
                         uint32_t *sent)
{
    uint32_t unanswered = 0;
    for (uint32_t i = 0; i < PULL_SLOTS; i++) {
        const struct pull_slot *slot = &server->pull_slots[i];
        unanswered += slot->id != 0 && !slot->parked;
        check(slot->id == 0 || slot->forsaken || agent->has_ticket);
    }
    check(unanswered <= WIRE_CREDITS);
    *waiting += server->pushes.count;
    for (uint32_t i = 0; i < WIRE_CREDITS; i++) {
        const struct push_slot *slot = &server->push_slots[i];
        if (slot->id == 0 || slot->forsaken)
            continue;
        check(agent->has_ticket);
        *sent += slot->count;
        for (uint32_t p = 0; p < slot->count; p++)
            check(agent->pieces[slot->pieces[p]].state == PIECE_SENT);
    }
}

void agent_check(const struct agent *agent)
{
    uint32_t waiting = 0, sent = 0;
    uint32_t states[PIECE_ACKED + 1] = {0};
    check(!agent->has_ticket || agent->phase == MEMBER);
    for (uint32_t s = 0; s < agent->server_count; s++)
        check_server(agent, &agent->servers[s], &waiting, &sent);
    for (uint32_t p = 0; p < agent->piece_count; p++)
        states[agent->pieces[p].state]++;
    check(waiting == states[PIECE_WAITING]);
    check(sent == states[PIECE_SENT]);
    if (agent->has_ticket && agent->ticket.kind == TICKET_TRAIN)
        check(agent->pieces_left == agent->piece_count - states[PIECE_ACKED]);
}
