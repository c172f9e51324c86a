/* What members and people hear of places. */
#include "server/coordinator/places.h"
#include "server/coordinator/run.h"

#include <string.h>

void coordinator_places(const struct coordinator *coordinator, uint64_t attempt, uint64_t to,
                        struct peer *ret_peers, struct places *ret_places)
{
    const struct gangs *gangs = &coordinator->run.gangs;
    const struct gang *gang = gangs_find(gangs, attempt);
    bool sits = false;
    *ret_places = (struct places){.attempt = attempt, .peers = ret_peers};
    for (uint32_t i = 0; gang != NULL && i < gangs->seats; i++) {
        const struct gang_seat *seat = &gang->seats[i];
        const struct member *member = members_find(&coordinator->members, seat->member);
        if (member == NULL)
            continue;
        struct peer *peer = &ret_peers[ret_places->peer_count++];
        *peer = (struct peer){.stage = i / gangs->ranks,
                              .rank = i % gangs->ranks,
                              .try_number = seat->try_number,
                              .member = member->id};
        memcpy(peer->address, member->address, sizeof peer->address);
        memcpy(peer->certificate, member->shown, sizeof peer->certificate);
        sits = sits || member->id == to;
    }
    if (!sits)
        ret_places->peer_count = 0;
    ret_places->number = gang != NULL ? gang->number : gangs->numbers;
}

uint32_t coordinator_leases(const struct coordinator *coordinator, uint64_t member,
                            uint64_t ret_attempts[static WIRE_LEASES_MAX])
{
    const struct member *found = members_find(&coordinator->members, member);
    return found != NULL ? places_leases(&coordinator->run, found, ret_attempts) : 0;
}

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
    if (gangs->seats == 0 || i / gangs->seats >= gangs->count)
        return false;
    const struct gang *gang = gangs->list[i / gangs->seats];
    const struct gang_seat *seat = &gang->seats[i % gangs->seats];
    const struct lease *lease = tickets_find(&coordinator->run.tickets, gang->ticket.attempt);
    *ret_seat = (struct coordinator_seat){
        .kind = gang->ticket.kind,
        .step = gang->ticket.step,
        .slot = node_first(gang->ticket.node),
        .slots = lease != NULL ? lease->slots : 0,
        .attempt = gang->ticket.attempt,
        .copy = gang->copy,
        .stage = i % gangs->seats / gangs->ranks,
        .rank = i % gangs->ranks,
        .member = seat->member,
        .done = seat->done,
        .tries = seat->tries,
        .since_ms = seat->since_ms,
    };
    put_name(coordinator, seat->member, ret_seat->name);
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
