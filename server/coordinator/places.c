#include "server/coordinator/places.h"

#include "server/coordinator/audits.h"
#include "server/coordinator/brought.h"
#include "server/coordinator/said.h"
#include "server/coordinator/seating.h"
#include "server/coordinator/send.h"
#include "server/coordinator/steps.h"
#include "server/member/proof.h"

#include <string.h>

enum { HEARTBEATS_MAX = 2 /* who is silent for longer is silent for everybody */ };

/* ---- members ---- */

/* A place needs neighbours that reach it. */
static bool may_compute(const struct member *member)
{
    return member->address[0] != 0;
}

bool places_late(const struct run *run, uint64_t attempt)
{
    const struct gang *gang = gangs_find(&run->gangs, attempt);
    return gang != NULL && gang->late;
}

/* Of the lease, if the member has a place of it; else NULL. A report may name any lease, also
 * before its member has a place. */
static struct gang *gang_of(const struct run *run, const struct member *member, uint64_t attempt)
{
    struct gang *gang = gangs_find(&run->gangs, attempt);
    bool has = gang != NULL && member->seat < run->gangs.seats &&
               gang->seats[member->seat].member == member->id;
    return has ? gang : NULL;
}

uint32_t places_leases(const struct run *run, const struct member *member,
                       uint64_t ret_attempts[static WIRE_LEASES_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++)
        if (gang_of(run, member, member->leases[i]) != NULL)
            ret_attempts[count++] = member->leases[i];
    return count;
}

static uint32_t count_leases(const struct run *run, const struct member *member)
{
    uint64_t attempts[WIRE_LEASES_MAX];
    return places_leases(run, member, attempts);
}

bool places_hold(const struct run *run, const struct member *member)
{
    const struct gang *gang = gang_of(run, member, member->ticket.attempt);
    return gang != NULL && !gang->late;
}

bool places_computes(const struct run *run, const struct member *member)
{
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++) {
        const struct gang *gang = gang_of(run, member, member->leases[i]);
        if (gang != NULL && !gang->seats[member->seat].done)
            return true;
    }
    return false;
}

/* S9: leases that it may share at a time. */
static uint32_t leases_max(const struct run *run)
{
    return run->settings.place_leases > 0 ? run->settings.place_leases : 1;
}

/* It may have one more place. */
static bool has_room(const struct run *run, const struct member *member)
{
    return may_compute(member) && count_leases(run, member) < leases_max(run);
}

static void forget_lease(struct member *member, uint64_t attempt)
{
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++)
        if (member->leases[i] == attempt)
            member->leases[i] = 0;
}

/* Remembers a lease in the place of the oldest one that the member has no place of. */
static void note_lease(const struct run *run, struct member *member, uint64_t attempt)
{
    uint64_t *oldest = NULL;
    forget_lease(member, attempt); /* it may have had another seat of it */
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++) {
        uint64_t *lease = &member->leases[i];
        if (gang_of(run, member, *lease) == NULL && (oldest == NULL || *lease < *oldest))
            oldest = lease;
    }
    check(oldest != NULL);
    *oldest = attempt;
}

/* ---- who may sit where ---- */

/* A line of the mesh. `gang`: who sits there already; NULL: nobody. */
static void begin_seating(const struct run *run, const struct gang *gang,
                          struct seating *ret_seating)
{
    *ret_seating = (struct seating){.unreachable = &run->unreachable,
                                    .seats = run->gangs.seats,
                                    .ranks = run->gangs.ranks,
                                    .ring = run->settings.places_ring};
    for (uint32_t seat = 0; gang != NULL && seat < run->gangs.seats; seat++)
        ret_seating->line[seat] = gang->seats[seat].member;
}

/* It may have one more place, since it shares fewer than `leases`. `audit`: of its second lease. */
static bool may_sit(const struct coordinator *coordinator, const struct audit *audit,
                    uint32_t leases, const struct member *member)
{
    return may_compute(member) && count_leases(&coordinator->run, member) < leases &&
           (audit == NULL || audits_may_sit(coordinator, audit, member));
}

/* Who shares some leases stays at their seat. */
static void add_member(const struct run *run, const struct member *member, struct seating *seating)
{
    seating_add(seating, &(struct candidate){.member = member->id,
                                             .seat = member->seat,
                                             .bound = count_leases(run, member) > 0,
                                             .small = member->small,
                                             .brings_nothing = member->brings_nothing});
}

/* S7: whether the line is filled without those who brought nothing, when all others that may have a
 * place ask. */
static bool others_are_enough(const struct coordinator *coordinator, const struct audit *audit,
                              uint32_t leases, const struct seating *line)
{
    struct seating seating = *line;
    seating.count = 0;
    for (uint32_t i = 0; i < coordinator->members.count; i++) {
        const struct member *member = coordinator->members.list[i];
        if (!member->brings_nothing && may_sit(coordinator, audit, leases, member))
            add_member(&coordinator->run, member, &seating);
    }
    return seating_fill(&seating, 0, seating.seats);
}

/* Who asks for work, and shares fewer than `leases`: fewest first, and of equal ones who waits
 * longest. `audit`: whose second lease they may have. Who brought nothing waits while others are
 * enough. */
