/* Who calls tickets complete without having pushed them. */
#include "server/coordinator/missing.h"

#include "server/coordinator/advance.h"
#include "server/coordinator/expel.h"
#include "server/coordinator/said.h"
#include "server/coordinator/suspects.h"
#include "server/coordinator/window.h"

enum { FALSE_COMPLETES_MAX = 2 };

static void count_false(struct coordinator *coordinator, uint64_t now_ms,
                        const struct server_entry *server, struct member *member, uint64_t step,
                        uint32_t slot)
{
    member->false_completes++;
    suspects_note(&coordinator->members, member);
    bool last = member->false_completes >= FALSE_COMPLETES_MAX;
    effects_log(&coordinator->effects, true,
                "pushes are missing  worker=%s member=%llu server=%s step=%llu slot=%u "
                "err=NOT_FOUND next=%s",
                member->own.name, (unsigned long long)member->id, server->name,
                (unsigned long long)step, slot, last ? "expel" : "watch");
    if (last)
        expel_member(coordinator, now_ms, member, MEMBER_FALSE_COMPLETE, step,
                     "called tickets complete that it had not pushed");
}

/* In a run with stages gangs complete slots: of its members the one whose place pushes what is
 * missing. 0: the report does not say what is. */
static uint64_t member_of(const struct run *run, uint64_t completed_by,
                          const struct server_report *report, uint32_t slot)
{
    if (run->gangs.seats == 0 || completed_by == 0)
        return completed_by;
    for (uint32_t i = 0; i < report->missing.lack_count; i++)
        if (report->missing.lacks[i].slot == slot)
            return said_to_have(run, report->missing.step, completed_by, &report->missing.lacks[i]);
    return 0;
}

void missing_report(struct coordinator *coordinator, uint64_t now_ms,
                    const struct server_entry *server, const struct server_report *report)
{
    struct run *run = &coordinator->run;
    const uint64_t *slots = report->missing.slots;
    uint64_t step = report->missing.step;
    /* P2: what another generation lacks is nobody's fault. */
    if (report->missing.generation != run->generation || run->phase != PHASE_STEPS)
        return;
    for (uint32_t i = 0; i < report->missing.word_count * 64; i++) {
        if ((slots[i / 64] >> i % 64 & 1) == 0)
            continue;
        uint64_t id = 0;
        bool undone = tickets_undo(&run->tickets, report->missing.question, step, i, &id);
        if (run->settings.async && (undone || step < run->tickets.step))
            window_undo(run, step, i);
        struct member *member = members_find(&coordinator->members, member_of(run, id, report, i));
        if (member != NULL)
            count_false(coordinator, now_ms, server, member, step, i);
    }
    advance_run(coordinator, now_ms);
}
