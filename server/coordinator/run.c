/* The run's states. */
#include "server/coordinator/run.h"

#include "server/coordinator/generation.h"
#include "server/coordinator/leaving.h"
#include "server/coordinator/moves.h"
#include "server/coordinator/send.h"
#include "server/coordinator/succession.h"
#include "server/coordinator/window.h"

#include <stdlib.h>
#include <string.h>

enum { STALL_LEASES = 3 /* all slots done and no seal for so many lease_ms: done again */ };

void run_release(struct run *run)
{
    map_release(&run->map);
    moves_release(&run->moves);
    succession_release(&run->succession);
    for (uint32_t i = 0; run->seals != NULL && i <= run->settings.delay; i++)
        seal_release(&run->seals[i]);
    free(run->seals);
    window_release(run);
    free(run->behind);
    tickets_release(&run->tickets);
    validation_release(&run->validation);
    cuts_release(&run->cuts);
    *run = (struct run){0};
}

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

/* ---- the end ---- */

/* Stored it is still training. */
static void pause_now(struct coordinator *coordinator, const char *reason)
{
    struct run *run = &coordinator->run;
    run->phase = PHASE_NONE;
    tickets_open(&run->tickets, (struct tickets_open){0});
    effects_log(&coordinator->effects, false,
                "run paused  run=%llu version=%llu generation=%llu cut=%llu reason=\"%s\" "
                "next=go on when the daemon is back",
                (unsigned long long)run->settings.run, (unsigned long long)run->version,
                (unsigned long long)run->generation,
                (unsigned long long)run->cuts.newest.name.version, reason);
}

void run_over(struct coordinator *coordinator, enum run_state state, const char *reason)
{
    struct run *run = &coordinator->run;
    if (run->pausing && state == RUN_STOPPED) {
        pause_now(coordinator, reason);
        return;
    }
    run->state = state;
    run->phase = PHASE_NONE;
    snprintf(run->reason, sizeof run->reason, "%s", reason);
    send_state(coordinator);
    tickets_open(&run->tickets, (struct tickets_open){0});
    for (uint32_t i = 0; i < coordinator->servers.count; i++)
        if (coordinator->servers.list[i].link != 0)
            send_command(coordinator, &coordinator->servers.list[i], SERVER_END);
    servers_unchoose(&coordinator->servers);
    leaving_let_go(coordinator);
    send_answer_all(coordinator, ERR_OK, &(struct acquire_reply){.result = ACQUIRE_END});
    send_over(coordinator);
    static const char *const words[RUN_STATE_COUNT] = {
        [RUN_ENDED] = "ended", [RUN_STOPPED] = "stopped", [RUN_FAILED] = "failed"};
    effects_log(&coordinator->effects, state == RUN_FAILED,
                "run %s  run=%llu version=%llu generation=%llu cut=%llu reason=\"%s\"",
                words[state], (unsigned long long)run->settings.run,
                (unsigned long long)run->version, (unsigned long long)run->generation,
                (unsigned long long)run->cuts.newest.name.version, reason);
}

/* ---- start and stop ---- */

static uint32_t piece_count(const struct coordinator_run *settings)
{
    uint64_t k = settings->slot_samples;
    return (uint32_t)((settings->validation_samples + k - 1) / k);
}

static enum err settings_check(const struct coordinator_run *settings, uint32_t *ret_chunk_count,
                               struct reason *reason)
{
    struct map map;
    if (settings->slots == 0 || settings->slots > TREE_SLOTS_MAX || settings->slot_samples == 0)
        return reason_set(reason, ERR_INVALID, "a step of %u slots of %u samples cannot be",
                          settings->slots, settings->slot_samples);
    if (settings->validation_samples / settings->slot_samples >= TREE_SLOTS_MAX)
        return reason_set(reason, ERR_INVALID,
                          "%llu held-out samples are more than %u tickets of %u samples; "
                          "lower train.validation_samples",
                          (unsigned long long)settings->validation_samples,
                          (unsigned)TREE_SLOTS_MAX, settings->slot_samples);
    if (map_build(settings->parameters, settings->parameter_count, 1, settings->parameter_bytes_max,
                  &map) != ERR_OK)
        return reason_set(reason, ERR_INVALID, "the model's parameters are no grid of chunks");
    *ret_chunk_count = map.chunk_count;
    map_release(&map);
    return ERR_OK;
}

