/* The same as watch.c where the coordinator decides who sits where (S1, S5, S7): what it knew before
 * it granted places, beside what it granted and gave up. */
#include "server/coordinator/places.h"
#include "server/coordinator/run.h"
#include "server/coordinator/seating.h"
#include "tests/sim/sim.h"

#include <stddef.h>

enum {
    GANGS_MAX = 64,
    UNREACHABLE_TIMES = 2,    /* they are apart then */
    SILENT_HEARTBEATS_MAX = 2 /* HEARTBEATS_MAX of server/coordinator/places.c */
};

#define REAL(result, name, ...)                                                                    \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

static bool coordinates(void)
{
    return life_acts() && world.life->place.kind == MACHINE_COORDINATOR;
}

/* ---- neighbours ---- */

/* Seats of one place; seats of one rank in places that follow each other; in a ring the first place
 * follows the last one. */
static bool are_beside(const struct seating *line, uint32_t a, uint32_t b)
{
    uint32_t ranks = line->ranks, last = line->seats / ranks - 1;
    uint32_t low = (a < b ? a : b) / ranks, high = (a < b ? b : a) / ranks;
    bool follow = high == low + 1 || (line->ring && low == 0 && high == last);
    return a != b && (low == high || (a % ranks == b % ranks && follow));
}

static struct seating line_of(const struct run *run)
{
    return (struct seating){
        .seats = run->gangs.seats, .ranks = run->gangs.ranks, .ring = run->settings.places_ring};
}

/* How often one of them was named by the other. */
static uint32_t times_named(const struct unreachable *unreachable, uint64_t a, uint64_t b)
{
    for (uint32_t i = 0; i < unreachable->count; i++) {
        const struct unreachable_pair *pair = &unreachable->pairs[i];
        if ((pair->a == a && pair->b == b) || (pair->a == b && pair->b == a))
            return pair->times;
    }
    return 0;
}

REAL(void, gangs_seat, struct gangs *gangs, uint64_t now_ms, struct gang *gang, uint32_t seat,
     uint64_t member);

/* S7: those that do not reach each other are not put side by side. */
void __wrap_gangs_seat(struct gangs *gangs, uint64_t now_ms, struct gang *gang, uint32_t seat,
                       uint64_t member)
{
    const struct run *run = (const struct run *)((const char *)gangs - offsetof(struct run, gangs));
    const struct seating line = line_of(run);
    __real_gangs_seat(gangs, now_ms, gang, seat, member);
    for (uint32_t other = 0; coordinates() && other < gangs->seats; other++)
        if (gang->seats[other].member != 0 && are_beside(&line, seat, other) &&
            times_named(&run->unreachable, member, gang->seats[other].member) >= UNREACHABLE_TIMES)
            sim_violated(world.sim, 23, "seats %u and %u have members that are apart", seat, other);
}

REAL(bool, seating_fits, const struct seating *seating, uint32_t seat, uint64_t member);

/* S7: whether somebody may sit there. */
bool __wrap_seating_fits(const struct seating *seating, uint32_t seat, uint64_t member)
{
    bool fits = __real_seating_fits(seating, seat, member), wanted = true;
    for (uint32_t other = 0; other < seating->seats; other++)
        wanted = wanted && (seating->line[other] == 0 || !are_beside(seating, seat, other) ||
                            times_named(seating->unreachable, member, seating->line[other]) <
                                UNREACHABLE_TIMES);
    if (coordinates() && fits != wanted)
        sim_violated(world.sim, 23, "seat %u is said to be for somebody who is %s", seat,
                     wanted ? "not apart from those beside it" : "apart from one beside it");
    return fits;
}

/* ---- what is granted and given up ---- */

struct before {
    uint64_t attempts; /* the newest */
    uint32_t count;
    struct before_gang {
        struct gang was; /* but for its seats, which change */
        uint64_t members[WIRE_PLACES_MAX];
    } gangs[GANGS_MAX];
};

static void note(const struct run *run, struct before *ret_before)
{
    ret_before->attempts = run->tickets.leases.attempts;
    ret_before->count = run->gangs.count < GANGS_MAX ? run->gangs.count : GANGS_MAX;
    for (uint32_t i = 0; i < ret_before->count; i++) {
        const struct gang *gang = run->gangs.list[i];
        struct before_gang *before = &ret_before->gangs[i];
        before->was = *gang;
        for (uint32_t seat = 0; seat < run->gangs.seats; seat++)
            before->members[seat] = gang->seats[seat].member;
    }
}

