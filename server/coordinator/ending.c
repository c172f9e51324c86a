/* How a run ends. */
#include "server/coordinator/ending.h"

#include "server/coordinator/leaving.h"
#include "server/coordinator/phase.h"
#include "server/coordinator/send.h"
#include "server/coordinator/steps.h"
#include "server/coordinator/succession.h"
#include "server/coordinator/tickets.h"

/* The store keeps the run as training. */
static void pause_now(struct coordinator *coordinator, const char *reason)
{
    struct run *run = &coordinator->run;
    phase_enter(run, PHASE_NONE);
    tickets_open(&run->tickets, (struct tickets_open){0});
    effects_log(&coordinator->effects, false,
                "run paused  run=%llu version=%llu generation=%llu checkpoint=%llu reason=\"%s\" "
                "next=go on when the daemon is back",
                (unsigned long long)run->settings.run, (unsigned long long)run->steps.version,
                (unsigned long long)run->generation,
                (unsigned long long)run->cuts.newest.name.version, reason);
}

void ending_over(struct coordinator *coordinator, enum run_state state, const char *reason)
{
    struct run *run = &coordinator->run;
    if (run->ending.kind == ENDING_PAUSE && state == RUN_STOPPED) {
        pause_now(coordinator, reason);
        return;
    }
    phase_enter_state(run, state);
    phase_enter(run, PHASE_NONE);
    snprintf(run->reason, sizeof run->reason, "%s", reason);
    send_state(coordinator);
    run->end_late = true;
    tickets_open(&run->tickets, (struct tickets_open){0});
    for (uint32_t i = 0; i < coordinator->servers.count; i++)
        if (coordinator->servers.list[i].link != 0)
            send_command(coordinator, &coordinator->servers.list[i], SERVER_END);
    servers_unchoose(&coordinator->servers);
    static const char *const words[RUN_STATE_COUNT] = {
        [RUN_ENDED] = "ended", [RUN_STOPPED] = "stopped", [RUN_FAILED] = "failed"};
    effects_log(&coordinator->effects, state == RUN_FAILED,
                "run %s  run=%llu version=%llu generation=%llu checkpoint=%llu reason=\"%s\"",
                words[state], (unsigned long long)run->settings.run,
                (unsigned long long)run->steps.version, (unsigned long long)run->generation,
                (unsigned long long)run->cuts.newest.name.version, reason);
}

void ending_stored(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    if (run_active(run) || !run->end_late)
        return;
    run->end_late = false;
    send_answer_all(coordinator, ERR_OK, &(struct acquire_reply){.result = ACQUIRE_END});
    send_over(coordinator, 0);
    leaving_let_go(coordinator);
}

void ending_begin(struct coordinator *coordinator, uint64_t now_ms, enum ending_kind kind,
                  const char *why)
{
    struct run *run = &coordinator->run;
    struct ending *ending = &run->ending;
    bool ends = run_ends(run);
    if (!ends || kind == ENDING_PAUSE)
        ending->kind = kind;
    if (ends) {
        run_due(coordinator, ending->by_ms); /* a pause does not wait for room */
        return;
    }
    /* Where nobody computes, no step is in flight but one that servers still add up. Of async the
     * last pushes may be under way. */
    bool in_flight = run->phase != PHASE_STEPS || coordinator->members.count > 0 ||
                     run->settings.async || tickets_all_done(&run->tickets, TICKET_TRAIN);
    ending->by_ms = now_ms + (in_flight ? coordinator->settings.stop_ms : 1);
    snprintf(ending->reason, sizeof ending->reason, "%s", why);
    run_due(coordinator, ending->by_ms);
    effects_log(&coordinator->effects, false, "run stops  version=%llu reason=\"%s\"",
                (unsigned long long)run->steps.version, why);
}

void ending_inherit(struct coordinator *coordinator, uint64_t now_ms, const char *why)
{
    coordinator->run.ending.stop_stored = true;
    ending_begin(coordinator, now_ms, ENDING_STOP, why);
}

/* Also where the daemon ends, and the run pauses: then the successor stops it. */
static void store_stop(struct coordinator *coordinator, const char *why)
{
    struct ending *ending = &coordinator->run.ending;
    if (ending->stop_stored)
        return;
    ending->stop_stored = true;
    struct effect *effect = effects_add(&coordinator->effects, EFFECT_STORE_STOP);
    snprintf(effect->stop, sizeof effect->stop, "%s", why);
}

