/* The run's states. */
#include "server/coordinator/run.h"

#include "server/coordinator/ending.h"
#include "server/coordinator/generation.h"
#include "server/coordinator/leaving.h"
#include "server/coordinator/moves.h"
#include "server/coordinator/send.h"
#include "server/coordinator/window.h"

#include <string.h>

enum { STALL_LEASES = 3 /* all slots done and no seal for so many lease_ms: done again */ };

/* ---- who is gone ---- */

void run_member_gone(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                     enum member_state state, const char *why)
{
    uint32_t leases = tickets_drop_member(&coordinator->run.tickets, now_ms, member->id);
    bool lost = state != MEMBER_LEFT && state != MEMBER_PREEMPTED;
    effects_log(
        &coordinator->effects, lost,
        "worker gone  worker=%s member=%llu state=\"%s\" leases=%u workers=%u reason=\"%.100s\"",
        member->name, (unsigned long long)member->id, member_state_name(state), leases,
        coordinator->members.count - 1, why);
    if (member->parked)
        send_answer(coordinator, member, ERR_UNKNOWN_MEMBER, NULL);
    members_remove(&coordinator->members, member, state, why);
    run_advance(coordinator, now_ms);
}

/* ---- commit ---- */

static bool validation_due(const struct run *run)
{
    const struct coordinator_run *settings = &run->settings;
    if (run->validation.piece_count == 0 || run_ends(run))
        return false;
    if (run->version == settings->steps)
        return true;
    return run->version > 0 && settings->validate_every > 0 &&
           run->version % settings->validate_every == 0;
}

/* The open steps that somebody has begun, the oldest at least. Chunks move when it is the only one
 * (P11): with no open sums. */
static uint32_t steps_begun(const struct run *run)
{
    return run->granted_step > run->version ? (uint32_t)(run->granted_step - run->version) + 1 : 1;
}

/* The version can be computed on: its tickets are open. */
void run_open_version(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    uint64_t left = run->settings.steps - run->version;
    uint32_t steps = left > run->settings.delay ? run->settings.delay + 1 : (uint32_t)left;
    if (moves_wanted(coordinator))
        steps = steps_begun(run) < steps ? steps_begun(run) : steps;
    run->validating = validation_due(run);
    validation_restart(&run->validation);
    struct tickets_open open = {
        .version = run->version, .step = run->version, .steps = steps, .validate = run->validating};
    if (run->settings.async && steps > 0) {
        open.step = run->tickets.step; /* what is open stays so */
        open.steps = run->tickets.steps;
    }
    tickets_open(&run->tickets, open);
    if (run->settings.async && steps > 0) {
        run->moves.step_max = moves_step_max(coordinator);
        window_open(run);
    }
    run->phase = steps > 0 ? PHASE_STEPS : PHASE_LAST;
}

static bool cut_due(const struct run *run, uint64_t version)
{
    const struct coordinator_run *settings = &run->settings;
    return run->cut_asked || run_ends(run) || version == settings->steps ||
           (settings->cut_every > 0 && version % settings->cut_every == 0);
}

/* What the step's slots took; async: what was done since the newest commit, of whatever step. */
static uint64_t slot_ms(struct run *run, uint64_t now_ms)
{
    uint64_t before = run->useful_before;
    if (!run->settings.async)
        return tickets_settle(&run->tickets, now_ms);
    run->useful_before = run->tickets.useful_ms;
    return run->tickets.useful_ms - before;
}

static void step_effect(struct coordinator *coordinator, uint64_t now_ms,
                        const struct seal_metrics *metrics)
{
    struct run *run = &coordinator->run;
    const struct tickets *tickets = &run->tickets;
    run->last_step = (struct step_row){
        .step = run->commit.step,
        .generation = run->generation,
        .samples = run->counters.samples,
        .step_samples = run->settings.seal.schedule.step_samples,
        .slots = run->settings.slots,
        .metrics = *metrics,
        .behind = run->behind_most,
        .skipped = !run->commit.apply,
        .workers = coordinator->members.count,
        .redone = (uint32_t)(tickets->redone - run->redone_before),
        .speculative = (uint32_t)(tickets->speculative - run->speculative_before),
        .duration_ms = now_ms - run->committed_ms,
        .slot_ms = slot_ms(run, now_ms),
    };
    moves_count_step(run, run->last_step.duration_ms);
    run->redone_before = tickets->redone;
    run->speculative_before = tickets->speculative;
    run->committed_ms = now_ms;
    run->skipped += run->last_step.skipped ? 1 : 0;
    effects_add(&coordinator->effects, EFFECT_STEP)->step = run->last_step;
}