static void add_idle(const struct coordinator *coordinator, const struct audit *audit,
                     uint32_t leases, struct seating *seating)
{
    const struct members *members = &coordinator->members;
    for (uint32_t count = 0; count < leases; count++)
        for (const struct member *member = members_first_parked(members);
             member != NULL && !seating_is_full(seating);
             member = members_next_parked(members, member))
            if (may_sit(coordinator, audit, leases, member) &&
                count_leases(&coordinator->run, member) == count &&
                !(member->brings_nothing && others_are_enough(coordinator, audit, leases, seating)))
                add_member(&coordinator->run, member, seating);
}

/* Whether a seat is empty that the member could have; `bound`: the one that it has already. */
static bool has_empty(const struct seating *seating, const struct member *member, bool bound)
{
    for (uint32_t seat = 0; seat < seating->seats; seat++)
        if (seating->line[seat] == 0 && (!bound || seat == member->seat))
            return true;
    return false;
}

/* The same, beside members that it reaches, and in a stage that it is not too small for. */
static bool may_fill(const struct seating *seating, const struct member *member, bool bound)
{
    for (uint32_t seat = 0; seat < seating->seats; seat++)
        if (seating->line[seat] == 0 && (!bound || seat == member->seat) &&
            !seating_too_small(seating, seat, member->small) &&
            seating_fits(seating, seat, member->id))
            return true;
    return false;
}

/* ---- the end of a lease ---- */

static void tell(struct coordinator *coordinator, uint64_t member, uint64_t attempt)
{
    struct effect *effect = effects_add(&coordinator->effects, EFFECT_PLACES);
    effect->places.member = member;
    effect->places.attempt = attempt;
}

static void tell_all(struct coordinator *coordinator, const struct gang *gang)
{
    for (uint32_t seat = 0; seat < coordinator->run.gangs.seats; seat++)
        if (gang->seats[seat].member != 0)
            tell(coordinator, gang->seats[seat].member, gang->ticket.attempt);
}

void places_tell(struct coordinator *coordinator, const struct member *member)
{
    for (uint32_t i = 0; coordinator->run.gangs.seats > 0 && i < WIRE_LEASES_MAX; i++)
        if (member->leases[i] != 0)
            tell(coordinator, member->id, member->leases[i]);
}

/* S3: its members are free when they have heard so; until then none of them asks for work, or it
 * waits, and forgets the lease with the next answer. */
static void end_gang(struct coordinator *coordinator, uint64_t now_ms, struct gang *gang)
{
    struct run *run = &coordinator->run;
    tickets_drop_member(&run->tickets, now_ms, gang->id);
    if (gang->audited)
        audits_lost(run, gang->id, gang->ticket.attempt);
    tell_all(coordinator, gang);
    gangs_remove(&run->gangs, gang);
}

static void credit(struct coordinator *coordinator, const struct gang *gang, uint32_t slots)
{
    for (uint32_t seat = 0; seat < coordinator->run.gangs.seats; seat++) {
        struct member *member = members_find(&coordinator->members, gang->seats[seat].member);
        if (member != NULL)
            member->slots_done += slots;
    }
}

/* P1: by the shards' seals the step is done, before the last of its places said so. */
static void credit_committed(struct coordinator *coordinator, const struct gang *gang)
{
    const struct run *run = &coordinator->run;
    const struct ticket *ticket = &gang->ticket;
    uint32_t left = run->settings.slots - node_first(ticket->node);
    uint32_t slots = UINT32_C(1) << ticket->node.level;
    if (ticket->kind == TICKET_TRAIN && ticket->step < run->steps.version && !gang->copy)
        credit(coordinator, gang, slots < left ? slots : left);
}

/* P6: servers compare what comes of a step until the next one is decided. */
static bool is_compared(const struct run *run, const struct gang *gang)
{
    return gang->audited && gang->empty_count == 0 && run->phase == PHASE_STEPS &&
           gang->ticket.generation == run->generation &&
           gang->ticket.step + 1 == run->steps.version;
}

/* Ends the first that is to end, or makes it late. False: there is none. */
static bool sweep_one(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    struct gangs *gangs = &run->gangs;
    for (uint32_t i = gangs->count; i-- > 0;) {
        struct gang *gang = gangs->list[i];
        bool leased = tickets_find(&run->tickets, gang->ticket.attempt) != NULL;
        if (leased || (gang->late && is_compared(run, gang)))
            continue;
        if (!gang->late)
            credit_committed(coordinator, gang);
        if (gang->late || !is_compared(run, gang))
            end_gang(coordinator, now_ms, gang);
        else
            gangs_make_late(gangs, gang);
        return true;
    }
    return false;
}

/* Every gang that is not late has a lease, and there are no others: so most calls find nothing to
 * do. */
void places_sweep(struct coordinator *coordinator, uint64_t now_ms)
{
    const struct gangs *gangs = &coordinator->run.gangs;
    const struct leases *leases = &coordinator->run.tickets.leases;
    if (gangs->seats == 0 || (gangs->late_count == 0 && gangs->count == leases->count))
        return;
    while (sweep_one(coordinator, now_ms))
        ;
    check(gangs->count - gangs->late_count == leases->count);
}

