/* The coordinator's decision of a step. */
#include "server/coordinator/commit.h"

#include "server/coordinator/audits.h"
#include "server/coordinator/brought.h"
#include "server/coordinator/ending.h"
#include "server/coordinator/generation.h"
#include "server/coordinator/leaving.h"
#include "server/coordinator/moves.h"
#include "server/coordinator/phase.h"
#include "server/coordinator/said.h"
#include "server/coordinator/send.h"
#include "server/coordinator/steps.h"
#include "server/coordinator/window.h"

#include <string.h>

static bool validation_is_due(const struct run *run)
{
    const struct coordinator_run *settings = &run->settings;
    if (run->validation.piece_count == 0 || run_ends(run))
        return false;
    if (run->steps.version == settings->steps)
        return true;
    return run->steps.version > 0 && settings->validate_every > 0 &&
           run->steps.version % settings->validate_every == 0;
}

/* The number of open steps that somebody has begun, at least 1. P11: a chunk leaves with no open
 * sums, so chunks move only when that number is 1. */
static uint32_t steps_begun(const struct run *run)
{
    return run->steps.granted_step > run->steps.version
               ? (uint32_t)(run->steps.granted_step - run->steps.version) + 1
               : 1;
}

void commit_open_version(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    check(run->cuts.newest.name.generation > 0); /* P9: a cut is recorded before the first grant */
    check(run->steps.version <= run->settings.steps);
    uint64_t left = run->settings.steps - run->steps.version;
    uint32_t steps = left > run->settings.delay ? run->settings.delay + 1 : (uint32_t)left;
    if (moves_wanted(coordinator))
        steps = steps_begun(run) < steps ? steps_begun(run) : steps;
    validation_begin(&run->validation, validation_is_due(run));
    struct tickets_open open = {.version = run->steps.version,
                                .step = run->steps.version,
                                .steps = steps,
                                .validate = run->validation.running};
    if (run->settings.async && steps > 0) {
        open.step = run->tickets.step; /* the open steps stay the same */
        open.steps = run->tickets.steps;
    }
    tickets_open(&run->tickets, open);
    if (run->settings.async && steps > 0) {
        ignore(moves_limit(coordinator)); /* the window is opened again in any case */
        window_open(run);
    }
    phase_enter(run, steps > 0 ? PHASE_STEPS : PHASE_LAST);
}

static bool cut_due(const struct run *run, uint64_t version)
{
    const struct coordinator_run *settings = &run->settings;
    return cuts_asked(&run->cuts, version) || run_ends(run) || version == settings->steps ||
           (settings->cut_every > 0 && version % settings->cut_every == 0 &&
            !cuts_full(&run->cuts));
}

static void tell_commit(struct coordinator *coordinator)
{
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++) {
        struct server_entry *server = servers_active(&coordinator->servers, i);
        if (server == NULL)
            continue;
        servers_tell_new_commit(server);
        send_commit(coordinator, server);
    }
}

/* The newest commit is sent again, with another attempt at its cut: servers carry out the rest of
 * it once. One that a successor has adopted was sent without its cut before. */
enum err commit_cut_again(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    check(run->phase == PHASE_LAST && run->steps.committed); /* P9: nothing is open */
    steps_cut(run);
    TRY(generation_order_cut(coordinator, run->steps.version));
    cuts_try_again(&run->cuts);
    tell_commit(coordinator);
    return ERR_OK;
}

enum { NAMES_BYTES = COORDINATOR_TEXT_BYTES / 2 };

/* The first of these names, as many as there is room for; of how many. */
static uint32_t put_names(const char *const *names, uint32_t count,
                          char ret_text[static NAMES_BYTES])
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (bytes > 0 && bytes + 1 + strlen(names[i]) >= NAMES_BYTES)
            return i;
        bytes += (size_t)snprintf(ret_text + bytes, NAMES_BYTES - bytes, "%s%s",
                                  bytes > 0 ? "," : "", names[i]);
    }
    return count;
}

/* Whoever had a ticket of the step, or a place of one, may have pushed, also when it is gone. */
static uint32_t list_names(const struct members *members, uint64_t step, const char **ret_names,
                           uint32_t max)
{
    uint32_t count = 0;
    const struct member *member;
    for (uint32_t i = 0; count < max && (member = members_at(members, i)) != NULL; i++)
        if (brought_from(&member->brought, step) == step)
            ret_names[count++] = member->own.name;
    return count;
}

