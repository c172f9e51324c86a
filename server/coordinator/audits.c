/* Tickets that two workers compute on purpose. */
#include "server/coordinator/audits.h"

#include "server/coordinator/said.h"
#include "server/shard/audited.h"

#include <stdlib.h>
#include <string.h>

/* Beside the open steps: the two whose audits are not over yet. */
enum { STEPS_BEHIND = 2 };

double audits_expected(double share)
{
    return share > 0 ? (1 + share) / (2 * share) + 1 : 0;
}

enum err audits_init(struct run *run)
{
    struct audits *audits = &run->audits;
    uint8_t key[DIGEST_KEY_BYTES];
    if (run->settings.audit == 0)
        return ERR_OK;
    audits->steps = run->settings.delay + 1 + STEPS_BEHIND;
    audits->list = calloc((size_t)audits->steps * run->settings.slots, sizeof *audits->list);
    audits->waiting = malloc(sizeof *audits->waiting);
    if (audits->list == NULL || audits->waiting == NULL)
        return ERR_NOMEM;
    ring_init(audits->waiting);
    TRY(digest_mac_init(&audits->mac));
    audited_key(&audits->mac, run->settings.secret, key);
    digest_mac_set_key(&audits->mac, key);
    return ERR_OK;
}

void audits_release(struct run *run)
{
    free(run->audits.list);
    free(run->audits.waiting);
    digest_mac_release(&run->audits.mac);
    run->audits = (struct audits){0};
}

/* The place of a step's audits, one for each slot that a node may begin with. */
static struct audit *of_step(const struct run *run, uint64_t step)
{
    return &run->audits.list[step % run->audits.steps * run->settings.slots];
}

/* NULL: the ticket is not audited. */
static struct audit *find(const struct run *run, uint64_t step, struct node node)
{
    if (run->audits.list == NULL || step + STEPS_BEHIND < run->steps.version)
        return NULL;
    struct audit *audit = &of_step(run, step)[node_first(node)];
    return audit->begun && audit->step == step && node_equal(audit->node, node) ? audit : NULL;
}

static void end(struct audit *audit)
{
    if (audit->waits)
        ring_take(&audit->link);
    *audit = (struct audit){0};
}

static void wait_for_second(struct run *run, struct audit *audit)
{
    audit->second = (struct audit_side){0};
    audit->waits = true;
    ring_add(run->audits.waiting, &audit->link);
}

static void wait_no_more(struct audit *audit)
{
    if (audit->waits)
        ring_take(&audit->link);
    audit->waits = false;
}

void audits_forget(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    run->audits.adopted_end = 0;
    members_rewound(&coordinator->members, run->steps.version);
    uint32_t count = run->audits.list != NULL ? run->audits.steps * run->settings.slots : 0;
    for (uint32_t i = 0; i < count; i++)
        if (run->audits.list[i].begun)
            end(&run->audits.list[i]);
}

void audits_adopt(struct run *run)
{
    if (run->settings.node_slots == 0) /* else a slot is always granted as one node */
        run->audits.adopted_end = run->steps.version + run->settings.delay + 1;
}

/* ---- who is the second ---- */

/* How far a second worker is from the first; the further, the more its opinion is worth. */
enum { APART_WORKER = 1, APART_HOST = 1, APART_CERTIFICATE = 2 };

static bool on_host(const struct opinion *opinion, const struct member *member)
{
    return strcmp(opinion->host, member->own.host) == 0;
}

/* 0: it is the same worker, or the one whose opinion is known. */
static uint32_t apart(const struct members *members, const struct member *member,
                      const struct member *other)
{
    const struct opinion *known = &member->contradicted_by;
    bool is_known = known->name[0] != 0;
    if (other->id == member->id || strcmp(other->own.name, member->own.name) == 0 ||
        (is_known && members_one_opinion(members, known, &other->own)))
        return 0;
    bool host = !on_host(&member->own, other) && !(is_known && on_host(known, other));
    bool certificate = other->own.certificate != member->own.certificate;
    uint32_t more = (host ? APART_HOST : 0U) + (certificate ? APART_CERTIFICATE : 0U);
    return APART_WORKER + more;
}

/* Of all that are there. */
static uint32_t furthest(const struct members *members, const struct member *member)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < members->count; i++) {
        uint32_t one = apart(members, member, members->list[i]);
        most = one > most ? one : most;
    }
    return most;
}