/* What the step was computed on, before anybody hears of its commit. */
static void note_order(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    run->behind_most = tickets_behind(&run->tickets, run->behind);
    if (run->settings.ssp)
        effects_add(&coordinator->effects, EFFECT_STORE_ORDER)->order =
            (struct order_step){.generation = run->generation,
                                .step = run->version,
                                .slots = run->settings.slots,
                                .behind = run->behind};
}

/* The decision for step `version`: everything about it is there. */
static void decide(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    struct seal_metrics metrics;
    struct commit commit;
    moves_arrived(coordinator);
    struct seal *seal = run_seal(run, run->version);
    enum err err = ERR_OK;
    if (run->settings.async)
        seal_count(&run->settings.seal, &run->counters, seal, &commit, &metrics);
    else
        err = seal_decide(&run->settings.seal, &run->counters, seal, &commit, &metrics);
    if (err == ERR_NON_FINITE) {
        char text[COORDINATOR_TEXT_BYTES];
        snprintf(text, sizeof text, "step %llu is not finite, the %llu. in a row (train.skip_max)",
                 (unsigned long long)run->version, (unsigned long long)run->counters.skips_in_row);
        ending_over(coordinator, RUN_FAILED, text);
        return;
    }
    note_order(coordinator);
    commit.generation = run->generation;
    commit.term = coordinator->settings.term;
    commit.step = run->version;
    commit.cut = cut_due(run, run->version + 1) || leaving_needs_cut(coordinator) ||
                 moves_need_cut(coordinator);
    run->commit = commit;
    run->committed = true;
    moves_plan(coordinator);
    if (commit.cut && generation_order_cut(coordinator, run->version + 1) != ERR_OK) {
        ending_over(coordinator, RUN_FAILED, "out of memory for a cut's map");
        return;
    }
    run->cut_asked = run->cut_asked && !commit.cut;
    step_effect(coordinator, now_ms, &metrics); /* a successor may find that all have heard of it */
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++) {
        struct server_entry *server = servers_active(&coordinator->servers, i);
        if (server == NULL)
            continue;
        server->acknowledged = server->past_cut = false;
        send_commit(coordinator, server);
    }
    moves_apply(coordinator);
    run->version++;
    seal_restart(seal);
    if (run->settings.async)
        window_sealed(run, commit.step);
    run_open_version(coordinator);
}

static bool all_acknowledged(struct coordinator *coordinator)
{
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++) {
        const struct server_entry *server = servers_active(&coordinator->servers, i);
        if (server != NULL && !server->acknowledged)
            return false;
    }
    return true;
}

static void finish_validation(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    if (run_ends(run))
        run->validating = false;
    if (!run->validating || !validation_complete(&run->validation))
        return;
    run->validating = false;
    struct validation_result sum = validation_sum(&run->validation);
    double predictions = (double)sum.sample_count * run->settings.seal.sample_predictions;
    run->last_validation = (struct validation_row){
        .version = run->version,
        .generation = run->generation,
        .samples = sum.sample_count,
        .loss = sum.loss_sum / (double)sum.sample_count,
        .accuracy = (double)sum.correct_count / predictions,
        .slot_ms = run->tickets.validate.useful_ms,
    };
    effects_add(&coordinator->effects, EFFECT_VALIDATION)->validation = run->last_validation;
}

/* P6, and the version's validation, for which version must stay readable (P5). */
static void try_commit(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    if (run->phase != PHASE_STEPS || run->validating ||
        !seal_complete(run_seal(run, run->version)) || !all_acknowledged(coordinator) ||
        !servers_connected(&coordinator->servers))
        return;
    decide(coordinator, now_ms);
}

/* ---- granting ---- */

