/* A run starts. */
#include "server/coordinator/start.h"

#include "server/coordinator/audit_rewind.h"
#include "server/coordinator/audits.h"
#include "server/coordinator/ending.h"
#include "server/coordinator/generation.h"
#include "server/coordinator/leaving.h"
#include "server/coordinator/moves.h"
#include "server/coordinator/said.h"
#include "server/coordinator/send.h"
#include "server/coordinator/steps.h"
#include "server/coordinator/succession.h"
#include "server/coordinator/window.h"

#include <stdlib.h>
#include <string.h>

void start_release(struct run *run)
{
    map_release(&run->map);
    moves_release(&run->moves);
    succession_release(&run->succession);
    steps_release(run);
    window_release(run);
    audits_release(run);
    said_release(run);
    tickets_release(&run->tickets);
    gangs_release(&run->gangs);
    validation_release(&run->validation);
    cuts_release(&run->cuts);
    *run = (struct run){0};
}

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
    return run->settings.run == settings->run && !run->steps.committed;
}

/* A run of fewer steps than its checkpoint has would never reach its end, and would prune the
 * checkpoint of the longer run. */
static enum err judge_past(const struct coordinator_run *settings,
                           const struct coordinator_past *past, struct reason *reason)
{
    if (past == NULL || past->cut.name.version <= settings->steps)
        return ERR_OK;
    return reason_set(reason, ERR_INVALID,
                      "train.steps is %llu, but the newest checkpoint is of step %llu already; "
                      "raise train.steps to train on",
                      (unsigned long long)settings->steps,
                      (unsigned long long)past->cut.name.version);
}

static enum err is_active(const struct run *active, struct reason *reason)
{
    return reason_set(reason, ERR_BUSY,
                      "run %llu is still active: `roost watch` shows it, `roost stop` ends it "
                      "after a checkpoint",
                      (unsigned long long)active->settings.run);
}

enum err start_judge_any(const struct run *active, struct reason *reason)
{
    return run_active(active) && active->steps.committed ? is_active(active, reason) : ERR_OK;
}

enum err start_judge(const struct run *active, const struct coordinator_run *settings,
                     const struct coordinator_past *past, uint32_t *ret_chunk_count,
                     struct reason *reason)
{
    if (run_active(active) && !replaceable(active, settings))
        return is_active(active, reason);
    TRY(judge_past(settings, past, reason));
    return settings_check(settings, ret_chunk_count, reason);
}

static enum err allocate(struct run *run, const struct coordinator_settings *settings,
                         const struct coordinator_past *past)
{
    uint32_t ranks = run->settings.place_ranks > 1 ? run->settings.place_ranks : 1;
    bool shared = run->settings.place_count * ranks > 1;
    const struct tickets_settings tickets = {
        .slots = run->settings.slots,
        .open_steps =
            run->settings.async ? window_steps(&run->settings) + 1 : run->settings.delay + 1,
        .attempts_first = settings->term << 32, /* above those of all terms before */
        .delay = run->settings.delay,
        .newest = run->settings.ssp,
        .pieces = piece_count(&run->settings),
        .node_slots = run->settings.node_slots,
        .chosen_max = run->settings.chosen_slots_max,
        .leases_max = COORDINATOR_MEMBERS_MAX * COORDINATOR_LEASES_MAX,
        .shared = shared,
        .lease_ms = settings->lease_ms,
        .overdue_percent = settings->speculation_percent,
        .overdue_ms_min = settings->speculation_ms_min,
    };
    TRY(steps_init(run));
    TRY(window_init(run));
    TRY(audits_init(run));
    TRY(said_init(run));
    TRY(cuts_init(&run->cuts, past != NULL ? &past->cut : NULL));
    TRY(tickets_init(&run->tickets, &tickets));
    TRY(gangs_init(&run->gangs, shared ? run->settings.place_count : 0, ranks,
                   COORDINATOR_MEMBERS_MAX * COORDINATOR_LEASES_MAX, settings->term << 32));
    return validation_init(&run->validation, tickets.pieces);
}

/* Nobody waits for an answer of the run before, whose end the store may not have. */
static void dismiss_members(struct coordinator *coordinator)
{
    struct members *members = &coordinator->members;
    send_answer_all(coordinator, ERR_UNKNOWN_MEMBER, NULL);
    for (uint32_t i = members->count; i-- > 0;)
        effects_add(&coordinator->effects, EFFECT_EXPEL)->member = members->list[i]->id;
    members_dismiss(members, "another run was started");
}

enum err start_run(struct coordinator *coordinator, uint64_t now_ms,
                   const struct coordinator_run *settings, const struct coordinator_past *past,
                   struct reason *reason)
{
    struct run run = {.state = RUN_STARTING, .phase = PHASE_GATHER, .settings = *settings};
    TRY(start_judge(&coordinator->run, settings, past, &run.chunk_count, reason));
    enum err err = allocate(&run, &coordinator->settings, past);
    if (err != ERR_OK) {
        start_release(&run);
        return reason_set(reason, err, "out of memory for the run's tables");
    }
    if (past != NULL) {
        run.generation = past->generation;
        run.settings.servers_min = generation_servers_min(settings, &past->cut);
        steps_follow(&run, past);
        run.has_fingerprint = past->has_fingerprint;
        memcpy(run.fingerprint, past->fingerprint, sizeof run.fingerprint);
    }
    if (coordinator->run.settings.run != settings->run)
        dismiss_members(coordinator);
    members_forget_killed(&coordinator->members); /* stages may be others */
    /* It may be the same run, which goes on in the term in which it was stopped. */
    leases_number_above(&run.tickets.leases, coordinator->run.tickets.leases.attempts);
    start_release(&coordinator->run);
    coordinator->run = run;
    coordinator->convictions = past != NULL ? past->convictions : (struct convictions){0};
    audit_rewind_resume(coordinator);
    servers_unchoose(&coordinator->servers);
    servers_expect_all(&coordinator->servers);
    leaving_keep(coordinator);
    succession_begin(coordinator, now_ms, past);
    send_state(coordinator);
    if (past != NULL && past->stops)
        ending_inherit(coordinator, now_ms, past->stop);
    return ERR_OK;
}