/* Nobody idles for the best second worker: when all tickets of the step are out, any other will
 * do. */
static bool is_far_enough(const struct coordinator *coordinator, const struct audit *audit,
                          uint32_t distance)
{
    bool choosy = audit->apart > APART_WORKER && tickets_train_free(&coordinator->run.tickets);
    return choosy ? distance >= audit->apart : distance > 0 || audit->apart == 0;
}

static bool may_be_second(struct coordinator *coordinator, const struct audit *audit,
                          const struct member *member)
{
    const struct member *first = members_find(&coordinator->members, audit->first.member);
    if (member->id == audit->first.member)
        return false;
    return first == NULL ||
           is_far_enough(coordinator, audit, apart(&coordinator->members, first, member));
}

bool audits_wait(const struct run *run)
{
    return run->audits.list != NULL && !ring_is_empty(run->audits.waiting);
}

static bool grant_twin(struct run *run, uint64_t now_ms, uint64_t holder, const struct audit *audit,
                       const struct lease **ret_lease)
{
    const struct tickets_twin twin = {.step = audit->step,
                                      .node = audit->node,
                                      .version = audit->version,
                                      .attempt = audit->first.attempt};
    return tickets_grant_twin(&run->tickets, now_ms, holder, &twin, ret_lease);
}

static void begin_second(struct audit *audit, uint64_t holder, const struct lease *lease)
{
    wait_no_more(audit);
    audit->second = (struct audit_side){holder, lease->attempt, false};
}

bool audits_grant(struct coordinator *coordinator, uint64_t now_ms, const struct member *member,
                  const struct lease **ret_lease)
{
    struct run *run = &coordinator->run;
    struct ring *link = audits_wait(run) ? run->audits.waiting->behind : NULL;
    for (uint32_t i = 0; link != NULL && link != run->audits.waiting && i < AUDITS_LOOK_MAX; i++) {
        struct audit *audit = RING_ITEM(link, struct audit, link);
        link = link->behind;
        if (!may_be_second(coordinator, audit, member) ||
            !grant_twin(run, now_ms, member->id, audit, ret_lease))
            continue;
        begin_second(audit, member->id, *ret_lease);
        return true;
    }
    return false;
}

/* ---- a second lease of several places ---- */

struct audit *audits_waiting(const struct run *run, const struct audit *after)
{
    const struct ring *waiting = run->audits.waiting;
    const struct ring *link = !audits_wait(run) ? waiting
                              : after != NULL   ? after->link.behind
                                                : waiting->behind;
    return link == waiting ? NULL : RING_ITEM(link, struct audit, link);
}

/* Who has, or completed, that seat of the attempt; 0: nobody. */
static uint64_t holder_of(const struct run *run, const struct audit *audit, uint64_t attempt,
                          uint32_t seat)
{
    const struct gang *gang = gangs_find(&run->gangs, attempt);
    return gang != NULL ? gang->seats[seat].member
                        : said_by(run, audit->step, audit->node, attempt, seat);
}

bool audits_may_sit(const struct coordinator *coordinator, const struct audit *audit,
                    const struct member *member)
{
    const struct run *run = &coordinator->run;
    const struct members *members = &coordinator->members;
    for (uint32_t seat = 0; seat < run->gangs.seats; seat++) {
        uint64_t id = holder_of(run, audit, audit->first.attempt, seat);
        const struct member *first = members_find(members, id);
        if (id == member->id || (first != NULL && apart(members, first, member) == 0))
            return false;
    }
    return true;
}

bool audits_grant_gang(struct coordinator *coordinator, uint64_t now_ms, struct audit *audit,
                       uint64_t gang, const struct lease **ret_lease)
{
    if (!grant_twin(&coordinator->run, now_ms, gang, audit, ret_lease))
        return false;
    begin_second(audit, gang, *ret_lease);
    return true;
}

bool audits_other_done(const struct run *run, const struct ticket *ticket)
{
    const struct audit *audit = find(run, ticket->step, ticket->node);
    if (audit == NULL)
        return false;
    return (audit->first.attempt == ticket->attempt && audit->second.done) ||
           (audit->second.attempt == ticket->attempt && audit->first.done);
}

/* ---- which tickets ---- */