void places_done(struct coordinator *coordinator, uint64_t now_ms, const struct ticket *ticket,
                 uint32_t slots)
{
    struct gangs *gangs = &coordinator->run.gangs;
    struct gang *first = gangs_find(gangs, ticket->attempt);
    if (first != NULL)
        credit(coordinator, first, slots);
    for (uint32_t i = gangs->count; i-- > 0;) {
        struct gang *gang = gangs->list[i];
        const struct ticket *other = &gang->ticket;
        if (other->kind == ticket->kind && other->step == ticket->step &&
            node_equal(other->node, ticket->node) && (gang == first || !gang->audited))
            end_gang(coordinator, now_ms, gang);
    }
}

/* ---- grants ---- */

static void take_seat(struct coordinator *coordinator, uint64_t now_ms, struct gang *gang,
                      uint32_t seat, struct member *member)
{
    struct run *run = &coordinator->run;
    const struct coordinator_place *place = &run->settings.places[seat / run->gangs.ranks];
    bool train = gang->ticket.kind == TICKET_TRAIN;
    note_lease(run, member, gang->ticket.attempt);
    gangs_seat(&run->gangs, now_ms, gang, seat, member->id);
    member->seat = seat;
    member->ticket = gang->ticket;
    member->ticket.member = member->id;
    member->ticket.chunks = place->ranges[0].chunks;
    member->ticket.parts = place->ranges[0].parts;
    member->ticket.also_count = place->range_count - 1;
    memcpy(member->ticket.also, place->ranges + 1,
           (place->range_count - 1) * sizeof place->ranges[0]);
    member->ticket.grant =
        gang->audited ? proof_audited(&coordinator->key, run->settings.run, &member->ticket)
                      : proof_ticket(&coordinator->key, run->settings.run, &member->ticket);
    if (train)
        brought_note(&member->brought, gang->ticket.step);
}

/* Who has a new seat is answered; who had one before hears of new neighbours. */
static void seat_all(struct coordinator *coordinator, uint64_t now_ms, struct gang *gang,
                     const struct seating *seating)
{
    uint32_t seats = coordinator->run.gangs.seats;
    bool is_new[WIRE_PLACES_MAX];
    for (uint32_t seat = 0; seat < seats; seat++) {
        is_new[seat] = seating->line[seat] != gang->seats[seat].member;
        if (is_new[seat])
            take_seat(coordinator, now_ms, gang, seat,
                      members_find(&coordinator->members, seating->line[seat]));
    }
    for (uint32_t seat = 0; seat < seats; seat++)
        if (seating->line[seat] != 0 && !is_new[seat])
            tell(coordinator, seating->line[seat], gang->ticket.attempt);
    for (uint32_t seat = 0; seat < seats; seat++)
        if (is_new[seat])
            send_ticket(coordinator, members_find(&coordinator->members, seating->line[seat]));
}

/* S1: the oldest lease's empty places first; as many of them as can be. After a loss what lapses
 * begins anew: a place is computed from the node's start (S4). */
static void fill(struct coordinator *coordinator, uint64_t now_ms, struct gang *gang)
{
    uint32_t seats = coordinator->run.gangs.seats, empty_count = gang->empty_count;
    struct seating seating;
    begin_seating(&coordinator->run, gang, &seating);
    add_idle(coordinator, NULL, leases_max(&coordinator->run), &seating);
    if (seating_fill(&seating, 0, seats))
        empty_count = 0;
    for (uint32_t seat = 0; seat < seats && empty_count > 0; seat++)
        if (seating.line[seat] == 0 && seating_fill(&seating, seat, seat + 1))
            empty_count--;
    if (empty_count == gang->empty_count)
        return;
    if (gang->lost)
        tickets_renew(&coordinator->run.tickets, now_ms, gang->ticket.attempt);
    gang->lost = gang->lost && empty_count > 0;
    seat_all(coordinator, now_ms, gang, &seating);
}

static bool take_lease(struct coordinator *coordinator, uint64_t now_ms, struct audit *audit,
                       const struct lease **ret_lease)
{
    struct run *run = &coordinator->run;
    uint64_t holder = gangs_next_id(&run->gangs);
    uint32_t able = coordinator->members.count / run->gangs.seats;
    const struct tickets_worker gang = {holder, 1, able > 0 ? able : 1};
    return audit != NULL ? audits_grant_gang(coordinator, now_ms, audit, holder, ret_lease)
                         : tickets_grant(&run->tickets, now_ms, &gang, ret_lease);
}

/* Whether the first lease, of those who sit there, is audited. */
static bool is_audited(struct coordinator *coordinator, const struct seating *seating,
                       const struct gang *gang, const struct lease *lease)
{
    struct member *members[WIRE_PLACES_MAX];
    for (uint32_t seat = 0; seat < seating->seats; seat++)
        members[seat] = members_find(&coordinator->members, seating->line[seat]);
    const struct audits_holder holder = {gang->id, members, seating->seats};
    return lease->kind == TICKET_TRAIN && audits_granted(coordinator, &holder, lease);
}

