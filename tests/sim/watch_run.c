/* The same as watch.c between the parts of a coordinator's run: what tickets, cuts, the window and a
 * successor are to have done when they return. */
#include "server/coordinator/brought.h"
#include "server/coordinator/servers.h"
#include "server/coordinator/succession.h"
#include "server/coordinator/window.h"
#include "tests/sim/sim.h"

enum {
    STRAY_STEPS = 40,
    LAPSE_FACTOR = 16,
    LAPSE_UNKNOWN = 10 /* of server/coordinator/tickets.c */
};

#define REAL(result, name, ...)                                                                    \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

static bool coordinates(void)
{
    return life_acts() && world.life->place.kind == MACHINE_COORDINATOR;
}

/* ---- tickets ---- */

REAL(uint32_t, tickets_done, struct tickets *tickets, uint64_t now_ms, const struct ticket *ticket);
REAL(uint64_t, tickets_settle, struct tickets *tickets, uint64_t now_ms, uint64_t last,
     const struct tickets_credit *credit);
REAL(uint32_t, tickets_lapse, struct tickets *tickets, uint64_t now_ms, uint64_t *ret_due_ms);

/* Of the other leases on the node, those that are an audit's second. */
static uint32_t count_audits(const struct tickets *tickets, const struct ticket *ticket)
{
    uint32_t count = 0;
    for (const struct lease *lease = leases_youngest(&tickets->leases); lease != NULL;
         lease = leases_before(&tickets->leases, lease))
        count += lease->attempt != ticket->attempt && lease->kind == ticket->kind && lease->audit &&
                         lease->step == ticket->step && node_equal(lease->node, ticket->node)
                     ? 1
                     : 0;
    return count;
}

/* 3: what is done already makes nobody else the second. */
uint32_t __wrap_tickets_done(struct tickets *tickets, uint64_t now_ms, const struct ticket *ticket)
{
    uint32_t before = count_audits(tickets, ticket);
    uint32_t newly_done = __real_tickets_done(tickets, now_ms, ticket);
    if (coordinates() && newly_done == 0 && count_audits(tickets, ticket) != before)
        sim_violated(world.sim, 3,
                     "step %llu slot %u is complete once more, and another lease is "
                     "the audit's now",
                     (unsigned long long)ticket->step, node_first(ticket->node));
    return newly_done;
}

/* Whether the leases of steps up to `last` have others beside them, all of them. */
static bool all_have_twins(const struct tickets *tickets, uint64_t last)
{
    for (const struct lease *lease = leases_youngest(&tickets->leases); lease != NULL;
         lease = leases_before(&tickets->leases, lease))
        if (lease->kind == TICKET_TRAIN && lease->step <= last && ring_is_empty(&lease->twins))
            return false;
    return true;
}

static bool some_lapsed(const struct tickets *tickets, uint64_t step)
{
    const struct work *work = &tickets->train[step % tickets->settings.open_steps];
    for (uint32_t i = 0; i < work->count; i++)
        if (work->slots[i].lapsed.attempt != 0)
            return true;
    return false;
}

/* 3: how long a slot takes is not learnt from seals when another worker may have brought it. */
uint64_t __wrap_tickets_settle(struct tickets *tickets, uint64_t now_ms, uint64_t last,
                               const struct tickets_credit *credit)
{
    double before = tickets->train_usual_ms;
    bool learns = !all_have_twins(tickets, last);
    for (uint64_t step = tickets->step; step <= last; step++)
        learns |= some_lapsed(tickets, step);
    uint64_t useful_ms = __real_tickets_settle(tickets, now_ms, last, credit);
    if (coordinates() && !learns && tickets->train_usual_ms != before)
        sim_violated(world.sim, 3,
                     "a slot is said to take %.2f ms, and nobody knows who brought it",
                     tickets->train_usual_ms);
    return useful_ms;
}

/* 8: who computes alone is given up after a multiple of the usual time, always the same one. */
uint32_t __wrap_tickets_lapse(struct tickets *tickets, uint64_t now_ms, uint64_t *ret_due_ms)
{
    uint32_t count = __real_tickets_lapse(tickets, now_ms, ret_due_ms);
    for (const struct lease *lease = leases_youngest(&tickets->leases);
         lease != NULL && coordinates() && !tickets->settings.shared;
         lease = leases_before(&tickets->leases, lease)) {
        double slot_ms =
            lease->kind == TICKET_TRAIN ? tickets->train_usual_ms : tickets->validate_usual_ms;
        uint64_t lease_ms = tickets->settings.lease_ms;
        uint64_t after_ms = slot_ms > 0 ? (uint64_t)(slot_ms * lease->slots * LAPSE_FACTOR)
                                        : lease_ms * LAPSE_UNKNOWN;
        after_ms = after_ms > lease_ms ? after_ms : lease_ms;
        if (lease->granted_ms + after_ms <= now_ms)
            sim_violated(world.sim, 8, "a lease of step %llu is %llu ms old, and goes on",
                         (unsigned long long)lease->step,
                         (unsigned long long)(now_ms - lease->granted_ms));
    }
    return count;
}

