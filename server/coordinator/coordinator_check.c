/* The invariants of the coordinator: after each event the cheap ones, and all of them on a schedule
 * (common/check_account.h). The run's own numbers are run.h's, the tickets' tickets.h's. */
#include "server/coordinator/advance.h"
#include "server/coordinator/run.h"
#include "server/coordinator/window.h"

/* ---- servers ---- */

static void check_places(const struct servers *servers)
{
    uint32_t chosen = servers->chosen_count;
    check(servers->count <= WIRE_SERVERS_MAX);
    check(chosen <= WIRE_SERVERS_MAX);
    check(chosen == 0 || servers->chosen[chosen - 1] != SERVERS_NONE); /* the last is not free */
    for (uint32_t i = 0; i < chosen; i++) {
        if (servers->chosen[i] == SERVERS_NONE)
            continue;
        check(servers->chosen[i] < servers->count);
        check(servers->list[servers->chosen[i]].map_index == i);
    }
}

static void check_server(const struct servers *servers, const struct server_entry *server)
{
    bool has_place = server->map_index != SERVERS_NONE;
    check(server->name[0] != 0);
    check(server->link <= servers->links);
    check(server->asked_link <= servers->links);
    check(server->answered_link <= server->asked_link);
    check(!has_place || server->map_index < servers->chosen_count);
    check(!has_place || &servers->list[servers->chosen[server->map_index]] == server);
    check(has_place == (server->state >= SERVER_IS_CHOSEN));
    check(server->state != SERVER_IS_NEW); /* only while a commit is decided */
    check(server->leaving < SERVER_LEAVINGS);
}

static void check_servers(const struct servers *servers)
{
    check_places(servers);
    for (uint32_t i = 0; i < servers->count; i++)
        check_server(servers, &servers->list[i]);
}

/* ---- members ---- */

/* A seat is given once, so each lease is remembered once. */
static void check_leases(const struct member *member)
{
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++)
        for (uint32_t k = 0; k < i && member->leases[i] != 0; k++)
            check(member->leases[k] != member->leases[i]);
}

static void check_member(const struct members *members, const struct member *member)
{
    check(member->state == MEMBER_JOINED);
    check(member->id >> 32 <= members->term);
    check((uint32_t)member->id <= members->serial);
    check(member->due_place < members->count);
    check(members->due[member->due_place] == member);
    check(member->due_place == 0 ||
          members->due[(member->due_place - 1) / 2]->due_ms <= member->due_ms);
    check(member->due_ms <= members_lapse_ms(members, member));
    check(!member->parked || member->due_ms <= member->parked_until_ms);
    check_leases(member);
}

static void check_members(const struct members *members)
{
    uint32_t parked = 0;
    for (uint32_t i = 0; i < members->count; i++) {
        check_member(members, members->list[i]);
        check(i == 0 || members->list[i - 1]->id < members->list[i]->id);
        parked += members->list[i]->parked ? 1 : 0;
    }
    check(parked == members->parked_count);
    for (const struct member *member = members_first_parked(members); member != NULL;
         member = members_next_parked(members, member), parked--)
        check(member->parked);
    check(parked == 0);
}

/* ---- the map, cuts, seals ---- */

static void check_map(const struct run *run, uint32_t server_count)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < run->map.range_count; i++) {
        const struct chunk_range *range = &run->map.ranges[i];
        check(range->first == end);
        check(range->count > 0);
        check(range->server < server_count);
        end = range->first + range->count;
    }
    check(run->map.range_count == 0 || end == run->map.chunk_count);
    check(run->map.range_count == 0 || end == run->chunk_count);
}

static void check_cut(const struct run *run, const struct pending_cut *pending)
{
    uint32_t have = 0;
    check(pending->record.server_count > 0 && pending->record.server_count <= WIRE_SERVERS_MAX);
    for (uint32_t i = 0; i < pending->record.server_count; i++)
        have += pending->have[i] ? 1 : 0;
    check(have == pending->have_count);
    check(!pending->complete || pending->record.by_seed ||
          have == pending->record.server_count); /* P9 */
    check(pending->map.chunk_count == run->chunk_count);
    check(pending->record.name.generation <= run->generation);
}

static void check_cuts(const struct run *run)
{
    const struct cuts *cuts = &run->cuts;
    check(cuts->pending_count <= CUTS_PENDING_MAX);
    for (uint32_t i = 0; i < cuts->pending_count; i++) {
        check_cut(run, &cuts->pending[i]);
        check(i == 0 ||
              cuts_is_newer(cuts->pending[i].record.name, cuts->pending[i - 1].record.name));
    }
}

static void check_seals(const struct run *run)
{
    for (uint32_t s = 0; s <= run->settings.delay; s++) {
        const struct seal *seal = &run->steps.seals[s];
        uint32_t sealed = 0;
        check(seal->chunk_count == run->chunk_count);
        for (uint32_t c = 0; c < seal->chunk_count; c++)
            sealed += seal->sealed[c] ? 1 : 0;
        check(sealed == seal->sealed_count);
    }
}

/* ---- the run ---- */

