/* The run moves on. */
#include "server/coordinator/advance.h"

#include "server/coordinator/audits.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/ended.h"
#include "server/coordinator/ending.h"
#include "server/coordinator/generation.h"
#include "server/coordinator/leaving.h"
#include "server/coordinator/moves.h"
#include "server/coordinator/overdue.h"
#include "server/coordinator/places.h"
#include "server/coordinator/send.h"
#include "server/coordinator/standstill.h"
#include "server/coordinator/steps.h"
#include "server/coordinator/suspects.h"
#include "server/coordinator/window.h"
#include "server/member/proof.h"
#include "server/shard/shard.h"

/* In lease_ms. While nothing is completed for ASK_LEASES, servers are asked what they lack of what
 * was completed: until they have it, they may be too full to take the rest. When all slots are done
 * and no seal comes for STALL_LEASES, they are computed again. */
enum { ASK_LEASES = 1, STALL_LEASES = 3 };

enum { AGAIN_MS = 1000 /* until another attempt at a cut, while a server is away */ };

/* ---- who is gone ---- */

void advance_member_gone(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                         enum member_state state, const char *why)
{
    uint32_t leases = tickets_drop_member(&coordinator->run.tickets, now_ms, member->id) +
                      places_lost(coordinator, now_ms, member, state == MEMBER_WRONG_BITS);
    audits_lost(&coordinator->run, member->id, 0);
    bool lost = state != MEMBER_LEFT && state != MEMBER_PREEMPTED;
    effects_log(
        &coordinator->effects, lost,
        "worker gone  worker=%s member=%llu state=\"%s\" leases=%u workers=%u reason=\"%.100s\"",
        member->own.name, (unsigned long long)member->id, member_state_name(state), leases,
        coordinator->members.count - 1, why);
    if (member->parked)
        send_answer(coordinator, member, ERR_UNKNOWN_MEMBER, NULL);
    ended_add(coordinator, member->id,
              state == MEMBER_WRONG_BITS || state == MEMBER_FALSE_COMPLETE);
    places_renamed(&coordinator->run, member->id, 0);
    suspects_ended(&coordinator->members, member, state);
    members_remove(&coordinator->members, member, state, why);
    audits_members_changed(coordinator);
    advance_run(coordinator, now_ms);
}

static void grant(struct coordinator *coordinator, uint64_t now_ms, struct member *member)
{
    struct run *run = &coordinator->run;
    const struct lease *lease;
    const struct tickets_worker worker = {member->id, member->devices,
                                          coordinator->members.devices};
    bool second = audits_grant(coordinator, now_ms, member, &lease);
    if (!second && !tickets_grant(&run->tickets, now_ms, &worker, &lease))
        return;
    bool train = lease->kind == TICKET_TRAIN;
    check(member->parked);
    check(!train || run->phase == PHASE_STEPS);
    if (train)
        steps_granted(run, lease->step);
    if (train)
        brought_note(&member->brought, lease->step);
    const struct audits_holder holder = {member->id, &member, 1};
    bool audited = second || (train && audits_granted(coordinator, &holder, lease));
    member->ticket = (struct ticket){
        .kind = lease->kind,
        .generation = run->generation,
        .step = train ? lease->step : run->steps.version,
        .version = lease->version,
        .node = lease->node,
        .attempt = lease->attempt,
        .member = member->id,
        .chunks = {.count = run->chunk_count},
        .parts = {.count = SHARD_PARTS_MAX},
    };
    member->ticket.grant =
        audited ? proof_audited(&coordinator->key, run->settings.run, &member->ticket)
                : proof_ticket(&coordinator->key, run->settings.run, &member->ticket);
    run_due(coordinator, now_ms + coordinator->settings.lease_ms);
    send_ticket(coordinator, member);
}

/* Free tickets, to members that each compute all of one. */
static void grant_parked(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    struct member *member = members_first_parked(&coordinator->members);
    while (member != NULL && (tickets_any(&run->tickets, now_ms) || audits_wait(run))) {
        struct member *next = members_next_parked(&coordinator->members, member);
        grant(coordinator, now_ms, member);
        member = next;
    }
}

