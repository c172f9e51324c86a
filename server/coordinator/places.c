#include "server/coordinator/places.h"

#include "server/coordinator/brought.h"
#include "server/coordinator/send.h"
#include "server/coordinator/steps.h"
#include "server/member/proof.h"

#include <string.h>

/* ---- members ---- */

/* A place needs neighbours that reach it. */
static bool may_compute(const struct member *member)
{
    return member->address[0] != 0;
}

bool places_hold(const struct run *run, const struct member *member)
{
    const struct gang *gang = gangs_find(&run->gangs, member->lease);
    return gang != NULL && member->ticket.attempt == member->lease;
}

static bool is_free(const struct run *run, const struct member *member)
{
    return may_compute(member) && gangs_find(&run->gangs, member->lease) == NULL;
}

/* Free members, whether they ask for work at this moment or not. */
static uint32_t count_free(const struct coordinator *coordinator)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < coordinator->members.count; i++)
        count += is_free(&coordinator->run, coordinator->members.list[i]) ? 1 : 0;
    return count;
}

enum { IDLE_MAX = 4 * WIRE_PLACES_MAX }; /* that are chosen among */

/* The idle, who waits longest first; `max` at most. */
static uint32_t find_idle(const struct coordinator *coordinator, struct member **ret_idle,
                          uint32_t max)
{
    uint32_t count = 0;
    for (struct member *member = members_first_parked(&coordinator->members);
         member != NULL && count < max; member = members_next_parked(&coordinator->members, member))
        if (is_free(&coordinator->run, member))
            ret_idle[count++] = member;
    return count;
}

/* ---- the end of a lease ---- */

static void tell(struct coordinator *coordinator, uint64_t member, uint64_t attempt)
{
    struct effect *effect = effects_add(&coordinator->effects, EFFECT_PLACES);
    effect->places.member = member;
    effect->places.attempt = attempt;
}

/* S3: its members are free when they have heard so; until then none of them asks for work, or it
 * waits, and forgets the lease with the next answer. */
static void end_gang(struct coordinator *coordinator, uint64_t now_ms, struct gang *gang)
{
    struct run *run = &coordinator->run;
    tickets_drop_member(&run->tickets, now_ms, gang->id);
    for (uint32_t stage = 0; stage < run->gangs.places; stage++)
        if (gang->places[stage].member != 0)
            tell(coordinator, gang->places[stage].member, gang->ticket.attempt);
    gangs_remove(&run->gangs, gang);
}

/* Every gang has a lease, and there are no others: so most calls find nothing to do. */
void places_sweep(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    struct gangs *gangs = &run->gangs;
    if (gangs->places == 0 || gangs->count == run->tickets.leases.count)
        return;
    for (uint32_t i = gangs->count; i-- > 0;)
        if (tickets_find(&run->tickets, gangs->list[i]->ticket.attempt) == NULL)
            end_gang(coordinator, now_ms, gangs->list[i]);
    check(gangs->count == run->tickets.leases.count);
}

static void credit(struct coordinator *coordinator, const struct gang *gang, uint32_t slots)
{
    for (uint32_t stage = 0; stage < coordinator->run.gangs.places; stage++) {
        struct member *member = members_find(&coordinator->members, gang->places[stage].member);
        if (member != NULL)
            member->slots_done += slots;
    }
}

void places_done(struct coordinator *coordinator, uint64_t now_ms, const struct ticket *ticket,
                 uint32_t slots)
{
    struct gangs *gangs = &coordinator->run.gangs;
    struct gang *first = gangs_find(gangs, ticket->attempt);
    if (first != NULL)
        credit(coordinator, first, slots);
    for (uint32_t i = gangs->count; i-- > 0;) {
        const struct ticket *other = &gangs->list[i]->ticket;
        if (other->kind == ticket->kind && other->step == ticket->step &&
            node_equal(other->node, ticket->node))
            end_gang(coordinator, now_ms, gangs->list[i]);
    }
}

/* ---- grants ---- */