/* S4: after a loss the lease's time begins anew when a place is filled. */
static void check_renewed(const struct run *run, uint64_t now_ms, const struct before_gang *before)
{
    const struct gang *was = &before->was;
    const struct gang *gang = gangs_find(&run->gangs, was->ticket.attempt);
    const struct lease *lease = tickets_find(&run->tickets, was->ticket.attempt);
    if (gang != NULL && lease != NULL && was->lost && gang->empty_count < was->empty_count &&
        lease->granted_ms != now_ms)
        sim_violated(world.sim, 23, "a place of step %llu is filled, and its lease is %llu ms old",
                     (unsigned long long)gang->ticket.step,
                     (unsigned long long)(now_ms - lease->granted_ms));
}

/* S1: nothing new begins while a place of an older lease is empty. */
static void check_oldest_first(const struct run *run, const struct before *before)
{
    const struct gang *oldest = gangs_oldest_empty(&run->gangs);
    for (uint32_t i = 0; oldest != NULL && i < run->gangs.count; i++)
        if (run->gangs.list[i]->ticket.attempt > before->attempts)
            sim_violated(world.sim, 23,
                         "step %llu slot %u is granted, and step %llu slot %u has an empty place",
                         (unsigned long long)run->gangs.list[i]->ticket.step,
                         node_first(run->gangs.list[i]->ticket.node),
                         (unsigned long long)oldest->ticket.step, node_first(oldest->ticket.node));
}

static bool is_given_up(const struct run *run, const struct before_gang *gang)
{
    return !gang->was.late && gangs_find(&run->gangs, gang->was.ticket.attempt) == NULL;
}

/* Members that share no lease now and, when it was given up, none of that one. */
static uint32_t count_free(const struct coordinator *core, const struct before_gang *given_up)
{
    uint64_t attempts[WIRE_LEASES_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < core->members.count; i++) {
        const struct member *member = core->members.list[i];
        bool was_there = false;
        for (uint32_t seat = 0; seat < core->run.gangs.seats; seat++)
            was_there = was_there || given_up->members[seat] == member->id;
        count += member->address[0] != 0 && !was_there &&
                         places_leases(&core->run, member, attempts) == 0
                     ? 1
                     : 0;
    }
    return count;
}

/* S5: a younger lease is given up only when too few members are free. Where some are apart or too
 * small, the free ones may be the wrong ones. */
static void check_needed(const struct coordinator *core, const struct before *before)
{
    const struct run *run = &core->run;
    const struct gang *oldest = gangs_oldest_empty(&run->gangs);
    if (oldest == NULL || run->unreachable.apart_count > 0 || core->members.small_count > 0 ||
        run->settings.place_leases > 1)
        return;
    for (uint32_t i = 0; i < before->count; i++) {
        const struct before_gang *gang = &before->gangs[i];
        if (is_given_up(run, gang) && count_free(core, gang) >= oldest->empty_count)
            sim_violated(world.sim, 23,
                         "a younger lease than step %llu slot %u is given up, and "
                         "%u members are free for %u places",
                         (unsigned long long)oldest->ticket.step, node_first(oldest->ticket.node),
                         count_free(core, gang), oldest->empty_count);
    }
}

/* The oldest lease that had an empty place before or has one now; NULL: none. */
static const struct gang *oldest_empty(const struct run *run, const struct before *before)
{
    const struct gang *oldest = gangs_oldest_empty(&run->gangs);
    for (uint32_t i = 0; i < before->count; i++) {
        const struct gang *was = &before->gangs[i].was;
        if (was->empty_count > 0 && (oldest == NULL || gangs_is_older(was, oldest)))
            oldest = was;
    }
    return oldest;
}

/* S5: what is given up for a lease is younger than that. */
static void check_younger(const struct run *run, const struct before *before)
{
    const struct gang *oldest = oldest_empty(run, before);
    for (uint32_t i = 0; oldest != NULL && i < before->count; i++) {
        const struct gang *was = &before->gangs[i].was;
        if (is_given_up(run, &before->gangs[i]) && gangs_is_older(was, oldest))
            sim_violated(world.sim, 23,
                         "step %llu slot %u is given up, and is older than step %llu slot %u",
                         (unsigned long long)was->ticket.step, node_first(was->ticket.node),
                         (unsigned long long)oldest->ticket.step, node_first(oldest->ticket.node));
    }
}

REAL(void, places_grant, struct coordinator *core, uint64_t now_ms);