static void answer_parked(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    if (run->fingerprint_late || (run->phase != PHASE_STEPS && run->phase != PHASE_LAST) ||
        !servers_connected(&coordinator->servers))
        return;
    if (run->gangs.seats > 0)
        places_grant(coordinator, now_ms);
    else
        grant_parked(coordinator, now_ms);
    if (coordinator->members.parked_count > 0) {
        uint64_t overdue_ms = tickets_overdue_ms(&run->tickets);
        run_due(coordinator, overdue_ms > now_ms ? overdue_ms : UINT64_MAX);
    }
}

static void gather(struct coordinator *coordinator, uint64_t now_ms)
{
    enum gathering gathering;
    if (generation_gather(coordinator, now_ms, &gathering) != ERR_OK)
        ending_over(coordinator, RUN_FAILED, "out of memory for the chunk map");
    else if (gathering == GATHER_GOES_ON)
        commit_open_version(coordinator);
}

static void change_servers(struct coordinator *coordinator)
{
    if (moves_change_is_due(coordinator))
        generation_change(coordinator);
}

void advance_run(struct coordinator *coordinator, uint64_t now_ms)
{
    if (coordinator->run.phase == PHASE_GATHER && !ending_is_due_in_gather(&coordinator->run))
        gather(coordinator, now_ms);
    commit_finish_validation(coordinator);
    leaving_let_go(coordinator);
    moves_invite(coordinator);
    change_servers(coordinator);
    generation_ask(coordinator, now_ms);
    commit_try(coordinator, now_ms);
    ending_try(coordinator);
    places_sweep(coordinator, now_ms);
    answer_parked(coordinator, now_ms);
    overdue_note(coordinator, now_ms);
}

void advance_generation_stored(struct coordinator *coordinator, uint64_t now_ms,
                               uint64_t generation, enum err err)
{
    if (generation_stored(coordinator, now_ms, generation, err) != ERR_OK)
        ending_over(coordinator, RUN_FAILED, "out of memory for a checkpoint's map");
    advance_run(coordinator, now_ms);
}

/* ---- time ---- */

/* P1: only seals decide that a step is done. Workers completed every slot, but shards miss pushes:
 * the slots are computed again. */
static bool is_stalled(const struct run *run)
{
    bool done = run->settings.async ? window_has(run, run->steps.version)
                                    : tickets_all_done(&run->tickets, TICKET_TRAIN);
    return run->phase == PHASE_STEPS && done && !seal_complete(run_seal(run, run->steps.version));
}

static uint64_t stall_due_ms(const struct coordinator *coordinator)
{
    const struct tickets *tickets = &coordinator->run.tickets;
    return is_stalled(&coordinator->run)
               ? tickets->done_ms + (uint64_t)STALL_LEASES * coordinator->settings.lease_ms
               : UINT64_MAX;
}

static uint64_t ask_due_ms(const struct coordinator *coordinator)
{
    const struct tickets *tickets = &coordinator->run.tickets;
    const struct run *run = &coordinator->run;
    if (run->phase != PHASE_STEPS || seal_complete(run_seal(run, run->steps.version)))
        return UINT64_MAX;
    if (run->window.refused) /* P12: until a server has what it lacks, it may refuse all others */
        return tickets->question_ms + coordinator->settings.heartbeat_ms;
    if (!tickets_some_done(tickets) && !places_some_done(run, run->steps.version))
        return UINT64_MAX;
    uint64_t since_ms =
        tickets->question_ms > tickets->done_ms ? tickets->question_ms : tickets->done_ms;
    since_ms = run->gangs.done_ms > since_ms ? run->gangs.done_ms : since_ms;
    return since_ms + (uint64_t)ASK_LEASES * coordinator->settings.lease_ms;
}

/* missing.c takes the answers. */
static void ask_missing(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    uint64_t question = tickets_question(&run->tickets, now_ms);
    window_asked(run);
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++) {
        const struct server_entry *server = servers_active(&coordinator->servers, i);
        if (server == NULL || server->link == 0 || server->state != SERVER_SERVES)
            continue; /* P12: one that comes back has not said yet what it has */
        struct server_command *command = send_command(coordinator, server, SERVER_ASK_MISSING);
        command->ask_missing.generation = run->generation;
        command->ask_missing.step = run->steps.version;
        command->ask_missing.question = question;
    }
}