/* The checks that only look at numbers. */
static void check_numbers(const struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    bool open = run->phase == PHASE_STEPS || run->phase == PHASE_LAST;
    check(run->steps.version <= run->settings.steps);
    check(run->cuts.newest.name.generation <= run->generation);
    check(run->cuts.newest.name.version <= run->steps.version); /* 3 */
    check(run->steps.counters.applied <= run->steps.version);   /* P8 */
    check(run->steps.counters.skips_in_row <= run->steps.version);
    check(!open || run->cuts.newest.name.generation > 0); /* P9: version 0 before the first grant */
    check(!open || coordinator->servers.chosen_count > 0);
    check(!open || run->map.range_count > 0);
    check(!open || run->generation > 0);
    check(run->settings.async || (run->tickets.steps > 0) == (run->phase == PHASE_STEPS)); /* 2 */
    check(run->phase != PHASE_STORE || run->cuts.pending_count == 0);                      /* 5 */
    check(run->tickets.steps <= run->tickets.settings.open_steps);
    check(!run->validation.running || open);
    check(run->validation.done_count <= run->validation.piece_count);
    check(!run_ends(run) || run->ending.by_ms > 0);
    check(run->moves.change != CHANGE_BEGUN || run->settings.async);
    check(!run->window.known || run->settings.async);
    check(run->moves.count == 0 || run->moves.list != NULL);
    check(run->succession.owners == NULL || run->phase == PHASE_GATHER);
    /* P7: the dead coordinator may have decided one step more than any server has received
     * (succession.c). */
    check(run->settings.async ||
          run->steps.granted_step <= run->steps.version + (uint64_t)run->settings.delay + 1);
}

/* P6, P8: the newest decision is the one that made the version. */
static void check_decision(const struct run *run)
{
    if (!run->steps.committed)
        return;
    check(run->steps.commit.generation == run->generation);
    check(run->steps.commit.step + 1 == run->steps.version);
    check(run->steps.commit.samples == run->steps.counters.samples);
    check(run->steps.commit.applied == run->steps.counters.applied);
    check(run->steps.commit.skips_in_row == run->steps.counters.skips_in_row);
}

static void check_counts(const struct coordinator *coordinator)
{
    const struct members *members = &coordinator->members;
    check(coordinator->servers.count <= WIRE_SERVERS_MAX);
    check(members->count <= COORDINATOR_MEMBERS_MAX);
    check(members->parked_count <= members->count);
    check(members->past_count <= MEMBERS_PAST_MAX);
    check(members->refused_count <= MEMBERS_REFUSED_MAX);
    check(members->suspect_count <= MEMBERS_SUSPECTS_MAX);
    check(members->shared_count <= MEMBERS_SHARED_MAX);
    check(coordinator->run.tickets.leases.count <= coordinator->run.tickets.settings.leases_max);
    check(coordinator->effects.count <= EFFECTS_MAX);
}

/* One of them for each event, in turn. */
static void check_one_in_turn(struct coordinator *coordinator)
{
    const struct servers *servers = &coordinator->servers;
    const struct members *members = &coordinator->members;
    uint64_t turn = coordinator->check_turn++ / CHECK_TURN_EVENTS;
    if (coordinator->check_turn % CHECK_TURN_EVENTS != 0)
        return;
    if (servers->count > 0)
        check_server(servers, &servers->list[turn % servers->count]);
    if (members->count > 0)
        check_member(members, members->list[turn % members->count]);
}

/* The number of things that coordinator_check() visits. */
static uint64_t whole_steps(const struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    uint64_t slots = (uint64_t)run->tickets.settings.slots * run->tickets.settings.open_steps +
                     run->tickets.settings.pieces;
    uint64_t seals = (uint64_t)run->chunk_count * (run->settings.delay + 1);
    return 64 + 16 * (uint64_t)coordinator->servers.count +
           4 * (uint64_t)coordinator->members.count + 4 * (uint64_t)run->map.range_count + seals +
           4 * slots + 8 * (uint64_t)run->tickets.leases.count;
}

void coordinator_check(struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    check_counts(coordinator);
    check_servers(&coordinator->servers);
    check_members(&coordinator->members);
    if (!run_active(run)) {
        check(run->tickets.steps == 0); /* nothing is granted when the run is over */
        return;
    }
    check_numbers(coordinator);
    check_decision(run);
    check_map(run, coordinator->servers.chosen_count);
    check_cuts(run);
    check_seals(run);
    advance_check(coordinator);
}

void coordinator_check_event(struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    if (check_is_due(&coordinator->check_account, whole_steps(coordinator))) {
        coordinator_check(coordinator);
        return;
    }
    check_counts(coordinator);
    check_one_in_turn(coordinator);
    if (!run_active(run))
        return;
    check_numbers(coordinator);
    check_decision(run);
}

void coordinator_describe(const void *object, char *text, size_t bytes)
{
    const struct coordinator *coordinator = object;
    const struct run *run = &coordinator->run;
    snprintf(text, bytes,
             "term=%llu run=%llu phase=%d generation=%llu version=%llu committed=%d step=%llu "
             "granted=%llu cut=%llu.%llu pending=%u servers=%u places=%u map=%llu members=%u "
             "parked=%u leases=%u open=%llu+%u ending=%d validating=%d",
             (unsigned long long)coordinator->settings.term, (unsigned long long)run->settings.run,
             (int)run->phase, (unsigned long long)run->generation,
             (unsigned long long)run->steps.version, run->steps.committed,
             (unsigned long long)run->steps.commit.step,
             (unsigned long long)run->steps.granted_step,
             (unsigned long long)run->cuts.newest.name.generation,
             (unsigned long long)run->cuts.newest.name.version, run->cuts.pending_count,
             coordinator->servers.count, coordinator->servers.chosen_count,
             (unsigned long long)run->map_number, coordinator->members.count,
             coordinator->members.parked_count, run->tickets.leases.count,
             (unsigned long long)run->tickets.step, run->tickets.steps, (int)run->ending.kind,
             run->validation.running);
}
