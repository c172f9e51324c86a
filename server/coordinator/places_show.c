/* What people see of places. */
#include "server/coordinator/run.h"

#include <string.h>

static void put_name(const struct coordinator *coordinator, uint64_t member, char name[static 64])
{
    const struct member *found = members_find(&coordinator->members, member);
    memset(name, 0, 64);
    if (found != NULL)
        memcpy(name, found->own.name, sizeof found->own.name);
}

bool coordinator_seat(const struct coordinator *coordinator, uint32_t i,
                      struct coordinator_seat *ret_seat)
{
    const struct gangs *gangs = &coordinator->run.gangs;
    if (gangs->places == 0 || i / gangs->places >= gangs->count)
        return false;
    const struct gang *gang = gangs->list[i / gangs->places];
    const struct gang_place *place = &gang->places[i % gangs->places];
    const struct lease *lease = tickets_find(&coordinator->run.tickets, gang->ticket.attempt);
    *ret_seat = (struct coordinator_seat){
        .kind = gang->ticket.kind,
        .step = gang->ticket.step,
        .slot = node_first(gang->ticket.node),
        .slots = lease != NULL ? lease->slots : 0,
        .attempt = gang->ticket.attempt,
        .copy = gang->copy,
        .stage = i % gangs->places,
        .member = place->member,
        .done = place->done,
        .tries = place->tries,
        .since_ms = place->since_ms,
    };
    put_name(coordinator, place->member, ret_seat->name);
    return true;
}

bool coordinator_pair(const struct coordinator *coordinator, uint32_t i,
                      struct coordinator_pair *ret_pair)
{
    const struct unreachable *unreachable = &coordinator->run.unreachable;
    if (i >= unreachable->count)
        return false;
    const struct unreachable_pair *pair = &unreachable->pairs[i];
    *ret_pair = (struct coordinator_pair){.times = pair->times,
                                          .apart = pair->times == UNREACHABLE_TIMES_MAX};
    put_name(coordinator, pair->a, ret_pair->worker);
    put_name(coordinator, pair->b, ret_pair->other);
    return true;
}
