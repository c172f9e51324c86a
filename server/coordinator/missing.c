/* Who calls tickets complete without having pushed them. */
#include "server/coordinator/missing.h"

#include "server/coordinator/advance.h"
#include "server/coordinator/expel.h"
#include "server/coordinator/places.h"
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

/* What is missing of the slot; NULL: the report does not say. */
static const struct lack *lack_of(const struct server_report *report, uint32_t slot)
{
    for (uint32_t i = 0; i < report->missing.lack_count; i++)
        if (report->missing.lacks[i].slot == slot)
            return &report->missing.lacks[i];
    return NULL;
}

/* In a run with stages gangs complete slots: of its members the one whose place pushes what is
 * missing. NULL: nobody, or the report does not say what is. */
static struct member *find_member(const struct coordinator *coordinator, uint64_t completed_by,
                                  const struct server_report *report, uint32_t slot)
{
    const struct run *run = &coordinator->run;
    const struct lack *lack = lack_of(report, slot);
    if (run->gangs.seats > 0 && completed_by != 0)
        completed_by =
            lack != NULL ? said_to_have(run, report->missing.step, completed_by, lack) : 0;
    return members_find(&coordinator->members, completed_by);
}

/* Of a slot that is not done a place may be, which the others of the lease wait for. */
static struct member *undo_place(struct coordinator *coordinator, uint64_t now_ms,
                                 const struct server_report *report, uint32_t slot)
{
    const struct lack *lack = lack_of(report, slot);
    return lack != NULL ? places_undo(coordinator, now_ms, report->missing.question,
                                      report->missing.step, lack)
                        : NULL;
}

static bool is_missing(const struct server_report *report, uint32_t slot)
{
    return report->missing.slots[slot / 64] >> slot % 64 & 1;
}

/* Whether the run has what the report names. */
static bool is_of_run(const struct run *run, const struct server_report *report)
{
    for (uint32_t i = run->settings.slots; i < report->missing.word_count * 64; i++)
        if (is_missing(report, i))
            return false;
    for (uint32_t i = 0; i < report->missing.lack_count; i++)
        if (report->missing.lacks[i].chunk >= run->chunk_count)
            return false;
    return true;
}

/* The server lacks the slot. */
static void take_missing(struct coordinator *coordinator, uint64_t now_ms,
                         const struct server_entry *server, const struct server_report *report,
                         uint32_t slot)
{
    struct run *run = &coordinator->run;
    uint64_t step = report->missing.step, id = 0;
    bool undone = tickets_undo(&run->tickets, report->missing.question, step, slot, &id);
    if (run->settings.async && (undone || step < run->tickets.step))
        window_undo(run, step, slot);
    struct member *member = undone ? find_member(coordinator, id, report, slot)
                                   : undo_place(coordinator, now_ms, report, slot);
    if (member != NULL)
        count_false(coordinator, now_ms, server, member, step, slot);
}

enum err missing_report(struct coordinator *coordinator, uint64_t now_ms,
                        const struct server_entry *server, const struct server_report *report)
{
    const struct run *run = &coordinator->run;
    /* P2: what another generation lacks is nobody's fault. */
    if (report->missing.generation != run->generation || run->phase != PHASE_STEPS)
        return ERR_OK;
    if (!is_of_run(run, report))
        return ERR_MALFORMED;
    for (uint32_t slot = 0; slot < report->missing.word_count * 64; slot++)
        if (is_missing(report, slot))
            take_missing(coordinator, now_ms, server, report, slot);
    advance_run(coordinator, now_ms);
    return ERR_OK;
}