static void seat(struct coordinator *coordinator, struct gang *gang, uint32_t stage,
                 struct member *member)
{
    struct run *run = &coordinator->run;
    const struct coordinator_place *place = &run->settings.places[stage];
    bool train = gang->ticket.kind == TICKET_TRAIN;
    gangs_seat(&run->gangs, gang, stage, member->id);
    member->lease = gang->ticket.attempt;
    member->stage = stage;
    member->ticket = gang->ticket;
    member->ticket.member = member->id;
    member->ticket.chunks = place->ranges[0].chunks;
    member->ticket.parts = place->ranges[0].parts;
    member->ticket.also_count = place->range_count - 1;
    memcpy(member->ticket.also, place->ranges + 1,
           (place->range_count - 1) * sizeof place->ranges[0]);
    member->ticket.grant = proof_ticket(&coordinator->key, run->settings.run, &member->ticket);
    if (train)
        brought_note(&member->brought, gang->ticket.step);
}

/* How much is lost when that member takes the stage: it holds its weights; it holds none; it holds
 * those of another one. */
static uint32_t rank_for(const struct member *member, uint32_t stage)
{
    return member->stage == stage ? 0 : member->stage == UINT32_MAX ? 1 : 2;
}

/* The best idle member for the stage; of equal ones who waits longest. */
static struct member *take_for(struct member **idle, uint32_t *count, uint32_t stage)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < *count; i++)
        at = rank_for(idle[i], stage) < rank_for(idle[at], stage) ? i : at;
    struct member *member = idle[at];
    --*count;
    memmove(idle + at, idle + at + 1, (*count - at) * sizeof *idle);
    return member;
}

/* Members that had a place before hear of their new neighbours; the new ones are answered. */
static void tell_seated(struct coordinator *coordinator, const struct gang *gang,
                        struct member *const *seated, uint32_t count)
{
    for (uint32_t stage = 0; stage < coordinator->run.gangs.places; stage++) {
        uint64_t member = gang->places[stage].member;
        bool is_new = false;
        for (uint32_t i = 0; i < count; i++)
            is_new = is_new || seated[i]->id == member;
        if (member != 0 && !is_new)
            tell(coordinator, member, gang->ticket.attempt);
    }
    for (uint32_t i = 0; i < count; i++)
        send_ticket(coordinator, seated[i]);
}

/* S1: the oldest lease's empty places first. */
static void fill(struct coordinator *coordinator, struct gang *gang)
{
    struct member *idle[IDLE_MAX], *seated[WIRE_PLACES_MAX];
    uint32_t count = find_idle(coordinator, idle, IDLE_MAX), seated_count = 0;
    for (uint32_t stage = 0; stage < coordinator->run.gangs.places && count > 0; stage++) {
        if (gang->places[stage].member != 0)
            continue;
        struct member *member = take_for(idle, &count, stage);
        seat(coordinator, gang, stage, member);
        seated[seated_count++] = member;
    }
    if (seated_count > 0)
        tell_seated(coordinator, gang, seated, seated_count);
}

/* S1: whole, or to nobody. */
static bool grant_whole(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    struct member *idle[IDLE_MAX], *seated[WIRE_PLACES_MAX];
    const struct lease *lease;
    uint32_t places = run->gangs.places;
    uint32_t able = coordinator->members.count / places;
    uint32_t count = find_idle(coordinator, idle, IDLE_MAX);
    if (count < places || !tickets_any(&run->tickets, now_ms) ||
        !tickets_grant(&run->tickets, now_ms, gangs_next_id(&run->gangs), able, &lease))
        return false;
    bool train = lease->kind == TICKET_TRAIN;
    struct gang *gang =
        gangs_add(&run->gangs, lease, run->generation, train ? lease->step : run->steps.version);
    if (gang == NULL) { /* out of memory: later, perhaps */
        tickets_drop_member(&run->tickets, now_ms, gangs_next_id(&run->gangs));
        return false;
    }
    if (train)
        steps_granted(run, lease->step);
    for (uint32_t stage = 0; stage < places; stage++) {
        seated[stage] = take_for(idle, &count, stage);
        seat(coordinator, gang, stage, seated[stage]);
    }
    tell_seated(coordinator, gang, seated, places);
    run_due(coordinator, now_ms + coordinator->settings.lease_ms);
    return true;
}