/* The same run, of which nothing has been committed since it was started here: a successor that
 * goes on by itself gives way to an operator who resumes with other settings. */
static bool replaceable(const struct run *run, const struct coordinator_run *settings)
{
    return run->settings.run == settings->run && !run->committed;
}

enum err run_may_start(const struct run *active, const struct coordinator_run *settings,
                       uint32_t *ret_chunk_count, struct reason *reason)
{
    if (run_active(active) && !replaceable(active, settings))
        return reason_set(reason, ERR_EXISTS, "run %llu is still active",
                          (unsigned long long)active->settings.run);
    return settings_check(settings, ret_chunk_count, reason);
}

static enum err allocate(struct run *run, const struct coordinator_settings *settings,
                         const struct coordinator_past *past)
{
    const struct tickets_settings tickets = {
        .slots = run->settings.slots,
        .open_steps = run->settings.async ? window_steps(&run->settings) : run->settings.delay + 1,
        .attempts_first = settings->term << 32, /* never the same again, whatever the term */
        .delay = run->settings.delay,
        .newest = run->settings.ssp,
        .pieces = piece_count(&run->settings),
        .node_slots = run->settings.node_slots,
        .leases_max = COORDINATOR_MEMBERS_MAX * COORDINATOR_LEASES_MAX,
        .lease_ms = settings->lease_ms,
        .overdue_percent = settings->speculation_percent,
        .overdue_ms_min = settings->speculation_ms_min,
    };
    run->seals = calloc(run->settings.delay + 1, sizeof *run->seals);
    run->behind = calloc(run->settings.slots, sizeof *run->behind);
    if (run->seals == NULL || run->behind == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i <= run->settings.delay; i++)
        TRY(seal_init(&run->seals[i], run->chunk_count));
    TRY(window_init(run));
    TRY(cuts_init(&run->cuts, past != NULL ? &past->cut : NULL));
    TRY(tickets_init(&run->tickets, &tickets));
    return validation_init(&run->validation, tickets.pieces);
}

enum err run_start(struct coordinator *coordinator, uint64_t now_ms,
                   const struct coordinator_run *settings, const struct coordinator_past *past,
                   struct reason *reason)
{
    struct run run = {.state = RUN_STARTING, .phase = PHASE_GATHER, .settings = *settings};
    TRY(run_may_start(&coordinator->run, settings, &run.chunk_count, reason));
    enum err err = allocate(&run, &coordinator->settings, past);
    if (err != ERR_OK) {
        run_release(&run);
        return reason_set(reason, err, "out of memory for the run's tables");
    }
    if (past != NULL) {
        run.generation = past->generation;
        run.version = past->cut.name.version;
        run.counters = past->cut.counters;
        run.has_fingerprint = past->has_fingerprint;
        memcpy(run.fingerprint, past->fingerprint, sizeof run.fingerprint);
    }
    if (coordinator->run.settings.run != settings->run)
        members_dismiss(&coordinator->members, "another run was started");
    run_release(&coordinator->run);
    coordinator->run = run;
    servers_unchoose(&coordinator->servers);
    succession_begin(coordinator, now_ms, past);
    send_state(coordinator);
    run_advance(coordinator, now_ms);
    return ERR_OK;
}