void __wrap_places_grant(struct coordinator *core, uint64_t now_ms)
{
    struct before before;
    note(&core->run, &before);
    __real_places_grant(core, now_ms);
    if (!coordinates())
        return;
    for (uint32_t i = 0; i < before.count; i++)
        check_renewed(&core->run, now_ms, &before.gangs[i]);
    check_oldest_first(&core->run, &before);
    check_needed(core, &before);
    check_younger(&core->run, &before);
}

/* ---- who is named ---- */

REAL(bool, places_complete, struct coordinator *core, uint64_t now_ms, struct member *member,
     const struct complete_request *request, struct ticket *ret_ticket,
     struct validation_result *ret_result);

static bool sits_beside(const struct run *run, const struct gang *gang, uint32_t seat,
                        uint64_t member)
{
    const struct seating line = line_of(run);
    for (uint32_t i = 0; i < run->gangs.seats; i++)
        if (gang->seats[i].member == member && are_beside(&line, seat, i))
            return true;
    return false;
}

/* Whether the request names who sits beside the member in a lease that both share. */
static bool names_neighbour(const struct run *run, const struct member *member,
                            const struct complete_request *request)
{
    const struct gang *gang = gangs_find(&run->gangs, request->ticket.attempt);
    return gang != NULL && gang->seats[member->seat].member == member->id &&
           request->place.stage * run->gangs.ranks + request->place.rank == member->seat &&
           request->place.try_number == gang->seats[member->seat].try_number &&
           sits_beside(run, gang, member->seat, request->unreachable);
}

static bool was_heard(const struct coordinator *core, uint64_t now_ms, const struct member *member)
{
    return now_ms - member->seen_ms <=
           SILENT_HEARTBEATS_MAX * (uint64_t)core->settings.heartbeat_ms;
}

/* What is noted of that lease; NULL: nothing. */
static const struct member_named *named_in(const struct member *member, uint64_t attempt)
{
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++)
        if (member->named[i].attempt == attempt)
            return &member->named[i];
    return NULL;
}

REAL(bool, places_report, struct coordinator *core, uint64_t now_ms, struct member *member,
     const struct member_report *report);

/* S7: who names its neighbour loses its place when that one was heard since it began to, and else keeps
 * it. */
bool __wrap_places_report(struct coordinator *core, uint64_t now_ms, struct member *member,
                          const struct member_report *report)
{
    const struct gang *gang = gangs_find(&core->run.gangs, report->attempt);
    const struct member *other = members_find(&core->members, report->unreachable);
    uint32_t seat = member->seat;
    uint64_t seen_ms = other != NULL ? other->seen_ms : 0;
    bool waits = other != NULL && gang != NULL && gang->seats[seat].member == member->id &&
                 !gang->seats[seat].done && sits_beside(&core->run, gang, seat, other->id);
    bool taken = __real_places_report(core, now_ms, member, report);
    if (!coordinates() || !waits)
        return taken;
    gang = gangs_find(&core->run.gangs, report->attempt);
    bool keeps = gang != NULL && gang->seats[seat].member == member->id;
    const struct member_named *named = named_in(member, report->attempt);
    if (named == NULL || named->member != other->id || keeps != (seen_ms <= named->first_ms))
        sim_violated(world.sim, 23,
                     "who does not reach its neighbour, heard %llu ms ago, %s its place",
                     (unsigned long long)(now_ms - seen_ms), keeps ? "keeps" : "loses");
    return taken;
}

REAL(void, places_wait, struct coordinator *core, uint64_t now_ms);

/* A lease whose time is over for the first time: who says that it waits for others, and who has brought
 * nothing and does not. */
struct over {
    uint64_t attempt;
    uint64_t waits[WIRE_PLACES_MAX],
        idle[WIRE_PLACES_MAX];       /* of each seat the member; 0: it is not */
    uint64_t first[WIRE_PLACES_MAX]; /* of who is idle: the oldest lease in which it is not done */
    bool some_wait;                  /* or are done */
};

/* There, or in an older lease: its turn in this one comes later (S9). */
static bool says_it_waits(const struct run *run, const struct member *member,
                          const struct gang *gang)
{
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++) {
        const struct gang *other = gangs_find(&run->gangs, member->waits[i]);
        if (other != NULL && other->seats[member->seat].member == member->id &&
            !gangs_is_older(gang, other))
            return true;
    }
    return false;
}

/* The oldest lease in which the member has that seat and is not done. */
static uint64_t first_undone(const struct run *run, uint64_t member, uint32_t seat)
{
    for (uint32_t i = 0; i < run->gangs.count; i++) /* the oldest first */
        if (run->gangs.list[i]->seats[seat].member == member &&
            !run->gangs.list[i]->seats[seat].done)
            return run->gangs.list[i]->ticket.attempt;
    return 0;
}