/* Whether the member is suspected, and a third worker can still tell. */
static bool is_watched(const struct coordinator *coordinator, const struct member *member)
{
    return member->contradicted_by.name[0] != 0 && member->watched < AUDITS_WATCH_MAX &&
           furthest(&coordinator->members, member) > 0;
}

/* Notes it for each who is. */
static bool some_watched(const struct coordinator *coordinator, const struct audits_holder *holder)
{
    bool any = false;
    for (uint32_t i = 0; i < holder->count; i++) {
        bool watched = is_watched(coordinator, holder->members[i]);
        holder->members[i]->watched += watched ? 1 : 0;
        any = any || watched;
    }
    return any;
}

static bool is_renamed(const struct run *run, const struct lease *lease)
{
    return lease->step < run->audits.adopted_end || tickets_renamed(&run->tickets, lease);
}

bool audits_granted(struct coordinator *coordinator, const struct audits_holder *holder,
                    const struct lease *lease)
{
    struct run *run = &coordinator->run;
    const struct members *members = &coordinator->members;
    if (run->audits.list == NULL || lease->speculative)
        return false;
    struct audit *audit = &of_step(run, lease->step)[node_first(lease->node)];
    if (audit->begun)
        end(audit); /* of a lease that was lost */
    if (!some_watched(coordinator, holder) &&
        !audited(&run->audits.mac, run->settings.audit, lease->step, node_first(lease->node)))
        return false;
    *audit = (struct audit){.begun = true,
                            .step = lease->step,
                            .node = lease->node,
                            .version = lease->version,
                            .renamed = is_renamed(run, lease),
                            .apart = holder->count == 1 ? furthest(members, holder->members[0]) : 0,
                            .first = {holder->holder, lease->attempt, false}};
    run->audits.chosen++;
    wait_for_second(run, audit);
    return true;
}

/* ---- what becomes of them ---- */

void audits_done(struct run *run, const struct ticket *ticket)
{
    struct audit *audit = find(run, ticket->step, ticket->node);
    /* Servers have forgotten the names of a step when commit(t + 1) is there. */
    if (audit == NULL || ticket->step + 1 < run->steps.version)
        return;
    if (audit->first.attempt == ticket->attempt)
        audit->first.done = true;
    if (audit->second.attempt == ticket->attempt)
        audit->second.done = true;
}

static bool is_side(const struct audit_side *side, uint64_t member, uint64_t attempt)
{
    return side->member == member && !side->done && (attempt == 0 || side->attempt == attempt);
}

/* Another worker takes the place of the one that was lost, while the step is open. */
static void lose(struct run *run, struct audit *audit, uint64_t member, uint64_t attempt)
{
    bool first = is_side(&audit->first, member, attempt);
    if (!first && !is_side(&audit->second, member, attempt))
        return;
    if (audit->step < run->steps.version)
        return;
    if (first && audit->second.member == 0) {
        end(audit); /* the ticket is free again: its next lease is the first */
        return;
    }
    if (first)
        audit->first = audit->second;
    wait_no_more(audit);
    wait_for_second(run, audit);
}

void audits_lost(struct run *run, uint64_t member, uint64_t attempt)
{
    uint32_t count = run->audits.list != NULL ? run->audits.steps * run->settings.slots : 0;
    for (uint32_t i = 0; i < count; i++)
        if (run->audits.list[i].begun)
            lose(run, &run->audits.list[i], member, attempt);
}

void audits_moved(struct run *run, uint64_t step)
{
    for (uint32_t i = 0; run->audits.list != NULL && i < run->settings.slots; i++) {
        struct audit *audit = &of_step(run, step)[i];
        if (audit->begun && audit->step == step && !(audit->first.done && audit->second.done))
            audit->renamed = true;
    }
}

void audits_differ(struct run *run, uint64_t step, struct node node)
{
    struct audit *audit = find(run, step, run_leased(run, node));
    if (audit != NULL)
        audit->differs = true;
}

/* What the member brought up to that step was looked at. */
static void confirm(struct coordinator *coordinator, uint64_t id, uint64_t step)
{
    struct member *member = members_find(&coordinator->members, id);
    if (member != NULL && member->confirmed <= step)
        member->confirmed = step + 1;
}

