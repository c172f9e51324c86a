/* How far the run is. */
#include "server/coordinator/steps.h"

#include <stdlib.h>

enum err steps_init(struct run *run)
{
    run->steps.seals = calloc(run->settings.delay + 1, sizeof *run->steps.seals);
    run->steps.behind = calloc(run->settings.slots, sizeof *run->steps.behind);
    if (run->steps.seals == NULL || run->steps.behind == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i <= run->settings.delay; i++)
        TRY(seal_init(&run->steps.seals[i], run->chunk_count));
    return ERR_OK;
}

void steps_release(struct run *run)
{
    for (uint32_t i = 0; run->steps.seals != NULL && i <= run->settings.delay; i++)
        seal_release(&run->steps.seals[i]);
    free(run->steps.seals);
    free(run->steps.behind);
    run->steps = (struct steps){0};
}

static struct seal *seal_of(struct run *run, uint64_t step)
{
    return &run->steps.seals[step % (run->settings.delay + 1)];
}

/* ---- going to a version ---- */

/* Of async a journal may have what a rewind leaves. */
static void note_undone(struct run *run, uint64_t version)
{
    if (!run->settings.async && (run->steps.committed || version > run->steps.undone))
        run->steps.undone = version;
}

void steps_rewind(struct run *run, const struct cut_record *cut)
{
    note_undone(run, run->steps.version);
    run->steps.version = cut->name.version;
    run->steps.counters = cut->counters;
    run->steps.granted_step = run->steps.version;
    run->steps.committed = false;
    for (uint32_t i = 0; i <= run->settings.delay; i++)
        seal_restart(&run->steps.seals[i]);
}

void steps_follow(struct run *run, const struct coordinator_past *past)
{
    steps_rewind(run, &past->cut);
    note_undone(run, past->recorded);
}

uint64_t steps_dropped(const struct run *run)
{
    const struct steps *steps = &run->steps;
    return steps->committed || steps->undone < steps->version ? steps->version : steps->undone;
}

/* The newest step with a ticket that the dead coordinator may have granted. P6: it may have decided
 * one step more than any server received, and tickets of `delay` steps behind that were open.
 * Without a delay no shard takes a push of such a step before its commit. */
static uint64_t newest_granted(const struct run *run)
{
    return run->steps.version + run->settings.delay + (run->settings.delay > 0 ? 1 : 0);
}

void steps_adopt(struct run *run, uint64_t version, const struct commit *decision, uint64_t term)
{
    check(decision == NULL || decision->step + 1 == version);
    run->steps.version = version;
    run->steps.granted_step = newest_granted(run);
    run->steps.committed = decision != NULL;
    run->steps.undone = 0; /* its servers hold all that was decided */
    if (decision == NULL)
        return; /* the run begins with the cut, and has the cut's counters */
    run->steps.counters =
        (struct seal_counters){decision->samples, decision->applied, decision->skips_in_row};
    run->steps.commit = *decision;
    run->steps.commit.term = term;
    /* A server that has not received it writes no file of that cut. */
    run->steps.commit.cut = false;
}

void steps_cut(struct run *run)
{
    check(run->steps.committed);
    run->steps.commit.cut = true;
}

void steps_raise_term(struct run *run, uint64_t term)
{
    run->steps.commit.term = term;
}

void steps_time(struct run *run, uint64_t now_ms)
{
    run->steps.committed_ms = now_ms;
}

void steps_granted(struct run *run, uint64_t step)
{
    check(run->settings.async || step - run->steps.version <= run->settings.delay);
    if (step > run->steps.granted_step)
        run->steps.granted_step = step;
}

/* ---- what is reduced ---- */

enum err steps_reduced(struct run *run, const struct reduced *reduced)
{
    check(reduced->step >= run->steps.version);
    check(reduced->step - run->steps.version <= run->settings.delay);
    return seal_add(seal_of(run, reduced->step), reduced);
}