static struct over over_of(const struct coordinator *core, const struct gang *gang)
{
    struct over over = {.attempt = gang->ticket.attempt};
    for (uint32_t i = 0; i < core->run.gangs.seats; i++) {
        const struct gang_seat *seat = &gang->seats[i];
        const struct member *member = members_find(&core->members, seat->member);
        bool waits = member != NULL && !seat->done && says_it_waits(&core->run, member, gang);
        over.waits[i] = waits ? seat->member : 0;
        over.idle[i] = member != NULL && !seat->done && !waits ? seat->member : 0;
        over.first[i] = over.idle[i] != 0 ? first_undone(&core->run, seat->member, i) : 0;
        over.some_wait |= waits || (member != NULL && seat->done);
    }
    return over;
}

/* Of places of one member each. */
static uint32_t find_over(const struct coordinator *core, uint64_t now_ms,
                          struct over ret_over[static GANGS_MAX])
{
    const struct run *run = &core->run;
    uint32_t count = 0;
    for (uint32_t i = 0; i < run->gangs.count && count < GANGS_MAX; i++) {
        const struct gang *gang = run->gangs.list[i];
        if (run->gangs.ranks == 1 && !gang->lost && !gang->prolonged &&
            tickets_over(&run->tickets, now_ms, gang->ticket.attempt))
            ret_over[count++] = over_of(core, gang);
    }
    return count;
}

/* Not for an older slot, which servers keep their room for (S5); nor when another lease of the node was
 * before it: its slots have twice the time since. */
static bool goes_on(const struct run *run, uint64_t now_ms, const struct gang *gang)
{
    const struct ticket *ticket = &gang->ticket;
    bool older = ticket->kind == TICKET_TRAIN &&
                 tickets_older_free(&run->tickets, ticket->step, node_first(ticket->node));
    return gang->prolonged || (!older && tickets_over(&run->tickets, now_ms, ticket->attempt));
}

/* S9: it has not lost the place of an older lease, and that comes first. */
static bool computes_older(const struct run *run, const struct over *over, uint32_t seat)
{
    const struct gang *first = gangs_find(&run->gangs, over->first[seat]);
    return over->first[seat] != over->attempt && first != NULL &&
           first->seats[seat].member == over->idle[seat];
}

/* S7: of such a lease who brings nothing loses its place, and who waits or computes an older one goes
 * on. */
void __wrap_places_wait(struct coordinator *core, uint64_t now_ms)
{
    struct over over[GANGS_MAX];
    uint32_t count = coordinates() ? find_over(core, now_ms, over) : 0;
    __real_places_wait(core, now_ms);
    for (uint32_t i = 0; i < count; i++) {
        const struct gang *gang = gangs_find(&core->run.gangs, over[i].attempt);
        bool looks = gang != NULL && goes_on(&core->run, now_ms, gang);
        for (uint32_t seat = 0; looks && seat < core->run.gangs.seats; seat++) {
            uint64_t waits = over[i].waits[seat], idle = over[i].idle[seat];
            if (waits != 0 && gang->seats[seat].member != waits)
                sim_violated(world.sim, 23, "who waits for others loses its place to them");
            bool older = idle != 0 && computes_older(&core->run, &over[i], seat);
            bool keeps = idle != 0 && gang->seats[seat].member == idle;
            if (keeps && over[i].some_wait && !older)
                sim_violated(world.sim, 23, "who brings nothing keeps its place");
            if (older && !keeps)
                sim_violated(world.sim, 23, "who computes an older lease loses its place");
        }
    }
}

/* S7: that a neighbour who was lately heard is unreachable is noted. */
bool __wrap_places_complete(struct coordinator *core, uint64_t now_ms, struct member *member,
                            const struct complete_request *request, struct ticket *ret_ticket,
                            struct validation_result *ret_result)
{
    const struct member *other =
        request->unreachable != 0 ? members_find(&core->members, request->unreachable) : NULL;
    bool noted = other != NULL && request->outcome != ERR_OK &&
                 names_neighbour(&core->run, member, request) && was_heard(core, now_ms, other);
    uint64_t id = member->id;
    bool complete = __real_places_complete(core, now_ms, member, request, ret_ticket, ret_result);
    if (coordinates() && noted &&
        times_named(&core->run.unreachable, id, request->unreachable) == 0)
        sim_violated(world.sim, 23, "a worker names its neighbour in vain");
    return complete;
}