/* S5: nobody is free for the empty places of an older lease. Its members then ask for work. */
static void dissolve_youngest(struct coordinator *coordinator, uint64_t now_ms)
{
    const struct gangs *gangs = &coordinator->run.gangs;
    const struct gang *oldest = gangs_oldest_empty(gangs);
    if (oldest == NULL || gangs->list[gangs->count - 1] == oldest ||
        gangs_empty_count(gangs) <= count_free(coordinator))
        return;
    struct gang *youngest = gangs->list[gangs->count - 1];
    effects_log(&coordinator->effects, true,
                "lease given up for an older one  step=%llu slot=%u for_step=%llu for_slot=%u",
                (unsigned long long)youngest->ticket.step, node_first(youngest->ticket.node),
                (unsigned long long)oldest->ticket.step, node_first(oldest->ticket.node));
    end_gang(coordinator, now_ms, youngest);
}

void places_grant(struct coordinator *coordinator, uint64_t now_ms)
{
    struct gangs *gangs = &coordinator->run.gangs;
    for (uint32_t i = 0; i < gangs->count; i++)
        if (gangs->list[i]->empty_count > 0)
            fill(coordinator, gangs->list[i]);
    while (gangs_oldest_empty(gangs) == NULL && grant_whole(coordinator, now_ms))
        ;
    dissolve_youngest(coordinator, now_ms);
}

/* ---- the end of a place ---- */

/* S4: whoever fills it computes it from the node's start. */
static void empty_place(struct coordinator *coordinator, uint64_t now_ms, struct gang *gang,
                        uint64_t member)
{
    struct gangs *gangs = &coordinator->run.gangs;
    if (gangs_unseat(gangs, gang, member) && gang->empty_count == gangs->places)
        end_gang(coordinator, now_ms, gang);
}

uint32_t places_lost(struct coordinator *coordinator, uint64_t now_ms, const struct member *member)
{
    struct gang *gang = gangs_find(&coordinator->run.gangs, member->lease);
    if (gang == NULL)
        return 0;
    empty_place(coordinator, now_ms, gang, member->id);
    return 1;
}

bool places_complete(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                     const struct complete_request *request, struct ticket *ret_ticket,
                     struct validation_result *ret_result)
{
    struct run *run = &coordinator->run;
    struct gang *gang = gangs_find(&run->gangs, request->ticket.attempt);
    if (gang == NULL || member->lease != request->ticket.attempt)
        return false; /* the lease is over, or the place is another's now */
    if (request->outcome != ERR_OK) {
        member->lease = 0;
        empty_place(coordinator, now_ms, gang, member->id);
        return false;
    }
    if (!gangs_done(gang, member->stage, member->id))
        return false;
    if (member->stage == run->gangs.places - 1) /* it has the last unit */
        gang->result = (struct validation_result){request->loss_sum, request->sample_count,
                                                  request->correct_count};
    if (gang->done_count < run->gangs.places)
        return false;
    *ret_ticket = gang->ticket;
    ret_ticket->member = gang->id;
    *ret_result = gang->result;
    return true;
}

/* ---- what is going on ---- */

void places_wait_for(const struct coordinator *coordinator, char *ret_text, size_t bytes)
{
    const struct gangs *gangs = &coordinator->run.gangs;
    uint32_t able = 0;
    ret_text[0] = 0;
    for (uint32_t i = 0; i < coordinator->members.count; i++)
        able += may_compute(coordinator->members.list[i]) ? 1 : 0;
    if (gangs->places > able)
        snprintf(ret_text, bytes, "%u stages need as many workers that others reach; there %s %u",
                 gangs->places, able == 1 ? "is" : "are", able);
}