/* S1: whole, or to nobody. The second lease of an audit; NULL: what is free. When nothing is, what
 * is overdue: for members that share no lease, so for others than its own. */
static bool grant_whole(struct coordinator *coordinator, uint64_t now_ms, struct audit *audit)
{
    struct run *run = &coordinator->run;
    struct seating seating;
    const struct lease *lease;
    if (audit == NULL && !tickets_any(&run->tickets, now_ms))
        return false;
    bool copies = audit == NULL && !tickets_free(&run->tickets);
    begin_seating(run, NULL, &seating);
    add_idle(coordinator, audit, copies ? 1 : leases_max(run), &seating);
    if (!seating_fill(&seating, 0, run->gangs.seats) ||
        !take_lease(coordinator, now_ms, audit, &lease))
        return false;
    bool train = lease->kind == TICKET_TRAIN;
    struct gang *gang =
        gangs_add(&run->gangs, lease, run->generation, train ? lease->step : run->steps.version);
    if (gang == NULL) { /* out of memory: later, perhaps */
        audits_lost(run, gangs_next_id(&run->gangs), lease->attempt);
        tickets_drop_member(&run->tickets, now_ms, gangs_next_id(&run->gangs));
        return false;
    }
    gang->audited = audit != NULL || is_audited(coordinator, &seating, gang, lease);
    if (train)
        steps_granted(run, lease->step);
    seat_all(coordinator, now_ms, gang, &seating);
    run_due(coordinator, now_ms + coordinator->settings.lease_ms);
    return true;
}

/* Before anything else that is free, but for what is older: servers may have no room for the
 * audit's pushes before they have that. */
static bool grant_second(struct coordinator *coordinator, uint64_t now_ms)
{
    const struct run *run = &coordinator->run;
    struct audit *audit = audits_waiting(run, NULL);
    for (uint32_t i = 0; audit != NULL && i < AUDITS_LOOK_MAX; i++) {
        struct audit *next = audits_waiting(run, audit);
        if (!tickets_older_free(&run->tickets, audit->step, node_first(audit->node)) &&
            grant_whole(coordinator, now_ms, audit))
            return true;
        audit = next;
    }
    return false;
}

/* ---- when nobody may fill an empty place ---- */

static void log_given_up(struct coordinator *coordinator, const struct gang *gang, const char *why,
                         const struct gang *other)
{
    effects_log(&coordinator->effects, true,
                "lease given up  step=%llu slot=%u why=\"%s\" for_step=%llu for_slot=%u",
                (unsigned long long)gang->ticket.step, node_first(gang->ticket.node), why,
                (unsigned long long)other->ticket.step, node_first(other->ticket.node));
}

/* Members with room that may fill a place of the line, and are expected to ask. */
static uint32_t count_able(const struct coordinator *coordinator, const struct seating *seating)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < coordinator->members.count; i++) {
        const struct member *member = coordinator->members.list[i];
        bool bound = count_leases(&coordinator->run, member) > 0;
        bool able = has_room(&coordinator->run, member);
        count += able && may_fill(seating, member, bound) ? 1 : 0;
    }
    return count;
}

/* Of the leases that the member shares, those as old as the gang's, or that itself: it stays at that
 * seat meanwhile, so who sits in the line fills no other place of it. */
static uint32_t count_older(const struct run *run, const struct member *member,
                            const struct gang *gang)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++) {
        const struct gang *other = gang_of(run, member, member->leases[i]);
        count += other != NULL && !gangs_is_older(gang, other) ? 1 : 0;
    }
    return count;
}

/* Whether somebody could fill a place of the line, if he reached those beside it, and were large
 * enough. */
static bool has_unfit(const struct coordinator *coordinator, const struct gang *gang,
                      const struct seating *seating)
{
    const struct run *run = &coordinator->run;
    for (uint32_t i = 0; i < coordinator->members.count; i++) {
        const struct member *member = coordinator->members.list[i];
        uint32_t older = count_older(run, member, gang);
        if (may_compute(member) && older < leases_max(run) && has_empty(seating, member, older > 0))
            return true;
    }
    return false;
}

/* Whether a member of the younger lease may fill a place of the line. */
static bool has_able(const struct coordinator *coordinator, const struct gang *gang,
                     const struct seating *seating, const struct gang *younger)
{
    for (uint32_t seat = 0; seat < seating->seats; seat++) {
        const struct member *member =
            members_find(&coordinator->members, younger->seats[seat].member);
        if (member != NULL &&
            may_fill(seating, member, count_older(&coordinator->run, member, gang) > 0))
            return true;
    }
    return false;
}

/* Of those that are younger, the youngest with a member who may fill a place of the line; NULL. */
static struct gang *find_younger(const struct coordinator *coordinator, const struct gang *gang,
                                 const struct seating *seating)
{
    const struct gangs *gangs = &coordinator->run.gangs;
    for (uint32_t i = gangs->count; gangs->list[--i] != gang;)
        if (has_able(coordinator, gang, seating, gangs->list[i]))
            return gangs->list[i];
    return NULL;
}