/* ---- the window of an async run ---- */

REAL(void, window_open, struct run *run);

/* 16: of the open steps, those slots are done that all chunks have taken. */
void __wrap_window_open(struct run *run)
{
    const struct tickets *tickets = &run->tickets;
    __real_window_open(run);
    for (uint64_t step = tickets->step; coordinates() && step < tickets->step + tickets->steps;
         step++)
        for (uint32_t slot = 0; slot < run->settings.slots; slot++) {
            bool taken = applied_find(&run->window.taken, step * run->settings.slots + slot) ==
                         APPLIED_TAKEN;
            if (tickets->train[step % tickets->settings.open_steps].slots[slot].done != taken)
                sim_violated(world.sim, 16, "step %llu slot %u is %s, and chunks say otherwise",
                             (unsigned long long)step, slot, taken ? "open" : "done");
        }
}

/* ---- who had which steps ---- */

REAL(void, brought_note, struct brought *brought, uint64_t step);

static uint64_t count_steps(const struct brought *brought)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < brought->count; i++)
        count += brought->ranges[i].last - brought->ranges[i].first + 1;
    return count;
}

/* What lies between older ranges where that is least, in which no open step is. */
static uint64_t smallest_gap(const struct brought *brought)
{
    uint64_t smallest = UINT64_MAX;
    for (uint32_t i = 0; i + 1 + BROUGHT_GAPS_OPEN < brought->count; i++) {
        uint64_t gap = brought->ranges[i + 1].first - brought->ranges[i].last - 1;
        smallest = gap < smallest ? gap : smallest;
    }
    return smallest;
}

/* 19: steps are added to the list as they are; when it is full, what lies between two of its older
 * ranges is as well, where that is least. `step`: behind all others. */
static void check_noted(struct brought *brought, uint64_t step)
{
    uint64_t before = count_steps(brought);
    struct brought longer = *brought;
    bool full = brought->count == BROUGHT_RANGES_MAX;
    if (full)
        longer.ranges[longer.count++] = (struct brought_range){step, step};
    __real_brought_note(brought, step);
    uint64_t added = count_steps(brought) - before;
    if (added != 1 + (full ? smallest_gap(&longer) : 0) || brought->count > BROUGHT_RANGES_MAX)
        sim_violated(world.sim, 19, "%llu steps are added to a member's list for one",
                     (unsigned long long)added);
}

/* Members have few steps here: what would be when they had many, far apart. */
void __wrap_brought_note(struct brought *brought, uint64_t step)
{
    struct brought copy = *brought;
    __real_brought_note(brought, step);
    if (!coordinates() || !stray_comes(world.sim))
        return;
    for (uint32_t i = 0; i < STRAY_STEPS; i++) {
        uint64_t last = copy.count > 0 ? copy.ranges[copy.count - 1].last : step;
        check_noted(&copy, last + 2 + rand_below(&world.sim->stray.random, STRAY_STEPS));
    }
}

/* ---- cuts ---- */

REAL(bool, cuts_server_lost, struct cuts *cuts, const char *server);

/* 10: that a cut is awaited no more is said. */
bool __wrap_cuts_server_lost(struct cuts *cuts, const char *server)
{
    uint32_t before = cuts->pending_count;
    bool some = __real_cuts_server_lost(cuts, server);
    if (coordinates() && some != (cuts->pending_count < before))
        sim_violated(world.sim, 10, "cuts that are lost with %s are not said to be", server);
    return some;
}

/* ---- servers that start again ---- */

REAL(enum err, servers_hello, struct servers *servers, const struct server_report *hello,
     struct server_entry **ret_server, uint64_t *ret_older);