void ending_stop(struct coordinator *coordinator, uint64_t now_ms, const char *why)
{
    store_stop(coordinator, why);
    if (ending_waits_for_room(&coordinator->run) && run_ends(&coordinator->run))
        ending_now(coordinator); /* asked again: it waits for room no longer */
    else
        ending_begin(coordinator, now_ms, ENDING_STOP, why);
}

/* A stop needs no further step when the run's version is a cut, or will be. */
static void try_last(struct run *run)
{
    if (run->phase != PHASE_STEPS || !run_ends(run))
        return;
    struct cut_name here = {run->generation, run->steps.version};
    if (run->cuts.newest.name.version != run->steps.version && !cuts_ordered(&run->cuts, here))
        return;
    tickets_open(&run->tickets, (struct tickets_open){0});
    phase_enter(run, PHASE_LAST);
}

/* P7: an operator's call waits until a new coordinator knows what its servers hold. P9: the last
 * cut has nothing of what is to be undone. */
bool ending_is_due_in_gather(const struct run *run)
{
    bool open = succession_is_open(run) || run->rewind.wanted;
    return run->phase == PHASE_GATHER && run_ends(run) &&
           (run->ending.kind == ENDING_PAUSE || !open);
}

/* Whether the newest commit may bring a cut that it was sent without. Of async no version is cut as it
 * is: pushes have changed its weights since. */
static bool may_cut_newest(const struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    bool soon = run->ending.kind == ENDING_STOP || servers_connected(&coordinator->servers);
    return run->phase == PHASE_STEPS && !run->settings.async && run->steps.committed && soon &&
           succession_files_stay(coordinator);
}

bool ending_cut_newest(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    struct cut_name newest = {run->generation, run->steps.version};
    bool ordered = run->phase == PHASE_LAST &&
                   (cuts_ordered(&run->cuts, newest) || cuts_same(run->cuts.waiting, newest));
    if (run->ending.cuts_again || (!ordered && !may_cut_newest(coordinator)))
        return false;
    run->ending.cuts_again = true;
    run->ending.by_ms = now_ms + coordinator->settings.stop_ms;
    run_due(coordinator, run->ending.by_ms);
    if (ordered)
        return true;
    tickets_open(&run->tickets, (struct tickets_open){0});
    phase_enter(run, PHASE_LAST);
    succession_cut_newest(coordinator, now_ms);
    return true;
}

bool ending_waits_for_room(const struct run *run)
{
    return cuts_waits(&run->cuts) && run->cuts.fails > 0;
}

/* A successor may go on with what a pause leaves on servers. */
static uint64_t version_dropped(const struct run *run)
{
    return run->ending.kind == ENDING_PAUSE ? run->steps.version : steps_dropped(run);
}

/* Stops at once. Steps after the newest cut are lost, and the reason names them. */
void ending_now(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    uint64_t cut = run->cuts.newest.name.version, dropped = version_dropped(run);
    char text[COORDINATOR_TEXT_BYTES];
    snprintf(text, sizeof text, "%.100s", run->ending.reason);
    if (dropped > cut)
        snprintf(text, sizeof text,
                 "%.100s; version %llu is dropped, the newest checkpoint is of version %llu",
                 run->ending.reason, (unsigned long long)dropped, (unsigned long long)cut);
    ending_over(coordinator, RUN_STOPPED, text);
}

/* A pause stops the validation of the run's last version: a successor makes it. */
static bool owes_validation(const struct run *run)
{
    const struct validation_row *last = &run->last_validation;
    return run->ending.kind == ENDING_PAUSE && run->validation.piece_count > 0 &&
           (last->version != run->steps.version || last->generation != run->generation);
}

/* P9: a run ends when its last version's cut is recorded. Whether it is. */
static void try_over(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    if (ending_is_due_in_gather(run) ||
        (run_ends(run) && run->phase >= PHASE_STORE && run->phase <= PHASE_FIRST_CUT)) {
        ending_now(coordinator);
        return;
    }
    if (run->phase != PHASE_LAST || run->validation.running ||
        run->cuts.newest.name.version != run->steps.version)
        return;
    if (run->steps.version == run->settings.steps && !owes_validation(run))
        ending_over(coordinator, RUN_ENDED, "");
    else
        ending_over(coordinator, RUN_STOPPED, run->ending.reason);
}

void ending_try(struct coordinator *coordinator)
{
    try_last(&coordinator->run);
    try_over(coordinator);
}