/* Sums do not tell whose part was not finite: the log names all who had one, in several lines where
 * they are many. Over some skipped steps a machine that is wrong is the one that all of them have. */
static void log_skipped(struct coordinator *coordinator)
{
    enum { NAMED_MAX = 256 };
    const struct run *run = &coordinator->run;
    const char *names[NAMED_MAX];
    uint32_t count = list_names(&coordinator->members, run->steps.version, names, NAMED_MAX);
    uint32_t named = 0;
    do {
        char text[NAMES_BYTES] = "";
        named += put_names(names + named, count - named, text);
        effects_log(&coordinator->effects, true,
                    "step not finite  step=%llu in_row=%llu brought_by=%s next=none of its changes",
                    (unsigned long long)run->steps.version,
                    (unsigned long long)run->steps.counters.skips_in_row,
                    text[0] != 0 ? text : "-");
    } while (named < count);
}

/* Decides step `version`: nothing of it is missing. */
static void decide(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    struct seal_metrics metrics;
    struct commit commit;
    moves_arrived(coordinator);
    enum err err = steps_decide(coordinator, &commit, &metrics);
    if (err != ERR_OK || !commit.apply)
        log_skipped(coordinator);
    if (err != ERR_OK) {
        char text[COORDINATOR_TEXT_BYTES];
        snprintf(text, sizeof text,
                 "step %llu is not finite, number %llu in a row (train.skip_max)",
                 (unsigned long long)run->steps.version,
                 (unsigned long long)run->steps.counters.skips_in_row);
        ending_over(coordinator, RUN_FAILED, text);
        return;
    }
    check(seal_complete(run_seal(run, commit.step))); /* P1: the shards say that it is done */
    commit.cut = cut_due(run, run->steps.version + 1) || leaving_needs_cut(coordinator) ||
                 moves_need_cut(coordinator);
    steps_take(run, &commit);
    moves_plan(coordinator);
    if (commit.cut && generation_order_cut(coordinator, run->steps.version + 1) != ERR_OK) {
        ending_over(coordinator, RUN_FAILED, "out of memory for a checkpoint's map");
        return;
    }
    if (commit.cut)
        cuts_ask_done(&run->cuts);
    /* P7: a successor adopts any decision that a shard holds. So the step's row comes before the
     * commit. */
    moves_count_step(run, steps_report(coordinator, now_ms, &metrics)->duration_ms);
    tell_commit(coordinator);
    if (run->moves.count > 0)
        audits_moved(run, commit.step);
    moves_apply(coordinator);
    steps_next(run);
    audits_decided(coordinator, commit.step);
    said_decided(run, commit.step);
    if (run->settings.async)
        window_sealed(run, commit.step);
    commit_open_version(coordinator);
}

bool commit_is_acknowledged(const struct coordinator *coordinator)
{
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++) {
        const struct server_entry *server = servers_active(&coordinator->servers, i);
        if (server != NULL && !server->acknowledged)
            return false;
    }
    return true;
}

void commit_stop_validation(struct run *run)
{
    if (!run->validation.running)
        return;
    validation_stop(&run->validation);
    tickets_stop_validation(&run->tickets);
}

void commit_finish_validation(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    if (run_ends(run))
        commit_stop_validation(run);
    if (!run->validation.running || !validation_complete(&run->validation))
        return;
    struct validation_result sum = validation_sum(&run->validation);
    check(sum.sample_count > 0);
    double predictions = (double)sum.sample_count * run->settings.seal.sample_predictions;
    run->last_validation = (struct validation_row){
        .version = run->steps.version,
        .generation = run->generation,
        .samples = sum.sample_count,
        .loss = sum.loss_sum / (double)sum.sample_count,
        .accuracy = (double)sum.correct_count / predictions,
        .slot_ms = run->tickets.validate.useful_ms,
    };
    commit_stop_validation(run);
    effects_add(&coordinator->effects, EFFECT_VALIDATION)->validation = run->last_validation;
}

void commit_try(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    if (run->phase != PHASE_STEPS || run->validation.running ||
        !seal_complete(run_seal(run, run->steps.version)) || !commit_is_acknowledged(coordinator) ||
        !servers_connected(&coordinator->servers))
        return;
    decide(coordinator, now_ms);
}