static bool last_cut_again(struct coordinator *coordinator)
{
    return commit_is_acknowledged(coordinator) && servers_connected(&coordinator->servers) &&
           commit_cut_again(coordinator) == ERR_OK;
}

/* Another attempt at the run's first or last cut, when its moment has come. */
static void try_cut_again(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    struct cuts *cuts = &run->cuts;
    bool done = false;
    if (!cuts_waits(cuts) || cuts->again_ms == 0)
        return;
    if (cuts_again_is_due(cuts, now_ms) && run->phase == PHASE_LAST)
        done = last_cut_again(coordinator);
    else if (cuts_again_is_due(cuts, now_ms) && run->phase == PHASE_FIRST_CUT)
        done = generation_first_cut_again(coordinator) == ERR_OK;
    if (!done)
        run_due(coordinator, cuts->again_ms > now_ms ? cuts->again_ms : now_ms + AGAIN_MS);
}

/* A stop drops what it cannot finish in its time, but it waits for room, and for the search for an
 * older cut, as long as that takes. */
static bool stop_is_over(const struct run *run, uint64_t now_ms)
{
    bool waits =
        (ending_waits_for_room(run) || run->rewind.wanted) && run->ending.kind == ENDING_STOP;
    return run_ends(run) && !waits && run->ending.by_ms <= now_ms;
}

void advance_tick(struct coordinator *coordinator, uint64_t now_ms, uint64_t *ret_due_ms)
{
    struct run *run = &coordinator->run;
    uint64_t due_ms = UINT64_MAX;
    *ret_due_ms = UINT64_MAX;
    if (!run_active(run))
        return;
    if (stop_is_over(run, now_ms) && !ending_cut_newest(coordinator, now_ms)) {
        ending_now(coordinator);
        return;
    }
    if (stall_due_ms(coordinator) <= now_ms) {
        effects_log(&coordinator->effects, true,
                    "step misses pushes that workers called complete  step=%llu next=again",
                    (unsigned long long)run->steps.version);
        if (run->settings.async)
            window_doubt(run);
        else
            tickets_reopen(&run->tickets);
    }
    if (ask_due_ms(coordinator) <= now_ms)
        ask_missing(coordinator, now_ms);
    places_wait(coordinator, now_ms);
    uint32_t lapsed = tickets_lapse(&run->tickets, now_ms, &due_ms);
    if (lapsed > 0)
        effects_log(&coordinator->effects, true, "leases lapsed  step=%llu leases=%u next=again",
                    (unsigned long long)run->steps.version, lapsed);
    overdue_send(coordinator, now_ms);
    try_cut_again(coordinator, now_ms);
    generation_look_again(coordinator, now_ms);
    advance_run(coordinator, now_ms);
    standstill_look(coordinator, now_ms);
    run_due(coordinator, overdue_due_ms(coordinator));
    run_due(coordinator, stall_due_ms(coordinator));
    run_due(coordinator, ask_due_ms(coordinator));
    if (run_ends(run) && run->ending.by_ms < due_ms && run->ending.by_ms > now_ms)
        due_ms = run->ending.by_ms;
    *ret_due_ms = due_ms;
}

void advance_check(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    if (!run_active(run))
        return;
    bool open = run->phase == PHASE_STEPS || run->phase == PHASE_LAST;
    check(!open || run->settings.async || servers_ready(&coordinator->servers));
    for (uint32_t i = 0; i < run->map.range_count && open; i++)
        check(servers_active(&coordinator->servers, run->map.ranges[i].server) != NULL);
    check(!open || run->cuts.newest.name.generation > 0);
    if (run->settings.async) {
        window_check(run);
    } else {
        check((run->tickets.steps > 0) == (run->phase == PHASE_STEPS));
        check(run->tickets.steps == 0 || run->tickets.step == run->steps.version);
    }
    check(run->cuts.newest.name.version <= run->steps.version);
    check(commit_is_acknowledged(coordinator) || run->steps.commit.step + 1 == run->steps.version);
    tickets_check(&run->tickets);
    gangs_check(&run->gangs);
    unreachable_check(&run->unreachable);
}