/* S5: nobody free may fill the oldest lease's empty places: a younger lease is given up, and its
 * members ask for work. S7: those who could, but are apart from its members or too small, fit in another
 * order.
 * True: one was given up, and it may take more. */
static bool make_room(struct coordinator *coordinator, uint64_t now_ms)
{
    const struct gangs *gangs = &coordinator->run.gangs;
    struct gang *oldest = gangs_oldest_empty(gangs);
    struct seating seating;
    if (oldest == NULL)
        return false;
    begin_seating(&coordinator->run, oldest, &seating);
    uint32_t able = count_able(coordinator, &seating);
    if (able >= oldest->empty_count)
        return false;
    struct gang *younger = find_younger(coordinator, oldest, &seating);
    if (younger != NULL) {
        log_given_up(coordinator, younger, "an older one needs its members", oldest);
        end_gang(coordinator, now_ms, younger);
        return true;
    }
    if (able == 0 && has_unfit(coordinator, oldest, &seating)) {
        bool apart = coordinator->run.unreachable.apart_count > 0;
        log_given_up(coordinator, oldest,
                     apart ? "who could fill it does not reach its members"
                           : "who could fill it was killed twice in that stage",
                     oldest);
        end_gang(coordinator, now_ms, oldest);
    }
    return false;
}

/* Whether all members together have an order. Of so many more than are considered there is one
 * (seating.h). */
static bool has_order(const struct coordinator *coordinator)
{
    struct seating seating;
    begin_seating(&coordinator->run, NULL, &seating);
    for (uint32_t i = 0; i < coordinator->members.count; i++) {
        const struct member *member = coordinator->members.list[i];
        if (may_compute(member))
            seating_add(&seating, &(struct candidate){.member = member->id,
                                                      .seat = UINT32_MAX,
                                                      .small = member->small});
    }
    return seating.count < seating.seats || seating_fill(&seating, 0, seating.seats);
}

/* S7: when every order of the members that are there has a pair that is apart, or somebody in a
 * stage that it is too small for, all failures are forgotten. */
static void forget_failures(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    uint32_t pairs = run->unreachable.apart_count;
    bool small = coordinator->members.small_count > 0;
    if ((pairs == 0 && !small) || has_order(coordinator))
        return;
    if (small)
        effects_log(&coordinator->effects, true,
                    "every order has a worker in a stage in which it was killed twice  pairs=%u "
                    "next=try again",
                    pairs);
    else
        effects_log(
            &coordinator->effects, true,
            "every order has two workers that do not reach each other  pairs=%u next=try again",
            pairs);
    unreachable_forget(&run->unreachable);
    members_forget_killed(&coordinator->members);
}

static struct gang *find_late(const struct gangs *gangs)
{
    uint32_t i = 0;
    while (i < gangs->count && !gangs->list[i]->late)
        i++;
    return i < gangs->count ? gangs->list[i] : NULL;
}

/* Whether those who have room are enough for a lease, when they ask. */
static bool could_lease(const struct coordinator *coordinator)
{
    struct seating seating;
    begin_seating(&coordinator->run, NULL, &seating);
    for (uint32_t i = 0; i < coordinator->members.count; i++) {
        const struct member *member = coordinator->members.list[i];
        if (has_room(&coordinator->run, member))
            add_member(&coordinator->run, member, &seating);
    }
    return seating_fill(&seating, 0, seating.seats);
}

/* Nobody waits for an audit: when nothing else goes on, and there is work, its members are for
 * that. */
static void end_late(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    struct gangs *gangs = &run->gangs;
    struct gang *late = find_late(gangs);
    if (late == NULL || gangs->count > gangs->late_count || !tickets_any(&run->tickets, now_ms) ||
        could_lease(coordinator))
        return;
    for (; late != NULL; late = find_late(gangs))
        end_gang(coordinator, now_ms, late);
}

void places_grant(struct coordinator *coordinator, uint64_t now_ms)
{
    struct gangs *gangs = &coordinator->run.gangs;
    forget_failures(coordinator);
    for (uint32_t i = 0; i < gangs->count && gangs->empty_count > 0; i++)
        if (gangs->list[i]->empty_count > 0)
            fill(coordinator, now_ms, gangs->list[i]);
    while (gangs_oldest_empty(gangs) == NULL &&
           (grant_second(coordinator, now_ms) || grant_whole(coordinator, now_ms, NULL)))
        ;
    while (make_room(coordinator, now_ms))
        ;
    end_late(coordinator, now_ms);
}

/* ---- the end of a place ---- */

/* S4: whoever fills it computes it from the node's start. S6: with it the others of its place lose
 * their seats. True: the others of the lease are to hear of it. */
static bool unseat(struct coordinator *coordinator, uint64_t now_ms, struct gang *gang,
                   uint64_t member)
{
    struct run *run = &coordinator->run;
    struct gang_left left;
    if (!gangs_unseat(&run->gangs, now_ms, gang, member, &left))
        return false;
    for (uint32_t i = 0; i < left.count; i++)
        tell(coordinator, left.members[i], gang->ticket.attempt);
    bool second = gang->audited && (gang->copy || audits_other_done(run, &gang->ticket));
    bool over = second || gang->empty_count == run->gangs.seats;
    if (over)
        end_gang(coordinator, now_ms, gang);
    return !over;
}