/* 11: another start of a server has nothing of what the one before had (P3). */
enum err __wrap_servers_hello(struct servers *servers, const struct server_report *hello,
                              struct server_entry **ret_server, uint64_t *ret_older)
{
    const struct server_entry *known = servers_named(servers, hello->hello.name);
    uint64_t boot = known != NULL ? known->boot : hello->boot;
    enum err err = __real_servers_hello(servers, hello, ret_server, ret_older);
    if (coordinates() && err == ERR_OK && boot != hello->boot) {
        enum server_state state = (*ret_server)->state;
        if (state == SERVER_IS_INVITED || state == SERVER_HAS_JOINED || state == SERVER_PREPARES ||
            state == SERVER_SERVES)
            sim_violated(world.sim, 11, "another start of %s has what the one before had",
                         hello->hello.name);
    }
    return err;
}

/* ---- a successor ---- */

REAL(enum err, succession_answer, struct coordinator *core, struct server_entry *server,
     const struct server_held *held);
REAL(enum err, succession_try, struct coordinator *core, uint64_t now_ms,
     enum succession_outcome *ret_outcome);

static bool has_answered(const struct server_entry *server)
{
    return server->link != 0 && server->answered_link == server->link &&
           server->held.generation > 0;
}

/* Another server that has answered, and has a decision of that step. */
static bool another_has(const struct coordinator *core, const struct server_entry *server,
                        uint64_t step)
{
    for (uint32_t i = 0; i < core->servers.count; i++) {
        const struct server_entry *other = &core->servers.list[i];
        if (other != server && has_answered(other) && other->held.has_decision &&
            other->held.decision.step == step)
            return true;
    }
    return false;
}

/* Two coordinators' decisions of one step would differ somewhere: now and then a server has another
 * one than the others. */
enum err __wrap_succession_answer(struct coordinator *core, struct server_entry *server,
                                  const struct server_held *held)
{
    struct stray *stray = &world.sim->stray;
    struct server_held other = *held;
    if (coordinates() && held->has_decision && another_has(core, server, held->decision.step) &&
        stray_comes(world.sim)) {
        stray->answer_link = server->link;
        stray->answer_truth = held->decision;
        other.decision.samples++;
    }
    return __real_succession_answer(core, server, &other);
}

/* When the others are gone, it has what it had. */
static void correct_answer(struct coordinator *core)
{
    const struct stray *stray = &world.sim->stray;
    for (uint32_t i = 0; i < core->servers.count; i++) {
        struct server_entry *server = &core->servers.list[i];
        struct server_held *held = &server->held;
        if (has_answered(server) && held->has_decision && server->link == stray->answer_link &&
            held->decision.step == stray->answer_truth.step &&
            held->decision.samples == stray->answer_truth.samples + 1 &&
            !another_has(core, server, held->decision.step))
            held->decision = stray->answer_truth;
    }
}

/* P7: those that have the newest decision have the same one. */
static void check_agreed(const struct coordinator *core)
{
    const struct run *run = &core->run;
    for (uint32_t i = 0; i < core->servers.count; i++) {
        const struct server_entry *server = &core->servers.list[i];
        const struct server_held *held = &server->held;
        if (has_answered(server) && held->has_decision && run->steps.committed &&
            held->decision.step == run->steps.commit.step &&
            !seal_same_decision(&held->decision, &run->steps.commit))
            sim_violated(world.sim, 9,
                         "%s has another decision of step %llu than the one that the "
                         "coordinator goes on with",
                         server->name, (unsigned long long)held->decision.step);
    }
}

/* Servers have answered, chunks are missing, and so are servers, and there is time. */
static bool is_early(const struct coordinator *core, const uint32_t *owners, uint32_t count,
                     uint64_t now_ms, uint64_t until_ms)
{
    bool some = false, all = true;
    for (uint32_t i = 0; i < core->servers.count; i++)
        some = some || has_answered(&core->servers.list[i]);
    for (uint32_t c = 0; c < count; c++)
        all = all && owners[c] > 0 && has_answered(&core->servers.list[owners[c] - 1]);
    return some && !all && now_ms < until_ms && succession_missing(core) != NULL;
}

enum err __wrap_succession_try(struct coordinator *core, uint64_t now_ms,
                               enum succession_outcome *ret_outcome)
{
    if (coordinates())
        correct_answer(core);
    const struct run *run = &core->run;
    const struct succession *succession = &run->succession;
    bool early = succession->owners != NULL &&
                 is_early(core, succession->owners, run->chunk_count, now_ms, succession->until_ms);
    enum err err = __real_succession_try(core, now_ms, ret_outcome);
    if (!coordinates() || err != ERR_OK)
        return err;
    if (*ret_outcome == SUCCESSION_REWINDS && early)
        sim_violated(world.sim, 9, "a successor rewinds before it has heard of all chunks");
    if (*ret_outcome == SUCCESSION_GOES_ON)
        check_agreed(core);
    return err;
}