/* Both sides agreed: in a run with stages all who completed a place of them. */
static void confirm_both(struct coordinator *coordinator, const struct audit *audit)
{
    confirm(coordinator, audit->first.member, audit->step);
    confirm(coordinator, audit->second.member, audit->step);
    for (const struct statement *said = said_newest(&coordinator->run, audit->step, audit->node);
         said != NULL; said = said_next(said))
        confirm(coordinator, said->member, audit->step);
}

static bool is_compared(const struct audit *audit)
{
    return audit->first.done && audit->second.done && !audit->renamed;
}

static void conclude(struct coordinator *coordinator, struct audit *audit)
{
    struct audits *count = &coordinator->run.audits;
    if (audit->differs) {
        count->differed++;
    } else if (is_compared(audit)) {
        count->agreed++;
        confirm_both(coordinator, audit);
    } else {
        count->not_compared++;
    }
    end(audit);
}

void audits_decided(struct coordinator *coordinator, uint64_t step)
{
    struct run *run = &coordinator->run;
    if (run->audits.list == NULL)
        return;
    for (uint32_t i = 0; i < run->settings.slots; i++)
        wait_no_more(&of_step(run, step)[i]);
    if (step < STEPS_BEHIND)
        return;
    /* P6: all have acknowledged commit(step - 1), so all of step - 2 is reported. */
    struct audit *audits = of_step(run, step - STEPS_BEHIND);
    for (uint32_t i = 0; i < run->settings.slots; i++)
        if (audits[i].begun && audits[i].step == step - STEPS_BEHIND)
            conclude(coordinator, &audits[i]);
}

/* ---- for people ---- */

enum { WRONG_IN = 100 }; /* tickets of the worker that is spoken of */

static bool is_under_name_of(const struct member *member, const struct member *const *others,
                             uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(others[i]->own.name, member->own.name) == 0)
            return true;
    return false;
}

/* Whether some worker that is there can be named: two others contradict it. Of three names one is
 * not of those two, so no more than three are tried. */
static bool can_name(const struct members *members)
{
    const struct member *tried[3];
    uint32_t count = 0;
    for (uint32_t i = 0; i < members->count && count < 3; i++) {
        const struct member *member = members->list[i];
        if (is_under_name_of(member, tried, count))
            continue;
        if (members_two_opinions_beside(members, member))
            return true;
        tried[count++] = member;
    }
    return false;
}

struct audit_status audits_status(const struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    double share = run->settings.audit;
    bool names = share > 0 && can_name(&coordinator->members);
    double tickets = names ? audits_expected(share) * WRONG_IN : 0;
    uint32_t seats = run->gangs.seats > 0 ? run->gangs.seats : 1;
    double step_tickets = run->settings.slots * (1 + share) * seats / coordinator->members.count;
    return (struct audit_status){
        .share = share,
        .chosen = run->audits.chosen,
        .agreed = run->audits.agreed,
        .differed = run->audits.differed,
        .not_compared = run->audits.not_compared,
        .ms = run->tickets.audit_ms,
        .tickets_to_name = tickets,
        .steps_to_name = names ? tickets / step_tickets : 0,
    };
}

static void say_after_how_many(struct coordinator *coordinator)
{
    const struct coordinator_run *settings = &coordinator->run.settings;
    double tickets = audits_expected(settings->audit) * WRONG_IN;
    effects_log(
        &coordinator->effects, false,
        "tickets are audited  share=%g wrong_in=\"1 of %d tickets\" named_after_tickets=%.0f "
        "named_after_steps=\"%.0f x workers\"",
        settings->audit, WRONG_IN, tickets, tickets / (settings->slots * (1 + settings->audit)));
}

void audits_announce(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    if (run->settings.audit == 0)
        return;
    run->audits.announced = true;
    run->audits.names = can_name(&coordinator->members);
    if (run->audits.names)
        say_after_how_many(coordinator);
    else
        effects_log(
            &coordinator->effects, true,
            "tickets are audited  share=%g workers=%u reason=\"audits name nobody: it takes "
            "two opinions besides a suspect's own, and the workers have fewer\"",
            run->settings.audit, coordinator->members.count);
}

void audits_members_changed(struct coordinator *coordinator)
{
    const struct audits *audits = &coordinator->run.audits;
    bool goes_on = run_active(&coordinator->run) && !run_ends(&coordinator->run);
    if (goes_on && audits->announced && audits->names != can_name(&coordinator->members))
        audits_announce(coordinator);
}