void steps_unseal(struct run *run, uint32_t map_index)
{
    struct seal *seal = seal_of(run, run->steps.version);
    for (uint32_t chunk = 0; chunk < run->chunk_count; chunk++)
        if (map_server(&run->map, chunk) == map_index)
            seal_forget(seal, chunk);
}

/* ---- a step is decided ---- */

/* The versions that the step was computed on; stored before the commit is sent. */
static void note_order(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    run->steps.behind_most = tickets_behind(&run->tickets, run->steps.behind);
    if (run->settings.ssp)
        effects_add(&coordinator->effects, EFFECT_STORE_ORDER)->order =
            (struct order_step){.generation = run->generation,
                                .step = run->steps.version,
                                .slots = run->settings.slots,
                                .behind = run->steps.behind};
}

enum err steps_decide(struct coordinator *coordinator, struct commit *ret_commit,
                      struct seal_metrics *ret_metrics)
{
    struct run *run = &coordinator->run;
    struct seal *seal = seal_of(run, run->steps.version);
    struct commit commit;
    if (run->settings.async)
        seal_count(&run->settings.seal, &run->steps.counters, seal, &commit, ret_metrics);
    else
        TRY(seal_decide(&run->settings.seal, &run->steps.counters, seal, &commit, ret_metrics));
    note_order(coordinator);
    commit.generation = run->generation;
    commit.term = coordinator->settings.term;
    commit.step = run->steps.version;
    *ret_commit = commit;
    return ERR_OK;
}

void steps_take(struct run *run, const struct commit *commit)
{
    check(commit->step == run->steps.version);
    check(commit->generation == run->generation);
    run->steps.commit = *commit;
    run->steps.committed = true;
}

/* Members that share a lease are credited when it ends (places.c). */
static void give_credit(void *context, uint64_t member_id, uint32_t slots)
{
    struct coordinator *coordinator = context;
    struct member *member = members_find(&coordinator->members, member_id);
    if (member != NULL && coordinator->run.gangs.seats == 0)
        member->slots_done += slots;
}

/* The time that the step's slots took; async: of all slots done since the newest commit. */
static uint64_t slot_ms(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    const struct tickets_credit credit = {coordinator, give_credit};
    uint64_t before = run->steps.useful_before;
    uint64_t step_ms = tickets_settle(&run->tickets, now_ms, run->steps.version, &credit);
    if (!run->settings.async)
        return step_ms;
    run->steps.useful_before = run->tickets.useful_ms;
    return run->tickets.useful_ms - before;
}

const struct step_row *steps_report(struct coordinator *coordinator, uint64_t now_ms,
                                    const struct seal_metrics *metrics)
{
    struct run *run = &coordinator->run;
    const struct tickets *tickets = &run->tickets;
    run->steps.last_step = (struct step_row){
        .step = run->steps.commit.step,
        .generation = run->generation,
        .samples = run->steps.counters.samples,
        .step_samples = run->settings.seal.schedule.step_samples,
        .slots = run->settings.slots,
        .metrics = *metrics,
        .behind = run->steps.behind_most,
        .skipped = !run->steps.commit.apply,
        .workers = coordinator->members.count,
        .redone = (uint32_t)(tickets->redone - run->steps.redone_before),
        .speculative = (uint32_t)(tickets->speculative - run->steps.speculative_before),
        .audited = (uint32_t)(tickets->audited - run->steps.audited_before),
        .duration_ms = now_ms - run->steps.committed_ms,
        .slot_ms = slot_ms(coordinator, now_ms),
    };
    run->steps.redone_before = tickets->redone;
    run->steps.speculative_before = tickets->speculative;
    run->steps.audited_before = tickets->audited;
    run->steps.committed_ms = now_ms;
    run->steps.skipped += run->steps.last_step.skipped ? 1 : 0;
    effects_add(&coordinator->effects, EFFECT_STEP)->step = run->steps.last_step;
    return &run->steps.last_step;
}

void steps_next(struct run *run)
{
    check(run->steps.committed && run->steps.commit.step == run->steps.version);
    seal_restart(seal_of(run, run->steps.version));
    run->steps.version++;
}