static void empty_place(struct coordinator *coordinator, uint64_t now_ms, struct gang *gang,
                        uint64_t member)
{
    if (unseat(coordinator, now_ms, gang, member))
        tell_all(coordinator, gang); /* S7: of an empty place nobody waits for an answer */
}

/* S7: beside the member, and there. */
static const struct member *find_beside(const struct coordinator *coordinator,
                                        const struct gang *gang, const struct member *member,
                                        uint64_t named)
{
    struct seating seating;
    begin_seating(&coordinator->run, gang, &seating);
    return seating_beside(&seating, member->seat, named)
               ? members_find(&coordinator->members, named)
               : NULL;
}

static void note_unreachable(struct coordinator *coordinator, uint64_t now_ms,
                             const struct member *member, const struct member *other)
{
    struct run *run = &coordinator->run;
    uint32_t times = unreachable_note(&run->unreachable, member->id, other->id);
    run->unreachable_ms = now_ms;
    effects_log(&coordinator->effects, true,
                "worker does not reach another  worker=%s other=%s stage=%u times=%u next=%s",
                member->own.name, other->own.name, member->seat / run->gangs.ranks, times,
                times == UNREACHABLE_TIMES_MAX ? "not put them side by side"
                                               : "fill the place again");
}

/* S7: the member's place waited in vain for the named one, and was given up. Of a neighbour that is
 * silent nobody knows that it is unreachable for that member alone. */
static void judge_given_up(struct coordinator *coordinator, uint64_t now_ms,
                           const struct gang *gang, const struct member *member, uint64_t named)
{
    const struct member *other = find_beside(coordinator, gang, member, named);
    if (other != NULL &&
        now_ms - other->seen_ms <= HEARTBEATS_MAX * (uint64_t)coordinator->settings.heartbeat_ms)
        note_unreachable(coordinator, now_ms, member, other);
}

/* The record of that lease, or the one that is longest unused. */
static struct member_named *find_named(struct member *member, uint64_t attempt)
{
    struct member_named *found = &member->named[0];
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++) {
        struct member_named *named = &member->named[i];
        if (named->attempt == attempt)
            return named;
        if (named->last_ms < found->last_ms)
            found = named;
    }
    return found;
}

/* S7: whether the coordinator has heard the other one since the member began to name it in that lease:
 * each lane names whom it waits for. A silent one is lost when it lapses. */
static bool heard_since(const struct coordinator *coordinator, uint64_t now_ms,
                        struct member *member, const struct member_report *report,
                        const struct member *other)
{
    struct member_named *named = find_named(member, report->attempt);
    if (named->attempt != report->attempt || named->member != other->id ||
        now_ms - named->last_ms > coordinator->settings.lease_ms)
        *named = (struct member_named){report->attempt, other->id, now_ms, now_ms};
    named->last_ms = now_ms;
    return other->seen_ms > named->first_ms;
}

bool places_report(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                   const struct member_report *report)
{
    struct gang *gang = gang_of(&coordinator->run, member, report->attempt);
    memset(member->waits, 0, sizeof member->waits);
    if (report->wait_count > 0)
        memcpy(member->waits, report->waits, report->wait_count * sizeof member->waits[0]);
    if (report->unreachable == 0 || gang == NULL || gang->seats[member->seat].done)
        return false;
    const struct member *other = find_beside(coordinator, gang, member, report->unreachable);
    if (other == NULL || !heard_since(coordinator, now_ms, member, report, other))
        return false;
    note_unreachable(coordinator, now_ms, member, other);
    tell(coordinator, member->id, gang->ticket.attempt); /* that its place is empty */
    empty_place(coordinator, now_ms, gang, member->id);
    return true;
}

/* In that lease, or in an older one: a younger one's turn comes later, and it may have no lane (S9). */
static bool waits_for_others(const struct run *run, const struct member *member,
                             const struct gang *gang)
{
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++) {
        const struct gang *other = gang_of(run, member, member->waits[i]);
        if (other != NULL && !gangs_is_older(gang, other))
            return true;
    }
    return false;
}

/* Who waits in the lease, or is done. */
static uint32_t count_waiting(const struct coordinator *coordinator, const struct gang *gang)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < coordinator->run.gangs.seats; i++) {
        const struct gang_seat *seat = &gang->seats[i];
        const struct member *member = members_find(&coordinator->members, seat->member);
        if (member != NULL && (seat->done || waits_for_others(&coordinator->run, member, gang)))
            count++;
    }
    return count;
}

/* S5: servers may have no room for its pushes before they have those of an older slot, which nobody
 * computes. */
static bool waits_for_older(const struct run *run, const struct gang *gang)
{
    const struct ticket *ticket = &gang->ticket;
    return ticket->kind == TICKET_TRAIN &&
           tickets_older_free(&run->tickets, ticket->step, node_first(ticket->node));
}