void run_stop(struct coordinator *coordinator, uint64_t now_ms, const char *why)
{
    struct run *run = &coordinator->run;
    if (run->stopping)
        return;
    run->stopping = true;
    run->stop_by_ms = now_ms + coordinator->settings.stop_ms;
    snprintf(run->stop_reason, sizeof run->stop_reason, "%s", why);
    run_due(coordinator, run->stop_by_ms);
    effects_log(&coordinator->effects, false, "run stops  version=%llu reason=\"%s\"",
                (unsigned long long)run->version, why);
    run_advance(coordinator, now_ms);
}

/* ---- commit ---- */

static bool validation_due(const struct run *run)
{
    const struct coordinator_run *settings = &run->settings;
    if (run->validation.piece_count == 0 || run->stopping)
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
    return run->cut_asked || run->stopping || version == settings->steps ||
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
        run_over(coordinator, RUN_FAILED, text);
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
        run_over(coordinator, RUN_FAILED, "out of memory for a cut's map");
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
    if (run->stopping)
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

/* A stop needs no further step when the version it stands on is a cut, or will be. */
static void try_last(struct run *run)
{
    if (run->phase != PHASE_STEPS || !run->stopping)
        return;
    struct cut_name here = {run->generation, run->version};
    if (run->cuts.newest.name.version != run->version && !cuts_ordered(&run->cuts, here))
        return;
    tickets_open(&run->tickets, (struct tickets_open){0});
    run->phase = PHASE_LAST;
}

/* A stop that need not wait for servers. P7: an operator's call waits until a new coordinator knows
 * what they hold. */
static bool stops_in_gather(const struct run *run)
{
    return run->phase == PHASE_GATHER && run->stopping &&
           (run->pausing || !succession_is_open(run));
}

/* As it stands. What is newer than the newest cut is lost, and said to be. */
static void stop_now(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    uint64_t cut = run->cuts.newest.name.version;
    char text[COORDINATOR_TEXT_BYTES];
    snprintf(text, sizeof text, "%.100s", run->stop_reason);
    if (run->version > cut)
        snprintf(text, sizeof text,
                 "%.100s; version %llu is dropped, the newest cut is of version %llu",
                 run->stop_reason, (unsigned long long)run->version, (unsigned long long)cut);
    run_over(coordinator, RUN_STOPPED, text);
}

/* What training is over with: the cut of the version it stands on, recorded (P9). */
static void try_over(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    if (stops_in_gather(run) ||
        (run->stopping && (run->phase == PHASE_PREPARE || run->phase == PHASE_FIRST_CUT))) {
        stop_now(coordinator);
        return;
    }
    if (run->phase != PHASE_LAST || run->validating ||
        run->cuts.newest.name.version != run->version)
        return;
    if (run->version == run->settings.steps)
        run_over(coordinator, RUN_ENDED, "");
    else
        run_over(coordinator, RUN_STOPPED, run->stop_reason);
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
        run_over(coordinator, RUN_FAILED, "out of memory for the chunk map");
    else if (gathering == GATHER_GOES_ON)
        run_open_version(coordinator);
}

static void change_servers(struct coordinator *coordinator, uint64_t now_ms)
{
    if (moves_change_is_due(coordinator) && generation_change(coordinator, now_ms) != ERR_OK)
        run_over(coordinator, RUN_FAILED, "out of memory for a cut's map");
}

void run_advance(struct coordinator *coordinator, uint64_t now_ms)
{
    if (coordinator->run.phase == PHASE_GATHER && !stops_in_gather(&coordinator->run))
        gather(coordinator, now_ms);
    finish_validation(coordinator);
    leaving_let_go(coordinator);
    moves_invite(coordinator);
    change_servers(coordinator, now_ms);
    try_commit(coordinator, now_ms);
    try_last(&coordinator->run);
    try_over(coordinator);
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
    if (run->stopping && run->stop_by_ms <= now_ms) {
        stop_now(coordinator);
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
    if (run->stopping && run->stop_by_ms < due_ms)
        due_ms = run->stop_by_ms;
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