static bool grant(struct coordinator *coordinator, uint64_t now_ms, struct member *member)
{
    struct run *run = &coordinator->run;
    const struct lease *lease;
    if (!tickets_grant(&run->tickets, now_ms, member->id, coordinator->members.count, &lease))
        return false;
    bool train = lease->kind == TICKET_TRAIN;
    if (train && lease->step > run->granted_step)
        run->granted_step = lease->step;
    member->ticket = (struct ticket){
        .kind = lease->kind,
        .generation = run->generation,
        .step = train ? lease->step : run->version,
        .version = lease->version,
        .node = lease->node,
        .attempt = lease->attempt,
        .speculative = lease->speculative,
    };
    run_due(coordinator, now_ms + coordinator->settings.lease_ms);
    send_ticket(coordinator, member);
    return true;
}

static void answer_parked(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    if (coordinator->members.parked_count == 0 ||
        (run->phase != PHASE_STEPS && run->phase != PHASE_LAST) ||
        !servers_connected(&coordinator->servers))
        return;
    struct member *member = members_next_parked(&coordinator->members, 0);
    while (member != NULL) {
        uint64_t order = member->parked_order;
        grant(coordinator, now_ms, member);
        member = members_next_parked(&coordinator->members, order + 1);
    }
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
        run_open_version(coordinator);
}

static void change_servers(struct coordinator *coordinator, uint64_t now_ms)
{
    if (moves_change_is_due(coordinator) && generation_change(coordinator, now_ms) != ERR_OK)
        ending_over(coordinator, RUN_FAILED, "out of memory for a cut's map");
}

void run_advance(struct coordinator *coordinator, uint64_t now_ms)
{
    if (coordinator->run.phase == PHASE_GATHER && !ending_is_due_in_gather(&coordinator->run))
        gather(coordinator, now_ms);
    finish_validation(coordinator);
    leaving_let_go(coordinator);
    moves_invite(coordinator);
    change_servers(coordinator, now_ms);
    try_commit(coordinator, now_ms);
    ending_try(coordinator);
    answer_parked(coordinator, now_ms);
}

/* ---- time ---- */

/* Every slot is done by workers' words, yet the shards miss something: it is computed again. */
static uint64_t stall_due_ms(const struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    bool done = run->settings.async ? window_has(run, run->version)
                                    : tickets_all_done(&run->tickets, TICKET_TRAIN);
    if (run->phase != PHASE_STEPS || !done || seal_complete(run_seal(run, run->version)))
        return UINT64_MAX;
    return run->done_ms + (uint64_t)STALL_LEASES * coordinator->settings.lease_ms;
}

void run_tick(struct coordinator *coordinator, uint64_t now_ms, uint64_t *ret_due_ms)
{
    struct run *run = &coordinator->run;
    uint64_t due_ms = UINT64_MAX;
    *ret_due_ms = UINT64_MAX;
    if (!run_active(run))
        return;
    if (run_ends(run) && run->ending.by_ms <= now_ms) {
        ending_now(coordinator);
        return;
    }
    if (stall_due_ms(coordinator) <= now_ms) {
        effects_log(&coordinator->effects, true,
                    "step misses pushes that workers called complete  step=%llu next=again",
                    (unsigned long long)run->version);
        if (run->settings.async)
            window_doubt(run);
        else
            tickets_reopen(&run->tickets);
    }
    uint32_t lapsed = tickets_lapse(&run->tickets, now_ms, &due_ms);
    if (lapsed > 0)
        effects_log(&coordinator->effects, true, "leases lapsed  step=%llu leases=%u next=again",
                    (unsigned long long)run->version, lapsed);
    run_advance(coordinator, now_ms);
    uint64_t stall_ms = stall_due_ms(coordinator);
    due_ms = stall_ms < due_ms ? stall_ms : due_ms;
    if (run_ends(run) && run->ending.by_ms < due_ms)
        due_ms = run->ending.by_ms;
    *ret_due_ms = due_ms;
}

void run_check(struct coordinator *coordinator)
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
        check(run->tickets.steps == 0 || run->tickets.step == run->version);
    }
    check(run->cuts.newest.name.version <= run->version);
    check(all_acknowledged(coordinator) || run->commit.step + 1 == run->version);
    tickets_check(&run->tickets);
}