/* S7: the lease's time is over, and who keeps it from its end is to lose its place. */
static bool is_judged(const struct run *run, uint64_t now_ms, const struct gang *gang)
{
    return !gang->lost && !gang->prolonged && !waits_for_older(run, gang) &&
           tickets_over(&run->tickets, now_ms, gang->ticket.attempt);
}

/* S9: the oldest lease in which the member has a place that is not done; there is one. */
static const struct gang *oldest_undone(const struct run *run, const struct member *member)
{
    const struct gang *oldest = NULL;
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++) {
        const struct gang *gang = gang_of(run, member, member->leases[i]);
        if (gang != NULL && !gang->seats[member->seat].done &&
            (oldest == NULL || gangs_is_older(gang, oldest)))
            oldest = gang;
    }
    return oldest;
}

/* S9: an older lease, which may have more time, comes first. Who is to blame there is to blame here. */
static bool computes_older(const struct coordinator *coordinator, uint64_t now_ms,
                           const struct member *member, const struct gang *gang)
{
    const struct gang *oldest = oldest_undone(&coordinator->run, member);
    return oldest != gang && !(is_judged(&coordinator->run, now_ms, oldest) &&
                               count_waiting(coordinator, oldest) > 0);
}

/* Who waits for nobody and has brought nothing; the others of the lease wait, or are done. */
static uint32_t find_idle(const struct coordinator *coordinator, uint64_t now_ms,
                          const struct gang *gang, uint64_t ret_members[static WIRE_PLACES_MAX])
{
    const struct run *run = &coordinator->run;
    uint32_t count = 0;
    if (count_waiting(coordinator, gang) == 0)
        return 0;
    for (uint32_t i = 0; i < run->gangs.seats; i++) {
        const struct gang_seat *seat = &gang->seats[i];
        const struct member *member = members_find(&coordinator->members, seat->member);
        if (member != NULL && !seat->done && !waits_for_others(run, member, gang) &&
            !computes_older(coordinator, now_ms, member, gang))
            ret_members[count++] = seat->member;
    }
    return count;
}

/* S7: the time of a lease is over, and these members kept it from its end. With the first of them the
 * lease may end. */
static void take_places_of(struct coordinator *coordinator, uint64_t now_ms, uint64_t attempt,
                           const uint64_t *members, uint32_t count)
{
    struct gang *tell_gang = NULL;
    for (uint32_t i = 0; i < count; i++) {
        struct member *member = members_find(&coordinator->members, members[i]);
        struct gang *gang = gang_of(&coordinator->run, member, attempt);
        if (gang == NULL)
            continue;
        member->brings_nothing = true;
        effects_log(&coordinator->effects, true,
                    "worker brings nothing, and others wait for it  worker=%s stage=%u step=%llu "
                    "next=fill its place again",
                    member->own.name, member->seat / coordinator->run.gangs.ranks,
                    (unsigned long long)gang->ticket.step);
        gang->lost = true;
        tell(coordinator, member->id, attempt);
        tell_gang = unseat(coordinator, now_ms, gang, member->id) ? gang : NULL;
    }
    if (tell_gang != NULL)
        tell_all(coordinator, tell_gang);
}

void places_wait(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    for (uint32_t i = run->gangs.count; i-- > 0;) {
        struct gang *gang = run->gangs.list[i];
        uint64_t idle[WIRE_PLACES_MAX], attempt = gang->ticket.attempt;
        if (gang->lost && tickets_find(&run->tickets, attempt) != NULL) {
            tickets_renew(&run->tickets, now_ms, attempt);
            continue;
        }
        if (!is_judged(run, now_ms, gang))
            continue;
        uint32_t idle_count = find_idle(coordinator, now_ms, gang, idle);
        gang->prolonged = idle_count > 0;
        if (gang->prolonged)
            tickets_prolong(&run->tickets, now_ms, attempt);
        take_places_of(coordinator, now_ms, attempt, idle, idle_count);
    }
}

void places_renamed(struct run *run, uint64_t member, uint64_t as)
{
    unreachable_rename(&run->unreachable, member, as);
}

uint32_t places_lost(struct coordinator *coordinator, uint64_t now_ms, const struct member *member,
                     bool wrong)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++) {
        struct gang *gang = gang_of(&coordinator->run, member, member->leases[i]);
        if (gang == NULL)
            continue;
        count++;
        gang->lost = true;
        if (wrong)
            end_gang(coordinator, now_ms, gang);
        else
            empty_place(coordinator, now_ms, gang, member->id);
    }
    return count;
}

void places_leave(struct coordinator *coordinator, uint64_t now_ms, const struct member *member,
                  uint64_t attempt)
{
    struct gang *gang = gang_of(&coordinator->run, member, attempt);
    if (gang != NULL)
        empty_place(coordinator, now_ms, gang, member->id);
}

/* Of the lease, if the member has the place that it means: the same call may come once more when it
 * has another one of the lease, or that one anew. */
static struct gang *gang_meant(const struct run *run, const struct member *member,
                               const struct complete_request *request)
{
    const struct place *meant = &request->place;
    struct gang *gang = gang_of(run, member, request->ticket.attempt);
    return gang != NULL && meant->stage * run->gangs.ranks + meant->rank == member->seat &&
                   meant->try_number == gang->seats[member->seat].try_number
               ? gang
               : NULL;
}

