/* Going back to before what a convicted worker brought. */
#include "server/coordinator/audit_rewind.h"

#include "server/coordinator/suspects.h"

/* The first step that the worker brought since its last agreeing audit; UINT64_MAX: none. */
static uint64_t first_brought(const struct members *members, const struct member *member)
{
    const struct suspects_brought all = suspects_brought(members, member);
    return brought_from(&all.brought, all.confirmed);
}

bool audit_rewind_begin(struct coordinator *coordinator, const struct member *member)
{
    struct run *run = &coordinator->run;
    struct audit_rewind *rewind = &run->rewind;
    uint64_t first = first_brought(&coordinator->members, member);
    if (!run->settings.audit_rewind || first == UINT64_MAX)
        return false;
    bool further = !rewind->wanted || first < rewind->version_max;
    if (further) /* of two that are convicted the earlier step counts */
        *rewind = (struct audit_rewind){.wanted = true, .version_max = first};
    effects_log(&coordinator->effects, true,
                "run goes back  worker=%.40s before_step=%llu version=%llu "
                "reason=\"train.audit_rewind\"",
                member->own.name, (unsigned long long)first,
                (unsigned long long)run->steps.version);
    cuts_forget(&run->cuts);
    return true;
}

void audit_rewind_resume(struct coordinator *coordinator)
{
    struct audit_rewind *rewind = &coordinator->run.rewind;
    *rewind = (struct audit_rewind){0};
    if (!coordinator->run.settings.audit_rewind ||
        !convictions_undo(&coordinator->convictions, &rewind->version_max))
        return;
    rewind->wanted = true;
    effects_log(
        &coordinator->effects, true,
        "run goes back  before_step=%llu reason=\"train.audit_rewind, which the coordinator "
        "before did not come to\"",
        (unsigned long long)rewind->version_max);
}

bool audit_rewind_waits(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    struct audit_rewind *rewind = &run->rewind;
    check(!cuts_are_written(&run->cuts));
    if (rewind->wanted && run->cuts.newest.name.version <= rewind->version_max)
        *rewind = (struct audit_rewind){0};
    if (!rewind->wanted || rewind->searching)
        return rewind->wanted;
    rewind->searching = true;
    struct effect *effect = effects_add(&coordinator->effects, EFFECT_FIND_CUT);
    effect->find.version_max = rewind->version_max;
    snprintf(effect->find.unready, sizeof effect->find.unready,
             "a worker was wrong from step %llu on", (unsigned long long)rewind->version_max);
    return true;
}

bool audit_rewind_searches(const struct run *run)
{
    return run->rewind.wanted && run->rewind.searching;
}

void audit_rewind_found(struct coordinator *coordinator, const struct cut_record *whole)
{
    struct run *run = &coordinator->run;
    struct audit_rewind *rewind = &run->rewind;
    struct cut_name newest = run->cuts.newest.name;
    check(audit_rewind_searches(run));
    /* P7: a newer one is of a coordinator that took this one's place; the store says so. */
    if (whole != NULL && cuts_is_newer(newest, whole->name))
        cuts_go_back(&run->cuts, whole);
    rewind->searching = false;
    if (run->cuts.newest.name.version <= rewind->version_max)
        return;
    if (whole != NULL && !cuts_same(whole->name, newest))
        return; /* an earlier search's, which knew no bound: once more */
    effects_log(&coordinator->effects, true,
                "no checkpoint is old enough  before_step=%llu next=%s version %llu",
                (unsigned long long)rewind->version_max, run_ends(run) ? "stop with" : "go on from",
                (unsigned long long)newest.version);
    *rewind = (struct audit_rewind){0};
}