const struct gang *places_completes(const struct run *run, const struct member *member,
                                    const struct complete_request *request)
{
    const struct gang *gang = gang_meant(run, member, request);
    return gang != NULL && !gang->seats[member->seat].done && request->outcome == ERR_OK ? gang
                                                                                         : NULL;
}

static void give_up_for_older(struct coordinator *coordinator, uint64_t now_ms, struct gang *gang)
{
    effects_log(&coordinator->effects, true,
                "lease given up  step=%llu slot=%u why=\"servers are full, and an older slot is "
                "free\"",
                (unsigned long long)gang->ticket.step, node_first(gang->ticket.node));
    end_gang(coordinator, now_ms, gang);
}

bool places_complete(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                     const struct complete_request *request, struct ticket *ret_ticket,
                     struct validation_result *ret_result)
{
    struct run *run = &coordinator->run;
    struct gang *gang = gang_meant(run, member, request);
    if (gang == NULL)
        return false; /* the lease is over, or the place is another's now */
    if (request->outcome != ERR_OK) {
        if (request->unreachable != 0)
            judge_given_up(coordinator, now_ms, gang, member, request->unreachable);
        forget_lease(member, gang->ticket.attempt);
        if (request->outcome == ERR_BUSY && waits_for_older(run, gang))
            give_up_for_older(coordinator, now_ms, gang);
        else
            empty_place(coordinator, now_ms, gang, member->id);
        return false;
    }
    uint64_t newest = run->tickets.leases.attempts;
    if (!gangs_done(&run->gangs, now_ms, gang, member->seat, member->id, newest))
        return false;
    member->brings_nothing = false;
    if (member->seat ==
        run->gangs.seats - run->gangs.ranks) /* the last unit's; the others say the same */
        gang->result = (struct validation_result){request->loss_sum, request->sample_count,
                                                  request->correct_count, member->id};
    if (gang->done_count < run->gangs.seats)
        return false;
    *ret_ticket = gang->ticket;
    ret_ticket->member = gang->id;
    *ret_result = gang->result;
    return true;
}

/* ---- what servers lack of a place ---- */

static bool is_of_step(const struct gang *gang, uint64_t step)
{
    return gang->ticket.kind == TICKET_TRAIN && gang->ticket.step == step && !gang->late;
}

bool places_some_done(const struct run *run, uint64_t step)
{
    for (uint32_t i = 0; i < run->gangs.count; i++)
        if (is_of_step(run->gangs.list[i], step) && run->gangs.list[i]->done_count > 0)
            return true;
    return false;
}

/* Who completed, before the question, the place of the lease that pushes it; NULL: nobody. */
static struct member *find_false(const struct coordinator *coordinator, const struct gang *gang,
                                 uint64_t question, const struct lack *lack)
{
    const struct run *run = &coordinator->run;
    const struct node slot = {0, lack->slot};
    for (uint32_t i = 0; i < run->gangs.seats && node_contains(gang->ticket.node, slot); i++) {
        const struct gang_seat *seat = &gang->seats[i];
        if (seat->done && seat->completed < question &&
            said_pushes(run, i, gang->ticket.node, lack))
            return members_find(&coordinator->members, seat->member);
    }
    return NULL;
}

struct member *places_undo(struct coordinator *coordinator, uint64_t now_ms, uint64_t question,
                           uint64_t step, const struct lack *lack)
{
    struct run *run = &coordinator->run;
    for (uint32_t i = 0; i < run->gangs.count && question <= run->tickets.leases.attempts; i++) {
        struct gang *gang = run->gangs.list[i];
        struct member *member =
            is_of_step(gang, step) ? find_false(coordinator, gang, question, lack) : NULL;
        if (member == NULL)
            continue;
        member->brings_nothing = true;
        gang->lost = true;
        tell(coordinator, member->id, gang->ticket.attempt);
        empty_place(coordinator, now_ms, gang, member->id);
        return member;
    }
    return NULL;
}

/* ---- what is going on ---- */

void places_wait_for(const struct coordinator *coordinator, char *ret_text, size_t bytes)
{
    const struct gangs *gangs = &coordinator->run.gangs;
    uint32_t able = 0;
    ret_text[0] = 0;
    for (uint32_t i = 0; i < coordinator->members.count; i++)
        able += may_compute(coordinator->members.list[i]) ? 1 : 0;
    if (gangs->seats <= able)
        return;
    if (gangs->ranks > 1)
        snprintf(ret_text, bytes,
                 "%u stage%s of %u workers each need%s %u that others reach; there %s %u",
                 gangs->seats / gangs->ranks, plural(gangs->seats / gangs->ranks), gangs->ranks,
                 gangs->seats == gangs->ranks ? "s" : "", gangs->seats, able == 1 ? "is" : "are",
                 able);
    else
        snprintf(ret_text, bytes, "%u stages need as many workers that others reach; there %s %u",
                 gangs->seats, able == 1 ? "is" : "are", able);
}
